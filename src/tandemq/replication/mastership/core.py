"""What all parts of a master share: record, log, phase and register, and how each of these changes.  Pure."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tandemq.codec.ha_register import GROUP_HOME, Member, Register
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue
from tandemq.replication.decisions import Decision, LogEnds, Propose, Save
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.register import CoordinatedKeeper, RegisterKeeper

log = logging.getLogger(__name__)


class Phase(Enum):
    """What a node with a master's role is doing; the value is shown to operators."""

    ASKING = "asking"
    """It waits for the replicas that may hold what it lost.  Read-only."""
    TAKING = "taking back"
    """It copies from the furthest replica what it lost.  Read-only."""
    PREPARING = "preparing"
    SWAPPING = "writing the register"
    """Its new epoch is being stored by those it has heard.  Read-only."""
    OPEN = "open"
    """It takes writes."""
    DEPOSED = "deposed"
    """It met a higher epoch.  Read-only for good."""


@dataclass(frozen=True, slots=True)
class MasterTerms:
    """What the operator decided, in the units of the state machine (seconds, bytes)."""

    group: str
    level: AckLevel
    address: str = ""
    """Where clients find this broker, for the register."""
    broker_id: int = 0
    """The id it was configured with, for the register."""
    sync_flush: bool = False
    strict_open: bool = True
    """Never open without every replica that must be asked (SYNC_MASTER); else go on after `rejoin_wait`, loudly."""
    heartbeat: float = 5.0
    housekeeping: float = 20.0
    gap_max: int = 256 << 20
    away_max: float = 15.0
    rejoin_wait: float = 10.0
    loss_wait: float = 2.0
    """Seconds for which everybody is asked all the same after the operator accepted a loss."""
    readers_wait: bool = False
    shared_key: str = ""
    classic_peers: bool | None = None
    """Whether RocketMQ slaves, which can't prove a key, are served and counted; None: where there is no key."""
    classic_batch: int = 32 * 1024
    batch: int = 8 << 20
    last_file_only: bool = False
    rate_max: int | None = None
    sessions_max: int = 64
    home: str = GROUP_HOME
    """Where the register lives; elsewhere than in the group, every swap is a proposal that counts when it is there."""
    lease: float = 0.0
    """Of a reign, where there is a coordinator."""


class MasterCore:
    """What more than one part of a master reads.  It is changed by the methods below, wherever there is one."""

    def __init__(
        self,
        record: ReplicaRecord,
        terms: MasterTerms,
        ends: LogEnds,
        acks: AckQueue,
        new_id: Callable[[], str],
        register: Register | None,
        ordered: bool,
    ) -> None:
        """`register`: what the coordinator has, where there is one."""
        self.record = record
        self.terms = terms
        self.log = ends
        self.acks = acks
        self.new_id = new_id
        self.phase = Phase.ASKING
        self.ordered = ordered
        """An operator promotes this node; once the order is carried out it is the holder, as any other."""
        self.provisional = False
        """Open, but alone: it acknowledges one copy only, nobody follows it, it opens anew once others are heard."""
        self.confirmed = min(record.confirmed, ends.end)
        """Everything below may be seen by readers."""
        self.is_coordinated = terms.home != GROUP_HOME
        self.keeper = RegisterKeeper(record.replica, record.register)
        if self.is_coordinated:
            self.keeper = CoordinatedKeeper(record.replica, register)
        self.proposal: tuple[Register, dict[str, object]] | None = None
        """A swap that the coordinator was asked for and has not answered, and what the record says beside it."""
        self.saved_in_sync: frozenset[str] = frozenset()
        """Who is in sync by the record that is on disk."""
        self.saved_classic = False
        """Whether the register on disk says since where RocketMQ's slaves were counted."""

    # --- phase ------------------------------------------------------------------------------------------------------

    def enter(self, phase: Phase) -> None:
        """Changes the phase; nothing else does."""
        if phase is not self.phase:
            log.debug("this master goes from %s to %s", self.phase.value, phase.value)
        self.phase = phase

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def is_regular(self) -> bool:
        """Open, and others may follow."""
        return self.phase is Phase.OPEN and not self.provisional

    # --- record -----------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The epoch this node reigns in, or asks to open."""
        return self.record.promise.number

    @property
    def me(self) -> Member:
        return Member(self.record.replica, self.terms.address, self.terms.broker_id)

    @property
    def uses_durable(self) -> bool:
        return self.terms.level.durable

    def save(self, out: list[Decision], **changes: object) -> None:
        """Changes the record; it counts when it is on disk and `saved` says so."""
        self.record = self.record.with_(confirmed=self.confirmed, **changes)
        out.append(Save(self.record))

    # --- register ---------------------------------------------------------------------------------------------------

    @property
    def register(self) -> Register | None:
        return self.keeper.read()

    @property
    def proposed(self) -> Register | None:
        """What the coordinator was asked to write and has not answered."""
        return self.proposal[0] if self.proposal is not None else None

    def of_register(self, register: Register) -> dict[str, object]:
        """Returns what the record says beside the register, for those who read only that: the others of the group."""
        here = {self.record.replica}
        return {
            "register": register,
            "members": register.member_ids - here,
            "in_sync": frozenset(register.in_sync) - here,
        }

    def swap(self, out: list[Decision], new: Register, **more: object) -> bool:
        """Changes the register of a reigning master, on its own disk first, then at the others; nothing else does.

        With a coordinator: proposed, one at a time; False while it has to wait, and then it is tried again later.
        """
        if self.is_coordinated:
            if self.proposal is not None or self.acks.is_fenced:
                return False
            self.proposal = new, more
            out.append(Propose(self.register, new))
            return True
        swapped = self.keeper.swap(self.register, new)
        assert swapped
        self.save(out, **self.of_register(new), **more)
        return True
