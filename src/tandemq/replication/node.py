"""A node's replication in production: its record, its current role, and the shell that plays it.

Knows nothing of brokers: what a change of role means there comes in as callbacks.
"""

import asyncio
import contextlib
import dataclasses
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tandemq.clock import Clock
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import GROUP_HOME, Register
from tandemq.errors import DiskFull, ReplicationError
from tandemq.model.ack_level import AckLevel
from tandemq.replication import replica_file
from tandemq.replication.acks import AckQueue
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.decisions import Propose
from tandemq.replication.epochs import ReplicaRecord, must_ask, new_identity, place_of
from tandemq.replication.first_copy import Compared
from tandemq.replication.following.core import SlavePhase, SlaveTerms, Vouching
from tandemq.replication.hands import StoreHands
from tandemq.replication.master import MasterShell
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.replication.relay import RelayShell
from tandemq.replication.relay_state import RelayLog, RelayState, RelayTerms
from tandemq.replication.session import Departure, Session, have_all
from tandemq.replication.slave import ClassicSurvey, Find, SlaveShell
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.status import HaStatus, ReplicaStatus, register_shown
from tandemq.replication.tls_wire import HaTls
from tandemq.store.disk import Disk, FileDisk
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeCallbacks:
    """What the node tells its broker."""

    opened: Callable[[], None]
    """Writes may be taken."""
    closed: Callable[[str, bool], None]
    """No write may be taken any more: why, and whether another master reigns (else this one asks again)."""
    readable: Callable[[], None]
    """More may be dispatched."""
    following: Callable[[], None] = lambda: None
    """A slave has a session with its master."""
    recorded: Callable[[], None] = lambda: None
    """The replica record changed: perhaps the group's members."""
    lost: Callable[[], None] = lambda: None
    """A slave's session with its master has ended."""
    proposed: Callable[[Propose], None] = lambda proposal: None
    """A master wants the coordinator to change the register."""
    vouch: Vouching | None = None
    """A slave's master asks for its word not to stand; None: there is no coordinator."""


class ReplicaNode:
    """One store's replication."""

    def __init__(
        self,
        store: MessageStore,
        root: Path,
        config: ReplicationConfig,
        acks: AckQueue,
        clock: Clock,
        callbacks: NodeCallbacks,
        *,
        group: str,
        address: str,
        sync_flush: bool,
        tls: HaTls | None = None,
        observer: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._tls = tls
        self._observer = observer
        self._store = store
        self._root = root
        self.config = config
        self._acks = acks
        self._clock = clock
        self._callbacks = callbacks
        self._group = group
        self._address = address
        self._sync_flush = sync_flush
        self._disk: Disk = disk if disk is not None else FileDisk(8)
        self.hands = StoreHands(store, self._disk, root, clock)
        self.record = self._load_record()
        self.events: Counter[str] = Counter()
        self.master: MasterShell | None = None
        self.slave: SlaveShell | None = None
        self.relay: RelayShell | None = None
        self.ha_port = 0
        self.broker_id = 0
        """The slave's id it was configured with; the register has the last word."""
        self._level = AckLevel(1)
        self.home = GROUP_HOME
        """Where the register lives."""
        self._lease = 0.0
        self._silence_max = float("inf")

    def coordinate(self, home: str, lease: float) -> None:
        """The register lives with a coordinator: whoever is silent for a lease is missed."""
        self.home = home
        self._lease = self._silence_max = lease

    @property
    def _heartbeat(self) -> float:
        return min(self.config.heartbeat_interval_ms / 1000, self._silence_max / 6)

    @property
    def _housekeeping(self) -> float:
        return min(self.config.housekeeping_interval_ms / 1000, self._silence_max * 0.6)

    def _load_record(self) -> ReplicaRecord:
        record = replica_file.load(self._disk, self._root)
        if record is None:
            # A store that RocketMQ filled has a log but no record: its bytes have no name, but they are its own.
            blind_from = 0 if self._store.appended == 0 else -1
            record = ReplicaRecord(new_identity(self._address, secrets.token_hex(8)), blind_from=blind_from)
            replica_file.save(self._disk, self._root, record)
        elif not record.replica:  # made from a backup: a log with its history, and a replica that nobody knows yet
            record = record.with_(replica=new_identity(self._address, secrets.token_hex(8)))
            replica_file.save(self._disk, self._root, record)
        if record.history.epochs and self._store.dispatched > record.confirmed:
            # The record says what was confirmed when it was last saved; the views have what readers saw since.
            record = record.with_(confirmed=self._store.dispatched)
        return self.hands.after_recovery(record)

    # --- roles ------------------------------------------------------------------------------------------------------

    async def be_master(
        self,
        host: str,
        port: int,
        level: AckLevel,
        *,
        strict: bool,
        ask: frozenset[str],
        ordered: bool = False,
        group_exists: bool = False,
        broker_id: int = 0,
        register: Register | None = None,
    ) -> None:
        """Listens for slaves and opens for writes, at once or after asking; `ordered` by an operator.

        `register`: what the coordinator has, where there is one.
        """
        await self.leave_role()
        config = self.config
        self._level = level
        terms = MasterTerms(
            group=self._group,
            level=level,
            address=self._address,
            broker_id=broker_id,
            sync_flush=self._sync_flush,
            strict_open=strict and not config.open_without_replicas,
            heartbeat=self._heartbeat,
            housekeeping=self._housekeeping,
            gap_max=config.gap_in_sync_max,
            away_max=min(config.not_caught_up_ms / 1000, self._silence_max * 0.3),
            rejoin_wait=config.rejoin_wait_ms / 1000,
            readers_wait=config.readers_wait,
            shared_key=config.shared_key,
            classic_peers=config.takes_classic_peers,
            classic_batch=config.transfer_batch_size,
            batch=config.batch_size_max,
            last_file_only=config.sync_from_last_file,
            rate_max=config.rate_max if config.flow_control else None,
            sessions_max=config.sessions_max,
            home=self.home,
            lease=self._lease,
        )
        log_ends = self.hands.log_ends()
        state = MasterState(
            record=self.record,
            terms=terms,
            log=log_ends,
            acks=self._acks,
            new_id=lambda: secrets.token_hex(16),
            now=self._clock.monotonic(),
            ask=must_ask(self.record, log_ends.end) | ask,
            ordered=ordered,
            group_exists=group_exists,
            register=register,
        )
        self._store.set_confirmed(state.confirmed)
        self.master = MasterShell(
            state,
            self.hands,
            self._clock,
            on_opened=self._callbacks.opened,
            on_closed=self._callbacks.closed,
            on_readable=self._callbacks.readable,
            on_saved=self._saved,
            on_event=self.count,
            on_proposed=self._callbacks.proposed,
            tls=self._tls,
            ack_poll=self.config.ack_poll_us / 1e6,
        )
        self.ha_port = await self.master.start(host, port)

    async def be_slave(
        self, find_master: Find, survey: ClassicSurvey | None = None, *, host: str = "", port: int = 0
    ) -> None:
        """Follows whoever `find_master` names, until the role changes; `survey` asks RocketMQ masters.

        Observers are served on `host` and `port`; 0 serves none.
        """
        await self.leave_role()
        self.slave = SlaveShell(
            self._slave_state,
            self.hands,
            self._clock,
            find_master,
            reconnect_max=self.config.reconnect_ms_max / 1000,
            on_readable=self._slave_readable,
            on_saved=self._saved,
            on_event=self.count,
            on_following=self._callbacks.following,
            classic_peers=self.config.takes_classic_peers,
            tls=self._tls,
            ack_poll=self.config.ack_poll_us / 1e6,
            survey=survey,
            compared=Compared(self.record.lacks, self.record.copying_to),
            on_compared=self._remember_compared,
            on_ended=self._session_ended,
        )
        self._store.set_confirmed(min(self.record.confirmed, self._store.appended))
        await self.slave.start()
        if port:
            self._start_relay(host, port)

    def _start_relay(self, host: str, port: int) -> None:
        config = self.config
        terms = RelayTerms(
            group=self._group,
            shared_key=config.shared_key,
            heartbeat=config.heartbeat_interval_ms / 1000,
            housekeeping=config.housekeeping_interval_ms / 1000,
            batch=config.batch_size_max,
        )
        state = RelayState(terms, lambda: self.record, self._relay_log, lambda: secrets.token_hex(16))
        self.relay = RelayShell(state, self._store, self._clock, self._tls)
        try:
            self.ha_port = self.relay.start(host, port)
        except OSError as error:
            log.warning("observers can't be served on port %d: %s", port, error.strerror or error)
            self.relay = None

    def _relay_log(self) -> RelayLog:
        store = self._store
        # RocketMQ has no confirmed offset: what was copied from it is handed on.
        confirmed = min(self.confirmed, store.appended) if self.record.history.epochs else store.appended
        return RelayLog(store.first_offset, confirmed, store.segment_size)

    def _slave_state(self, extended: bool) -> SlaveState | ClassicSlaveState:
        config, now = self.config, self._clock.monotonic()
        terms = SlaveTerms(
            group=self._group,
            address=self._address,
            broker_id=self.broker_id,
            heartbeat=self._heartbeat,
            housekeeping=self._housekeeping,
            shared_key=config.shared_key,
            last_file_only=config.sync_from_last_file,
            observer=self._observer,
            compression=config.compression,
            batch=config.batch_size_max,
        )
        log_ends = self.hands.log_ends()
        if not extended:
            return ClassicSlaveState(log=log_ends, terms=terms, now=now)
        return SlaveState(
            record=self.record,
            terms=terms,
            log=log_ends,
            new_id=lambda: secrets.token_hex(16),
            now=now,
            vouch=self._callbacks.vouch,
        )

    async def leave_role(self, *, clean: bool = False) -> None:
        """Ends the current role; `clean`: the log is flushed and nothing will be written by this node."""
        if self.master is not None:
            await self.master.stop(clean=clean)
            if clean:
                self.record = self.master.state.record
            self._remember_confirmed(self.master.state.confirmed)
            self.master = None
        if self.relay is not None:
            self.relay.stop()
            self.relay = None
        if self.slave is not None:
            await self.slave.stop()
            if isinstance(self.slave.state, SlaveState):
                self._remember_confirmed(self.slave.state.confirmed)
            self.slave = None

    def _remember_compared(self, compared: Compared) -> None:
        if compared.lacks is not None and self.record.lacks is None:
            log.warning("this replica lacks [%d, %d) of the history that its master has kept", *compared.lacks)
            self.count("lacks-history")
        self.record = self.record.with_(lacks=compared.lacks, copying_to=compared.goal)
        replica_file.save(self._disk, self._root, self.record)

    def _session_ended(self, confirmed: int) -> None:
        self._remember_confirmed(confirmed)
        self._callbacks.lost()

    def _remember_confirmed(self, confirmed: int) -> None:
        """The next role shows at once what this one knew."""
        if confirmed != self.record.confirmed:
            self.record = self.record.with_(confirmed=confirmed)
            with contextlib.suppress(DiskFull):  # the next change of the record saves it
                replica_file.save(self._disk, self._root, self.record)

    def remember_role(self, role: str) -> None:
        """A promotion outlives a restart with the file as it is."""
        if role != self.record.role:
            self.record = self.record.with_(role=role)
            replica_file.save(self._disk, self._root, self.record)

    @property
    def register(self) -> Register | None:
        return self.record.register

    @property
    def is_holder(self) -> bool:
        """Whether the register says that this replica reigns, or reigned last."""
        return self.record.register is not None and self.record.register.holder == self.record.replica

    def _saved(self, record: ReplicaRecord) -> None:
        before, self.record = self.record, record
        if self.relay is not None and (before.history, before.promise) != (record.history, record.promise):
            self.relay.changed()
        self._callbacks.recorded()

    def _slave_readable(self) -> None:
        self._callbacks.readable()
        if self.relay is not None:
            self.relay.advanced()

    @property
    def confirmed(self) -> int:
        """Up to where a slave's log can't be cut any more, as its master told."""
        state = self.slave.state if self.slave is not None else None
        return state.confirmed if isinstance(state, SlaveState) else self.record.confirmed

    @property
    def disk(self) -> Disk:
        return self._disk

    @property
    def group(self) -> str:
        return self._group

    def heard_addresses(self) -> list[str]:
        """Where the replicas are that have told this master who they are."""
        sessions = self.master.state.sessions.values() if self.master is not None else ()
        return sorted(
            {
                session.address
                for session in sessions
                if not (session.classic or session.observer) and ":" in session.address
            }
        )

    def member_addresses(self) -> list[str]:
        """Where the group's other brokers were when they were last seen, as far as replication knows."""
        places = [place_of(replica) for replica in self.record.members]
        if self.record.register is not None:
            register = self.record.register
            places += [one.address or place_of(one.replica) for one in (*register.members, *register.joining)]
        if self.master is not None:
            places += [session.address for session in self.master.state.sessions.values() if not session.classic]
        return [place for place in dict.fromkeys(places) if ":" in place and place != self._address]

    def count(self, event: str) -> None:
        """Something worth a number happened."""
        self.events[event] += 1

    @property
    def phase(self) -> str:
        """A master's phase; empty for others."""
        if self.master is not None and self.master.state.provisional:
            return "provisional"
        return self.master.state.phase.value if self.master is not None else ""

    @property
    def is_open(self) -> bool:
        return self.master is not None and self.master.state.phase is Phase.OPEN

    @property
    def is_following(self) -> bool:
        return (
            self.slave is not None
            and isinstance(self.slave.state, SlaveState)
            and (self.slave.state.phase is SlavePhase.FOLLOWING)
        )

    async def drained(self, timeout: float) -> None:
        """Until every slave that counts has everything, for a demotion that loses nothing; ReplicationError if not."""
        deadline = self._clock.monotonic() + timeout
        while self.master is not None:
            sessions = [s for s in self.master.state.sessions.values() if s.is_streaming and not s.observer]
            end = self._store.appended
            if have_all(sessions, end):
                return
            if self._clock.monotonic() >= deadline:
                behind = ", ".join(f"{s.replica} at {s.received}" for s in sessions) or "no slave is connected"
                raise ReplicationError(f"the slaves did not catch up with {end} within {timeout:g} s: {behind}")
            await asyncio.sleep(0.01)

    # --- what the broker tells --------------------------------------------------------------------------------------

    def appended(self) -> None:
        """The log may have grown: at the end of a turn of the loop."""
        if self.master is not None:
            self.master.appended()

    def flushed(self) -> None:
        """fdatasync returned."""
        if self.master is not None:
            self.master.flushed()
        elif self.slave is not None:
            self.slave.flushed()

    def retained(self) -> None:
        """Old segments were deleted."""
        if self.master is not None:
            self.master.retained()
        elif self.slave is not None:
            self.slave.state.log.first = self._store.first_offset

    # --- looking at it ----------------------------------------------------------------------------------------------

    def status(self) -> HaStatus:
        """A snapshot."""
        if self.master is not None:
            return self._master_status(self.master)
        if self.slave is not None:
            return self._slave_status(self.slave)
        return self._base("none", "stopped", self._store.appended)

    def _base(self, role: str, phase: str, confirmed: int, **more: object) -> HaStatus:
        store, record = self._store, self.record
        return dataclasses.replace(
            HaStatus(
                role=role,
                phase=phase,
                replica=record.replica,
                group=self._group,
                epoch=record.promise.number,
                first=store.first_offset,
                end=store.appended,
                flushed=store.flushed,
                confirmed=confirmed,
                level=str(self._level),
                members=tuple(sorted(record.members)),
                in_sync=tuple(sorted(record.in_sync)),
                cuts=tuple(self.hands.cuts),
                cut_bytes=self.hands.cut_bytes,
                lacks=record.lacks,
                copying_to=record.copying_to,
                events=dict(self.events + self.hands.events),
                register=register_shown(record.register, self._joining_waits()),
            ),
            **more,  # type: ignore[arg-type]
        )

    def _joining_waits(self) -> dict[str, frozenset[str]]:
        register = self.record.register
        if self.master is None or register is None:
            return {}
        keeper = self.master.state.keeper
        return {one: keeper.waits_of_joining(one) for one in register.joining_ids}

    def _master_status(self, shell: MasterShell) -> HaStatus:
        state, now = shell.state, self._clock.monotonic()
        replicas = [self._replica(session, now) for session in state.sessions.values()]
        replicas += self._absent(state, {replica.replica for replica in replicas}, now)
        health = self._store.health
        phase, more = state.phase.value, {}
        if not health.writable:
            cause = Reason.DISK_FULL if health.is_full else Reason.LOG_POISONED
            more = {"error": health.reason, "reason": cause.value, "advice": cause.advice}
            phase = "disk full" if health.is_full else "log poisoned"
        return self._base(
            "master",
            phase,
            state.confirmed,
            **more,
            provisional=state.provisional,
            waiting_for=tuple(sorted(state.waiting_for)),
            opened_without=tuple(sorted(state.opened_without)),
            replicas=tuple(replicas),
            waiting_sends=len(self._acks),
        )

    def _replica(self, session: Session, now: float) -> ReplicaStatus:
        end = self._store.appended
        lag = max(0, end - session.received) if session.is_streaming else 0
        caught_up = session.caught_up_at if session.caught_up_at is not None else session.connected_at
        return ReplicaStatus(
            replica=session.replica,
            address=session.address,
            peer=session.peer,
            state="observing" if session.observer and session.is_streaming else session.state.value,
            protocol="classic" if session.classic else "extended",
            received=session.received,
            durable=session.durable,
            applied=session.applied,
            lag_bytes=lag,
            lag_ms=int((now - caught_up) * 1000) if lag else 0,
            rate=session.rate if now - session.rate_from < 3.0 else 0.0,
            in_sync=session.state.value == "in sync",
            is_member=bool(session.replica) and not session.observer,
        )

    def _absent(self, state: MasterState, here: set[str], now: float) -> list[ReplicaStatus]:
        """Returns members that have no session, and others that left, with what they had when they were last seen."""
        record, end = state.record, self._store.appended
        own_place, places = place_of(record.replica), {place_of(name) for name in here}
        begun = record.history.last.start if record.history.last is not None else 0
        members = {name for name in record.members | record.in_sync if place_of(name) != own_place}
        found = []
        for name in sorted(members | state.departures.keys()):
            is_member = name in members
            if name in here or (not is_member and place_of(name) in places):
                continue
            left = state.departures.get(name) or Departure(
                state.began_at,
                Reason.LOST,
                "not seen since the start",
                # In sync before this reign, it had about what was confirmed then; of what came since it has nothing.
                received=min(state.confirmed, begun) if name in record.in_sync else 0,
            )
            received = left.received
            lag = max(0, end - received) if is_member or received else 0
            had_everything_at = left.at if left.had_everything_at is None else left.had_everything_at
            found.append(
                ReplicaStatus(
                    replica=name,
                    address=left.address or place_of(name),
                    peer="",
                    state="away" if name in record.in_sync else "not connected",
                    protocol="",
                    received=received,
                    durable=left.durable,
                    applied=left.applied,
                    lag_bytes=lag,
                    lag_ms=int((now - had_everything_at) * 1000) if lag else 0,
                    rate=0.0,
                    in_sync=False,
                    is_member=is_member,
                    error=left.text,
                    reason=left.reason.value,
                    advice=left.reason.advice,
                    error_age_ms=int((now - left.at) * 1000),
                )
            )
        return found

    def _slave_status(self, shell: SlaveShell) -> HaStatus:
        state = shell.state
        trouble = shell.trouble or state.trouble
        following = state.is_connected
        more: dict[str, object] = {}
        if trouble is not None and not (isinstance(state, SlaveState) and state.phase is SlavePhase.FOLLOWING):
            age = int((self._clock.monotonic() - trouble[0]) * 1000)
            more = {"error": trouble[2], "reason": trouble[1].value, "advice": trouble[1].advice, "error_age_ms": age}
        extended = isinstance(state, SlaveState)
        if isinstance(state, SlaveState):
            phase, confirmed = state.phase.value, state.confirmed
        else:
            phase, confirmed = ("following" if following else "not connected"), self._store.appended
        return self._base(
            "slave",
            phase,
            confirmed,
            master=shell.place.ha_address if shell.place is not None else "",
            master_replica=state.master if isinstance(state, SlaveState) else "",
            protocol="extended" if extended else "classic",
            received_bytes=shell.received_bytes,
            replicas=self._observers(),
            **self._copy_progress(shell),
            **more,
        )

    def _observers(self) -> tuple[ReplicaStatus, ...]:
        """Returns who follows this slave."""
        if self.relay is None:
            return ()
        now = self._clock.monotonic()
        return tuple(self._replica(one, now) for one in self.relay.state.sessions.values() if one.is_streaming)

    def _copy_progress(self, shell: SlaveShell) -> dict[str, object]:
        progress = shell.progress
        if progress.master is None:
            return {}
        return {
            "master_first": progress.master.first,
            "master_end": progress.master.end,
            "lag_bytes": max(0, progress.master.end - self._store.appended),
            "lag_ms": progress.lag_ms(self._clock.monotonic()),
            "seconds_left": progress.seconds_left,
        }


def known_confirmed(root: Path) -> int | None:
    """What the replica under `root` last knew to be confirmed: its store opens no further for readers."""
    record = replica_file.load(FileDisk(1), root)
    return record.confirmed if record is not None and record.history.epochs else None
