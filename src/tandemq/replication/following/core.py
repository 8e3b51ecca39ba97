"""What all parts of a slave share: record, log, phase and session, and how each of these changes.  Pure."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import Seal
from tandemq.codec.ha_session import Refuse
from tandemq.replication.decisions import Close, Confirm, Decision, LogEnds, Note, Save, Send
from tandemq.replication.epochs import ReplicaRecord

log = logging.getLogger(__name__)


class SlavePhase(Enum):
    """What a slave is doing; the value is shown to operators."""

    IDLE = "not connected"
    GREETED = "greeted"
    """Connected; the master's challenge is awaited."""
    TOLD = "told"
    """The master knows who we are and what we have; its WELCOME is awaited."""
    WAITING = "waiting for the master to open"
    DONATING = "giving back what the master lost"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class SlaveTerms:
    """What the operator decided, in seconds and bytes."""

    group: str
    address: str = ""
    broker_id: int = 0
    """The id it was configured with; the register has the last word."""
    heartbeat: float = 5.0
    housekeeping: float = 20.0
    shared_key: str = ""
    last_file_only: bool = False
    observer: bool = False
    """Follows without being counted: a RocketMQ master hears where a session began, and nothing more."""
    compression: str = ""
    """How log bytes are to come; see Hello."""
    batch: int = 8 << 20


Vouching = Callable[[str, int, float], str]
"""(master, epoch, now) -> why this member does not give its word not to stand for a lease; empty: it is given."""


class SlaveCore:
    """What more than one part of a slave reads.  It is changed by the methods below, wherever there is one."""

    def __init__(
        self, record: ReplicaRecord, terms: SlaveTerms, ends: LogEnds, now: float, vouch: Vouching | None
    ) -> None:
        self.record = record.withdrawn()
        self.terms = terms
        self.log = ends
        self.vouch = vouch
        self.phase = SlavePhase.IDLE
        self.confirmed = min(record.confirmed, ends.end)
        """Everything below may be seen by readers."""
        self.applied = 0
        """Dispatched; told by the shell, reported to the master for people to see."""
        self.master = ""
        """Identity of the master we follow."""
        self.master_group = ""
        """The group the broker we connect to says it belongs to; empty if it did not say."""
        self.number = 0
        """The epoch of the reign that is followed."""
        self.trouble: tuple[float, Reason, str] | None = None
        """When, why and how the last session ended."""
        self.last_heard = self.last_sent = now
        self.session = 0
        self.seal: Seal | None = None
        """Of our frames, in a group with a key, once the master has proven it."""

    # --- phase ------------------------------------------------------------------------------------------------------

    def enter(self, phase: SlavePhase) -> None:
        """Changes the phase; nothing else does."""
        if phase is not self.phase:
            log.debug("this slave goes from %s to %s", self.phase.value, phase.value)
        self.phase = phase

    @property
    def is_connected(self) -> bool:
        return self.phase is not SlavePhase.IDLE

    @property
    def is_following(self) -> bool:
        return self.phase is SlavePhase.FOLLOWING

    # --- log and record ---------------------------------------------------------------------------------------------

    @property
    def durable(self) -> int:
        """Everything below is on this node's disk."""
        log = self.log
        return log.flushed if log.flushed < log.end else log.end

    def check(self) -> None:
        """Asserts what always holds: nobody is shown or told more than this log has."""
        ends = self.log
        assert self.confirmed <= ends.end, f"confirmed {self.confirmed} <= end {ends.end}"
        assert ends.first <= ends.end, f"first {ends.first} <= end {ends.end}"

    def confirm(self, out: list[Decision], offset: int) -> None:
        """Shows readers what the master says can't vanish, as far as it is here."""
        if offset > self.log.end:
            offset = self.log.end
        if offset > self.confirmed:
            self.confirmed = offset
            out.append(Confirm(offset))

    def save(self, out: list[Decision], **changes: object) -> None:
        """Changes the record; what comes after it in `out` happens when it is on disk."""
        self.record = self.record.with_(confirmed=self.confirmed, **changes)
        out.append(Save(self.record))

    # --- session ----------------------------------------------------------------------------------------------------

    def send(self, out: list[Decision], message: ha.Control, now: float) -> None:
        """Sends a control message to the master."""
        self.last_sent = now
        out.append(Send(self.session, ha.encode_control(message), self.seal))

    def close(self, out: list[Decision], reason: Reason, text: str, now: float) -> None:
        """Ends the session, and tells the master why."""
        self.send(out, Refuse(reason.value, text, self.record.promise.number), now)
        out.append(Close(self.session, reason, text))
        told = f"session with the master ended: {text} [{reason.value}]. {reason.advice}"
        out.append(Note(f"ended-{reason.value}", told))
        self.ended(reason, text, now)

    def ended(self, reason: Reason, text: str, now: float) -> None:
        """Notes that the session is over, whoever ended it."""
        self.trouble = (now, reason, text)
        self.enter(SlavePhase.IDLE)
