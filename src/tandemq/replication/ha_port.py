"""The sockets of a broker's HA port: listens, accepts, reads; a master and a slave that serves observers share it.

It knows nothing of what is said.  Whoever serves is told of connections, bytes, room to write and losses, and sends on
the wires kept here by the number of their session.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tandemq.replication.tls_wire import HaTls, TlsWire
from tandemq.replication.wire import Wire

log = logging.getLogger(__name__)

READ_SIZE = 256 << 10


@dataclass(frozen=True, slots=True)
class PortEvents:
    """What whoever serves is told; all on the loop."""

    connected: Callable[[int, str], None]
    """(session, address of the peer)"""
    received: Callable[[int, memoryview], None]
    """Bytes that are valid until this returns."""
    clear: Callable[[int], None]
    """All that was sent is out."""
    lost: Callable[[int, Wire | None, str], None]
    """The connection broke; its wire is gone from `HaPort.wires` already."""


class HaPort:
    """One listening socket and the connections that it accepted."""

    def __init__(
        self, events: PortEvents, guest: str, tls: HaTls | None, refuse_plain: Callable[[], bytes] = lambda: b""
    ) -> None:
        """`guest`: what those who connect are called in messages.  `refuse_plain`: as for TlsWire."""
        self.wires: dict[int, Wire] = {}
        self._events, self._guest = events, guest
        self._tls, self._refuse_plain = tls, refuse_plain
        self._count = 0
        self._listener: socket.socket | None = None
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)

    def listen(self, host: str, port: int, backlog: int) -> int:
        """Begins to accept; returns the port."""
        self._loop = asyncio.get_running_loop()
        listener = socket.create_server((host or "0.0.0.0", port), backlog=backlog, reuse_port=False)
        listener.setblocking(False)
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)
        bound: int = listener.getsockname()[1]
        return bound

    def close_listener(self) -> None:
        """Accepts nobody any more and frees the port."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def close_wires(self) -> None:
        """Ends every connection, after what was sent on it."""
        for wire in list(self.wires.values()):
            wire.close()
        self.wires.clear()

    def send(self, session: int, frame: Callable[[], bytes]) -> None:
        """Sends a frame if the session has a wire still; only then it is made, because a seal counts frames."""
        wire = self.wires.get(session)
        if wire is not None:
            wire.send(frame())

    def close(self, session: int) -> None:
        """Ends one connection, after what was sent on it."""
        wire = self.wires.pop(session, None)
        if wire is not None:
            wire.close()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connected, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("a connection of %s could not be accepted: %s", self._guest, error)
            return
        self._count += 1
        session = self._count
        self.wires[session] = self._wire(session, connected)
        self._events.connected(session, f"{address[0]}:{address[1]}")

    def _wire(self, session: int, connected: socket.socket) -> Wire:
        def on_readable() -> None:
            self._read(session)

        def on_clear() -> None:
            self._events.clear(session)

        def on_lost(text: str) -> None:
            self._events.lost(session, self.wires.pop(session, None), text)

        if self._tls is None:
            return Wire(self._loop, connected, on_readable=on_readable, on_clear=on_clear, on_lost=on_lost)
        return TlsWire(
            self._loop,
            connected,
            self._tls.server,
            server_name=None,
            on_readable=on_readable,
            on_clear=on_clear,
            on_lost=on_lost,
            refuse_plain=self._refuse_plain,
        )

    def _read(self, session: int) -> None:
        wire = self.wires.get(session)
        if wire is None:
            return
        try:
            size = wire.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            wire.lose(f"{error.strerror or error}")
            return
        if size == 0:
            wire.lose(f"{self._guest} closed the connection")
            return
        self._events.received(session, self._view[:size])
