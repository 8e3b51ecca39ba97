"""The slave's side of replication: what to do with each frame.  Pure: bytes and `now` in, decisions out.

Extended session (`SlaveState`):

    IDLE       ──▶ GREETED       it connected and said so
    GREETED    ──▶ TOLD          the master's challenge came; the answer tells the promise, the log and the register
    TOLD       ──▶ FOLLOWING     the master is open, and its WELCOME says from where
    TOLD       ──▶ WAITING       the master still asks: its WELCOME says so, and comes again
    WAITING    ──▶ DONATING      the master takes from this replica what it lost
    WAITING    ──▶ FOLLOWING     the master has opened
    DONATING   ──▶ FOLLOWING     the master has opened
    WAITING    ──▶ TOLD          the master challenges again, with a higher number
    DONATING   ──▶ TOLD          the master challenges again, with a higher number
    FOLLOWING  ──▶ TOLD          the master challenges again, with a higher number
    any state  ──▶ IDLE          the connection ended, by either side

With a RocketMQ master a slave speaks its protocol instead: classic_slave_state.py.

The rules are in `following/`, one file each; here each input is handed to the one whose rule it is.  The order within
one answer is the safety argument: a promise is saved before the HELLO that speaks of it; the log is cut before the
master's history is adopted; the history is adopted before the first byte of it is appended.
"""

from collections.abc import Callable

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Challenge, Farewell, Members, NewRegister, Packed, Refuse, Take, Vouch, Welcome
from tandemq.errors import CodecError
from tandemq.replication.decisions import Close, Decision, LogEnds
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.aligning import Aligning
from tandemq.replication.following.core import SlaveCore, SlavePhase, SlaveTerms, Vouching
from tandemq.replication.following.donating import Donating
from tandemq.replication.following.promising import Promising
from tandemq.replication.following.receiving import Receiving
from tandemq.replication.following.registers import Registers

_PROMISED = (SlavePhase.TOLD, SlavePhase.WAITING, SlavePhase.DONATING, SlavePhase.FOLLOWING)
_AWAITING_WELCOME = (SlavePhase.TOLD, SlavePhase.WAITING, SlavePhase.DONATING)


class SlaveState:
    """A slave in a session with a master of ours: puts the parts together.  The shell makes one for each session."""

    def __init__(
        self,
        *,
        record: ReplicaRecord,
        terms: SlaveTerms,
        log: LogEnds,
        new_id: Callable[[], str],
        now: float,
        vouch: Vouching | None = None,
    ) -> None:
        self.terms = terms
        self.log = log
        self._new_id = new_id
        self.core = core = SlaveCore(record, terms, log, now, vouch)
        self.frame = Receiving(core)
        """The data frame that is arriving."""
        self.donating = Donating(core)
        self._promising = Promising(core)
        self._aligning = Aligning(core, self.frame)
        self._registers = Registers(core)

    # --- looking at it ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> SlavePhase:
        return self.core.phase

    @property
    def record(self) -> ReplicaRecord:
        return self.core.record

    @property
    def confirmed(self) -> int:
        """Everything below may be seen by readers."""
        return self.core.confirmed

    @property
    def master(self) -> str:
        """Identity of the master we follow."""
        return self.core.master

    @property
    def trouble(self) -> tuple[float, Reason, str] | None:
        """When, why and how the last session ended."""
        return self.core.trouble

    @property
    def last_heard(self) -> float:
        return self.core.last_heard

    @property
    def is_connected(self) -> bool:
        return self.core.is_connected

    # --- connection -------------------------------------------------------------------------------------------------

    def connected(self, session: int, now: float) -> list[Decision]:
        """Speaks first on a connection to the master's HA port."""
        out: list[Decision] = []
        self.core.session = session
        self.frame.connected()
        self._promising.greet(out, self._new_id(), now)
        return out

    def disconnected(self, now: float) -> None:
        """Notes that the connection is gone, whoever ended it."""
        core = self.core
        if core.is_connected:
            trouble = core.trouble or (now, Reason.LOST, "the connection to the master was lost")
            core.ended(trouble[1], trouble[2], trouble[0])
        self.frame.drop_partial()

    def receive(self, data: bytes | memoryview, now: float) -> list[Decision]:
        """Takes bytes from the master, however split; ends with at most one ack."""
        core, out = self.core, list[Decision]()
        if not core.is_connected:
            return out
        core.last_heard = now
        try:
            for event in self.frame.frames.feed(data):
                self._dispatch(out, event, now)
                if core.phase is SlavePhase.IDLE:
                    self.frame.drop_partial()
                    return out
        except CodecError as error:
            self._close(out, Reason.CORRUPT, str(error), now)
            return out
        self.frame.ack_if_moved(out, now)
        return out

    def _dispatch(self, out: list[Decision], event: ha.Event, now: float) -> None:
        if isinstance(event, Chunk):
            self.frame.on_chunk(out, event, now)
        elif isinstance(event, Head):
            self.frame.on_head(out, event, now)
        else:
            self._told(out, event, now)

    def _told(self, out: list[Decision], event: ha.Event, now: float) -> None:
        """Hands on everything but plain log bytes."""
        phase = self.core.phase
        if isinstance(event, Packed):
            self.frame.on_packed(out, event, now)
        elif isinstance(event, Challenge):
            seal = self._promising.challenged(out, event, now)
            if seal is not None:
                self.frame.frames.secure(seal)
        elif isinstance(event, Welcome) and phase in _AWAITING_WELCOME:
            self._aligning.welcomed(out, event, now)
        elif isinstance(event, Members) and phase is SlavePhase.FOLLOWING:
            self._registers.told_members(out, event)
        elif isinstance(event, NewRegister) and phase in _PROMISED:
            self._registers.told(out, event.register, now)
        elif isinstance(event, Take) and phase is SlavePhase.WAITING:
            self.donating.asked(out, event, now)
        elif isinstance(event, Vouch):
            self._registers.asked_for_word(out, event, now)
        elif isinstance(event, Refuse | Farewell):
            self.core.ended(event.code, event.text, now)
            out.append(Close(self.core.session, event.code, event.text))
        else:
            text = f"{type(event).__name__} is not expected when {phase.value}"
            self.core.close(out, Reason.CORRUPT, text, now)

    # --- watermarks and time ----------------------------------------------------------------------------------------

    def flushed(self, offset: int, now: float) -> list[Decision]:
        """Notes that fdatasync returned for everything below `offset`."""
        self.log.flushed = max(self.log.flushed, offset)
        out: list[Decision] = []
        self.frame.ack_if_moved(out, now)
        return out

    def refuse(self, reason: Reason, text: str, now: float) -> list[Decision]:
        """Tells the master why this node can't go on (disk full, log poisoned), then closes."""
        out: list[Decision] = []
        if self.core.is_connected:
            self._close(out, reason, text, now)
        return out

    def tick(self, now: float) -> list[Decision]:
        """Sends heartbeats; ends the session with a master that is silent."""
        core, out = self.core, list[Decision]()
        if not core.is_connected:
            return out
        if now - core.last_heard >= self.terms.housekeeping:
            self._close(out, Reason.SILENT, f"the master was silent for {self.terms.housekeeping:g} s", now)
        elif now - core.last_sent >= self.terms.heartbeat and core.phase is not SlavePhase.GREETED:
            self.frame.ack(out, now)
        return out

    def next_deadline(self, now: float) -> float:
        """Returns when `tick` has something to do if nothing else happens."""
        core = self.core
        if not core.is_connected:
            return now + self.terms.heartbeat
        return max(now, min(core.last_heard + self.terms.housekeeping, core.last_sent + self.terms.heartbeat))

    def saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        """Notes that the record is on disk; nothing waits for it here, the order of the decisions is enough."""
        return []

    def _close(self, out: list[Decision], reason: Reason, text: str, now: float) -> None:
        self.core.close(out, reason, text, now)
        self.frame.drop_partial()
