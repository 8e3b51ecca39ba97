"""The HA connection inside TLS: the same face as Wire.

The handshake runs on the loop like everything else; what the owner sends meanwhile waits.  Log bytes are read from the
page cache and encrypted, because sendfile can't.  A TLS record holds at most 16 KiB, so one read takes as many of them
as have come.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tandemq.codec import ha_session
from tandemq.replication.wire import SENDFILE_CHUNK, FilePart, Wire

FILE_CHUNK: Final = 256 << 10
"""Log bytes read and encrypted at a time."""
_NOT_NOW: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class HaTls:
    """What a node shows and checks: as master, and as slave."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class TlsWire(Wire):
    """`server_name`: whom a slave wants to reach; None on the master's side.

    A master that hears no TLS calls `refuse_plain` for the frame to answer with, and hangs up.
    """

    can_splice = False

    def expect(self, size: int) -> None:
        """Waits for nothing: bytes that are sure to come may be in the TLS layer already, where no socket tells."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        server_name: str | None,
        on_readable: Callable[[], None],
        on_clear: Callable[[], None],
        on_lost: Callable[[str], None],
        refuse_plain: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self.is_ready = False
        self._context = context
        self._server_name = server_name
        self._owner_reads = on_readable
        self._refuse_plain = refuse_plain
        self._tls: ssl.SSLSocket | None = None
        self._wants_to_write = False
        self._pushed = 0
        super().__init__(loop, connected, on_readable=self._readable, on_clear=on_clear, on_lost=on_lost)
        if server_name is not None:
            self._shake()

    # --- handshake --------------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        """Goes one step further in the handshake; sends what waits when it is done."""
        try:
            if self._tls is None:
                if self._server_name is None and not self._hears_tls():
                    return
                self.socket = self._tls = self._context.wrap_socket(
                    self.socket,
                    server_side=self._server_name is None,
                    server_hostname=self._server_name,
                    do_handshake_on_connect=False,
                )
            self._wants_to_write = False
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            return
        except ssl.SSLWantWriteError:
            self._wants_to_write = True
            self._wait_writable()
            return
        except OSError as error:
            self.lose(f"TLS handshake: {_told(error)}")
            return
        self.is_ready = True
        self._flush()
        if self._out:
            self._wait_writable()

    def _hears_tls(self) -> bool:
        first = self.socket.recv(1, socket.MSG_PEEK)
        if not first or ha_session.is_tls(first[0]):
            return True
        # Read what came, or closing would reset the connection before the peer has read why.
        self.socket.recv(1 << 16)
        self.socket.send(self._refuse_plain())
        self.lose("the peer does not speak TLS, this HA port does (haTlsEnable=true)")
        return False

    # --- as Wire ----------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self.is_ready:
            self._owner_reads()
        elif self.is_open:
            self._shake()

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0) -> int:
        tls, view = self._tls, memoryview(buffer)
        assert tls is not None
        wanted, got = size or len(view), 0
        while got < wanted:
            try:
                count = tls.recv_into(view[got:wanted])
            except _NOT_NOW:
                if got:
                    break
                raise BlockingIOError from None
            if count == 0:
                break  # the end: if bytes came before it, the next call finds it again
            got += count
        if tls.pending():
            # The rest of a record is here already, so the kernel will not tell.
            self._loop.call_soon(self._read_again)
        return got

    def _read_again(self) -> None:
        if self.is_open and not self._closing:
            self._owner_reads()

    def _send_some(self, data: memoryview) -> int:
        if not self.is_ready or self._tls is None:
            raise BlockingIOError
        try:
            return self._tls.send(data)
        except _NOT_NOW:
            # To be repeated with the same bytes: they stay at the head of what goes out.
            raise BlockingIOError from None

    def _push(self) -> None:
        if self.is_ready:
            self._pushed = 0
            super()._push()

    def _push_file(self, part: FilePart) -> bool:
        if self._pushed >= SENDFILE_CHUNK:
            return False
        data = os.pread(part.fd, min(part.size, FILE_CHUNK), part.position)
        if not data:
            self.lose("the log file is shorter than it was")
            return False
        self._took(part, len(data))
        self._pushed += len(data)
        self._out.appendleft(memoryview(data))
        self._out_size += len(data)
        return True

    def _wait_writable(self) -> None:
        if self.is_ready or self._wants_to_write:
            super()._wait_writable()

    def _flush(self) -> None:
        if self.is_ready:
            super()._flush()
            return
        self._shake()
        if self.is_open and self._writing and not (self.is_ready or self._wants_to_write):
            self._writing = False
            self._loop.remove_writer(self._fd)


def _told(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate was refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "the peer hung up; perhaps it does not speak TLS, or refused our certificate"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error.strerror or error)
