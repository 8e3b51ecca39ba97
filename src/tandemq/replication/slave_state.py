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

The order within one answer is the safety argument: a promise is saved before the HELLO that speaks of it; the log is
cut before the master's history is adopted, so a crash in between never labels our bytes with the master's epochs; the
history is adopted before the first byte of it is appended.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import GROUP_HOME, Register
from tandemq.codec.ha_seal import POLY1305, SEALED_VERSION, Handshake, Seal, log_sum
from tandemq.codec.ha_session import (
    Challenge,
    Farewell,
    Hello,
    Members,
    NewRegister,
    Packed,
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
from tandemq.replication.accession import is_named
from tandemq.replication.decisions import (
    Append,
    Batch,
    Close,
    Commit,
    Confirm,
    Decision,
    Discard,
    FlushSoon,
    LogEnds,
    Note,
    Reset,
    Save,
    Send,
    Truncate,
)
from tandemq.replication.epochs import Promise, ReplicaRecord, common_point, from_items, to_items
from tandemq.replication.first_copy import NEVER_COMPARED, lacking
from tandemq.replication.frame_in_progress import FrameInProgress
from tandemq.replication.register import is_newer

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


_PROMISED = (SlavePhase.TOLD, SlavePhase.WAITING, SlavePhase.DONATING, SlavePhase.FOLLOWING)


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


class SlaveState(FrameInProgress):
    """A slave in a session with a master of ours.  One object lives as long as the node is a slave."""

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
        super().__init__()
        self.record = record.withdrawn()
        self._vouch = vouch
        self.terms = terms
        self.log = log
        self.phase = SlavePhase.IDLE
        self.confirmed = min(record.confirmed, log.end)
        self.applied = 0
        """Dispatched; told by the shell, reported to the master for people to see."""
        self.master = ""
        """Identity of the master we follow."""
        self.master_group = ""
        """The group the broker we connect to says it belongs to; empty if it did not say."""
        self.trouble: tuple[float, Reason, str] | None = None
        """When, why and how the last session ended."""
        self.last_heard = self.last_sent = now
        self._new_id = new_id
        self._session = 0
        self._complete_at = 0
        self._nonce = ""
        self._seal: Seal | None = None
        """Of our frames, in a group with a key, once the master has proven it."""
        self._number = 0
        self._frames: ha.SessionReader = ha.SessionReader()
        self._acked = (-1, -1)
        self._give_from = self._give_stop = 0

    # --- connection -------------------------------------------------------------------------------------------------

    def connected(self, session: int, now: float) -> list[Decision]:
        """Speaks first on a connection to the master's HA port."""
        self._session = session
        self._frames = ha.SessionReader()
        self._drop_partial()
        self._nonce = self._new_id()
        self._seal = None
        self._acked = (-1, -1)
        self._enter(SlavePhase.GREETED)
        self.last_heard = now
        out: list[Decision] = []
        self._send(out, Preamble(SEALED_VERSION if self.terms.shared_key else ha.VERSION, self._nonce), now)
        return out

    def disconnected(self, now: float) -> None:
        """Notes that the connection is gone, whoever ended it."""
        if self.phase is not SlavePhase.IDLE:
            self._enter(SlavePhase.IDLE)
            self.trouble = self.trouble or (now, Reason.LOST, "the connection to the master was lost")
        self._drop_partial()

    def _enter(self, phase: SlavePhase) -> None:
        """Changes the phase; nothing else does."""
        if phase is not self.phase:
            log.debug("this slave goes from %s to %s", self.phase.value, phase.value)
        self.phase = phase

    @property
    def is_connected(self) -> bool:
        return self.phase is not SlavePhase.IDLE

    def receive(self, data: bytes | memoryview, now: float) -> list[Decision]:
        """Takes bytes from the master, however split; ends with at most one ack."""
        out: list[Decision] = []
        if not self.is_connected:
            return out
        self.last_heard = now
        try:
            for event in self._frames.feed(data):
                self._dispatch(out, event, now)
                if not self.is_connected:
                    return out
        except CodecError as error:
            self._close(out, Reason.CORRUPT, str(error), now)
            return out
        self._ack_if_moved(out, now)
        return out

    def _dispatch(self, out: list[Decision], event: ha.Event, now: float) -> None:
        if isinstance(event, Chunk):
            self._on_chunk(out, event, now)
        elif isinstance(event, Head):
            self._on_head(out, event, now)
        elif isinstance(event, Packed):
            self._on_head(out, event.head, now)
            if self._head is not None:
                self._on_chunk(out, Chunk(memoryview(event.data), True), now)
        elif isinstance(event, Challenge):
            self._on_challenge(out, event, now)
        elif isinstance(event, Welcome) and self.phase in (SlavePhase.TOLD, SlavePhase.WAITING, SlavePhase.DONATING):
            self._on_welcome(out, event, now)
        elif isinstance(event, Members) and self.phase is SlavePhase.FOLLOWING:
            self._on_members(out, event)
        elif isinstance(event, NewRegister) and self.phase in _PROMISED:
            self._on_register(out, event.register, now)
        elif isinstance(event, Take) and self.phase is SlavePhase.WAITING:
            self._on_take(out, event, now)
        elif isinstance(event, Vouch):
            self._on_vouch(out, event, now)
        elif isinstance(event, Refuse | Farewell):
            self._ended(event.code, event.text, now)
            out.append(Close(self._session, event.code, event.text))
        else:
            self._close(out, Reason.CORRUPT, f"{type(event).__name__} is not expected when {self.phase.value}", now)

    # --- handshake --------------------------------------------------------------------------------------------------

    def _on_challenge(self, out: list[Decision], challenge: Challenge, now: float) -> None:
        if not self._has_proven(challenge):
            self._refuse_master(out, now)
            return
        refused = self._unnamed(out, challenge)
        if not refused:
            self._promise(out, challenge)
        record = self.record
        proof = "" if self._seal else ha.key_proof("", "slave", self._nonce, challenge.nonce, record.replica)
        hello = Hello(
            group=self.terms.group,
            replica=record.replica,
            proof=proof,
            address=self.terms.address,
            segment_size=self.log.segment_size,
            first=self.log.first,
            end=self.log.end,
            durable=min(self.log.flushed, self.log.end),
            promised_number=record.promise.number,
            promised_id=record.promise.id,
            history=to_items(record.history),
            members=sorted(record.members),
            last_file_only=self.terms.last_file_only,
            alone_from=record.alone_from,
            registers=True,
            register=record.register,
            clean=record.complete,
            broker_id=self.terms.broker_id,
            observer=self.terms.observer,
            compression=self.terms.compression,
            refused=refused,
            vouches=self._vouch is not None,
            sums=POLY1305 if self._seal else "",
        )
        self._enter(SlavePhase.TOLD)
        self._send(out, hello, now)

    def _has_proven(self, challenge: Challenge) -> bool:
        """Returns whether the master knows the key, or has none either.

        From then on frames of both sides are sealed.
        """
        key, group = self.terms.shared_key, self.terms.group
        if not key:
            return ha.same_proof(challenge.proof, ha.key_proof("", "master", self._nonce, challenge.nonce, group))
        if self._seal is not None:
            return True  # its seal fits, and it holds for this session
        claim = ha.claim_of(challenge.id, challenge.replica, challenge.register)
        handshake = Handshake(key, group, self._nonce, challenge.nonce, challenge.number, claim)
        if not ha.same_proof(challenge.proof, handshake.proof()):
            return False
        theirs, self._seal = handshake.seals()
        self._frames.secure(theirs)
        return True

    def _refuse_master(self, out: list[Decision], now: float) -> None:
        """Says whether key or group is wrong, which the proof both covers, as far as it can be known."""
        if self.master_group not in ("", self.terms.group):
            text = f"slave of group {self.terms.group!r} at a master of group {self.master_group!r}"
            self._close(out, Reason.WRONG_GROUP, text, now)
            return
        if self.master_group:
            text = "the master did not prove the shared key: it has another, or only one of the two has one"
        else:
            text = "the master did not prove the shared key for this group: another key, or another brokerName"
        self._close(out, Reason.KEY_REFUSED, text, now)

    def _unnamed(self, out: list[Decision], challenge: Challenge) -> str:
        """Returns why this replica's register forbids to promise anything to that master; empty if it does not."""
        mine, theirs = self.record.register, challenge.register
        if mine is None:
            return ""
        if theirs is not None and theirs.group_id != mine.group_id:
            return f"{challenge.replica} belongs to another group of this name ({theirs.group_id}, not {mine.group_id})"
        if self.terms.observer:
            return ""  # it follows any broker of its group, members and other observers: nothing rests on it
        here, known = self.record.replica, mine
        if theirs is not None and is_newer(theirs, mine):
            if here not in mine.everybody:
                known = theirs  # it belongs to nobody yet: the newest register it hears of says whom to follow
            elif here not in theirs.everybody and theirs.epoch >= self.record.promise.number:
                # Somebody made the group forget this replica: it may join again, now that it knows.
                known = theirs
                self._save(out, register=theirs)
                out.append(Note("forgotten", "the group was made to forget this replica; it joins again", loud=True))
            elif theirs.home != GROUP_HOME:
                known = theirs  # a coordinator has it, so it counts whether or not this replica was told
        if is_named(known, challenge.replica, theirs):
            return ""
        return f"the register of the group does not name {challenge.replica or 'a master of the version before'}"

    def _on_register(self, out: list[Decision], register: Register, now: float) -> None:
        """Stores a register only under the epoch this replica has promised to, and never an older one."""
        promise, mine = self.record.promise, self.record.register
        if (register.epoch, register.epoch_id) != (promise.number, promise.id):
            return
        if mine is not None and mine.group_id != register.group_id:
            return
        if is_newer(register, mine):
            holder = {register.holder}
            self._save(
                out,
                register=register,
                members=register.member_ids - holder,
                in_sync=frozenset(register.in_sync) - holder,
            )
        self._send(out, Registered(register.epoch, register.revision), now)

    def _on_vouch(self, out: list[Decision], asked: Vouch, now: float) -> None:
        """Gives the word before the answer leaves, because it is kept from the moment it is given."""
        if self._vouch is None or self.phase is not SlavePhase.FOLLOWING or asked.epoch != self._number:
            refused = "this replica does not follow that reign"
        else:
            refused = self._vouch(self.master, asked.epoch, now)
        self._send(out, Vouched(asked.number, refused), now)

    def _promise(self, out: list[Decision], challenge: Challenge) -> None:
        """Promises not to serve an older master any more; if we already serve a newer one, our HELLO says so."""
        promise, mine = Promise(challenge.number, challenge.id), self.record.promise
        if promise == mine:
            return
        if mine.allows(promise.number, promise.id):
            self._save(out, promise=promise)
            return
        text = (
            f"this replica belongs to epoch {mine.number}, newer than the master's {promise.number}: the master must "
            "step down, or ask again with a higher one"
        )
        out.append(Note("newer-than-master", text, loud=True))

    def _on_welcome(self, out: list[Decision], welcome: Welcome, now: float) -> None:
        if Promise(welcome.number, welcome.id) != self.record.promise:
            self._close(out, Reason.PROMISED, f"welcome to epoch {welcome.number}, which was not promised", now)
            return
        self.master = welcome.replica
        if not welcome.open:
            if self.phase is SlavePhase.TOLD:
                self._enter(SlavePhase.WAITING)
            return
        self._number = welcome.number
        register = welcome.register
        start = self._align(out, welcome)
        self._save(
            out,
            history=from_items(welcome.history),
            members=frozenset(welcome.members),
            in_sync=frozenset(welcome.in_sync),
            reigning=False,
            follows=welcome.replica,
            complete=start >= welcome.end or (self.record.complete and register is not None),
            blind_from=-1,
            alone_from=-1,
            register=register if is_newer(register, self.record.register) else self.record.register,
            lacks=lacking(self.log.first, welcome.first, self.record.lacks, last_file_only=self.terms.last_file_only),
            copying_to=NEVER_COMPARED,
        )
        self._complete_at = welcome.end
        self._enter(SlavePhase.FOLLOWING)
        self.trouble = None
        self._acked = (start, min(self.log.flushed, start))
        out.append(Note("following", f"follows master {welcome.replica} in epoch {welcome.number} from {start}"))
        self._send(out, Start(welcome.number, start, self._acked[1]), now)
        if register is not None:
            self._send(out, Registered(register.epoch, register.revision), now)

    def _align(self, out: list[Decision], welcome: Welcome) -> int:
        """Cuts our log to where it agrees with the master's; returns where to go on."""
        log = self.log
        agreed = common_point(self.record.history, log.end, from_items(welcome.history), welcome.end)
        empty = log.end == log.first
        if empty or agreed is None or agreed < max(welcome.first, log.first):
            if empty and log.first == welcome.start_empty_at:
                return log.end
            save_from = log.first if agreed is None else max(agreed, log.first)
            reason = Reason.DIVERGED if agreed is None else Reason.OFFSET_GONE
            why = "the log is empty" if empty else f"{reason.value}: {reason.advice}"
            event = "reset-empty" if empty else f"reset-{reason.value}"
            out.append(Reset(welcome.start_empty_at, save_from, log.end, why, event))
            if not empty:
                text = f"begins anew at {welcome.start_empty_at}, its own log ended at {log.end}: {why}"
                out.append(Note("began-anew", text, loud=True))
            log.first = log.end = log.flushed = welcome.start_empty_at
        elif agreed < log.end:
            why = f"the master's epoch {welcome.number} has another history from {agreed} on"
            out.append(Truncate(agreed, log.end, why))
            log.end = agreed
            log.flushed = min(log.flushed, agreed)
        self.confirmed = min(self.confirmed, log.end)
        out.append(Confirm(self.confirmed))
        return log.end

    def _on_members(self, out: list[Decision], members: Members) -> None:
        known, in_sync = frozenset(members.members), frozenset(members.in_sync)
        if (known, in_sync) != (self.record.members, self.record.in_sync):
            self._save(out, members=known, in_sync=in_sync)

    # --- log bytes --------------------------------------------------------------------------------------------------

    def _on_head(self, out: list[Decision], head: Head, now: float) -> None:
        if self.phase is not SlavePhase.FOLLOWING or head.offset != self.log.end or head.epoch > self._number:
            text = f"bytes at {head.offset} of epoch {head.epoch}, this log ends at {self.log.end}"
            self._close(out, Reason.CORRUPT, text, now)
            return
        if head.size:
            self._head = head
        else:
            self.is_lone = False
            self._confirm(out, head.confirmed)

    def _on_chunk(self, out: list[Decision], chunk: Chunk, now: float) -> None:
        if chunk.last and not self._pending and not self._direct:
            self._frame_complete(out, now, chunk.data)
            return
        self._pending += chunk.data
        if chunk.last:
            self._frame_complete(out, now)

    @property
    def is_catching_up(self) -> bool:
        return self.log.end < self._complete_at

    @property
    def unsummed(self) -> int:
        return self._frames.unsummed if self.window else 0

    def passed(self, size: int, now: float) -> None:
        """Bytes went into the window that the frame's checksum leaves out."""
        self.last_heard = now
        self._direct += size
        self._frames.passed(size)

    def took(self, data: memoryview, now: float) -> list[Decision]:
        """Bytes were received into the window: `data` is that part of it."""
        self.last_heard = now
        out: list[Decision] = []
        self._direct += len(data)
        if self._frames.took(data):
            self._frame_complete(out, now)
            if self.phase is SlavePhase.FOLLOWING:
                self._ack_if_moved(out, now)
        return out

    def _frame_complete(self, out: list[Decision], now: float, whole: memoryview | None = None) -> None:
        """`whole`: all log bytes of the frame, when they came together; carried out before their buffer is reused."""
        head = self._head
        assert head is not None
        if not self._frames.sound:
            if self._direct:
                out.append(Discard(self._direct))
            self._close(out, Reason.CORRUPT, f"log bytes at {head.offset} have a wrong checksum", now)
            return
        if whole is not None:
            out.append(Append(head.offset, whole))
        elif self._pending:
            out.append(Append(head.offset, bytes(self._pending)))
        else:
            out.append(Commit(self._direct))
        self._drop_partial()
        self.log.end += head.size
        if not self.record.complete and not self.is_catching_up:
            self._save(out, complete=True)
        self.is_lone = head.lone
        if head.flush:
            out.append(FlushSoon())
        self._confirm(out, head.confirmed)

    def _confirm(self, out: list[Decision], offset: int) -> None:
        offset = min(offset, self.log.end)
        if offset > self.confirmed:
            self.confirmed = offset
            out.append(Confirm(offset))

    def _ack_if_moved(self, out: list[Decision], now: float) -> None:
        mark = (self.log.end, min(self.log.flushed, self.log.end))
        if self.phase is SlavePhase.FOLLOWING and mark != self._acked:
            self._ack(out, now)

    def _ack(self, out: list[Decision], now: float) -> None:
        received, durable = self.log.end, min(self.log.flushed, self.log.end)
        self._acked = (received, durable)
        self.last_sent = now
        out.append(Send(self._session, ha.encode_ack(self._number, received, durable, self.applied), self._seal))

    # --- donating ---------------------------------------------------------------------------------------------------

    def _on_take(self, out: list[Decision], take: Take, now: float) -> None:
        if take.number != self.record.promise.number or not self.log.first <= take.start <= take.stop <= self.log.end:
            text = f"[{take.start}, {take.stop}) is asked back, this log holds [{self.log.first}, {self.log.end})"
            self._close(out, Reason.OFFSET_GONE, text, now)
            return
        out.append(Note("donating", f"gives [{take.start}, {take.stop}) back to the master that lost it", loud=True))
        self._enter(SlavePhase.DONATING)
        self._give_from, self._give_stop = take.start, take.stop

    def next_batch(self) -> Batch | None:
        """Returns what to give back next."""
        if self.phase is not SlavePhase.DONATING or self._give_from >= self._give_stop:
            return None
        stop = self.record.history.stop_of(self._give_from, self._give_stop)
        return Batch(self._give_from, min(stop - self._give_from, self.terms.batch))

    def frame_header(self, data: memoryview | bytes) -> bytes:
        """Returns what goes before the bytes of a batch."""
        number = self.record.history.number_at(self._give_from)
        if self._seal is not None:
            digest = log_sum(data, None)
            return ha.encode_sealed_data_header(
                self._seal, number, self._give_from, 0, len(data), digest, flush=False, lone=False
            )
        return ha.encode_data_header(number, self._give_from, 0, data)

    def sent(self, stop: int, now: float) -> None:
        """Notes that bytes up to `stop` were given back."""
        self._give_from = stop
        self.last_sent = now

    # --- watermarks and time ----------------------------------------------------------------------------------------

    def flushed(self, offset: int, now: float) -> list[Decision]:
        """Notes that fdatasync returned for everything below `offset`."""
        self.log.flushed = max(self.log.flushed, offset)
        out: list[Decision] = []
        self._ack_if_moved(out, now)
        return out

    def refuse(self, reason: Reason, text: str, now: float) -> list[Decision]:
        """Tells the master why this node can't go on (disk full, log poisoned), then closes."""
        out: list[Decision] = []
        if self.phase is not SlavePhase.IDLE:
            self._close(out, reason, text, now)
        return out

    def tick(self, now: float) -> list[Decision]:
        """Heartbeats and silence."""
        out: list[Decision] = []
        if self.phase is SlavePhase.IDLE:
            return out
        if now - self.last_heard >= self.terms.housekeeping:
            self._close(out, Reason.SILENT, f"the master was silent for {self.terms.housekeeping:g} s", now)
        elif now - self.last_sent >= self.terms.heartbeat and self.phase is not SlavePhase.GREETED:
            self._ack(out, now)
        return out

    def next_deadline(self, now: float) -> float:
        """Returns when `tick` has something to do if nothing else happens."""
        if self.phase is SlavePhase.IDLE:
            return now + self.terms.heartbeat
        return max(now, min(self.last_heard + self.terms.housekeeping, self.last_sent + self.terms.heartbeat))

    # --- small things -----------------------------------------------------------------------------------------------

    def saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        """Notes that the record is on disk; nothing waits for it here, the order of the decisions is enough."""
        return []

    def _save(self, out: list[Decision], **changes: object) -> None:
        self.record = self.record.with_(confirmed=self.confirmed, **changes)
        out.append(Save(self.record))

    def _send(self, out: list[Decision], message: ha.Control, now: float) -> None:
        self.last_sent = now
        out.append(Send(self._session, ha.encode_control(message), self._seal))

    def _close(self, out: list[Decision], reason: Reason, text: str, now: float) -> None:
        self._send(out, Refuse(reason.value, text, self.record.promise.number), now)
        out.append(Close(self._session, reason, text))
        told = f"session with the master ended: {text} [{reason.value}]. {reason.advice}"
        out.append(Note(f"ended-{reason.value}", told))
        self._ended(reason, text, now)

    def _ended(self, reason: Reason, text: str, now: float) -> None:
        self.trouble = (now, reason, text)
        self._enter(SlavePhase.IDLE)
        self._drop_partial()
