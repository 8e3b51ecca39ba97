"""The master's side of replication: who follows, what counts, when it may write.

Pure: bytes and `now` in, decisions out.

    ASKING     ──▶ TAKING        everybody it needs was heard, and one of them has more of the log
    ASKING     ──▶ PREPARING     everybody was heard and nobody has more; or it may open alone, provisionally
    TAKING     ──▶ PREPARING     it has what the furthest replica has
    PREPARING  ──▶ SWAPPING      its log is on disk: the register of its epoch goes to all it heard
    PREPARING  ──▶ OPEN          provisionally, or in a group that has no register yet
    SWAPPING   ──▶ OPEN          everybody it heard has stored the register
    TAKING     ──▶ ASKING        the donor was lost, or another replica that the opening needs
    PREPARING  ──▶ ASKING        such a replica was lost, or a newer register was met
    SWAPPING   ──▶ ASKING        such a replica was lost, or has promised a higher number
    OPEN       ──▶ ASKING        a higher number was promised, or a reign that nobody joined meets its group
    OPEN       ──▶ TAKING        a provisional reign has heard everybody, and one of them has more
    OPEN       ──▶ PREPARING     a provisional reign has heard everybody and opens anew
    any state  ──▶ DEPOSED       a higher epoch reigns, or the operator's order

`tests/sim/test_state_diagrams.py` compares this list, and that of `slave_state`, with what the simulator sees.

Rules (design: the rules that make it safe), and where each one lives:

 1. A history has a name            `prepared`: the epoch is saved before Opened; `common_point` in epochs.py.
 2. An ack belongs to a replica     `_on_ack`: current epoch, this session, not above `sent`, after START was checked;
    and an epoch                    `_replace`: one session per identity.  AckQueue counts copies by identity.
 3. A master that crashed asks      `start`: found reigning, it must hear all that were in sync; they promise its new
    before it writes                number before they tell their offsets; `_decide` takes from the furthest.
                                    `_join`: a replica is saved as in sync before its first ack counts.
 4. Cutting is the last resort      Truncate and Reset save aside what they cut.
 5. A higher epoch ends a reign     `_on_hello`, `_on_refuse`, `order`: all end in `_step_down`.
 6. Readers see what can't vanish   `confirmed`, sent with every data frame.
 7. Durable means fdatasync         `flushed` comes only from the store; a slave's durable only from its acks.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final

from tandemq.codec import ha_classic
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import GROUP_HOME, Member, Register
from tandemq.codec.ha_seal import SEALED_VERSION, Handshake, SealBroken
from tandemq.codec.ha_session import (
    Ack,
    Challenge,
    Farewell,
    Hello,
    Members,
    NewRegister,
    Preamble,
    Refuse,
    Registered,
    Start,
    Take,
    Vouch,
    Vouched,
    Welcome,
)
from tandemq.errors import CodecError
from tandemq.model.ack_level import AckLevel
from tandemq.replication import register as registers
from tandemq.replication.accession import Case, Heard, Judgement, judge, judge_elected
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.replication.decisions import (
    Append,
    Batch,
    Close,
    Confirm,
    Decision,
    FlushSoon,
    LogEnds,
    Note,
    Opened,
    Prepare,
    Propose,
    Reset,
    Save,
    Send,
    SteppedDown,
    Truncate,
)
from tandemq.replication.epochs import (
    PROVISIONAL,
    Epoch,
    Promise,
    ReplicaRecord,
    common_point,
    from_items,
    place_of,
    rank,
    to_items,
)
from tandemq.replication.register import CoordinatedKeeper, RegisterKeeper, is_newer
from tandemq.replication.session import STREAMING, Departure, Session, SessionState, departure_of
from tandemq.replication.vouching import Words

HELLO_WAIT: Final = 5.0
"""Seconds a slave may take to answer our challenge."""
DEPARTURES_MAX: Final = 64
"""As many as there may be sessions: whoever connects without being a member must not fill the memory."""
Place = tuple[int, int, int]
"""Epoch, offset and size of log bytes."""
DIGESTS_MAX: Final = 16
"""Sums of log bytes kept: of what is sent now and next, for slaves at a few different places."""
PROOF_WAIT: Final = 5.0
"""Seconds after it connected in which a peer has to prove the key, where there is one: two round trips, TLS, and the
slave's disk."""
UNPROVEN_MAX: Final = 64
"""Connections that have proven nothing yet. They have slots of their own, so that they can't keep slaves out; beyond so
many the oldest one goes of the host that has most: a slave needs a moment to prove itself, who does not has time."""


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


class MasterState:
    """All sessions of a master and its right to write."""

    def __init__(
        self,
        *,
        record: ReplicaRecord,
        terms: MasterTerms,
        log: LogEnds,
        acks: AckQueue,
        new_id: Callable[[], str],
        now: float,
        ask: frozenset[str] = frozenset(),
        ordered: bool = False,
        group_exists: bool = False,
        register: Register | None = None,
    ) -> None:
        """`ask`: replicas that must be heard before this node writes where there is no register; see `must_ask`.

        `ordered`: an operator promotes this node.  `group_exists`: somebody of this name has a register, so that a node
        without one never begins a group of its own.  `register`: what the coordinator has, where there is one.
        """
        self.record = record
        self.terms = terms
        self.log = log
        self.acks = acks
        self.phase = Phase.ASKING
        self.sessions: dict[int, Session] = {}
        self.confirmed = min(record.confirmed, log.end)
        self.opened_without: frozenset[str] = frozenset()
        """Replicas that should have been heard before opening and were not."""
        self.departures: dict[str, Departure] = {}
        """Identity or host -> how its last session ended; bounded."""
        self.began_at = now
        self.provisional = False
        """Open, but alone: it acknowledges one copy only, nobody follows it, it opens anew once others are heard."""
        self.is_coordinated = terms.home != GROUP_HOME
        self.keeper = RegisterKeeper(record.replica, record.register)
        if self.is_coordinated:
            self.keeper = CoordinatedKeeper(record.replica, register)
        self._words = Words(terms.lease)
        self._proposed: tuple[Register, dict[str, object]] | None = None
        """A swap that the coordinator was asked for and has not answered, and what the record says beside it."""
        self._group_exists = group_exists or record.register is not None
        self._judged: Judgement | None = None
        self._going_provisional = False
        self._writes_to: frozenset[str] = frozenset()
        """Replicas that must store the register of a new epoch before it opens."""
        self._minting: Register | None = None
        self._allowed_at: float | None = None
        self._new_id = new_id
        # Not itself, nor what it was before it lost its disk.
        self._ask = frozenset(replica for replica in ask if place_of(replica) != place_of(record.replica))
        self._ordered = ordered
        self._asked_since = now
        self._allowed = False
        self._donor: int | None = None
        self._take_stop = 0
        self._taken = bytearray()
        self._away: dict[str, tuple[float, int]] = {}
        self._said_waiting = False
        self._frame: tuple[int, int, int, int, int, bool, bool] | None = None
        self._header = b""
        self._digests: dict[Place, bytes] = {}
        """SHA-256 of log bytes that were sealed last, or are about to be: they are summed once for all slaves."""
        level = terms.level
        self._append_confirms = level.needed(1) == 1 and not (level.durable or terms.sync_flush)
        """Whether readers may see a message as soon as it is appended; else a flush or an ack makes it visible."""
        self._saved_in_sync: frozenset[str] = frozenset()
        self._saved_classic = False
        self._serves_classic = not terms.shared_key if terms.classic_peers is None else terms.classic_peers
        # A RocketMQ slave may take 5 s for its first word.
        self._proof_wait = terms.housekeeping if self._serves_classic else min(PROOF_WAIT, terms.housekeeping)

    # --- the way to the throne --------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Decision]:
        """Begins to ask; opens at once when there is nobody to ask."""
        out: list[Decision] = []
        if self.register is None:
            # On record, so that a crash before it opens does not forget whom to ask.
            self.record = self.record.with_(in_sync=self.record.in_sync | self._ask)
        known = self.register
        self._campaign(out, max(self.record.promise.number, known.epoch if known is not None else 0), now)
        if self.waiting_for:
            names = ", ".join(sorted(self.waiting_for))
            out.append(Note("asking", f"this master asks {names} for what it may have lost before it takes writes"))
        self._decide(out, now)
        return out

    @property
    def number(self) -> int:
        """The epoch this node reigns in, or asks to open."""
        return self.record.promise.number

    @property
    def waiting_for(self) -> frozenset[str]:
        """Replicas that have not been heard in the current asking."""
        if self.phase is not Phase.ASKING and not self.provisional:
            return frozenset()
        judgement = self._judgement()
        if judgement is not None:
            return judgement.missing
        heard = {place_of(session.replica) for session in self._heard()}
        return frozenset(replica for replica in self._ask if place_of(replica) not in heard)

    def allow(self, now: float, *, group_gone: bool = False) -> list[Decision]:
        """The operator accepts a loss: everybody is asked all the same, then it opens without those that don't come.

        `group_gone`: of all brokers that answer nobody has a register, so that a group that was here is begun anew.
        """
        self._allowed = True
        if self._allowed_at is None:
            self._allowed_at = now
        out: list[Decision] = []
        if group_gone and self._group_exists and self._judgement() is None:
            text = "the group that was here is begun anew: nobody who answers has its register"
            out.append(Note("opened-without", text, loud=True))
            self._group_exists = False
        self._decide(out, now)
        return out

    def _campaign(self, out: list[Decision], above: int, now: float) -> None:
        """Chooses a number nobody has used, remembers it, and asks everybody for their promise."""
        record = self.record
        number = max(above, record.promise.number, record.history.last_number, record.campaigned) + 1
        before = record.before if record.before is not None else record.promise
        self._save(out, promise=Promise(number, self._new_id()), before=before, campaigned=number)
        self._asked_since = now
        for session in self.sessions.values():
            if session.nonce:
                self._challenge(out, session, now)

    def _heard(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.state is SessionState.WAITING]

    @property
    def register(self) -> Register | None:
        return self.keeper.read()

    def _judgement(self) -> Judgement | None:
        """By which case this node may open, and whom it must still hear; None: nobody has a register."""
        record = self.record
        me = Heard(record.replica, record.register, record.complete)
        heard = [
            Heard(session.replica, session.hello.register, session.hello.clean)
            for session in self._heard()
            if session.hello is not None
        ]
        if self.is_coordinated:
            register = self.register
            return judge_elected(me, register, heard) if register is not None else None
        lost = self.log.end == self.log.first and record.confirmed > self.log.end
        return judge(me, record.has_opened and not lost, heard)

    def _decide(self, out: list[Decision], now: float) -> None:
        """Opens, or takes from the furthest first, as soon as those who must be heard were heard."""
        if self.phase is not Phase.ASKING and not self.provisional:
            return
        judgement = self._judgement()
        if judgement is not None:
            self._decide_by_register(out, judgement, now)
        elif not self._group_exists:
            self._decide_without_register(out, now)
        elif now >= self._asked_since + self.terms.rejoin_wait:
            self._say_waiting(out, frozenset({"a replica that has the register of the group"}))

    def _decide_by_register(self, out: list[Decision], judgement: Judgement, now: float) -> None:
        register = judgement.register
        if judgement.case is Case.NOT_NAMED or (judgement.yields and not self._ordered):
            text = f"{register.holder} reigns or last reigned in epoch {register.epoch}"
            if judgement.case is Case.NOT_NAMED:
                text += f", and the register does not name {self.record.replica}"
            self._step_down(out, text, register.epoch, now)
        elif judgement.may_open:
            self._accede(out, judgement, frozenset(), now)
        elif self._allowed_at is not None and now >= self._allowed_at + self.terms.loss_wait:
            names = ", ".join(sorted(judgement.missing))
            out.append(Note("opened-without", f"goes on without {names}: what only they hold is lost", loud=True))
            self._accede(out, judgement, judgement.missing, now)
        elif self.provisional or self._allowed:
            return
        elif judgement.may_open_provisionally and not self._ordered and self._may_be_alone(judgement, now):
            names = ", ".join(sorted(judgement.missing))
            text = f"opens provisionally, at one copy, until {names} can be heard"
            out.append(Note("opened-provisionally", text, loud=True))
            self._judged, self._going_provisional = judgement, True
            self.phase = Phase.PREPARING
            out.append(Prepare())
        elif now >= self._asked_since + self.terms.rejoin_wait:
            self._say_waiting(out, judgement.missing)

    def _may_be_alone(self, judgement: Judgement, now: float) -> bool:
        waited = now >= self._asked_since + self.terms.rejoin_wait
        return judgement.was_alone or (waited and not self.terms.strict_open)

    def _say_waiting(self, out: list[Decision], missing: frozenset[str]) -> None:
        if self._said_waiting:
            return
        self._said_waiting = True
        names = ", ".join(sorted(missing))
        text = (
            f"{names} did not come within {self.terms.rejoin_wait:g} s; they may hold acknowledged messages that this "
            "master lost, so it stays read-only. Start them, or allow it with haOpenWithoutReplicas=true or "
            "`tandemq broker promote --accept-loss`"
        )
        out.append(Note("read-only", text, loud=True))

    def _accede(self, out: list[Decision], judgement: Judgement, without: frozenset[str], now: float) -> None:
        """Everybody needed was heard: take the furthest log, then begin the reign."""
        if self.provisional:
            self._end_reign(out, "it has been heard and opens anew", self.number, asking=True)
            self.provisional = False
        self._judged, self._going_provisional = judgement, False
        self.opened_without = without
        named = judgement.register.everybody
        self._writes_to = frozenset(s.replica for s in self._heard() if s.replica in named)
        self._go_on(out, now)

    def _go_on(self, out: list[Decision], now: float) -> None:
        furthest = self._furthest()
        if furthest is None:
            self.phase = Phase.PREPARING
            out.append(Prepare())
        else:
            self._take(out, furthest, now)

    def _decide_without_register(self, out: list[Decision], now: float) -> None:
        """The rules of the version before, until the group has a register."""
        missing = self.waiting_for
        if missing:
            over = now >= self._asked_since + self.terms.rejoin_wait
            if not (self._allowed or (over and not self.terms.strict_open)):
                if over:
                    self._say_waiting(out, missing)
                return
            names = ", ".join(sorted(missing))
            out.append(Note("opened-without", f"goes on without {names}: what only they hold is lost", loud=True))
        self.opened_without = missing
        self._judged = None
        self._go_on(out, now)

    def _furthest(self) -> Session | None:
        """The replica whose log is newer than ours."""
        heard = self._heard()
        end = self.log.end
        named = self._judged.register.everybody if self._judged is not None else None
        if named is not None:
            heard = [session for session in heard if session.replica in named]
        blind = self._judged is not None and self.record.register is None and self.record.blind_from >= 0
        if blind or any(self._holds_other_reign(session) for session in heard):
            end = min(end, self.record.blind_from)
        best, mark = None, rank(self.record.history, end, self.record.alone_from)
        for session in heard:
            assert session.hello is not None
            theirs = rank(session.history, session.hello.end, session.hello.alone_from)
            if theirs > mark:
                best, mark = session, theirs
        return best

    def _take(self, out: list[Decision], donor: Session, now: float) -> None:
        hello = donor.hello
        assert hello is not None
        agreed = common_point(self.record.history, self.log.end, donor.history, hello.end)
        if agreed is None or agreed < max(hello.first, self.log.first):
            save_from = self.log.first if agreed is None else max(agreed, self.log.first)
            why = f"starts over from what replica {donor.replica} has"
            out.append(Reset(hello.first, save_from, self.log.end, why, "reset-other-history"))
            self.log.first = self.log.end = hello.first
        elif agreed < self.log.end:
            out.append(Truncate(agreed, self.log.end, f"replica {donor.replica} has the newer history"))
            self.log.end = agreed
        self.log.flushed = min(self.log.flushed, self.log.end)
        self.confirmed = min(self.confirmed, self.log.end)
        out.append(Confirm(self.confirmed))
        self._save(out, history=donor.history, blind_from=-1, alone_from=-1)
        self.phase = Phase.TAKING
        self._donor, self._take_stop = donor.id, hello.end
        donor.state = SessionState.DONATING
        self._taken.clear()
        out.append(
            Note("taking-back", f"takes {hello.end - self.log.end} bytes from {self.log.end} back from {donor.replica}")
        )
        self._send(out, donor, Take(self.number, self.log.end, hello.end), now)
        if self.log.end == hello.end:
            self._taken_all(out)

    def _taken_all(self, out: list[Decision]) -> None:
        assert self._donor is not None
        self.sessions[self._donor].state = SessionState.WAITING
        self._donor = None
        self.phase = Phase.PREPARING
        out.append(Prepare())

    def prepared(self, end: int, now: float) -> list[Decision]:
        """The log is whole and on disk up to `end`: begin the reign."""
        if self.phase is not Phase.PREPARING:
            return []  # one of those heard was lost meanwhile: all are asked again
        self.log.end = self.log.flushed = end
        out: list[Decision] = []
        if self._going_provisional:
            self._open_provisionally(out, now)
        elif self._judged is not None:
            fresh = self._judgement()
            if fresh is None or fresh.register.version != self._judged.register.version:
                # Somebody heard meanwhile knows of a newer reign.
                self.phase = Phase.ASKING
                self._decide(out, now)
            else:
                self._write_register(out, self._judged, now)
        else:
            self._open_without_register(out, now)
        return out

    def _open_provisionally(self, out: list[Decision], now: float) -> None:
        """The last holder, alone: the register stays as it is, nobody promises to this reign."""
        promise = self.record.promise
        epoch = Epoch(promise.number, PROVISIONAL + promise.id, self.log.end)
        history = self.record.history.opened(epoch.number, epoch.id, epoch.start)
        self._save(out, history=history, reigning=True, follows="")
        self.provisional, self._going_provisional = True, False
        self._begin(out, epoch, now)
        # What it asks for from now on is another epoch than the one it writes in.
        self._campaign(out, promise.number, now)
        self._decide(out, now)

    def _write_register(self, out: list[Decision], judgement: Judgement, now: float) -> None:
        """The log is taken and on disk: the new epoch goes to the disks of all who were heard, then it opens."""
        promise, heard = self.record.promise, self._heard()
        whole = frozenset(session.replica for session in heard if self._holds_all(session))
        register = registers.of_new_epoch(
            judgement.register,
            promise.number,
            promise.id,
            self._me,
            whole,
            judgement.replaces,
            pinned=self.is_coordinated and self._ordered,
        )
        if self.is_coordinated:
            self._propose_epoch(out, register)
            return
        self.keeper.begin(register)
        self._save(out, **self._of_register(register), before=None, blind_from=-1, alone_from=-1, follows="")
        self.phase = Phase.SWAPPING
        self._writes_to |= {s.replica for s in heard if s.replica in register.everybody}
        for session in heard:
            self._send(out, session, NewRegister(register), now)
        self._open_if_stored(out, now)

    def _holds_all(self, session: Session) -> bool:
        hello = session.hello
        assert hello is not None
        end = min(hello.end, hello.durable) if self._uses_durable else hello.end
        agreed = common_point(self.record.history, self.log.end, session.history, end)
        return agreed == self.log.end

    @property
    def _uses_durable(self) -> bool:
        return self.terms.level.durable

    @property
    def _me(self) -> Member:
        return Member(self.record.replica, self.terms.address, self.terms.broker_id)

    def _of_register(self, register: Register) -> dict[str, object]:
        """What the record says beside the register, for those who read only that: the others of the group."""
        here = {self.record.replica}
        return {
            "register": register,
            "members": register.member_ids - here,
            "in_sync": frozenset(register.in_sync) - here,
        }

    def _open_if_stored(self, out: list[Decision], now: float) -> None:
        if self.is_coordinated:
            return  # what counts there is the coordinator's word, whatever the others have stored
        if self.phase is not Phase.SWAPPING or not all(self.keeper.has_stored(one) for one in self._writes_to):
            return
        self._open_reign(out, now)

    def _open_reign(self, out: list[Decision], now: float) -> None:
        promise = self.record.promise
        epoch = Epoch(promise.number, promise.id, self.log.end)
        history = self.record.history.opened(epoch.number, epoch.id, epoch.start)
        self._save(out, history=history, reigning=True, follows="", complete=True)
        self._begin(out, epoch, now)
        for session in self._heard():
            self._welcome(out, session, now)

    # --- the coordinator's register ---------------------------------------------------------------------------------

    def _propose_epoch(self, out: list[Decision], register: Register) -> None:
        """The order is: read, hear, take, flush, swap on what was read, open.

        From here on the promise can't be taken back: the swap may happen although nobody tells us so.
        """
        self._save(out, before=None)
        self.phase = Phase.SWAPPING
        self._proposed = register, {}
        out.append(Propose(self.register, register))

    @property
    def proposed(self) -> Register | None:
        """What the coordinator was asked to write and has not answered."""
        return self._proposed[0] if self._proposed is not None else None

    def swapped(self, register: Register, now: float) -> list[Decision]:
        """The coordinator has what was proposed: it counts."""
        out: list[Decision] = []
        if self._proposed is None or self._proposed[0] != register:
            return out
        (_, more), self._proposed = self._proposed, None
        if self.phase is Phase.SWAPPING and register.epoch == self.number:
            self.keeper.begin(register)
            self._save(out, **self._of_register(register), before=None, blind_from=-1, alone_from=-1, follows="")
            self._open_reign(out, now)
        elif self.phase is Phase.OPEN and register.epoch == self.number:
            self.keeper.swap(self.register, register)
            self._save(out, **self._of_register(register), **more)
        elif self.phase is not Phase.DEPOSED:
            # Another promise was met while the swap was under way: this node is the holder, and asks on.
            self.keeper.begin(register)
            self._decide(out, now)
        return out

    def learned(self, register: Register, now: float) -> list[Decision]:
        """The coordinator has this one: perhaps our own proposal, perhaps somebody else's."""
        if self._proposed is not None and self._proposed[0] == register:
            return self.swapped(register, now)
        out: list[Decision] = []
        if not is_newer(register, self.register) or self.phase is Phase.DEPOSED:
            return out
        self._proposed = None  # it compared what is there no longer
        if register.holder != self.record.replica and is_newer_reign(register, self.register):
            text = f"{register.holder} holds epoch {register.epoch} of the group"
            self._step_down(out, text, register.epoch, now)
        elif self.phase is Phase.OPEN and register.epoch == self.number:
            self.keeper.swap(self.register, register)
            self._save(out, **self._of_register(register))
        elif self.phase is Phase.OPEN:
            self.keeper.begin(register)
            self._ask_again(
                out, register.epoch, "a proposal of its own for a later epoch was carried out after all", now
            )
        else:
            self.keeper.begin(register)
            if self.phase is Phase.SWAPPING:
                self.phase = Phase.ASKING
            self._decide(out, now)
        return out

    def ask_word(self, now: float) -> list[Decision]:
        """While the coordinator is away: asks those who follow for their word not to stand, as often as is due."""
        out: list[Decision] = []
        number = self._words.ask(now)
        if number is not None and self.phase is Phase.OPEN:
            for session in self.sessions.values():
                if session.is_streaming and session.hello is not None and session.hello.vouches:
                    self._send(out, session, Vouch(self.number, number), now)
        return out

    def word_until(self, now: float) -> float:
        """Until when all whom a candidate would have to hear have given their word."""
        if self.register is None or self.phase is not Phase.OPEN:
            return float("-inf")
        changed = self.proposed.in_sync if self.proposed is not None else ()  # it may have happened
        needed = {*self.register.in_sync, *changed} - {self.record.replica}
        return self._words.until(needed, now)

    def _begin(self, out: list[Decision], epoch: Epoch, now: float) -> None:
        self.phase = Phase.OPEN
        self._ordered = False  # the order is carried out: from now on it is the holder, as any other
        # Away until they count; who does not come leaves in time.
        self._away = dict.fromkeys(sorted(self.record.in_sync), (now, self.log.end))
        self.acks.restart(self.log.end, "no slave is in sync yet")
        self._count_size()
        out.append(Opened(epoch))
        self._confirm(out)

    def _count_size(self) -> None:
        if self.register is None:
            self.acks.set_members(self.record.members)
        else:
            self.acks.set_size(self.keeper.size(self._reachable()))

    def _reachable(self) -> frozenset[str]:
        return frozenset(s.replica for s in self.sessions.values() if s.is_streaming and not s.classic)

    def _open_without_register(self, out: list[Decision], now: float) -> None:
        """Case 4, a group that begins; or a group of the version before, which gets its register later."""
        promise, end = self.record.promise, self.log.end
        # Nobody was asked, and no operator has ordered it.
        blind = not (self._ask or self._ordered)
        others = self._other_members()
        changes: dict[str, object] = {"members": others, "in_sync": frozenset()}
        if self.is_coordinated:
            new = registers.minted(self._new_id(), self._me, home=self.terms.home)
            self._propose_epoch(out, registers.of_new_epoch(new, promise.number, promise.id, self._me, frozenset()))
            return
        if not others:
            # Nobody else belongs to it: its register is on this disk, and so everywhere.
            new = registers.minted(self._new_id(), self._me)
            register = registers.of_new_epoch(new, promise.number, promise.id, self._me, frozenset())
            self.keeper.begin(register)
            changes = self._of_register(register)
        # Everything is on this node's own disk now, so nobody else holds what it could lose.
        epoch = Epoch(promise.number, promise.id, end)
        self._save(
            out,
            history=self.record.history.opened(epoch.number, epoch.id, epoch.start),
            reigning=True,
            follows="",
            complete=True,
            before=self.record.before if blind else None,
            blind_from=_since(self.record.blind_from, end) if blind else -1,
            alone_from=_since(self.record.alone_from, end) if blind else -1,
            **changes,
        )
        self._begin(out, epoch, now)
        for session in self._heard():
            self._welcome(out, session, now)

    def _other_members(self) -> frozenset[str]:
        here = place_of(self.record.replica)
        known = self.record.members | self.record.in_sync | {self.record.follows}
        return frozenset(r for r in known if r and place_of(r) != here)

    # --- connections ------------------------------------------------------------------------------------------------

    def connected(self, session_id: int, peer: str, now: float) -> list[Decision]:
        """A slave's connection was accepted; it speaks first."""
        out: list[Decision] = []
        session = Session(session_id, peer, now, now, now)
        self.sessions[session_id] = session
        unproven = [session for session in self.sessions.values() if not session.proven]
        if len(unproven) > UNPROVEN_MAX:
            by_host = Counter(session.host for session in unproven)
            oldest = max(unproven, key=lambda session: by_host[session.host])
            text = f"{UNPROVEN_MAX} connections have not proven that they belong here, {oldest.peer} is one of them"
            self._close(out, oldest, Reason.TOO_MANY, text, now)
        return out

    def _is_room(self, out: list[Decision], session: Session, replica: str, now: float) -> bool:
        """Gives one that has proven itself a slot; closes it if there is none left."""
        others = [other for other in self.sessions.values() if other.proven and other.replica != replica]
        if len(others) >= self.terms.sessions_max:
            self._close(out, session, Reason.TOO_MANY, f"there are {self.terms.sessions_max} sessions already", now)
            return False
        session.proven = True
        return True

    def disconnected(self, session_id: int, now: float, reason: Reason = Reason.LOST, text: str = "") -> list[Decision]:
        """The connection broke, or the shell closed it."""
        out: list[Decision] = []
        session = self.sessions.get(session_id)
        if session is not None:
            text = text or f"connection of {session.replica or session.peer} was lost"
            self._forget(out, session, reason, text, now)
        return out

    def receive(self, session_id: int, data: bytes | memoryview, now: float) -> list[Decision]:
        """Bytes from a slave, however split."""
        out: list[Decision] = []
        session = self.sessions.get(session_id)
        if session is None or not len(data):
            return out
        session.last_heard = now
        if not session.spoke:
            session.spoke = True
            if ha.is_tls(data[0]):
                text = f"{session.peer} speaks TLS, this HA port does not (haTlsEnable=false)"
                self._close(out, session, Reason.TLS, text, now)
                return out
            session.classic = not ha.is_extended(data[0])
        try:
            if session.classic:
                self._receive_classic(out, session, data, now)
            else:
                for event in session.frames.feed(data):
                    self._dispatch(out, session, event, now)
                    if session_id not in self.sessions:
                        break
        except SealBroken as error:
            reason = Reason.CORRUPT if session.proven else Reason.KEY_REFUSED
            self._close(out, session, reason, f"{session.replica or session.peer}: {error}", now)
        except CodecError as error:
            self._close(out, session, Reason.CORRUPT, str(error), now)
        return out

    def _dispatch(self, out: list[Decision], session: Session, event: ha.Event, now: float) -> None:
        if isinstance(event, Ack) and session.is_streaming:
            self._on_ack(out, session, event, now)
        elif isinstance(event, Preamble) and session.state is SessionState.CONNECTED:
            self._on_preamble(out, session, event, now)
        elif isinstance(event, Hello) and session.state is SessionState.CHALLENGED:
            self._on_hello(out, session, event, now)
        elif isinstance(event, Start) and session.state is SessionState.CHECKING:
            self._on_start(out, session, event, now)
        elif isinstance(event, Vouched):
            if not event.refused and session.is_streaming:
                self._words.given(session.replica, event.number)
        elif isinstance(event, Registered):
            self._on_registered(out, session, event, now)
        elif isinstance(event, Head | Chunk) and session.state is SessionState.DONATING:
            self._on_taken(out, session, event, now)
        elif isinstance(event, Refuse):
            self._on_refuse(out, session, event, now)
        elif isinstance(event, Farewell):
            self._bid_farewell(out, session, event.code, event.text, now)
        elif isinstance(event, Chunk) and event.last and not session.frames.sound:
            self._close(out, session, Reason.CORRUPT, "log bytes nobody asked for, and damaged", now)
        elif isinstance(event, Ack | Head | Chunk | Start | Hello):
            pass  # on its way when we challenged again or asked for something else; the session goes on from there
        else:
            name = type(event).__name__
            self._close(out, session, Reason.CORRUPT, f"{name} is not expected when {session.state.value}", now)

    # --- handshake --------------------------------------------------------------------------------------------------

    def _on_preamble(self, out: list[Decision], session: Session, preamble: Preamble, now: float) -> None:
        if self.phase is Phase.DEPOSED:
            self._close(out, session, Reason.NOT_MASTER, "this broker was deposed and is no master now", now)
            return
        if preamble.version not in ha.VERSIONS:
            text = f"HA session version {preamble.version}, this master speaks up to {max(ha.VERSIONS)}"
            self._close(out, session, Reason.VERSION, text, now)
            return
        session.nonce = preamble.nonce
        session.frames.control_size_max = ha.CONTROL_SIZE_MAX
        self._challenge(out, session, now)

    def _challenge(self, out: list[Decision], session: Session, now: float) -> None:
        promise, key, group = self.record.promise, self.terms.shared_key, self.terms.group
        session.own_nonce = mine = session.own_nonce or self._new_id()
        session.state = SessionState.CHALLENGED
        session.hello = None
        replica, register = self.record.replica, self.register
        if not key:
            proof = ha.key_proof("", "master", session.nonce, mine, group)
            self._send(
                out, session, Challenge(ha.VERSION, mine, proof, promise.number, promise.id, replica, register), now
            )
            return
        claim = ha.claim_of(promise.id, replica, register)
        handshake = Handshake(key, group, session.nonce, mine, promise.number, claim)
        challenge = Challenge(SEALED_VERSION, mine, handshake.proof(), promise.number, promise.id, replica, register)
        self._send(out, session, challenge, now)
        if session.seal is None:
            session.seal, theirs = handshake.seals()
            session.frames.secure(theirs)

    def _on_hello(self, out: list[Decision], session: Session, hello: Hello, now: float) -> None:
        refusal = self._refusal(session, hello)
        if refusal is not None:
            self._close(out, session, *refusal, now)
            return
        if not session.proven and not self._is_room(out, session, hello.replica, now):
            return
        promised = Promise(hello.promised_number, hello.promised_id)
        session.observer, session.packs = hello.observer, hello.compression == ha.ZSTD
        is_open = self.phase is Phase.OPEN and not self.provisional
        if session.observer and (promised != self.record.promise or not is_open):
            # What an observer promised, saw or holds decides nothing here: it comes again when this master is open.
            self._close(
                out, session, Reason.NOT_MASTER, f"observer {hello.replica} is served when this master is open", now
            )
            return
        if not session.observer and self._met_another_register(out, session, hello, now):
            return
        if promised != self.record.promise:
            self._on_other_promise(out, session, promised, hello, now)
            return
        self._replace(out, session, hello.replica, now)
        session.replica, session.address = hello.replica, hello.address
        session.hello, session.history = hello, from_items(hello.history)
        if self.phase is Phase.ASKING and session.history.last_number >= self.number:
            # Of a reign nobody joined: its promise was withdrawn, its bytes may be taken over. Numbers must still grow.
            self._campaign(out, session.history.last_number, now)
            return
        is_regular = self.phase is Phase.OPEN and not self.provisional
        if is_regular and not session.observer and self._holds_other_reign(session):
            text = f"replica {hello.replica} holds a reign of this group that this master does not know"
            self._give_way(out, hello, max(session.history.last_number, self.number), text, now)
            return
        session.state = SessionState.WAITING
        if self.phase is Phase.OPEN and not self.provisional:
            self._welcome(out, session, now)
            return
        if self._holds_other_reign(session):
            self._ask_also(hello)
        self._send(out, session, self._welcome_frame(session, is_open=False), now)
        self._decide(out, now)

    def _refusal(self, session: Session, hello: Hello) -> tuple[Reason, str] | None:
        expected = ha.key_proof("", "slave", session.nonce, session.own_nonce, hello.replica)
        if session.seal is None and not ha.same_proof(hello.proof, expected):
            return Reason.KEY_REFUSED, f"{hello.replica} from {session.peer} did not prove the shared key"
        if hello.group != self.terms.group:
            return Reason.WRONG_GROUP, f"slave of group {hello.group!r} at a master of group {self.terms.group!r}"
        if hello.replica == self.record.replica:
            return Reason.SAME_IDENTITY, f"the slave at {session.peer} has this master's own identity {hello.replica}"
        if hello.segment_size != self.log.segment_size:
            text = f"slave's segments have {hello.segment_size} bytes, the master's {self.log.segment_size}"
            return Reason.SEGMENT_SIZE, text
        return None

    def _on_other_promise(
        self, out: list[Decision], session: Session, promised: Promise, hello: Hello, now: float
    ) -> None:
        """It serves an epoch that is not ours: somebody else reigns or asks."""
        text = (
            f"replica {hello.replica} serves epoch {promised.number}/{promised.id[:8]}, ours is {self.number}; "
            "if nobody reigns in that one, promote the broker with the highest epoch"
        )
        if promised.number < self.number:
            return  # the answer to an earlier challenge of ours; the one to the last is on its way
        if self.provisional:
            self._campaign(out, promised.number, now)
        elif self.phase is Phase.OPEN and self.register is not None:
            # A promise is no reign: it only raises the number that this master must use.
            self._ask_again(out, promised.number, text, now)
        elif self.phase is Phase.OPEN:
            self._give_way(out, hello, promised.number, text, now)
        elif self.phase is Phase.SWAPPING:
            self.phase = Phase.ASKING
            self._campaign(out, promised.number, now)
        elif self.phase is Phase.ASKING:
            self._campaign(out, promised.number, now)
        else:
            self._close(out, session, Reason.PROMISED, text, now)

    def _met_another_register(self, out: list[Decision], session: Session, hello: Hello, now: float) -> bool:
        """A replica with a newer register, of another group, or one that does not name this node."""
        mine, theirs = self.register, hello.register
        if theirs is not None and mine is not None and theirs.group_id != mine.group_id:
            if mine.member_ids == {self.record.replica} and not mine.joining and self.record.blind_from >= 0:
                self._abandon_group(out, f"replica {hello.replica} belongs to the group that was here before", now)
            else:
                text = f"{hello.replica} belongs to another group of this name ({theirs.group_id}, not {mine.group_id})"
                self._close(out, session, Reason.WRONG_GROUP, text, now)
            return True
        is_ahead = theirs is not None and (mine is None or theirs.epoch > mine.epoch)
        if theirs is not None and is_ahead and self.phase in (Phase.OPEN, Phase.SWAPPING):
            text = f"replica {hello.replica} has the register of epoch {theirs.epoch}, held by {theirs.holder}"
            if theirs.holder == self.record.replica:
                self._ask_again(out, theirs.epoch, text, now)
            else:
                self._step_down(out, text, theirs.epoch, now)
            return True
        if hello.refused:
            if theirs is not None and is_newer(theirs, mine) and self.phase is Phase.ASKING:
                self._step_down(out, hello.refused, theirs.epoch, now)
            else:
                self._close(out, session, Reason.NOT_NAMED, hello.refused, now)
            return True
        return False

    def _abandon_group(self, out: list[Decision], text: str, now: float) -> None:
        """A group that this node began without knowing of the one that exists, and that nobody has joined."""
        out.append(Note("abandons-group", text, loud=True))
        self.keeper = RegisterKeeper(self.record.replica, None)
        self._group_exists = True
        self.record = self.record.with_(register=None, members=frozenset(), in_sync=frozenset())
        self._ask_again(out, self.number, text, now)

    def _ask_again(self, out: list[Decision], above: int, text: str, now: float) -> None:
        """The reign is over; it asks with a higher number, and opens again if those it needs are heard."""
        if self.phase is Phase.OPEN:
            self._end_reign(out, text, above, asking=True)
        self.provisional = False
        self.phase = Phase.ASKING
        self._save(out, reigning=False)
        for session in list(self.sessions.values()):
            if session.classic:
                self._close(out, session, Reason.NOT_MASTER, text, now)
        self._campaign(out, above, now)
        self._decide(out, now)

    def _replace(self, out: list[Decision], session: Session, replica: str, now: float) -> None:
        for other in list(self.sessions.values()):
            if other is not session and other.replica == replica and not other.classic:
                text = f"replica {replica} connected again from {session.peer}"
                self._close(out, other, Reason.REPLACED, text, now)

    def _holds_other_reign(self, session: Session) -> bool:
        """Whether a replica has bytes of a reign that we don't know and that ours, opened blindly, may not overrule."""
        blind_from = self.record.blind_from
        if blind_from < 0 or session.hello is None:
            return False
        known, settled = set(self.record.history.epochs), self.record.history.number_before(blind_from)
        end = session.hello.end
        return any(e.start < end and e.number > settled and e not in known for e in session.history.epochs)

    def _give_way(self, out: list[Decision], hello: Hello, above: int, text: str, now: float) -> None:
        """A blind reign that nobody has joined takes the group's history over and goes on; any other one is over."""
        if self.record.blind_from >= 0 and not self.record.in_sync:
            self._reask(out, hello, above, text, now)
        else:
            self._step_down(out, text, above, now)

    def _ask_also(self, hello: Hello) -> None:
        """Without a memory of what happened: everybody whom the replicas know of, but our own former self."""
        here = place_of(self.record.replica)
        self._ask |= {replica for replica in (hello.replica, *hello.members) if place_of(replica) != here}

    def _reask(self, out: list[Decision], hello: Hello, above: int, text: str, now: float) -> None:
        """Asks after all, and takes over what the group has before it writes again."""
        self._end_reign(out, text, above, asking=True)
        self.phase = Phase.ASKING
        self._ask_also(hello)
        self._save(out, reigning=False, in_sync=self._ask)
        for session in list(self.sessions.values()):
            if session.classic:
                self._close(out, session, Reason.NOT_MASTER, text, now)
        self._campaign(out, above, now)

    # --- streaming --------------------------------------------------------------------------------------------------

    def _welcome_frame(self, session: Session, is_open: bool) -> Welcome:
        promise = self.record.promise
        return Welcome(
            replica=self.record.replica,
            open=is_open,
            number=promise.number,
            id=promise.id,
            first=self.log.first,
            end=self.log.end,
            start_empty_at=self._start_of_empty(session.hello is not None and session.hello.last_file_only),
            history=to_items(self.record.history),
            members=sorted(self.record.members),
            in_sync=sorted(self.record.in_sync),
            register=self.register if is_open else None,
        )

    def _start_of_empty(self, last_file_only: bool) -> int:
        if last_file_only or self.terms.last_file_only:
            return max(self.log.first, self.log.end - self.log.end % self.log.segment_size)
        return self.log.first

    def _welcome(self, out: list[Decision], session: Session, now: float) -> None:
        hello = session.hello
        assert hello is not None
        agreed = common_point(self.record.history, self.log.end, session.history, hello.end)
        session.start_max = 0 if agreed is None else agreed
        frame = self._welcome_frame(session, is_open=True)
        session.sent = frame.start_empty_at
        session.told_register = frame.register.revision if frame.register is not None else -1
        session.state = SessionState.CHECKING
        self._send(out, session, frame, now)

    def _on_start(self, out: list[Decision], session: Session, start: Start, now: float) -> None:
        if start.number != self.number:
            return  # for an epoch we no longer ask for
        fresh = start.offset == session.sent  # where a slave with nothing in common begins
        if start.offset > session.start_max and not fresh:
            text = f"START at {start.offset}, the logs agree up to {session.start_max}"
            self._close(out, session, Reason.DIVERGED, text, now)
            return
        if start.offset < self.log.first:
            text = f"bytes from {start.offset} are asked for, the log begins at {self.log.first}"
            self._close(out, session, Reason.OFFSET_GONE, text, now)
            return
        session.sent = session.received = session.applied = start.offset
        session.durable = min(start.durable, start.offset)
        session.state = SessionState.CATCHING_UP
        session.budget_at = session.rate_from = now
        out.append(Note("session", f"replica {session.replica} ({session.peer}) follows from {start.offset}"))
        if self.register is None:
            self._send(out, session, self._members_frame(), now)
        self._tell_register(out, now)
        self._progress(out, session, now)

    def _on_ack(self, out: list[Decision], session: Session, ack: Ack, now: float) -> None:
        if ack.epoch != self.number or not session.received <= ack.received <= session.sent:
            text = (
                f"ack of [{session.received}, {ack.received}) in epoch {ack.epoch}, "
                f"but it was sent up to {session.sent} in epoch {self.number}"
            )
            self._close(out, session, Reason.BAD_ACK, text, now)
            return
        session.received = ack.received
        session.durable = max(session.durable, min(ack.durable, ack.received))
        session.applied = ack.applied
        self._progress(out, session, now)

    def _progress(self, out: list[Decision], session: Session, now: float) -> None:
        """A slave's offsets moved: does it count now, and what does that complete?"""
        if session.received >= self.log.end:
            session.caught_up_at = now
        gap = self.log.end - session.received
        if session.state is SessionState.CATCHING_UP and gap < self.terms.gap_max and not session.observer:
            self._join(out, session)
        if session.state is SessionState.IN_SYNC and (not session.classic or self._counts_classic(out, session)):
            self.acks.acked(session.replica, session.received, session.durable, classic=session.classic)
            self._confirm(out)

    def _join(self, out: list[Decision], session: Session) -> None:
        """In sync: on record before the first ack counts, so that a crash can't forget whom to ask."""
        if session.classic:
            self._join_classic(out, session)
            return
        if self.register is not None:
            self._join_by_register(out, session)
            return
        self._away.pop(session.replica, None)
        if session.replica in self._saved_in_sync:
            session.state = SessionState.IN_SYNC
        elif session.replica not in self.record.in_sync:
            here = place_of(session.replica)
            others = {replica for replica in self.record.members if place_of(replica) != here}
            self._save(
                out,
                in_sync=self.record.in_sync | {session.replica},
                members=frozenset({session.replica, *others}),
                before=None,
                alone_from=-1,
            )

    def _join_classic(self, out: list[Decision], session: Session) -> None:
        """A RocketMQ slave counts only from where it was seen to receive: nobody may wait for what lies before."""
        oldest = self.acks.oldest_waiting
        if oldest is None or oldest > session.start_max:
            session.state = SessionState.IN_SYNC

    def _counts_classic(self, out: list[Decision], session: Session) -> bool:
        """Whether its copies may count: only when the register says on disk since where, and somebody needs them."""
        register = self.register
        if register is None or self._saved_classic:
            return True
        wanted = self.terms.level.needed(self.acks.group_size) > register.size or self.acks.wants_classic
        if wanted and register.classic_from < 0:
            self._swap(out, registers.with_classic_from(register, session.start_max))
        return False

    def _join_by_register(self, out: list[Decision], session: Session) -> None:
        """What a replica that has nearly everything may become next; the register says so before its acks count."""
        register, replica = self.register, session.replica
        assert register is not None
        assert session.hello is not None
        if self.proposed is not None and replica in self._saved_in_sync and replica not in self.proposed.in_sync:
            return  # it is about to leave: what it acknowledges must not count
        if replica in self._saved_in_sync:
            if replica in self.keeper.counted_members:
                self._away.pop(replica, None)
                session.state = SessionState.IN_SYNC
                out.append(Note("in-sync", f"replica {replica} ({session.peer}) is in sync"))
        elif replica in register.member_ids:
            if replica not in register.in_sync and self._holds_confirmed(session):
                self._swap(out, self._settled_classic(registers.with_in_sync(register, {*register.in_sync, replica})))
        elif replica in register.joining_ids:
            if not self.keeper.waits_of_joining(replica) and self._holds_confirmed(session):
                joined = self._settled_classic(registers.with_joined(register, replica))
                self._swap(out, joined, alone_from=-1, blind_from=-1, before=None)
        elif session.hello.registers and self.keeper.has_stored(replica):
            newcomer = Member(replica, session.address, session.hello.broker_id)
            joined = registers.with_joining(register, newcomer)
            if not self._swap(out, joined):
                return
            given = next(one.broker_id for one in joined.joining if one.replica == replica)
            if given != session.hello.broker_id:
                text = f"replica {replica} has brokerId {given}: {session.hello.broker_id} is taken, or it has none"
                out.append(Note("broker-id", text, loud=True))

    def _settled_classic(self, register: Register) -> Register:
        """Who comes in sync holds all that copies of RocketMQ's slaves were counted for; none counts now: forget it."""
        return register if self.acks.counts_classic else registers.without_classic(register)

    def _holds_confirmed(self, session: Session) -> bool:
        """Whether it has all that was acknowledged with a copy elsewhere, durably where such levels are used."""
        others = self.terms.level.needed(self.acks.group_size) > 1
        owed = max(self.acks.acknowledged, self.confirmed if others else 0)
        return (session.durable if self._uses_durable else session.received) >= owed

    def _swap(self, out: list[Decision], new: Register, **more: object) -> bool:
        """The one way in which a reigning master changes the register: on its own disk first, then told.

        With a coordinator: proposed, one at a time; False while it has to wait, and then it is tried again later.
        """
        if self.is_coordinated:
            if self._proposed is not None or self.acks.is_fenced:
                return False
            self._proposed = new, more
            out.append(Propose(self.register, new))
            return True
        swapped = self.keeper.swap(self.register, new)
        assert swapped
        self._save(out, **self._of_register(new), **more)
        return True

    def _on_registered(self, out: list[Decision], session: Session, stored: Registered, now: float) -> None:
        if self._minting is not None and stored.epoch == self.number and stored.revision == self._minting.revision:
            session.has_minted = True
            self._mint(out, now)
        if not session.replica or not self.keeper.stored(session.replica, stored.epoch, stored.revision):
            return
        if self.phase is Phase.SWAPPING:
            self._open_if_stored(out, now)
        elif self.phase is Phase.OPEN:
            self._reconsider(out, now)

    def _reconsider(self, out: list[Decision], now: float) -> None:
        """Somebody knows more than before: that may let others join or count."""
        self._count_size()
        for session in list(self.sessions.values()):
            if session.state is SessionState.CATCHING_UP or (session.classic and session.is_streaming):
                self._progress(out, session, now)

    def _mint(self, out: list[Decision], now: float) -> None:
        """A group of the version before gets its register: as soon as all on record are in sync and know what it is.

        On the others' disks first: should this master be lost on the way, whoever is asked tells of it.
        """
        if self.register is not None or self.phase is not Phase.OPEN or not self.record.members:
            return
        found = {s.replica: s for s in self.sessions.values() if s.state is SessionState.IN_SYNC and not s.classic}
        if any(one not in found or not self._knows_registers(found[one]) for one in self.record.members):
            return
        others = [found[one] for one in sorted(self.record.members)]
        if self._minting is None or self._minting.member_ids != {self.record.replica, *self.record.members}:
            members = [Member(s.replica, s.address, s.hello.broker_id if s.hello else 0) for s in others]
            new = registers.minted(
                self._new_id() if self._minting is None else self._minting.group_id, self._me, members
            )
            self._minting = registers.of_new_epoch(
                new, self.number, self.record.promise.id, self._me, frozenset(self.record.members)
            )
            for session in others:
                session.has_minted = False
                self._send(out, session, NewRegister(self._minting), now)
        if all(session.has_minted for session in others):
            register, self._minting = self._minting, None
            self.keeper.begin(register)
            for session in others:
                self.keeper.stored(session.replica, register.epoch, register.revision)
            out.append(Note("register", f"the group has a register now: {', '.join(sorted(register.member_ids))}"))
            self._save(out, **self._of_register(register))

    def _knows_registers(self, session: Session) -> bool:
        return session.hello is not None and session.hello.registers

    def forget(self, replica: str, now: float, *, accept_loss: bool = False) -> tuple[str, list[Decision]]:
        """Takes a replica out of the group; why not, if it may not be, and what to do."""
        out: list[Decision] = []
        register = self.register
        if self.phase is not Phase.OPEN:
            return f"this broker is no open master but {self.phase.value}", out
        if register is None:
            if replica not in self.record.members:
                return f"no replica {replica} is on record", out
            self._away.pop(replica, None)
            self._save(out, members=self.record.members - {replica}, in_sync=self.record.in_sync - {replica})
            return "", out
        if replica == self.record.replica:
            return "that is this broker itself: promote another one first", out
        if replica not in register.everybody:
            return f"the register does not name {replica}", out
        if self.proposed is not None or self.acks.is_fenced:
            return "the coordinator has not answered the last change of the register yet: try again in a moment", out
        if self.provisional and not accept_loss:
            return "this master reigns provisionally and may lack what that replica holds; use --accept-loss", out
        stay = (register.member_ids & self._saved_in_sync) - {replica, self.record.replica}
        owed = max(self.acks.acknowledged, self.confirmed)
        safe = self.log.flushed >= owed if not stay else any(self._durable_of(one) >= owed for one in stay)
        if replica in register.member_ids and not (safe or accept_loss):
            return (
                "not everything acknowledged is on the disk of another replica that stays yet; try again in a moment, "
                "or use --accept-loss"
            ), out
        self._away.pop(replica, None)
        for session in list(self.sessions.values()):
            if session.replica == replica and not session.classic:
                self._close(out, session, Reason.NOT_NAMED, f"the operator made the group forget {replica}", now)
        self._away.pop(replica, None)
        self._swap(out, registers.without(register, replica))
        out.append(Note("forgotten", f"the operator made the group forget {replica}", loud=True))
        return "", out

    def saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        """The record is on disk: replicas that it names count from now on."""
        out: list[Decision] = []
        changed = record.in_sync != self._saved_in_sync
        self._saved_in_sync = record.in_sync
        self._saved_classic = record.register is not None and record.register.classic_from >= 0
        if self.phase is not Phase.OPEN:
            return out
        if self.register is not None:
            self._tell_register(out, now)
            self._reconsider(out, now)
            self._confirm(out)
            return out
        for session in self.sessions.values():
            if session.state is SessionState.CATCHING_UP and session.replica in record.in_sync:
                session.state = SessionState.IN_SYNC
                self.acks.acked(session.replica, session.received, session.durable)
                out.append(Note("in-sync", f"replica {session.replica} ({session.peer}) is in sync"))
        self._mint(out, now)
        if changed:
            # Who left is told too: a slave asks those on its record before it opens, and would wait for the one gone.
            self.acks.set_members(self.record.members)
            self._tell_members(out, now)
        self._confirm(out)
        return out

    def _members_frame(self) -> Members:
        return Members(sorted(self.record.members), sorted(self.record.in_sync))

    def _tell_register(self, out: list[Decision], now: float) -> None:
        register = self.register
        if register is None or self.provisional:
            return
        for session in self.sessions.values():
            if session.is_streaming and not session.classic and session.told_register < register.revision:
                session.told_register = register.revision
                self._send(out, session, NewRegister(register), now)

    def _tell_members(self, out: list[Decision], now: float) -> None:
        for session in self.sessions.values():
            if session.is_streaming and not session.classic:
                self._send(out, session, self._members_frame(), now)

    def next_batch(self, session_id: int, now: float) -> Batch | None:
        """What to send next on a session; None if it has everything, may not have more now, or is not streaming."""
        session = self.sessions.get(session_id)
        if session is None or not session.is_streaming or self.phase is not Phase.OPEN:
            return None
        stop = self.record.history.stop_of(session.sent, self.log.end)
        size_max = self.terms.classic_batch if session.classic else min(self.terms.batch, session.frame_max)
        size = min(stop - session.sent, size_max)
        if session.packs:
            size = min(size, ha.PACK_SIZE_MAX)
        if self.terms.rate_max is not None:
            size = min(size, session.allowance(self.terms.rate_max, now))
        return Batch(session.sent, size) if size > 0 else None

    def spares(self) -> Sequence[int]:
        """Sessions that no send waits for, because others are further and enough for the copies wanted; the furthest
        first, which takes over if one of those stalls."""
        wanted = self.acks.copies_wanted
        if wanted == 0 or wanted >= len(self.sessions):
            return ()
        places = [(s.received, -s.id) for s in self.sessions.values() if s.state is SessionState.IN_SYNC]
        places.sort(reverse=True)
        return [-number for _, number in places[wanted:]]

    def is_throttled(self, session_id: int) -> bool:
        """Whether a session has bytes to get that the rate cap holds back."""
        session = self.sessions.get(session_id)
        return session is not None and session.is_streaming and session.sent < self.log.end

    def frame_header(self, session_id: int, data: memoryview | bytes) -> bytes:
        """What goes before the bytes of a batch; `data` are all of them."""
        session = self.sessions[session_id]
        if session.classic:
            return ha_classic.encode_transfer_header(session.sent, len(data))
        session.told_confirmed = self.confirmed
        epoch = self.record.history.number_at(session.sent)
        acks = self.acks
        if session.seal is not None:
            place = (self.number, session.sent, len(data))
            if place not in self._digests:
                self.put_digest(place, sha256(data).digest())
            return ha.encode_sealed_data_header(
                session.seal,
                epoch,
                session.sent,
                self.confirmed,
                len(data),
                self._digests[place],
                acks.wants_durable,
                acks.is_lone,
            )
        frame = (self.number, epoch, session.sent, len(data), self.confirmed, acks.wants_durable, acks.is_lone)
        if frame != self._frame:
            # Within a reign the same place holds the same bytes: they are summed once for all slaves.
            self._frame = frame
            self._header = ha.encode_data_header(epoch, session.sent, self.confirmed, data, *frame[-2:])
        return self._header

    def digest_wanted(self, session_id: int, offset: int, size: int) -> Place | None:
        """Returns the name of log bytes that will be sealed and are not summed yet; None if there is nothing to do."""
        place = (self.number, offset, size)
        session = self.sessions.get(session_id)
        return None if session is None or session.seal is None or place in self._digests else place

    def put_digest(self, place: Place, digest: bytes) -> None:
        """Log bytes were summed.  Within a reign the same place holds the same bytes."""
        self._digests[place] = digest
        while len(self._digests) > DIGESTS_MAX:
            del self._digests[next(iter(self._digests))]

    def packed_frame(self, session_id: int, data: memoryview | bytes, text: bytes = b"") -> bytes | None:
        """Returns a batch as the whole frame that a slave behind a thin link asked for; None for any other slave.

        `text` is what the bytes are packed, if the shell has done that already.
        """
        session = self.sessions[session_id]
        if not session.packs:
            return None
        session.told_confirmed = self.confirmed
        epoch = self.record.history.number_at(session.sent)
        acks = self.acks
        frame = ha.encode_packed(epoch, session.sent, self.confirmed, data, acks.wants_durable, acks.is_lone, text)
        return frame if session.seal is None else ha.sealed(frame, session.seal)

    def sent(self, session_id: int, stop: int, now: float) -> None:
        """A frame with log bytes up to `stop` is on its way."""
        self.sessions[session_id].was_sent(stop, now)

    # --- classic sessions -------------------------------------------------------------------------------------------

    def _receive_classic(self, out: list[Decision], session: Session, data: bytes | memoryview, now: float) -> None:
        for report in session.reports.feed(data):
            if session.state is SessionState.CONNECTED:
                self._on_first_report(out, session, report, now)
            elif session.received <= report <= session.sent:
                session.received = session.applied = report
                self._progress(out, session, now)
            else:
                text = f"report of {report}, but it was sent up to {session.sent} and had {session.received}"
                self._close(out, session, Reason.BAD_ACK, text, now)
            if session.id not in self.sessions:
                return

    def _on_first_report(self, out: list[Decision], session: Session, report: int, now: float) -> None:
        session.replica = session.address = f"classic@{session.peer.rpartition(':')[0]}"
        if self.phase is not Phase.OPEN:
            self._close(out, session, Reason.NOT_MASTER, f"this master is not open but {self.phase.value}", now)
        elif not self._serves_classic:
            text = "it speaks RocketMQ's own HA protocol, in which no peer can prove anything"
            self._close(out, session, Reason.CLASSIC_REFUSED, text, now)
        elif report < 0:
            self._close(out, session, Reason.CORRUPT, f"first report {report}: no HA slave speaks here", now)
        elif report > self.log.end:
            text = f"RocketMQ slave has {report}, ahead of this master's {self.log.end}; empty its store directory"
            self._close(out, session, Reason.DIVERGED, text, now)
        elif 0 < report < self.log.first:
            text = f"RocketMQ slave asks for {report}, the log begins at {self.log.first}; empty its store directory"
            self._close(out, session, Reason.OFFSET_GONE, text, now)
        elif self._is_room(out, session, "", now):
            start = report or self._start_of_empty(False)
            session.sent = session.start_max = start
            session.received = session.applied = report
            session.state = SessionState.CATCHING_UP
            session.budget_at = session.rate_from = now
            out.append(Note("session", f"RocketMQ slave {session.peer} follows from {start}"))
            self._progress(out, session, now)

    # --- taking back ------------------------------------------------------------------------------------------------

    def _on_taken(self, out: list[Decision], session: Session, event: Head | Chunk, now: float) -> None:
        if isinstance(event, Head):
            if event.size and event.offset != self.log.end + len(self._taken):
                text = f"donor sent bytes at {event.offset}, wanted at {self.log.end}"
                self._close(out, session, Reason.CORRUPT, text, now)
            return
        self._taken += event.data
        if not event.last:
            return
        data, self._taken = bytes(self._taken), bytearray()
        if not session.frames.sound or self.log.end + len(data) > self._take_stop:
            self._close(out, session, Reason.CORRUPT, f"donated bytes at {self.log.end} are damaged", now)
            return
        out.append(Append(self.log.end, data))
        self.log.end += len(data)
        if self.log.end == self._take_stop:
            self._taken_all(out)

    # --- the end of a reign -----------------------------------------------------------------------------------------

    def order(self, number: int, text: str, now: float) -> list[Decision]:
        """Somebody else told of a higher epoch (a registration reply, a promote order), or the operator demotes."""
        out: list[Decision] = []
        if self.phase is not Phase.DEPOSED and (number > self.number or number == 0):
            self._step_down(out, text, number, now)
        return out

    def _on_refuse(self, out: list[Decision], session: Session, refuse: Refuse, now: float) -> None:
        if refuse.number > self.number and self.phase is Phase.OPEN and self.register is not None and session.proven:
            text = f"{session.replica or session.peer}: {refuse.text}"
            self._bid_farewell(out, session, refuse.code, refuse.text, now)
            if self.provisional:
                self._campaign(out, refuse.number, now)
            else:
                self._ask_again(out, refuse.number, text, now)
        elif refuse.number > self.number and self.phase is Phase.OPEN and session.proven:
            self._step_down(out, f"{session.replica or session.peer}: {refuse.text}", refuse.number, now)
        else:
            self._bid_farewell(out, session, refuse.code, refuse.text, now)

    def _bid_farewell(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        self._forget(out, session, reason, text, now)
        out.append(Close(session.id, reason, text))

    def _step_down(self, out: list[Decision], text: str, number: int, now: float) -> None:
        self._end_reign(out, text, number, asking=False)
        self.provisional = False
        self.phase = Phase.DEPOSED
        if number > self.record.campaigned:
            # Should it be promoted again, it asks for a number above the one that ended this reign.
            self._save(out, campaigned=number)
        for session in list(self.sessions.values()):
            self._close(out, session, Reason.HIGHER_EPOCH, text, now)

    def _end_reign(self, out: list[Decision], text: str, number: int, asking: bool) -> None:
        self.acks.fail_all(PutStatus.SERVICE_NOT_AVAILABLE, f"this broker is no longer the master: {text}")
        self.acks.forget_replicas(f"this broker is no longer the master: {text}")
        out.append(SteppedDown(text, number, asking))

    # --- watermarks and time ----------------------------------------------------------------------------------------

    def appended(self, end: int) -> list[Decision]:
        """The log grew to `end` by writes of this master."""
        self.log.end = end
        out: list[Decision] = []
        alone = self._is_left_alone()
        if alone or self._append_confirms:
            self._confirm(out)
        if alone and self.confirmed < end:
            out.append(FlushSoon())
        return out

    def flushed(self, offset: int) -> list[Decision]:
        """fdatasync returned for everything below `offset`."""
        self.log.flushed = max(self.log.flushed, offset)
        out: list[Decision] = []
        if self.phase is Phase.OPEN:
            self.acks.flushed(offset)
            self._confirm(out)
        return out

    def retained(self, first: int, now: float) -> list[Decision]:
        """Old segments were deleted. A slave that still needs them comes back and begins where the log begins now."""
        self.log.first = first
        out: list[Decision] = []
        for session in list(self.sessions.values()):
            if session.sent < first and session.state in STREAMING:
                text = f"bytes from {session.sent} are needed, the log now begins at {first}"
                self._close(out, session, Reason.OFFSET_GONE, text, now)
        return out

    def _confirm(self, out: list[Decision]) -> None:
        if self.acks.is_fenced:
            return
        offset = self._confirmable()
        if offset > self.confirmed:
            self.confirmed = offset
            out.append(Confirm(offset))

    def _confirmable(self) -> int:
        """What readers may see: what has the copies of the broker's default level."""
        if self.phase is not Phase.OPEN:
            return 0
        if self.acks.fence is not None and self.acks.fence.wants_copies:
            return min(self.acks.watermark(self.terms.level, self.terms.sync_flush), self.log.end)
        if self._is_left_alone():
            # What is on this node's own disk survives all that can still happen to it; a master that never had a
            # slave shows what it has, as RocketMQ does.
            alone_for_ever = not self.record.members and not self.terms.sync_flush
            return self.log.end if alone_for_ever else min(self.log.flushed, self.log.end)
        return min(self.acks.watermark(self.terms.level, self.terms.sync_flush), self.log.end)

    def _is_left_alone(self) -> bool:
        """Whether too few replicas are left for the default level, and readers are not to wait for them."""
        others = self.terms.level.needed(self.acks.group_size) - 1
        if others <= 0 or self.terms.readers_wait:
            return False
        if self.provisional:
            return True
        if others <= len(self.record.in_sync):  # asked for every append and ack
            return False
        return self._countable() < others

    def _countable(self) -> int:
        """Replicas on record as in sync, or classic ones that are: those whose acks readers wait for."""
        classic = {s.replica for s in self.sessions.values() if s.classic and s.state is SessionState.IN_SYNC}
        return len(self.record.in_sync | classic)

    def tick(self, now: float) -> list[Decision]:
        """Heartbeats, silence, replicas that stay away, the end of the asking."""
        out: list[Decision] = []
        for session in list(self.sessions.values()):
            self._tick_session(out, session, now)
        self._drop_absent(out, now)
        self._decide(out, now)
        return out

    def next_deadline(self, now: float) -> float:
        """When `tick` has something to do if nothing else happens."""
        times = [now + self.terms.heartbeat]
        times += [session.last_sent + self.terms.heartbeat for session in self.sessions.values()]
        times += [session.last_heard + self.terms.housekeeping for session in self.sessions.values()]
        times += [s.connected_at + self._proof_wait for s in self.sessions.values() if not s.proven]
        gone_at = (since + self.terms.away_max for since, _ in self._away.values())
        times += [at for at in gone_at if at > now]  # one that may not leave yet is looked at with every heartbeat
        if self.phase is Phase.ASKING and not self._said_waiting:
            times.append(self._asked_since + self.terms.rejoin_wait)
        if self.phase is Phase.ASKING and self._allowed_at is not None:
            times.append(self._allowed_at + self.terms.loss_wait)
        return max(min(times), now)

    def news(self, now: float) -> list[Decision]:
        """The confirmed offset for slaves that have all bytes but not the news; called soon after it moved."""
        out: list[Decision] = []
        for session in self.sessions.values():
            if self._owed_news(session):
                self._heartbeat(out, session, now)
        return out

    @property
    def owes_news(self) -> bool:
        """Whether some slave has every byte but does not know that it may show them."""
        return any(self._owed_news(session) for session in self.sessions.values())

    def _owed_news(self, session: Session) -> bool:
        if not session.is_streaming or session.classic:
            return False
        return session.told_confirmed < min(self.confirmed, session.sent) and session.sent == self.log.end

    def _tick_session(self, out: list[Decision], session: Session, now: float) -> None:
        if not session.proven and now - session.connected_at >= self._proof_wait:
            text = f"{session.peer} did not prove within {self._proof_wait:g} s that it belongs here"
            self._close(out, session, Reason.SILENT, text, now)
            return
        # A RocketMQ slave sends its first report up to 5 s after it connected, so silence at first says nothing.
        challenged = session.state is SessionState.CHALLENGED
        patience = min(HELLO_WAIT, self.terms.housekeeping) if challenged else self.terms.housekeeping
        if now - session.last_heard >= patience:
            self._close(out, session, Reason.SILENT, f"nothing heard from {session.peer} for {patience:g} s", now)
            return
        if session.is_streaming and now - session.last_sent >= self.terms.heartbeat:
            self._heartbeat(out, session, now)
        elif session.state is SessionState.WAITING and now - session.last_sent >= self.terms.heartbeat:
            self._send(out, session, self._welcome_frame(session, is_open=False), now)
        if session.state is SessionState.IN_SYNC and self.log.end - session.received >= self.terms.gap_max:
            session.state = SessionState.CATCHING_UP
            self._depart(
                session, f"slave {session.replica} fell behind by {self.log.end - session.received} bytes", now
            )
            out.append(Note("fell-behind", f"replica {session.replica} fell behind and no longer counts", loud=True))

    def _heartbeat(self, out: list[Decision], session: Session, now: float) -> None:
        session.last_sent = now
        if session.classic:
            out.append(Send(session.id, ha_classic.encode_transfer_header(session.sent, 0)))
            return
        session.told_confirmed = self.confirmed
        frame = ha.encode_data_header(self.number, session.sent, self.confirmed, b"")
        out.append(Send(session.id, frame, session.seal))

    def _depart(self, session: Session, text: str, now: float) -> None:
        """It no longer counts, but stays on record until this node's own disk has all it may have confirmed."""
        self._away[session.replica] = (now, self.log.end)
        self.acks.lost(session.replica, text)

    def _drop_absent(self, out: list[Decision], now: float) -> None:
        """Who has been away for long leaves, when every disk that is still asked has all it may have confirmed."""
        gone = {
            replica: held
            for replica, (since, held) in self._away.items()
            if now - since >= self.terms.away_max and self.log.flushed >= held
        }
        stay = self.record.in_sync - gone.keys()
        if not gone or self.provisional or self._proposed is not None or self.acks.is_fenced:
            return
        if any(self._durable_of(replica) < max(gone.values()) for replica in stay):
            return
        for replica in gone:
            since, _ = self._away.pop(replica)
            if replica in self.record.in_sync:
                text = f"replica {replica} has been away for {now - since:.0f} s and leaves the in-sync set"
                out.append(Note("left", text, loud=True))
        if stay != self.record.in_sync:
            self._leave(out, stay)

    def _leave(self, out: list[Decision], stay: frozenset[str]) -> None:
        register = self.register
        if register is None:
            self._save(out, in_sync=stay)
        else:
            self._swap(out, registers.with_in_sync(register, {self.record.replica, *stay}))

    def _durable_of(self, replica: str) -> int:
        counting = (s for s in self.sessions.values() if s.replica == replica and s.state is SessionState.IN_SYNC)
        return max((session.durable for session in counting), default=-1)

    # --- small things -----------------------------------------------------------------------------------------------

    def stop(self, now: float) -> list[Decision]:
        """A clean stop: the log is flushed, so nobody holds what this node lacks; slaves are told."""
        out: list[Decision] = []
        for session in list(self.sessions.values()):
            self._close(out, session, Reason.STOPPING, "the master is stopping", now)
        register = self.register
        if self.phase is Phase.OPEN and register is None:
            self._save(out, reigning=False, in_sync=frozenset())
        elif self.phase is Phase.OPEN and register is not None and not self.provisional:
            # All that was acknowledged is on this node's own disk: nobody has to be heard for it.
            if self.log.flushed >= self.log.end and not self.is_coordinated:
                register = registers.with_in_sync(register, {self.record.replica})
                self.keeper.swap(self.register, register)
            self._save(out, **self._of_register(register), reigning=False)
        elif self.phase is Phase.OPEN:
            self._save(out, reigning=False)
        return out

    def _save(self, out: list[Decision], **changes: object) -> None:
        self.record = self.record.with_(confirmed=self.confirmed, **changes)
        out.append(Save(self.record))

    def _send(self, out: list[Decision], session: Session, message: ha.Control, now: float) -> None:
        session.last_sent = now
        out.append(Send(session.id, ha.encode_control(message), session.seal))

    def _close(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        if not session.classic and session.state is not SessionState.CONNECTED:
            self._send(out, session, Refuse(reason.value, text, self.number), now)
        out.append(Close(session.id, reason, text))
        self._forget(out, session, reason, text, now)

    def _forget(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        del self.sessions[session.id]
        name = session.replica or session.peer.rpartition(":")[0]
        before = self.departures.pop(name, None)
        self.departures[name] = departure_of(session, before, reason, text, now)
        while len(self.departures) > DEPARTURES_MAX:
            del self.departures[next(iter(self.departures))]
        out.append(Note(f"ended-{reason.value}", f"session of {name} ended: {text} [{reason.value}]. {reason.advice}"))
        if session.id == self._donor:
            self._donor = None
            self.phase = Phase.ASKING
        lost = self.phase in (Phase.TAKING, Phase.PREPARING, Phase.SWAPPING) and session.replica in self._writes_to
        if lost and not self._going_provisional and not self.is_coordinated:
            # It may or may not have stored the register: all are asked again, with a higher number. With a coordinator
            # the register is not theirs to store, and whoever was heard keeps its promise without a session too.
            self.phase = Phase.ASKING
            self._campaign(out, self.number, now)
        if session.state is SessionState.IN_SYNC and not self._counts_elsewhere(session):
            self._depart(session, text, now)

    def _counts_elsewhere(self, session: Session) -> bool:
        """Another session of the same identity counts: two RocketMQ slaves on one host share one."""
        return any(
            other.replica == session.replica and other.state is SessionState.IN_SYNC for other in self.sessions.values()
        )


def is_newer_reign(register: Register, known: Register | None) -> bool:
    """Whether a register is of a later reign than the one known, and no mere change of it."""
    return known is None or register.epoch > known.epoch


def _since(known: int, now: int) -> int:
    return known if known >= 0 else now
