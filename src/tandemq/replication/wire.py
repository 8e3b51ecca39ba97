"""One HA connection as a shell sees it: a non-blocking socket on the loop, with a bounded amount on its way out.

Reads are left to the owner (`recv_into` wherever it wants the bytes).  Writes go out at once if the kernel takes them;
what it does not take waits here, and the owner holds back new data until `is_clear`.  Log bytes leave by `os.sendfile`,
straight from the page cache.  tls_wire.py is the same with TLS around it.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections import deque
from collections.abc import Callable

from tandemq.store.disk import store_error

CONTROL_BACKLOG_MAX = 8 << 20
"""Control frames waiting for a peer that does not read; beyond this it is not worth waiting for."""
SPLICE_SIZE = 1 << 20
"""Bytes moved from a socket to a file at a time: as much as a pipe holds that any user may have."""
GATHER_SIZE = 512 << 10
"""Bytes of a bulk frame that are worth waking up for."""
SENDFILE_CHUNK = 1 << 20
"""Bytes per sendfile call: about half a millisecond of the loop's time."""


class FilePart:
    """Part of a file on its way out; owns a duplicate of the descriptor, because the log may close its own."""

    __slots__ = ("fd", "position", "size")

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd = os.dup(fd)
        self.position = position
        self.size = size

    def close(self) -> None:
        os.close(self.fd)


class Pipe:
    """What splice(2) needs between a socket and a file: pages pass through, and are copied once, into the file."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # beyond what the system allows this user: then less at a time
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, SPLICE_SIZE)

    def move(self, connected: int, fd: int, position: int, size: int) -> int:
        moved = rest = os.splice(connected, self._in, size)
        try:
            while rest:
                written = os.splice(self._out, fd, rest, offset_dst=position)
                position += written
                rest -= written
        except OSError as error:
            raise store_error(error, "the log") from error
        return moved

    def close(self) -> None:
        os.close(self._in)
        os.close(self._out)


class Wire:
    """A connected socket.  `on_readable` is called whenever there is something to read; `on_clear` when all is out."""

    is_ready = True
    """Whether bytes of ours may pass; a TLS handshake comes before."""
    can_splice = hasattr(os, "splice")
    """Whether `receive_to_file` works."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        *,
        on_readable: Callable[[], None],
        on_clear: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self.socket = connected
        self._fd = connected.fileno()
        self._on_clear = on_clear
        self._on_lost = on_lost
        self._out: deque[memoryview | FilePart] = deque()
        self._out_size = 0
        self._writing = False
        self._closing = False
        self._pipe: Pipe | None = None
        self._expected = 1
        self.is_open = True
        connected.setblocking(False)
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(self._fd, on_readable)

    @property
    def is_clear(self) -> bool:
        """Nothing waits to be sent."""
        return not self._out

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0) -> int:
        """Takes what is there, as socket.recv_into does: 0 at the stream's end, BlockingIOError for nothing yet."""
        return self.socket.recv_into(buffer, size)

    def receive_to_file(self, fd: int, position: int, size: int) -> int:
        """Moves what is there, at most `size`, into a file without passing through here; else as `recv_into`."""
        if self._pipe is None:
            self._pipe = Pipe()
        return self._pipe.move(self._fd, fd, position, size)

    def expect(self, size: int) -> None:
        """Announces so many bytes: no need to wake up before a good part of them is there. 0 means as usual."""
        size = max(1, min(size, GATHER_SIZE))
        if size != self._expected:
            self._expected = size
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _send_some(self, data: memoryview) -> int:
        return self.socket.send(data)

    def send(self, data: bytes | memoryview) -> None:
        """Sends now, or as soon as the peer takes it."""
        if not self.is_open or self._closing:
            return
        view = memoryview(data)
        if not self._out:
            try:
                sent = self._send_some(view)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self.lose(f"{error.strerror or error}")
                return
            if sent == len(view):
                return
            view = view[sent:]
        self._out_size += len(view)
        if self._out_size > CONTROL_BACKLOG_MAX:
            self.lose(f"the peer has not read {self._out_size} bytes")
            return
        self._out.append(view)
        self._wait_writable()

    def send_file(self, fd: int, position: int, size: int) -> None:
        """Sends file bytes after everything before them."""
        if not self.is_open or self._closing:
            return
        self._out.append(FilePart(fd, position, size))
        if len(self._out) == 1:
            self._push()
        if self._out:
            self._wait_writable()

    def _flush(self) -> None:
        """Sends on: the socket takes bytes again."""
        self._push()
        if not self._out and self.is_open:
            self._drained()

    def _push(self) -> None:
        """Sends as much as the kernel takes in one turn, but not more than a chunk of file at a time."""
        while self._out and self.is_open:
            part = self._out[0]
            try:
                if isinstance(part, FilePart):
                    if not self._push_file(part):
                        break
                else:
                    sent = self._send_some(part)
                    self._out_size -= sent
                    if sent == len(part):
                        self._out.popleft()
                    else:
                        self._out[0] = part[sent:]
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self.lose(f"{error.strerror or error}")
                return

    def _push_file(self, part: FilePart) -> bool:
        """Sends some of the file at the head of what goes out. Returns False when this turn is over."""
        sent = os.sendfile(self._fd, part.fd, part.position, min(part.size, SENDFILE_CHUNK))
        if sent == 0:
            self.lose("the log file is shorter than it was")
            return False
        self._took(part, sent)
        return part.size == 0 or sent < SENDFILE_CHUNK  # else let the loop breathe; it calls again

    def _took(self, part: FilePart, size: int) -> None:
        part.position += size
        part.size -= size
        if part.size == 0:
            part.close()
            self._out.popleft()

    def _wait_writable(self) -> None:
        if not self._writing and self.is_open:
            self._writing = True
            self._loop.add_writer(self._fd, self._flush)

    def _drained(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._closing:
            self._release()
        else:
            self._on_clear()

    def close(self) -> None:
        """Closes after what is on its way out; reads nothing more."""
        if not self.is_open or self._closing:
            return
        self._closing = True
        self._loop.remove_reader(self._fd)
        if not self._out:
            self._release()
        else:
            self._loop.call_later(1.0, self._release)

    def lose(self, reason: str) -> None:
        """Tells the owner once that the connection broke."""
        if self.is_open:
            closing = self._closing
            self._release()
            if not closing:
                self._on_lost(reason)

    def _release(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        for part in self._out:
            if isinstance(part, FilePart):
                part.close()
        self._out.clear()
        if self._pipe is not None:
            self._pipe.close()
        self.socket.close()
