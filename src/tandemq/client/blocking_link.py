"""One blocking connection to a broker or name server: requests written at once, answers taken by opaque.

For threads and processes without an event loop. Large answers go straight into the buffer that the caller gets.
"""

import select
import socket
import ssl
import struct
import weakref

from tandemq.clock import Clock, SystemClock
from tandemq.codec.acl import ClassicSigner, Credentials, SessionSigner, session_signer
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import FRAME_SIZE_MAX
from tandemq.errors import ConnectFailed, ConnectionLost, FrameTooLarge, RequestTimeout

PREFIX = struct.Struct(">II")
"""Frame size, header encoding and size: see `codec.frame`."""


class BlockingLink:
    """One connection: requests written at once, answers taken in any order by opaque."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self._timeout = timeout
        self._clock = clock or SystemClock()
        host, _, port = address.rpartition(":")
        try:
            plain = socket.create_connection((host.strip("[]"), int(port)), timeout)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"{address}: {error}") from None
        try:
            self._socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        except (OSError, ValueError) as error:
            plain.close()
            raise ConnectFailed(f"{address}: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Spark's workers are never told that they are done: a link that nobody holds any more closes by itself.
        self.close = weakref.finalize(self, self._socket.close)
        self._answers: dict[int, Command] = {}
        self._opaque = 0
        self._prefix = bytearray(PREFIX.size)
        self._frame: memoryview | None = None
        """The frame under way, without its prefix; None while the prefix is read."""
        self._wanted = memoryview(self._prefix)
        """Where the next bytes go: the rest of the prefix or of the frame."""
        self._encoding = self._header_size = 0
        self._signer: ClassicSigner | SessionSigner | None = None
        if credentials is not None:
            self._signer = self._signer_for(credentials)

    def send(self, code: int, ext: dict[str, str], body: bytes | memoryview = b"") -> int:
        """Writes a request; the opaque to `wait` for. Answers are read meanwhile if the socket takes no more."""
        self._opaque += 1
        command = Command(code, ext, body, opaque=self._opaque)
        if self._signer is not None:
            self._signer.sign(command)
        self._write(encode_request(command))
        return self._opaque

    def _signer_for(self, credentials: Credentials) -> ClassicSigner | SessionSigner:
        """Asks for a challenge. A server that does not know the request is not ours and gets RocketMQ's signatures."""
        reply = self.call(OperatorCode.CHALLENGE, {})
        if reply.code != ResponseCode.SUCCESS:
            return ClassicSigner(credentials)
        return session_signer(credentials, reply, lambda: int(self._clock.monotonic() * 1000))

    def wait(self, opaque: int) -> Command:
        """Waits for the answer to a request and returns it."""
        deadline = self._clock.monotonic() + self._timeout
        while opaque not in self._answers:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise RequestTimeout(f"{self.address}: no answer within {self._timeout:g} s")
            self._socket.settimeout(left)
            self._receive()
        return self._answers.pop(opaque)

    def call(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return self.wait(self.send(code, ext, body))

    def _write(self, data: bytes) -> None:
        """Writes without blocking on a broker that itself waits for us to read: reads whenever writing stalls."""
        view = memoryview(data)
        self._socket.settimeout(0)
        deadline = self._clock.monotonic() + self._timeout
        while view:
            try:
                view = view[self._socket.send(view) :]
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except OSError as error:
                raise ConnectionLost(f"{self.address}: {error}") from None
            left = deadline - self._clock.monotonic()
            ready = self._ready(max(0.0, left))
            if ready & ~select.POLLOUT:
                self._receive()
            elif not ready:
                raise RequestTimeout(f"{self.address}: takes no data for {self._timeout:g} s")

    def _ready(self, seconds: float) -> int:
        """Waits until the socket can be read or written, or has ended. Returns poll's event mask, 0 after the time.

        Not `select`, which fails in a process with more than 1,024 open files.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        return sum(mask for _, mask in poll.poll(seconds * 1000))

    def _receive(self) -> None:
        """Reads once from the socket, straight into the buffer of the frame it belongs to."""
        try:
            size = self._socket.recv_into(self._wanted)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except TimeoutError:
            raise RequestTimeout(f"{self.address}: no answer within {self._timeout:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from None
        if not size:
            raise ConnectionLost(f"{self.address}: closed by the broker")
        self._wanted = self._wanted[size:]
        if self._wanted:
            return
        if self._frame is None:
            self._start_frame()
        else:
            self._end_frame()

    def _start_frame(self) -> None:
        frame_size, encoding_and_size = PREFIX.unpack(self._prefix)
        self._encoding, self._header_size = encoding_and_size >> 24, encoding_and_size & 0xFFFFFF
        if not 4 + self._header_size <= frame_size <= FRAME_SIZE_MAX:
            raise FrameTooLarge(
                f"{self.address}: a frame of {frame_size} bytes with a header of {self._header_size} was announced, "
                f"the limit is {FRAME_SIZE_MAX}"
            )
        self._frame = memoryview(bytearray(frame_size - 4))
        self._wanted = self._frame
        if not self._frame:
            self._end_frame()

    def _end_frame(self) -> None:
        frame = self._frame
        assert frame is not None
        header, body = bytes(frame[: self._header_size]), frame[self._header_size :]
        self._frame = None
        self._wanted = memoryview(self._prefix)
        answer = decode_command((self._encoding, header, body))
        if answer.is_response:
            self._answers[answer.opaque] = answer
