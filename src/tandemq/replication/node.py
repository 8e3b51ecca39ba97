"""A node's replication in production: its record, its current role, and the shell that plays it.

Knows nothing of brokers: what a change of role means there comes in as callbacks.
"""

import logging
import secrets
from collections import Counter
from pathlib import Path

from tandemq.clock import Clock
from tandemq.codec.ha_register import Register
from tandemq.model.ack_level import AckLevel
from tandemq.replication import draining, group_places
from tandemq.replication.acks import AckQueue
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.epochs import ReplicaRecord, must_ask
from tandemq.replication.first_copy import Compared
from tandemq.replication.following.core import SlavePhase
from tandemq.replication.hands import StoreHands
from tandemq.replication.master import MasterShell
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import Phase
from tandemq.replication.node_callbacks import NodeCallbacks
from tandemq.replication.node_terms import NodeTerms
from tandemq.replication.record_keeper import RecordKeeper
from tandemq.replication.relay import RelayShell
from tandemq.replication.relay_state import RelayLog, RelayState
from tandemq.replication.slave import ClassicSurvey, Find, SlaveShell
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.snapshot import Snapshot
from tandemq.replication.status import HaStatus
from tandemq.replication.tls_wire import HaTls
from tandemq.store.disk import Disk, FileDisk
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)


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
        self._store = store
        self.config = config
        self._acks = acks
        self._clock = clock
        self._callbacks = callbacks
        self._group = group
        self._address = address
        self._disk: Disk = disk if disk is not None else FileDisk(8)
        self.hands = StoreHands(store, self._disk, root, clock)
        self.keeper = RecordKeeper(store, self.hands, self._disk, root, address)
        self.terms = NodeTerms(config, group, address, sync_flush, observer)
        self.events: Counter[str] = Counter()
        self.master: MasterShell | None = None
        self.slave: SlaveShell | None = None
        self.relay: RelayShell | None = None
        self.ha_port = 0
        self.broker_id = 0
        """The slave's id it was configured with; the register has the last word."""
        self._level = AckLevel(1)

    def coordinate(self, home: str, lease: float) -> None:
        """Notes that the register lives with a coordinator: whoever is silent for a lease is missed."""
        self.terms.home, self.terms.lease = home, lease

    @property
    def home(self) -> str:
        """Where the register lives."""
        return self.terms.home

    @property
    def record(self) -> ReplicaRecord:
        return self.keeper.record

    @property
    def register(self) -> Register | None:
        return self.keeper.register

    @property
    def is_holder(self) -> bool:
        """Whether the register says that this replica reigns, or reigned last."""
        return self.keeper.is_holder

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
        self._level = level
        terms = self.terms.of_master(level, strict=strict, broker_id=broker_id)
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
        terms = self.terms.of_relay()
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
        terms, now = self.terms.of_slave(self.broker_id), self._clock.monotonic()
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
                self.keeper.saved(self.master.state.record)
            self.keeper.remember_confirmed(self.master.state.confirmed)
            self.master = None
        if self.relay is not None:
            self.relay.stop()
            self.relay = None
        if self.slave is not None:
            await self.slave.stop()
            if isinstance(self.slave.state, SlaveState):
                self.keeper.remember_confirmed(self.slave.state.confirmed)
            self.slave = None

    def remember_role(self, role: str) -> None:
        """Saves the role this node was given: a promotion outlives a restart with the file as it is."""
        self.keeper.remember_role(role)

    def _remember_compared(self, compared: Compared) -> None:
        self.keeper.remember_compared(compared, self.count)

    def _session_ended(self, confirmed: int) -> None:
        self.keeper.remember_confirmed(confirmed)
        self._callbacks.lost()

    def _saved(self, record: ReplicaRecord) -> None:
        before = self.record
        self.keeper.saved(record)
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
        """Returns where the replicas are that have told this master who they are."""
        return group_places.heard_addresses(self._master_state)

    def member_addresses(self) -> list[str]:
        """Returns where the group's other brokers were when they were last seen, as far as replication knows."""
        return group_places.member_addresses(self.record, self._master_state, self._address)

    @property
    def _master_state(self) -> MasterState | None:
        return self.master.state if self.master is not None else None

    def count(self, event: str) -> None:
        """Counts something that happened."""
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
        """Waits until every slave that counts has everything, for a demotion that loses nothing."""
        await draining.drained(lambda: self._master_state, self._store, self._clock, timeout)

    # --- what the broker tells --------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Learns, at the end of a turn of the loop, that the log may have grown."""
        if self.master is not None:
            self.master.appended()

    def flushed(self) -> None:
        """Learns that fdatasync returned."""
        if self.master is not None:
            self.master.flushed()
        elif self.slave is not None:
            self.slave.flushed()

    def retained(self) -> None:
        """Learns that old segments were deleted."""
        if self.master is not None:
            self.master.retained()
        elif self.slave is not None:
            self.slave.state.log.first = self._store.first_offset

    # --- looking at it ----------------------------------------------------------------------------------------------

    def status(self) -> HaStatus:
        """Returns a snapshot for people."""
        events = self.events + self.hands.events
        snapshot = Snapshot(self.hands, self.record, self._group, str(self._level), events, self._clock.monotonic())
        if self.master is not None:
            return snapshot.of_master(self.master.state, self._acks)
        if self.slave is not None:
            return snapshot.of_slave(self.slave, self.relay)
        return snapshot.idle()
