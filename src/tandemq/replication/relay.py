"""The shell of a slave's HA port: accepts observers and carries out what RelayState decides."""

import asyncio
import logging
import socket
from collections.abc import Iterable

from tandemq.clock import Clock
from tandemq.replication.decisions import Close, Decision, Note, Send
from tandemq.replication.relay_state import RelayState
from tandemq.replication.tls_wire import HaTls, TlsWire
from tandemq.replication.wire import Wire
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

READ_SIZE = 64 << 10
TICK_SECONDS = 0.5
TURN_SIZE = 4 << 20
"""Bytes for one observer before the loop's other work gets its turn."""
FRAME_SIZE_MAX = 1 << 20
"""Bytes of log in a frame: they are copied, so that one stays a fraction of a millisecond."""


class RelayShell:
    """Serves observers while the broker is a slave."""

    def __init__(self, state: RelayState, store: MessageStore, clock: Clock, tls: HaTls | None = None) -> None:
        self.state = state
        self._store = store
        self._clock = clock
        self._tls = tls
        self._wires: dict[int, Wire] = {}
        self._count = 0
        self._listener: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)

    def start(self, host: str, port: int) -> int:
        """Listens on the HA port; returns it."""
        self._loop = asyncio.get_running_loop()
        listener = socket.create_server((host or "0.0.0.0", port), backlog=64, reuse_port=False)
        listener.setblocking(False)
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)
        bound: int = listener.getsockname()[1]
        return bound

    def stop(self) -> None:
        """Ends every session and frees the port for a master."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wire in list(self._wires.values()):
            wire.close()
        self._wires.clear()
        self.state.sessions.clear()

    def advanced(self) -> None:
        """More is confirmed."""
        for session in tuple(self._wires):
            self._pump(session)

    def changed(self) -> None:
        """This slave follows another history."""
        self._act(self.state.changed(self._clock.monotonic()))

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connected, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("an observer's connection could not be accepted: %s", error)
            return
        self._count += 1
        session = self._count
        self._wires[session] = self._wire(session, connected)
        self._act(self.state.connected(session, f"{address[0]}:{address[1]}", self._clock.monotonic()))
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _wire(self, session: int, connected: socket.socket) -> Wire:
        def on_readable() -> None:
            self._read(session)

        def on_clear() -> None:
            self._pump(session)

        def on_lost(text: str) -> None:
            self._wires.pop(session, None)
            self.state.disconnected(session)

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
        )

    def _read(self, session: int) -> None:
        wire = self._wires.get(session)
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
            wire.lose("the observer closed the connection")
            return
        self._act(self.state.receive(session, self._view[:size], self._clock.monotonic()))
        self._pump(session)

    def _pump(self, session: int) -> None:
        wire, state, budget = self._wires.get(session), self.state, TURN_SIZE
        while wire is not None and wire.is_open and wire.is_clear:
            batch = state.next_batch(session)
            if batch is None:
                return
            if budget <= 0:
                self._loop.call_soon(self._pump, session)
                return
            size = min(batch.size_max, FRAME_SIZE_MAX)
            wire.send(state.frame(session, self._store.slice(batch.offset, size)))
            state.sessions[session].was_sent(batch.offset + size, self._clock.monotonic())
            budget -= TURN_SIZE if state.sessions[session].packs else size  # packing takes time: one frame each turn

    def _act(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Send):
                wire = self._wires.get(decision.session)
                if wire is not None:
                    wire.send(decision.frame())
            elif isinstance(decision, Close):
                wire = self._wires.pop(decision.session, None)
                if wire is not None:
                    wire.close()
            elif isinstance(decision, Note):
                log.info("%s", decision.text)

    def _tick(self) -> None:
        """Only while somebody is connected."""
        self._timer = None
        self._act(self.state.tick(self._clock.monotonic()))
        self.advanced()
        if self._wires:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
