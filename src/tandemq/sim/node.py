"""One simulated node: the real store on a crashable disk, the real state machines, carried out by a simulated shell."""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.errors import DiskFull, LogPoisoned, StoreError
from tandemq.model.ack_level import AckLevel
from tandemq.replication import replica_file
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.carrying import Carrier
from tandemq.replication.decisions import (
    Close,
    Confirm,
    Decision,
    FlushSoon,
    Note,
    Opened,
    Propose,
    Reset,
    Send,
    SteppedDown,
    Truncate,
)
from tandemq.replication.epochs import ReplicaRecord, must_ask, new_identity
from tandemq.replication.following.core import SlavePhase, SlaveTerms, Vouching
from tandemq.replication.hands import StoreHands
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.replication.slave_state import SlaveState
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.sim.network import EventQueue, Link, SimulatedNetwork
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended, MessageStore

ROOT = Path("/store")
LOG = ROOT / "commitlog"
_LOG_FILES: dict[int, Path] = {}
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def log_file(base: int) -> Path:
    """The commit-log file that begins at `base`; remembered, because making paths is most of looking at them."""
    path = _LOG_FILES.get(base)
    if path is None:
        path = _LOG_FILES[base] = LOG / f"{base:020d}"
    return path


class Watcher:
    """What a node tells the world about; the simulator overrides these."""

    def traced(self, node: "SimNode", text: str) -> None: ...

    def opened(self, node: "SimNode") -> None: ...

    def stepped_down(self, node: "SimNode", asking: bool) -> None: ...

    def confirmed(self, node: "SimNode", before: int, offset: int) -> None: ...

    def cut(self, node: "SimNode", start: int, end: int) -> None: ...

    def died(self, node: "SimNode", *, power: bool) -> None: ...

    def delivered(self, node: "SimNode") -> None:
        """A service of a master has put something into its log."""

    def master_for(self, node: "SimNode") -> "SimNode | None":
        return None

    def group_exists(self, node: "SimNode") -> bool:
        return False


class WatchedHands(StoreHands):
    """Production's hands, whose cuts the world sees: what is cut must have been saved aside."""

    def __init__(self, node: "SimNode") -> None:
        super().__init__(node.store, node.disk, ROOT, node.clock)
        self._node = node

    def truncate(self, cut: Truncate) -> None:
        self._watch(cut.offset, cut.end, cut.why, lambda: super(WatchedHands, self).truncate(cut))

    def reset(self, reset: Reset) -> None:
        self._watch(reset.save_from, reset.end, reset.why, lambda: super(WatchedHands, self).reset(reset))

    def _watch(self, start: int, end: int, why: str, cut: Callable[[], None]) -> None:
        node = self._node
        node.trace(f"cuts [{start}, {end}): {why}")
        kept = node.log_bytes(start, end)
        cut()
        node.check_saved(start, kept)
        node.shown = min(node.shown, node.store.appended)
        node.watcher.cut(node, start, end)


class SimNode:
    """Alive: a process with store and state machine.  Dead: only its disk."""

    def __init__(
        self,
        name: str,
        events: EventQueue,
        network: SimulatedNetwork,
        random: Random,
        watcher: Watcher,
        store_config: StoreConfig,
        master_terms: MasterTerms,
        slave_terms: SlaveTerms,
    ) -> None:
        self.name = self.address = name
        self.events, self.network, self.random, self.watcher = events, network, random, watcher
        self.store_config, self.master_terms, self.slave_terms = store_config, master_terms, slave_terms
        self.disk = CrashableDisk()
        self.clock = ManualClock()
        self.clock_rate = 1.0
        """How fast its clocks run: no two machines agree for long."""
        self._clock_began = self.clock.monotonic()
        self.flush_interval = 0.02
        """Seconds between flushes that nobody waits for: what a power cut may take."""
        self.alive = False
        self.paused_until = 0.0
        self.role = "slave"
        self.follows: SimNode | None = None
        self.ordered = False
        """The operator has promoted it and waits for the outcome."""
        self.refuses = False
        """It is being demoted and takes no messages."""
        self.incarnation = 0
        self.record = ReplicaRecord("")
        self.vouch: Vouching | None = None
        """Gives or refuses the word that a master asks for while its coordinator is away."""
        self.elected_with: Register | None = None
        """The coordinator's register, for a candidate of a group that has one."""
        self.shown = 0
        """Readers of this process have been shown everything below."""
        self.carrier: Carrier | None = None
        """Carries out what its machine decides; a new one for each role."""
        self.links: dict[int, Link] = {}
        self._inbox: list[Callable[[], None]] = []

    # --- life -------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Starts the process in its role, from what is on its disk."""
        self.incarnation += 1
        self.alive = True
        self.paused_until = 0.0
        self._inbox.clear()
        self.links.clear()
        self.advance_clock()
        try:
            self._open()
            self._role_of_register()
            self._take_role()
        except PowerCut:
            self.die(power=True)
        except (StoreError, OSError):
            self.die(power=True)  # a disk that fails at start is replaced together with its machine
        else:
            self._repeat(self.master_terms.heartbeat / 2, self._tick)
            self._repeat(self.flush_interval, self._flush)

    def _open(self) -> None:
        self.disk.make_directory(ROOT)
        record = replica_file.load(self.disk, ROOT)
        confirmed = record.confirmed if record is not None and record.history.epochs else None
        self.store = MessageStore.open(ROOT, self.store_config, clock=self.clock, disk=self.disk, confirmed=confirmed)
        if record is None:
            # As in production: a log without a record has bytes without a name; a new store has none.
            blind_from = 0 if self.store.appended == 0 else -1
            identity = new_identity(self.address, f"{self.random.getrandbits(32):08x}")
            record = ReplicaRecord(identity, blind_from=blind_from)
            replica_file.save(self.disk, ROOT, record)
        self.hands = WatchedHands(self)
        self.record = self.hands.after_recovery(record)
        self.shown = self.store.dispatched
        # One for the life of the process, as in a broker: it sees reigns come and go.
        self.acks = AckQueue(fall_behind_max=self.master_terms.gap_max)

    def _role_of_register(self) -> None:
        """What a conf file says is the first wish; from the first reign on the register decides."""
        register = self.record.register
        if register is not None:
            self.role = "master" if register.holder == self.record.replica else "slave"

    def _take_role(self, *, ordered: bool = False) -> None:
        now = self.now
        self.ordered, self.refuses = ordered, False
        self.master: MasterState | None = None
        self.slave: SlaveState | None = None
        log = self.hands.log_ends()
        if self.role == "master":
            ask = must_ask(self.record, log.end)
            self.store.set_confirmed(min(self.record.confirmed, log.end))
            self.master = MasterState(
                record=self.record,
                terms=self.master_terms,
                log=log,
                acks=self.acks,
                new_id=self._new_id,
                now=now,
                ask=ask,
                ordered=ordered,
                group_exists=self.watcher.group_exists(self),
                register=self.elected_with,
            )
            self._carry_for(self.master)
            self.act(self.master.start(now))
        else:
            self._be_slave()

    def _be_slave(self) -> None:
        self.slave = SlaveState(
            record=self.record,
            terms=self.slave_terms,
            log=self.hands.log_ends(),
            new_id=self._new_id,
            now=self.now,
            vouch=self.vouch,
        )
        self._carry_for(self.slave)
        self.store.set_confirmed(self.slave.confirmed)
        self._later(0.0, self._connect)

    def _carry_for(self, machine: MasterState | SlaveState) -> None:
        self.carrier = Carrier(self.hands, self, self.clock, lambda: machine, acks=self.acks, reign=self)

    def change_role(self, role: str) -> None:
        """Without a restart: the operator's order, or the end of a reign."""
        self._drop_links()
        self.role = role
        self._take_role(ordered=role == "master")

    def die(self, *, power: bool) -> None:
        """kill -9, or the machine with all that was not synced."""
        if not self.alive:
            return
        self.alive = False
        if self.carrier is not None:
            self.carrier.is_over = True
        self.incarnation += 1
        self.watcher.died(self, power=power)
        self.store = None  # type: ignore[assignment]
        self.master = self.slave = None
        self.network.vanish(self.name, silent=power)
        self.disk = self.disk.after_crash(self.random, keep_all=not power)

    def stop(self) -> None:
        """A clean stop."""
        try:
            if self.master is not None:
                self.store.flush_once()
                self.act(self.master.flushed(self.store.flushed))
                self.act(self.master.stop(self.now))
            self.store.close()
        except (PowerCut, StoreError, OSError):
            self.die(power=True)
            return
        self.alive = False
        self.incarnation += 1
        self.master = self.slave = None
        self.network.vanish(self.name, silent=False)

    def rest(self) -> None:
        """It is being demoted: no more messages, until it steps down or wakes."""
        self.refuses = True

    def wake(self) -> None:
        """Goes on as master: the slaves did not get everything in time."""
        self.refuses = False

    def end(self) -> None:
        """Ends the simulation of this node."""

    def wipe(self) -> None:
        """A new, empty disk in a dead node."""
        assert not self.alive
        self.disk = CrashableDisk()

    @property
    def is_open(self) -> bool:
        return self.alive and self.master is not None and self.master.phase is Phase.OPEN

    @property
    def is_following(self) -> bool:
        return self.alive and self.slave is not None and self.slave.phase is SlavePhase.FOLLOWING

    # --- carrying out -----------------------------------------------------------------------------------------------

    def act(self, decisions: Iterable[Decision]) -> None:
        """Carries out in order, by production's own function; a failing disk ends the process or the session."""
        self.advance_clock()
        assert self.carrier is not None
        self.carrier.carry_out(deque(decisions))

    # As `Outside` of the carrier says:

    def send(self, send: Send) -> None:
        self._send(send.session, send.frame())

    def close(self, close: Close) -> None:
        self._close(close.session)

    def confirm(self, confirm: Confirm) -> None:
        self.store.set_confirmed(confirm.offset)

    def flush_soon(self, decision: FlushSoon) -> None:
        self._later(0.001, self._flush)

    def note(self, note: Note) -> None:
        self.trace(f"{note.event}: {note.text}")

    def saved(self, record: ReplicaRecord) -> None:
        self.record = record

    def opened(self, opened: Opened) -> None:
        self.trace(f"opens epoch {opened.epoch.number} at {opened.epoch.start}")
        self.watcher.opened(self)

    def stepped_down(self, ended: SteppedDown) -> None:
        self.trace(f"steps down: {ended.text}")
        self.watcher.stepped_down(self, ended.asking)

    def propose(self, proposal: Propose) -> None:
        self._proposed(proposal)

    def _proposed(self, proposal: Propose) -> None:
        raise AssertionError(f"{self.name} has no coordinator to ask for {proposal.new}")

    def _session_ended(self) -> None:
        """A slave's session with its master has ended."""

    def guarded(self, action: Callable[[], None]) -> None:
        """Runs one event of this process; what its disk throws ends the process or the session."""
        if not self.alive:
            return
        if self.events.now < self.paused_until:
            self._inbox.append(action)
            return
        self.advance_clock()
        try:
            action()
            self._pump()
            self._show()
        except PowerCut:
            self.die(power=True)
        except DiskFull as error:
            self._on_disk_full(error)
        except (LogPoisoned, OSError):
            self.trace("its disk failed: the process ends")
            self.disk.sync_error = None
            self.die(power=True)

    def _on_disk_full(self, error: DiskFull) -> None:
        if self.slave is None:
            self.die(power=False)
            return
        self.trace("its disk is full")
        self.act(self.slave.refuse(Reason.DISK_FULL, str(error), self.now))
        self._drop_links()
        # What the state machine believed was appended is not; begin again from what the store has.
        self._be_slave()

    # --- time -------------------------------------------------------------------------------------------------------

    def _later(self, delay: float, action: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.alive and self.incarnation == incarnation:
                self.guarded(action)

        self.events.after(delay, run)

    def _repeat(self, interval: float, action: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.alive and self.incarnation == incarnation:
                self.guarded(action)
                self.events.after(interval * self.random.uniform(0.5, 1.5), run)

        self.events.after(interval * self.random.uniform(0.1, 1.0), run)

    def _tick(self) -> None:
        now = self.now
        if self.master is not None:
            over: list[Complete] = []
            self.acks.expire(over, now)
            self.act(over)
            if self.master.phase is Phase.OPEN and self.store.appended != self.master.log.end:
                self.act(self.master.appended(self.store.appended))
            self.act(self.master.tick(now))
        elif self.slave is not None:
            self.act(self.slave.tick(now))

    def _flush(self) -> None:
        self.store.flush_once()
        if self.master is not None:
            self.act(self.master.flushed(self.store.flushed))
        elif self.slave is not None:
            self.act(self.slave.flushed(self.store.flushed, self.now))

    def pause(self, seconds: float) -> None:
        """SIGSTOP: nothing is processed, then everything at once."""
        self.paused_until = self.events.now + seconds
        incarnation = self.incarnation

        def resume() -> None:
            if self.alive and self.incarnation == incarnation:
                waiting, self._inbox = self._inbox, []
                for action in waiting:
                    self.guarded(action)

        self.events.after(seconds, resume)

    def advance_clock(self) -> None:
        self.clock.advance(max(0.0, self._clock_began + self.events.now * self.clock_rate - self.clock.monotonic()))

    @property
    def now(self) -> float:
        """What its own monotonic clock says."""
        self.advance_clock()
        return self.clock.monotonic()

    # --- network ----------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        slave, master = self.slave, self.follows
        if slave is None or self.links:
            return
        if master is None or master is self or not master.alive or master.master is None:
            master = self.follows = self.watcher.master_for(self)
        link = None
        if master is not None and master is not self and master.alive and master.master is not None:
            link = self.network.connect(
                self.name,
                master.name,
                master.accept,
                lambda data: self._on_data(link, data),
                lambda: self._on_lost(link),
            )
        if link is None:
            self._later(self.random.uniform(0.005, 0.03), self._connect)
            return
        self.links[link.id] = link
        self.act(slave.connected(link.id, self.now))

    def accept(self, link: Link) -> tuple[Callable[[bytes], None], Callable[[], None]] | None:
        """The master's side of a new connection."""
        if not self.alive or self.master is None:
            return None
        self.links[link.id] = link
        session, master = link.id, self.master
        peer = f"10.0.0.{1 + sum(map(ord, link.there)) % 200}:{link.id}"
        self.guarded(lambda: self.act(master.connected(session, peer, self.now)))
        return lambda data: self._on_data(link, data), lambda: self._on_lost(link)

    def _on_data(self, link: Link | None, data: bytes) -> None:
        assert link is not None
        incarnation = self.incarnation

        def take() -> None:
            if self.incarnation != incarnation or link.id not in self.links:
                return
            if self.master is not None:
                self.act(self.master.receive(link.id, data, self.now))
            elif self.slave is not None:
                self.act(self.slave.receive(data, self.now))

        self.guarded(take)

    def _on_lost(self, link: Link | None) -> None:
        assert link is not None
        incarnation = self.incarnation

        def lose() -> None:
            if self.incarnation != incarnation or self.links.pop(link.id, None) is None:
                return
            if self.master is not None:
                self.act(self.master.disconnected(link.id, self.now))
            elif self.slave is not None:
                self.slave.disconnected(self.now)
                self._session_ended()
                self._later(self.random.uniform(0.001, 0.02), self._connect)

        self.guarded(lose)

    def _send(self, session: int, data: bytes) -> None:
        link = self.links.get(session)
        if link is not None:
            self.network.send(link, data)

    def _close(self, session: int) -> None:
        link = self.links.pop(session, None)
        if link is not None:
            self.network.close(link)
        if self.slave is not None:
            self.slave.disconnected(self.now)
            self._session_ended()
            self._later(self.random.uniform(0.001, 0.02), self._connect)

    def _drop_links(self) -> None:
        for link in list(self.links.values()):
            self.network.close(link)
        self.links.clear()

    def _pump(self) -> None:
        """One batch per session: what a shell does when its sockets can take more."""
        if not self.alive:
            return
        now, store = self.now, self.store
        more = False
        if self.master is not None:
            if self.master.phase is Phase.OPEN:
                self.act(self.master.news(now))
            for session in list(self.master.sessions):
                batch = self.master.streaming.next_batch(session, now)
                if batch is None:
                    continue
                size = min(batch.size_max, store.segment_size - batch.offset % store.segment_size)
                data = bytes(store.slice(batch.offset, size))
                self._send(session, self.master.streaming.frame_header(session, data) + data)
                self.master.streaming.sent(session, batch.offset + size, now)
                more = True
        elif self.slave is not None and (batch := self.slave.donating.next_batch()) is not None:
            size = min(batch.size_max, store.segment_size - batch.offset % store.segment_size)
            data = bytes(store.slice(batch.offset, size))
            for session in self.links:
                self._send(session, self.slave.donating.frame_header(data) + data)
            self.slave.donating.sent(batch.offset + size, now)
            more = True
        if more:
            self._later(0.0005, lambda: None)

    def _show(self) -> None:
        """Dispatch, as a broker does at the end of a turn; readers see what it covers."""
        if not self.alive:
            return
        before = self.shown
        self._arrived(self.store.dispatch())
        if self.slave is not None:
            self.slave.core.applied = self.store.dispatched
        if self.store.dispatched > before:
            self.shown = self.store.dispatched
            self.watcher.confirmed(self, before, self.shown)

    def _arrived(self, queues: set[tuple[str, int]]) -> None:
        """Readers see more of these queues."""

    # --- writing ----------------------------------------------------------------------------------------------------

    def produce(
        self, queue_id: int, body: bytes, level: AckLevel, done: Callable[[PutStatus, str, Appended], None]
    ) -> None:
        """What the broker's writer does with a send."""
        if not self.is_open or self.refuses:
            return
        master = self.master
        assert master is not None

        def write() -> None:
            if not self.is_open or self.master is not master:
                return
            try:
                appended = self.store.append("t", queue_id, 0, 0, 0, HOST, 0, 0, body, b"")
            except DiskFull:
                self.trace("its disk is full: the send is refused")
                return
            self.act(master.appended(self.store.appended))
            known = self.acks.add(
                appended.physical_offset + appended.size,
                level,
                self.master_terms.sync_flush or level.durable,
                self.now + 0.3,
                lambda status, reason: done(status, reason, appended),
            )
            if known is not None:
                done(*known, appended)
            if self.master_terms.sync_flush or level.durable:
                self._later(0.001, self._flush)

        self.guarded(write)

    def stored_register(self) -> Register | None:
        """What its disk says, alive or not."""
        record = self.record if self.alive else replica_file.load(self.disk, ROOT)
        return record.register if record is not None else None

    # --- looking at the disk, past everything -----------------------------------------------------------------------

    def log_bytes(self, start: int, end: int, *, durable: bool = False) -> bytes:
        """What lies on the disk for [start, end), shorter if some of it does not exist."""
        size = self.store_config.commit_log_segment_size
        parts = []
        while start < end:
            base = start - start % size
            path = log_file(base)
            file = self.disk.files.get(path)
            if file is None or (durable and not self.disk.survives(path)):
                break
            stop = min(end, base + size)
            source = file.durable if durable else file.data
            parts.append(bytes(memoryview(source)[start - base : stop - base]))
            start = stop
        return b"".join(parts)

    def holds(self, start: int, data: bytes, *, durable: bool = False) -> bool:
        """See Holder; in a live process bytes behind the end of the log don't count."""
        if self.alive and start + len(data) > self.store.appended:
            return False
        return self.log_bytes(start, start + len(data), durable=durable) == data

    def check_saved(self, start: int, kept: bytes) -> None:
        if not kept:
            return
        prefix = str(ROOT / "cut")
        found = [(path, file) for path, file in sorted(self.disk.files.items()) if str(path).startswith(prefix)]
        saved = [file.durable for path, file in found if self.disk.survives(path)]
        if kept not in b"".join(saved) and not any(kept == part for part in saved):
            raise AssertionError(f"{self.name} cut {len(kept)} bytes at {start} without saving them aside")

    def _new_id(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def trace(self, text: str) -> None:
        self.watcher.traced(self, text)
