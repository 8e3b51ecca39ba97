"""The slave's shell: finds its master, connects, receives into the log, carries out what SlaveState decides.

Event-driven: it wakes for the master's bytes, a flush, the next heartbeat, or the next attempt to connect.
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tandemq.clock import Clock
from tandemq.codec.ha_reasons import Reason
from tandemq.errors import DiskFull, ReplicationError, StoreError
from tandemq.replication.carrying import Carrier
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Close, Commit, Confirm, Decision, FlushSoon, LogEnds, Note, Send
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.first_copy import Compared, CopyProgress, MasterLog, plan_first_copy
from tandemq.replication.first_copy import Step as FirstStep
from tandemq.replication.hands import StoreHands
from tandemq.replication.poller import Poller
from tandemq.replication.receiving_ways import BUFFERED, RECEIVE_CHUNK, Way, next_read, spills, worth_waking
from tandemq.replication.showing import BULK_PAUSE, Showing
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.tls_wire import HaTls, TlsWire
from tandemq.replication.wire import SPLICE_SIZE, Wire

log = logging.getLogger(__name__)

READ_SIZE = 64 << 10
"""Frames that fit are read together; receiving_ways.py says what becomes of larger ones."""
BACKLOG_MAX = min(8 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
RECONNECT_MIN = 0.05
CONNECT_TIMEOUT = 3.0
DISK_FULL_PAUSE = 2.0
SURVEY_SECONDS = 2.0
"""Between questions to a RocketMQ master about its log: what people look at may be this old."""
LONELY_MIN = 4
"""Attempts without knowing a master before it is worth a line: name servers answer a moment after the start."""


@dataclass(frozen=True, slots=True)
class MasterPlace:
    """Where to connect, and in which language."""

    ha_address: str
    extended: bool
    group: str = ""
    """Which group that broker says it belongs to."""
    address: str = ""
    """Its broker port; empty if nobody told."""


class NotFollowable(ReplicationError):
    """There is no master to connect to, and it is known why."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


Find = Callable[[], Awaitable[MasterPlace | None]]
"""None: nobody is known; NotFollowable or OSError says more."""


class ClassicSurvey(Protocol):
    """What a RocketMQ master tells over its broker port.  Both raise OSError where it does not."""

    async def log_of(self, address: str) -> MasterLog:
        """Returns where its log begins and ends."""
        ...

    async def first_record(self, address: str) -> bytes:
        """Returns the record at offset 0 of its log."""
        ...


class SlaveShell:
    """Follows one master after another until it is stopped."""

    def __init__(
        self,
        make_state: Callable[[bool], SlaveState | ClassicSlaveState],
        hands: StoreHands,
        clock: Clock,
        find_master: Find,
        *,
        reconnect_max: float,
        on_readable: Callable[[], None],
        on_saved: Callable[[ReplicaRecord], None],
        on_event: Callable[[str], None] = lambda event: None,
        on_following: Callable[[], None] = lambda: None,
        classic_peers: bool = True,
        tls: HaTls | None = None,
        ack_poll: float = 0.0,
        survey: ClassicSurvey | None = None,
        on_ended: Callable[[int], None] = lambda confirmed: None,
        compared: Compared | None = None,
        on_compared: Callable[[Compared], None] = lambda compared: None,
    ) -> None:
        """`ack_poll`: seconds for which the next bytes are asked for without sleeping, while lone sends follow one
        another."""
        self._tls = tls
        self._classic_peers = classic_peers
        self._poller = Poller(clock, ack_poll, lambda: self._wire is not None)
        self._lone_at = float("-inf")
        self._make_state = make_state
        self._survey = survey
        self._carrier = Carrier(hands, self, clock, lambda: self.state)
        self._store = hands.store
        self._clock = clock
        self._find_master = find_master
        self._reconnect_max = reconnect_max
        self._on_readable = on_readable
        self._on_saved = on_saved
        self._on_event = on_event
        self._on_following = on_following
        self.state: SlaveState | ClassicSlaveState = make_state(True)
        self.place: MasterPlace | None = None
        self.trouble: tuple[float, Reason, str] | None = None
        """Why there is no session, when there is none."""
        self.received_bytes = 0
        self.progress = CopyProgress(compared)
        """Of the copy from a RocketMQ master."""
        self._on_compared = on_compared
        self._on_ended = on_ended
        """Told what was confirmed when a session with a master of ours is over."""
        self.connected_at: float | None = None
        self._wire: Wire | None = None
        self._ended = asyncio.Event()
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._chunk = memoryview(bytearray(RECEIVE_CHUNK))
        self._session = 0
        self._lonely = 0
        self._showing = Showing(BACKLOG_MAX)
        self._show_timer: asyncio.TimerHandle | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to look for the master, at once."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="ha slave")

    async def stop(self) -> None:
        """Ends the session and the search."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
        self._hang_up()

    def look_again(self) -> None:
        """Tries now, not after the pause: something is known about the master that was not before."""
        self._kick.set()

    def reconnect(self) -> None:
        """Ends the session with this master: there is another one."""
        if self._wire is not None:
            self._wire.lose("the master has changed")
        self._kick.set()

    async def _run(self) -> None:
        pause = RECONNECT_MIN
        while True:
            self._kick.clear()
            began = self._clock.monotonic()
            try:
                await self._follow()
            except OSError as error:
                self._note_trouble(Reason.UNREACHABLE, f"{self._where()}: {error.strerror or error or 'timed out'}")
            except NotFollowable as error:
                self._note_trouble(error.reason, str(error))
            except DiskFull as error:
                self._note_trouble(Reason.DISK_FULL, str(error))
                pause = max(pause, DISK_FULL_PAUSE)
            except StoreError as error:
                self._note_trouble(Reason.LOG_POISONED, str(error))
                pause = self._reconnect_max
            finally:
                self._hang_up()
            lasted = self._clock.monotonic() - began
            pause = RECONNECT_MIN if lasted > self._reconnect_max else min(pause * 2, self._reconnect_max)
            try:
                async with asyncio.timeout(pause):
                    await self._kick.wait()
                pause = RECONNECT_MIN
            except TimeoutError:
                pass

    def _where(self) -> str:
        return f"master {self.place.ha_address}" if self.place is not None else "master"

    def _note_trouble(self, reason: Reason, text: str) -> None:
        if self.trouble is None or self.trouble[1:] != (reason, text):
            log.warning("no session with the master: %s [%s]. %s", text, reason.value, reason.advice)
            self._on_event(reason.value)
        self.trouble = (self._clock.monotonic(), reason, text)

    async def _follow(self) -> None:
        """Runs one session, from looking for the master to its end."""
        place = await self._find_master()
        self.place = place
        if place is None:
            self._lonely += 1
            if self._lonely >= LONELY_MIN:
                text = (
                    "no master is known: no haMasterAddress, and no name server named one. If no broker of the group "
                    "is open, `tandemq broker promote` the one that was in sync"
                )
                self._note_trouble(Reason.UNREACHABLE, text)
            return
        self._lonely = 0
        if not place.extended and not self._classic_peers:
            text = (
                f"the master at {place.ha_address} speaks RocketMQ's own HA protocol, in which it can't prove anything"
            )
            raise NotFollowable(Reason.CLASSIC_REFUSED, text)
        if self._tls is not None and not place.extended:
            text = f"the master at {place.ha_address} speaks RocketMQ's own HA protocol, which has no TLS"
            raise NotFollowable(Reason.TLS, text)
        begin = None if place.extended else await self._first_copy(place)
        host, _, port = place.ha_address.rpartition(":")
        connected = await self._connect(host, int(port))
        # What the last session believed may not have happened: begin again from what the store has.
        self.state = self._make_state(place.extended)
        if begin is not None and isinstance(self.state, ClassicSlaveState):
            self._act(begin(self.state))
        self._note_applied()
        if isinstance(self.state, SlaveState):
            self.state.core.master_group = place.group
        self._showing.begin(self._store.appended)
        self._session += 1
        self._ended.clear()
        self._wire = self._make_wire(connected, host)
        self.connected_at = self._clock.monotonic()
        self._act(self.state.connected(self._session, self.connected_at))
        self._arm()
        watch = None if place.extended else self._loop.create_task(self._watch_classic(place), name="ha survey")
        try:
            await self._ended.wait()
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _first_copy(self, place: MasterPlace) -> Callable[[ClassicSlaveState], list[Decision]] | None:
        """Asks a RocketMQ master where its log begins.  Returns what to do before we report our own end.

        An empty slave does not follow a master that does not tell: it would get the last segment only.
        """
        state = self._make_state(False)
        own, last_file_only = state.log, state.terms.last_file_only
        try:
            if self._survey is None or not place.address:
                raise OSError("its broker port is not known")
            master = await self._survey.log_of(place.address)
            plan = plan_first_copy(own, master, last_file_only=last_file_only)
            if plan.step is FirstStep.REFUSE:
                raise NotFollowable(plan.reason, plan.text)
            known = self.progress.compared
            self.progress.begins(own, master, last_file_only=last_file_only)
            self._remember(known)
            if plan.step is FirstStep.BEGIN_AT_FIRST:
                return lambda state: state.begin_at(master.first)
            if plan.step is FirstStep.FETCH_FIRST_RECORD:
                record = await self._survey.first_record(place.address)
                return lambda state: state.begin_with(record)
        except OSError as error:
            if own.end == own.first == 0 and not last_file_only:
                text = (
                    f"the RocketMQ master at {place.ha_address} does not say where its log begins ({error}), and would "
                    "send an empty slave its last segment only. Let its broker port answer, or set "
                    "haSyncFromLastFile=true to do without older messages"
                )
                raise NotFollowable(Reason.UNREACHABLE, text) from error
        return None

    async def _watch_classic(self, place: MasterPlace) -> None:
        """Asks a RocketMQ master again and again where its log begins and ends, which its frames don't tell."""
        while self._survey is not None and place.address:
            try:
                self._noted(await self._survey.log_of(place.address))
            except OSError as error:
                log.debug("the master at %s does not tell about its log: %s", place.address, error)
            await asyncio.sleep(SURVEY_SECONDS)

    def _noted(self, master: MasterLog) -> None:
        store = self._store
        known, only_last = self.progress.compared, self.state.terms.last_file_only
        now = self._clock.monotonic()
        own = LogEnds(store.first_offset, store.appended, store.flushed, store.segment_size)
        self.progress.note(now, own, master, last_file_only=only_last)
        self._remember(known)
        if store.appended < master.first and self._wire is not None:
            # The master's retention has overtaken this slave: it would send nothing, for ever.
            self._wire.lose("the master no longer has the next bytes")

    def _remember(self, known: Compared) -> None:
        if self.progress.compared != known:
            self._on_compared(self.progress.compared)

    def _make_wire(self, connected: socket.socket, host: str) -> Wire:
        if self._tls is None:
            return Wire(
                self._loop, connected, on_readable=self._read, on_clear=self._donate, on_lost=self._connection_lost
            )
        return TlsWire(
            self._loop,
            connected,
            self._tls.client,
            server_name=host,
            on_readable=self._read,
            on_clear=self._donate,
            on_lost=self._connection_lost,
        )

    def _connection_lost(self, text: str) -> None:
        shaken = self._tls is None or (self._wire is not None and self._wire.is_ready)
        self._end(Reason.LOST if shaken else Reason.TLS, text)

    async def _connect(self, host: str, port: int) -> socket.socket:
        family, kind, protocol, _, address = (await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        connecting = socket.socket(family, kind, protocol)
        connecting.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._loop.sock_connect(connecting, address)
        except BaseException:
            connecting.close()
            raise
        return connecting

    def _end(self, reason: Reason, text: str) -> None:
        self._note_trouble(reason, f"{self._where()}: {text}")
        self._ended.set()

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._show_timer is not None:
            self._show_timer.cancel()
            self._show_timer = None
            self._store.set_confirmed(self._showing.confirmed)
            self._on_readable()
        if self.connected_at is not None and isinstance(self.state, SlaveState):
            self._on_ended(self.state.confirmed)
        self.connected_at = None
        self.state.disconnected(self._clock.monotonic())

    # --- receiving --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        wire = self._wire
        if wire is None:
            return
        try:
            frame = self.state.frame
            way, size_max = next_read(frame, SPLICE_SIZE if wire.can_splice else 0) if frame.window else BUFFERED
            if way is Way.BUFFER:
                self._read_buffered(wire)
            elif way is Way.WINDOW:
                self._read_direct(wire, size_max)
            else:
                self._splice(wire, size_max)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            wire.lose(f"{error.strerror or error}")
        except StoreError as error:
            self._refuse(error)

    def _read_buffered(self, wire: Wire) -> None:
        size = wire.recv_into(self._buffer)
        if size == 0:
            wire.lose("the master closed the connection")
            return
        self.received_bytes += size
        now = self._clock.monotonic()
        self._act(self.state.receive(self._view[:size], now))
        frame = self.state.frame
        if frame.is_lone:
            self._poll(now)
        if spills(frame):
            start = frame.taken
            self._store.write_raw(start, frame.pending_to_window())

    def _poll(self, now: float) -> None:
        """Polls if the last lone send is not longer ago than we would: then the next may come in time as well."""
        if now - self._lone_at < self._poller.seconds:
            self._poller.begin(self._loop)
        self._lone_at = now

    def _read_direct(self, wire: Wire, size_max: int) -> None:
        state, frame = self.state, self.state.frame
        size = wire.recv_into(self._chunk, size_max)
        if size == 0:
            wire.lose("the master closed the connection")
            return
        self.received_bytes += size
        data = self._chunk[:size]
        self._store.write_raw(frame.taken, data)
        now = self._clock.monotonic()
        since_last = now - state.last_heard
        self._act(frame.took(data, now))
        wire.expect(worth_waking(frame.window, since_last))

    def _splice(self, wire: Wire, size_max: int) -> None:
        """Moves the middle of a bulk frame, which no checksum covers, from the socket to the log inside the kernel."""
        state = self.state
        assert isinstance(state, SlaveState)
        moved = self._store.splice_raw(state.frame.taken, size_max, wire.receive_to_file)
        if moved == 0:
            wire.lose("the master closed the connection")
            return
        self.received_bytes += moved
        now = self._clock.monotonic()
        since_last = now - state.last_heard
        state.frame.passed(moved, now)
        wire.expect(worth_waking(state.frame.unsummed, since_last))

    def _refuse(self, error: StoreError) -> None:
        reason = Reason.DISK_FULL if isinstance(error, DiskFull) else Reason.LOG_POISONED
        for decision in self.state.refuse(reason, str(error), self._clock.monotonic()):
            if isinstance(decision, Send) and self._wire is not None:
                self._wire.send(decision.frame())
        self._end(reason, str(error))

    # --- what the broker tells --------------------------------------------------------------------------------------

    def flushed(self) -> None:
        """Notes that the store's flushed offset moved."""
        self._note_applied()
        self._act(self.state.flushed(self._store.flushed, self._clock.monotonic()))

    # --- giving back ------------------------------------------------------------------------------------------------

    def _donate(self) -> None:
        wire, state, store = self._wire, self.state, self._store
        while wire is not None and wire.is_open and wire.is_clear and isinstance(state, SlaveState):
            batch = state.donating.next_batch()
            if batch is None:
                return
            size = min(batch.size_max, store.segment_size - batch.offset % store.segment_size)
            fd, position, size = store.file_range(batch.offset, size)
            wire.send(state.donating.frame_header(store.slice(batch.offset, size)))
            wire.send_file(fd, position, size)
            state.donating.sent(batch.offset + size, self._clock.monotonic())

    # --- carrying out -----------------------------------------------------------------------------------------------

    def _act(self, decisions: Iterable[Decision]) -> None:
        if decisions:
            todo = deque(decisions)
            catches_up = self.state.frame.is_catching_up
            if catches_up:
                for one in todo:
                    if isinstance(one, Commit):
                        self._showing.committed(one.size, self._clock.monotonic())
            self._carrier.carry_out(todo)
            if self._showing.is_owed:
                self._show(catches_up)
        if isinstance(self.state, SlaveState) and self.state.donating.next_batch() is not None:
            self._donate()

    # As `Outside` says:

    def send(self, send: Send) -> None:
        if self._wire is not None:
            self._wire.send(send.frame())

    def close(self, close: Close) -> None:
        self._end(close.reason, close.text)

    def confirm(self, confirm: Confirm) -> None:
        if self._showing.confirm(confirm.offset):
            self._store.set_confirmed(confirm.offset)

    def flush_soon(self, decision: FlushSoon) -> None:
        self._store.when_flushed(self._store.appended, lambda error: None)

    def note(self, note: Note) -> None:
        (log.warning if note.loud else log.info)("%s", note.text)
        self._on_event(note.event)
        if note.event == "following":
            self.trouble = None
            self._on_following()

    def saved(self, record: ReplicaRecord) -> None:
        self._on_saved(record)

    def _show(self, catches_up: bool) -> None:
        showing = self._showing
        showing.is_owed = False
        if not catches_up or showing.may_show(self._store.dispatched, self._clock.monotonic()):
            self._store.set_confirmed(showing.confirmed)
            self._on_readable()
        elif self._show_timer is None:
            self._show_timer = self._loop.call_later(BULK_PAUSE, self._show_later)

    def _show_later(self) -> None:
        self._show_timer = None
        self._show(self.state.frame.is_catching_up)

    # --- time -------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock.monotonic()
        delay = max(0.001, self.state.next_deadline(now) - now)
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        if self._wire is not None:
            self._note_applied()
            self._act(self.state.tick(self._clock.monotonic()))
            self._arm()

    def _note_applied(self) -> None:
        """Notes what our readers see: it goes to the master with the next ack, for people to look at."""
        if isinstance(self.state, SlaveState):
            self.state.core.applied = self._store.dispatched
