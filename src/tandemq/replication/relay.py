"""The shell of a slave's HA port: accepts observers and carries out what RelayState decides."""

import asyncio
import logging
from collections.abc import Iterable

from tandemq.clock import Clock
from tandemq.replication.decisions import Close, Decision, Note, Send
from tandemq.replication.ha_port import HaPort, PortEvents
from tandemq.replication.relay_state import RelayState
from tandemq.replication.tls_wire import HaTls
from tandemq.replication.wire import Wire
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

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
        events = PortEvents(self._connected, self._received, self._pump, self._lost)
        self._port = HaPort(events, "an observer", tls)
        self._timer: asyncio.TimerHandle | None = None

    def start(self, host: str, port: int) -> int:
        """Listens on the HA port; returns it."""
        self._loop = asyncio.get_running_loop()
        return self._port.listen(host, port, backlog=64)

    def stop(self) -> None:
        """Ends every session and frees the port for a master."""
        self._port.close_listener()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._port.close_wires()
        self.state.sessions.clear()

    def advanced(self) -> None:
        """Sends what more is confirmed."""
        for session in tuple(self._port.wires):
            self._pump(session)

    def changed(self) -> None:
        """Ends sessions: this slave follows another history."""
        self._act(self.state.changed(self._clock.monotonic()))

    def _connected(self, session: int, peer: str) -> None:
        self._act(self.state.connected(session, peer, self._clock.monotonic()))
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _received(self, session: int, data: memoryview) -> None:
        self._act(self.state.receive(session, data, self._clock.monotonic()))
        self._pump(session)

    def _lost(self, session: int, wire: Wire | None, text: str) -> None:
        self.state.disconnected(session)

    def _pump(self, session: int) -> None:
        wire, state, budget = self._port.wires.get(session), self.state, TURN_SIZE
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
                self._port.send(decision.session, decision.frame)
            elif isinstance(decision, Close):
                self._port.close(decision.session)
            elif isinstance(decision, Note):
                log.info("%s", decision.text)

    def _tick(self) -> None:
        """Lets time pass for the sessions, while somebody is connected."""
        self._timer = None
        self._act(self.state.tick(self._clock.monotonic()))
        self.advanced()
        if self._port.wires:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
