"""The master's shell: accepts slaves, streams the log to them, feeds their bytes to MasterState, carries out its
decisions.

Event-driven: it wakes for an append, a flush, a slave's bytes, room in a socket, or the next heartbeat.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from tandemq.clock import Clock
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_seal import log_sum
from tandemq.errors import DiskFull, StoreError
from tandemq.replication.acks import Complete
from tandemq.replication.carrying import Carrier, fail_undone
from tandemq.replication.decisions import (
    Close,
    Confirm,
    Decision,
    FlushSoon,
    Note,
    Opened,
    Propose,
    Save,
    Send,
    SteppedDown,
)
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.ha_port import HaPort, PortEvents
from tandemq.replication.hands import StoreHands
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import Phase
from tandemq.replication.mastership.pacing import Turn
from tandemq.replication.mastership.streaming import Place
from tandemq.replication.packing import PACK_BESIDE_MIN, Packing
from tandemq.replication.poller import Poller
from tandemq.replication.tls_wire import HaTls
from tandemq.replication.wire import Wire

log = logging.getLogger(__name__)

COPY_SIZE_MAX = 64 << 10
"""Up to here header and bytes go out in one call, copied; above, sendfile saves more than the second call costs."""
NEWS_DELAY = 0.002
"""Slaves that have every byte learn of a higher confirmed offset this much later, many acks in one frame."""
TURN_SIZE = 4 << 20
"""Bytes for one slave before the loop's other work gets its turn."""
HELD_MAX = 10_000
"""Decisions that wait for room on the disk: a few for each heartbeat and turn of sends, which a full disk soon ends."""
READ_AHEAD = 16 << 20
"""Cold history is asked of the disk before it is needed, so that sendfile does not wait for it on the loop. Only before
large frames: what was just written is in memory, and asking for it looks up every page."""


class MasterShell:
    """Runs one MasterState.  `on_opened`, `on_closed` tell the broker whether it may write."""

    def __init__(
        self,
        state: MasterState,
        hands: StoreHands,
        clock: Clock,
        *,
        on_opened: Callable[[], None],
        on_closed: Callable[[str, bool], None],
        on_readable: Callable[[], None],
        on_saved: Callable[[ReplicaRecord], None],
        on_event: Callable[[str], None] = lambda event: None,
        on_proposed: Callable[[Propose], None] = lambda proposal: None,
        tls: HaTls | None = None,
        ack_poll: float = 0.0,
    ) -> None:
        """`ack_poll`: seconds for which a lone send's ack is asked for without sleeping."""
        self._on_proposed = on_proposed
        self.state = state
        self._poller = Poller(clock, ack_poll, lambda: not self._stopped and state.acks.is_lone)
        self._carrier = Carrier(hands, self, clock, lambda: self.state, acks=state.acks, reign=self)
        self._store = hands.store
        self._clock = clock
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._on_readable = on_readable
        self._on_saved = on_saved
        self._on_event = on_event
        events = PortEvents(self._connected, self._received, self._pump_one, self._lost)
        self._port = HaPort(events, "a slave", tls, self._refuse_plain)
        self._wires = self._port.wires
        self._timer: asyncio.TimerHandle | None = None
        self._news_timer: asyncio.TimerHandle | None = None
        self._gather_timer: asyncio.TimerHandle | None = None
        self._spare_timer: asyncio.TimerHandle | None = None
        self._held: deque[Decision] = deque()
        """A record that could not be saved because the disk is full, and everything decided since."""
        self._stopped = False
        self._summing: dict[Place, set[int]] = {}
        """Bulk that is being summed for its seal -> sessions that wait for it."""
        self._packing = Packing()

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Listens, then begins to ask or opens; the port."""
        self._loop = asyncio.get_running_loop()
        bound = self._port.listen(host, port, backlog=512)
        self._act(self.state.start(self._clock.monotonic()))
        self._arm()
        return bound

    async def stop(self, *, clean: bool) -> None:
        """Serves no more slaves; `clean`: the log is flushed, so that the next start need not ask."""
        if not self._stopped:
            self._port.close_listener()
            if clean:
                self._pump()
                self._act(self.state.stop(self._clock.monotonic()))
        self._stopped = True
        for timer in (self._timer, self._news_timer, self._gather_timer, self._spare_timer):
            if timer is not None:
                timer.cancel()
        self._port.close_wires()

    # --- connections ------------------------------------------------------------------------------------------------

    def _connected(self, session: int, peer: str) -> None:
        self._act(self.state.connected(session, peer, self._clock.monotonic()))
        self._arm()

    def _refuse_plain(self) -> bytes:
        text = "this master's HA port speaks TLS (haTlsEnable=true), the slave does not"
        return ha.encode_control(ha.Refuse(Reason.TLS.value, text, self.state.number))

    def _received(self, session: int, data: memoryview) -> None:
        self._act(self.state.receive(session, data, self._clock.monotonic()))
        self._pump_due(session)

    def _lost(self, session: int, wire: Wire | None, text: str) -> None:
        self._packing.forget(session)
        now = self._clock.monotonic()
        if wire is not None and not wire.is_ready:
            self._act(self.state.disconnected(session, now, Reason.TLS, text))
        else:
            self._act(self.state.disconnected(session, now))
        self._arm()

    # --- what the broker tells --------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Learns that the log grew: once per turn of the loop, before dispatch."""
        end = self._store.appended
        if end != self.state.log.end and self.state.phase is Phase.OPEN:
            self._act(self.state.appended(end))
            delay = self.state.pacing.appended()
            if delay is not None and not self._stopped:
                self._spare_timer = self._loop.call_later(delay, self._spares_gathered)
            for session in tuple(self._wires):
                self._pump_due(session)
            if self.state.acks.is_lone:
                self._poller.begin(self._loop)

    def flushed(self) -> None:
        """Learns that the store's flushed offset moved."""
        self._act(self.state.flushed(self._store.flushed))

    def retained(self) -> None:
        """Learns that old segments were deleted."""
        self._act(self.state.retained(self._store.first_offset, self._clock.monotonic()))

    def allow(self, *, group_gone: bool = False) -> None:
        """Lets an asking master open without those it waits for: the operator says so."""
        self._act(self.state.allow(self._clock.monotonic(), group_gone=group_gone))
        self._arm()

    def forget(self, replica: str, *, accept_loss: bool) -> str:
        """Takes a replica out of the group for the operator. Returns why not, or nothing."""
        refusal, decisions = self.state.forget(replica, self._clock.monotonic(), accept_loss=accept_loss)
        self._act(decisions)
        return refusal

    def swapped(self, register: Register) -> None:
        """Learns that the coordinator has written what was proposed."""
        self._act(self.state.swapped(register, self._clock.monotonic()))
        self._arm()

    def learned(self, register: Register) -> None:
        """Learns that the coordinator has another register than the one known here."""
        self._act(self.state.learned(register, self._clock.monotonic()))
        self._arm()

    def vouched_until(self) -> float:
        """Asks the members for their word where that is due; until when all of them have given it."""
        now = self._clock.monotonic()
        self._act(self.state.ask_word(now))
        return self.state.word_until(now)

    def settle(self) -> None:
        """Looks again at what may be acknowledged and confirmed, because the lease was renewed."""
        self._act(self.state.renewed(self._store.flushed))

    def order(self, number: int, text: str) -> None:
        """Ends the reign, because somebody else reigns or the operator demotes."""
        self._act(self.state.order(number, text, self._clock.monotonic()))

    # --- streaming --------------------------------------------------------------------------------------------------

    def _pump_due(self, session_id: int) -> None:
        """Serves a session if it is its turn; others have theirs when their timer runs out."""
        pacing = self.state.pacing
        turn = pacing.turn(session_id)
        if turn is Turn.NOW:
            self._pump_one(session_id)
        elif turn is Turn.GATHER and not self._stopped:
            delay = pacing.gather(self._clock.monotonic())
            if delay:
                self._gather_timer = self._loop.call_later(delay, self._gathered)
            else:
                self._gathered()

    def _gathered(self) -> None:
        for session_id in self.state.pacing.gathered(self._clock.monotonic()):
            self._pump_one(session_id)

    def _spares_gathered(self) -> None:
        self.state.pacing.all_due()
        self._pump()

    def _pump(self) -> None:
        for session in list(self._wires):
            self._pump_one(session)

    def _pump_one(self, session: int) -> None:
        """Frames for one slave while its socket takes them; a large one at a time."""
        wire = self._wires.get(session)
        if wire is None:
            return
        state, stream, store = self.state, self.state.streaming, self._store
        now = self._clock.monotonic()
        budget = TURN_SIZE
        while wire.is_open and wire.is_clear:
            if budget <= 0:
                self._loop.call_soon(self._pump_one, session)
                return
            batch = stream.next_batch(session, now)
            if batch is None:
                if stream.is_throttled(session):
                    self._loop.call_later(0.01, self._pump_one, session)
                return
            offset, size_max = batch
            segment_size = store.segment_size
            size = min(size_max, segment_size - offset % segment_size)
            data = store.slice(offset, size)
            if size > ha.BULK_SIZE_MIN and self._sums_beside(session, offset, data, wait=True):
                return
            text = b""
            if state.sessions[session].packs and size >= PACK_BESIDE_MIN:
                ready = self._packing.take(session, offset, size)
                if ready is None:
                    self._packing.begin(self._loop, session, offset, data, partial(self._pump_one, session))
                    return
                size, text = ready
                data = data[:size]
            packed = stream.packed_frame(session, data, text)
            header = packed or stream.frame_header(session, data)
            stream.sent(session, offset + size, now)
            if packed is not None:
                wire.send(packed)
            elif size <= COPY_SIZE_MAX:
                wire.send(header + data)
            else:
                fd, position, size = store.file_range(offset, size)
                if size > ha.BULK_SIZE_MIN:
                    os.posix_fadvise(fd, position + READ_AHEAD, size, os.POSIX_FADV_WILLNEED)
                wire.send(header)
                wire.send_file(fd, position, size)
                if size > ha.BULK_SIZE_MIN:
                    self._sum_ahead(session, now)
            budget -= size
            if offset + size == state.log.end:
                return

    def _sum_ahead(self, session: int, now: float) -> None:
        """Sums what comes next while the kernel sends what goes now."""
        batch = self.state.streaming.next_batch(session, now)
        if batch is not None:
            segment_size = self._store.segment_size
            size = min(batch.size_max, segment_size - batch.offset % segment_size)
            if size > ha.BULK_SIZE_MIN:
                self._sums_beside(session, batch.offset, self._store.slice(batch.offset, size), wait=False)

    def _sums_beside(self, session: int, offset: int, data: memoryview, *, wait: bool) -> bool:
        """Returns whether bulk to be sealed is being summed beside the loop; `wait`: the slave is served afterwards."""
        place = self.state.streaming.digest_wanted(session, offset, len(data))
        if place is None:
            return False
        waiting = self._summing.get(place)
        if waiting is None:
            waiting = self._summing[place] = set()
            task = self._loop.run_in_executor(None, log_sum, data, place.fast_key)
            task.add_done_callback(lambda done: self._summed(place, done))
        if wait:
            waiting.add(session)
        return True

    def _summed(self, place: Place, done: "asyncio.Future[bytes]") -> None:
        waiting = self._summing.pop(place)
        if self._stopped or done.cancelled():
            return
        self.state.streaming.put_digest(place, done.result())
        for session in waiting:
            self._pump_one(session)

    def _send_news(self) -> None:
        self._news_timer = None
        self._act(self.state.news(self._clock.monotonic()))

    # --- carrying out -----------------------------------------------------------------------------------------------

    def _act(self, decisions: Iterable[Decision]) -> None:
        if self._held:  # behind what waits for room on the disk
            self._hold(decisions)
            if len(self._held) > HELD_MAX:
                self._fail(StoreError(f"the disk has been full for {len(self._held)} decisions"))
            return
        if not decisions:
            return
        todo = deque(decisions)
        try:
            self._carrier.carry_out(todo)
        except DiskFull as error:
            if not isinstance(todo[0], Save):
                self._fail(error, todo)
                return
            # Nothing that builds on the record happens before it is saved; room comes back, so it is tried again.
            log.warning("the group's record can't be saved, trying on: %s", error)
            newer, self._held = self._held, deque()  # what a lost wire made of it meanwhile
            self._hold(todo)
            self._held.extend(newer)
        except (StoreError, OSError) as error:
            self._fail(error, todo)

    def _hold(self, decisions: Iterable[Decision]) -> None:
        """Puts off what comes after a record that waits for room.

        But whoever waits for copies is told: those that count are named by a record that was saved before.
        """
        for decision in decisions:
            if isinstance(decision, Complete):
                self.state.acks.tell(decision)
            else:
                self._held.append(decision)

    def _fail(self, error: Exception, undone: Iterable[Decision] = ()) -> None:
        self._held.clear()
        log.error("this master can't go on: %s", error)
        fail_undone(self.state.acks, undone, f"the store failed: {error}")
        self._on_closed(f"the store failed: {error}", False)

    def _try_again(self) -> None:
        if self._held:
            todo, self._held = self._held, deque()
            self._act(todo)
            if not self._held:
                log.info("the group's record is saved, the disk has room again")

    # As `Outside` says:

    def send(self, send: Send) -> None:
        self._port.send(send.session, send.frame)

    def close(self, close: Close) -> None:
        self._packing.forget(close.session)
        self._port.close(close.session)

    def confirm(self, confirm: Confirm) -> None:
        self._store.set_confirmed(confirm.offset)
        self._on_readable()
        if self._news_timer is None and self.state.streaming.owes_news:
            self._news_timer = self._loop.call_later(NEWS_DELAY, self._send_news)

    def flush_soon(self, decision: FlushSoon) -> None:
        self._store.when_flushed(self._store.appended, lambda error: None)

    def note(self, note: Note) -> None:
        (log.warning if note.loud else log.info)("%s", note.text)
        self._on_event(note.event)

    def saved(self, record: ReplicaRecord) -> None:
        self._on_saved(record)

    def opened(self, opened: Opened) -> None:
        log.info("open for writes: epoch %d from offset %d", opened.epoch.number, opened.epoch.start)
        self._on_opened()

    def stepped_down(self, ended: SteppedDown) -> None:
        log.warning("steps down: %s", ended.text)
        self._on_closed(ended.text, not ended.asking)

    def propose(self, proposal: Propose) -> None:
        self._on_proposed(proposal)

    # --- time -------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        now = self._clock.monotonic()
        delay = max(0.001, self.state.next_deadline(now) - now)
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._try_again()
        self.appended()  # an append that a full disk refused may still have filled up a segment
        self._act(self.state.tick(self._clock.monotonic()))
        self._pump()
        self._arm()
