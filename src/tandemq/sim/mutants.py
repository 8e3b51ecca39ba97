"""Replication with one rule broken at a time: proof that the simulator would notice.

Each mutant replaces one small piece of the real code while it is active.  `rule` is the number of the safety rule it
breaks (replication/master_state.py lists them), or a word for what else it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tandemq.broker.pair import reigning, roles
from tandemq.broker.pair import tables as pair_tables
from tandemq.broker.services import half_ledger, progress_log, transactions
from tandemq.broker.tables import offsets
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Register
from tandemq.model.ack_level import AckLevel
from tandemq.model.topic import TRANS_HALF_TOPIC
from tandemq.replication import accession, acks, copies, draining, epochs, hands, promotion, slave_state
from tandemq.replication import register as registers
from tandemq.replication.decisions import Confirm, Decision, LogEnds, Save, Send, Truncate
from tandemq.replication.epochs import Epoch, History, Promise
from tandemq.replication.following import aligning, promising, receiving
from tandemq.replication.following import core as following_core
from tandemq.replication.following import registers as following_registers
from tandemq.replication.mastership import (
    asking,
    classic,
    confirming,
    membership,
    opening,
    rivals,
    taking,
    welcoming,
)
from tandemq.replication.mastership.core import Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.reign import Reign
from tandemq.replication.session import SessionState
from tandemq.sim import node as sim_node
from tandemq.sim import operated as sim_operated
from tandemq.sim import world as sim_world
from tandemq.sim.fuller import Beside
from tandemq.store import recovery

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule."""

    name: str
    seed: int
    """One that notices it, to look at first; any of the first 200 may."""
    rule: str
    breaks: str
    patches: tuple[Patch, ...]
    beside: Beside | None = None
    """What the groups have that are to notice it; None: whatever their seeds say."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Broken inside, whole again outside."""
        with ExitStack() as stack:
            for target, attribute, replacement in self.patches:
                original = target.__dict__[attribute]
                stack.callback(setattr, target, attribute, original)
                setattr(target, attribute, replacement)
            yield


def _offsets_alone(mine: History, my_end: int, theirs: History, their_end: int) -> int | None:
    return min(my_end, their_end)


def _numbers_only(mine: History, my_end: int, theirs: History, their_end: int) -> int | None:
    def nameless(history: History) -> History:
        return History(tuple(Epoch(epoch.number, "", epoch.start) for epoch in history.epochs))

    return _COMMON_POINT(nameless(mine), my_end, nameless(theirs), their_end)


_COMMON_POINT = epochs.common_point
_PREPARED = opening.Opening.prepared
_ACKED = acks.AckQueue.acked
_WELCOMED = aligning.Aligning.welcomed


def _prepared_without_saving(self: Any, out: list[Decision], end: int, now: float) -> None:
    mine: list[Decision] = []
    _PREPARED(self, mine, end, now)
    out.extend(decision for decision in mine if not isinstance(decision, Save))


def _acked_per_connection(
    self: Any, out: list[Decision], replica: str, received: int, durable: int, *, classic: bool = False
) -> None:
    _ACKED(self, out, replica, received, durable, classic=classic)
    _ACKED(self, out, replica + " again", received, durable, classic=classic)


def _any_report(self: Any, out: list[Decision], session: Any, data: bytes, now: float) -> None:
    for report in session.reports.feed(data):
        if session.state is SessionState.CONNECTED:
            self._on_first_report(out, session, report, now)
        else:
            session.received = report
            self._progress(out, session, now)
        if session.id not in self._followers.sessions:
            return


def _no_cut(self: Any, out: list[Decision], welcome: Any) -> int:
    end: int = self._core.log.end
    return end


def _hears_nobody(register: Any, present: Any) -> frozenset[str]:
    return frozenset()


def _join_unrecorded(self: Any, out: list[Decision], session: Any) -> None:
    session.enter(SessionState.IN_SYNC)


def _nobody_further(self: Any, register: Any) -> None:
    return None


def _nothing(self: Any, *arguments: Any, **more: Any) -> None:
    return None


def _everything_confirmed(self: Any) -> int:
    return int(self._core.log.end) if self._core.phase is Phase.OPEN else 0


def _slave_confirms_all(self: Any, out: list[Decision], offset: int) -> None:
    if self.log.end > self.confirmed:
        self.confirmed = self.log.end
        out.append(Confirm(self.log.end))


def _durable_at_once(self: Any, out: list[Decision], now: float) -> None:
    core = self._core
    received = core.log.end
    self._acked = (received, received)
    core.last_sent = now
    out.append(Send(core.session, ha.encode_ack(core.number, received, received, core.applied), core.seal))


def _own_disk_ignored(self: Any, level: AckLevel, local_flush: bool = False) -> int:
    others = level.needed(self.group_size) - 1
    return int(self.copies.kth(others, level.durable)) if others > 0 else 1 << 62


def _serves_anybody(self: Promise, number: int, id: str) -> bool:
    return True


def _adopts_before_cutting(self: Any, out: list[Decision], welcome: Any, now: float) -> None:
    mine: list[Decision] = []
    _WELCOMED(self, mine, welcome, now)
    mine.sort(key=lambda decision: 0 if isinstance(decision, Save) else 1 if isinstance(decision, Truncate) else 2)
    out.extend(mine)


def _leaves_at_once(self: Any, out: list[Decision], now: float) -> None:
    for replica in list(self.away):
        del self.away[replica]
        if replica in self._core.record.in_sync:
            self._leave(out, self._core.record.in_sync - {replica})


def _all_but_holder_in_sync(me: Any, opened: bool, heard: Any) -> Any:
    found = _JUDGE(me, opened, heard)
    if found is None or found.case is not accession.Case.PROMOTED:
        return found
    return replace(found, missing=found.missing & frozenset(found.register.in_sync))


def _promote_asks_nobody(me: Any, opened: bool, heard: Any) -> Any:
    found = _JUDGE(me, opened, heard)
    if found is None or found.case is not accession.Case.PROMOTED:
        return found
    return replace(found, missing=frozenset())


def _lost_disk_asks_nobody(me: Any, opened: bool, heard: Any) -> Any:
    found = _JUDGE(me, opened, heard)
    if found is None or found.case is not accession.Case.LOST_DISK:
        return found
    return replace(found, missing=frozenset())


def _own_register_judges(me: Any, opened: bool, heard: Any) -> Any:
    return _JUDGE(me, opened, [replace(one, register=None) for one in heard] if me.register is not None else heard)


def _crashed_count(me: Any, opened: bool, heard: Any) -> Any:
    return _JUDGE(replace(me, clean=True), opened, [replace(one, clean=True) for one in heard])


def _cut_short_as_holder(me: Any, opened: bool, heard: Any) -> Any:
    return _JUDGE(me, True, heard)


def _without_another_member(register: Any, present: Any) -> frozenset[str]:
    return frozenset(register.in_sync).difference(present)


def _by_revision(one: Any, other: Any) -> bool:
    if one is None:
        return False
    return other is None or bool(one.revision > other.revision)


def _promise_unsaved(self: Any, out: list[Decision], challenge: Any) -> None:
    core = self._core
    promise = Promise(challenge.number, challenge.id)
    if core.record.promise.allows(promise.number, promise.id):
        core.record = core.record.with_(promise=promise)


def _registered_unsaved(self: Any, out: list[Decision], register: Any, now: float) -> None:
    promise = self._core.record.promise
    if (register.epoch, register.epoch_id) == (promise.number, promise.id):
        self._core.send(out, ha.Registered(register.epoch, register.revision), now)


def _opens_unstored(self: Any, out: list[Decision], now: float) -> None:
    self._asking.writes_to = frozenset()
    _OPEN_IF_STORED(self, out, now)


def _joins_at_once(self: Any, replica: str) -> frozenset[str]:
    return frozenset()


def _all_members_count(self: Any) -> frozenset[str]:
    register = self.read()
    return register.member_ids if register is not None else frozenset()


def _holds_anything(self: Any, session: Any) -> bool:
    return True


def _rank_of_last_byte(history: History, end: int, alone_from: int = -1) -> tuple[int, int, int]:
    regular = history.regular_end(end)
    return history.number_before(regular), regular, end


def _rank_of_hello(history: History, end: int, alone_from: int = -1) -> tuple[int, int, int]:
    regular = history.regular_end(end)
    return history.last_number, regular, end


def _rank_without_regard(history: History, end: int, alone_from: int = -1) -> tuple[int, int, int]:
    return max((e.number for e in history.epochs if e.start <= end), default=0), end, end


def _anybody_named(register: Any, replica: str, theirs: Any) -> bool:
    return True


def _identity_is_address(place: str, random_text: str) -> str:
    return f"{place}#0"


def _prepare_unflushed(self: Any) -> int:
    self.store.flush_once = lambda: None
    try:
        return _PREPARE(self)
    finally:
        del self.store.flush_once


def _disks_of_stayers_ignored(self: Any, replica: str) -> int:
    return 1 << 62


def _save_aside_unsynced(self: Any, start: int, end: int) -> None:
    sync, self._disk.sync_file = self._disk.sync_file, lambda path: None
    try:
        _SAVE_ASIDE(self, start, end)
    finally:
        self._disk.sync_file = sync


def _joining_count(self: Any, out: list[Decision], session: Any) -> None:
    register = self._core.register
    if register is not None and session.replica in register.joining_ids:
        session.enter(SessionState.IN_SYNC)
        return
    _JOIN_BY_REGISTER(self, out, session)


def _classic_always_counts(self: Any, others: int) -> Any:
    return [*self._of_members.values(), *self._classic.values()]


def _counts_classic(self: Any, out: list[Decision], session: Any) -> bool:
    return True


def _size_of_in_sync(self: Any, reachable: Any) -> int:
    register = self.read()
    return len(register.in_sync) if register is not None else 1


def _begins_a_group(self: Any, node: Any) -> bool:
    return False


def _append_called_flushed(self: Any, offset: int, now: float) -> list[Decision]:
    self.log.flushed = self.log.end
    out: list[Decision] = []
    self.frame.ack_if_moved(out, now)
    return out


def _acks_before_append(self: Any, data: Any, now: float) -> list[Decision]:
    out = _RECEIVE(self, data, now)
    return sorted(out, key=lambda decision: 0 if isinstance(decision, Send) else 1)


def _keeps_waiting(self: Any, out: Any, status: Any, reason: str) -> None:
    return None


def _any_register(self: Any, out: list[Decision], register: Any, now: float) -> None:
    self._core.save(out, register=register)
    self._core.send(out, ha.Registered(register.epoch, register.revision), now)


def _own_register_unsaved(self: Any, out: list[Decision], judgement: Any, now: float) -> None:
    mine: list[Decision] = []
    _WRITE_REGISTER(self, mine, judgement, now)
    first = next(index for index, decision in enumerate(mine) if isinstance(decision, Save))
    out.extend(mine[:first] + mine[first + 1 :])


def _never_crashed(self: Any) -> Any:
    return self


def _meets_nobody(self: Any, out: list[Decision], session: Any, hello: Any, now: float) -> bool:
    return False


def _complete_always(self: Any, out: list[Decision], welcome: Any, now: float) -> None:
    mine: list[Decision] = []
    _WELCOMED(self, mine, welcome, now)
    self._core.record = self._core.record.with_(complete=True)
    out.extend(Save(one.record.with_(complete=True)) if isinstance(one, Save) else one for one in mine)


def _classic_not_silent(me: Any, opened: bool, heard: Any) -> Any:
    found = _JUDGE(me, opened, heard)
    return found if found is None else replace(found, missing=found.missing - {accession.CLASSIC})


def _forgets_blindly(self: Any, replica: str, now: float, *, accept_loss: bool = False) -> Any:
    return _FORGET_REPLICA(self, replica, now, accept_loss=True)


def _forgotten_at_once(self: Any, reachable: Any) -> int:
    register = self.read()
    return register.size if register is not None else 1


def _alone_is_regular(self: Any, out: list[Decision], now: float) -> None:
    _OPEN_PROVISIONALLY(self, out, now)
    self._core.provisional = False


def _stays_provisional(self: Any, out: list[Decision], judgement: Any, now: float) -> None:
    if not self._core.provisional:
        _DECIDE_BY_REGISTER(self, out, judgement, now)


def _of_any_group(self: Any, out: list[Decision], challenge: Any) -> str:
    return ""


def _hands_over_at_once(sessions: Any, end: int) -> bool:
    return True


def _any_place_is_named(register: Any, replica: str, theirs: Any) -> bool:
    return register is None or replica in register.member_ids or theirs is None


def _keeps_writing(self: Any, reason: str, deposed: bool) -> None:
    return None


def _new_store_joins_beside(register: Any, replica: str) -> None:
    return None


def _holder_alone_at_once(self: Any, judgement: Any, now: float) -> bool:
    return True


def _keeps_what_lies_beyond(self: Any) -> LogEnds:
    store = self.store
    return LogEnds(store.first_offset, store.appended, store.flushed, store.segment_size)


def _allows_at_once(self: Any, out: list[Decision], now: float, *, group_gone: bool = False) -> None:
    _ALLOW(self, out, now - 1e6, group_gone=group_gone)
    _ALLOW(self, out, now)


def _true_at_once(self: Any, position: int) -> Any:
    return _REACHED(self, 1 << 62)


def _takes_nothing_back_from_groups(self: Any, end_of: Any) -> list[Any]:
    return []


def _starts_behind_all_halves(self: Any, told: Any = None) -> None:
    _START_CHECKS(self, told)
    if told is not None:
        end = self._store.queue_end(TRANS_HALF_TOPIC, 0)
        self.ledger = half_ledger.HalfLedger(max(told.half, end), told.op)


def _never(*arguments: Any) -> bool:
    return False


_START_CHECKS = transactions.TransactionService.start
_ALLOW = asking.Asking.allow
_REACHED = pair_tables.HeldTables.reached
_FORGET_REPLICA = membership.Membership.forget
_OPEN_PROVISIONALLY = opening.Opening._open_provisionally
_DECIDE_BY_REGISTER = asking.Asking._decide_by_register
_JUDGE = accession.judge
_OPEN_IF_STORED = opening.Opening.open_if_stored
_WRITE_REGISTER = opening.Opening._write_register
_JOIN_BY_REGISTER = membership.Membership._join_by_register
_PREPARE = hands.StoreHands.prepare
_SAVE_ASIDE = hands.StoreHands.save_aside
_RECEIVE = slave_state.SlaveState.receive
_SLAVE = slave_state.SlaveState

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "offsets-alone",
        3,
        "1",
        "logs are compared by length, not by named epochs",
        (
            (taking, "common_point", _offsets_alone),
            (opening, "common_point", _offsets_alone),
            (welcoming, "common_point", _offsets_alone),
            (aligning, "common_point", _offsets_alone),
        ),
    ),
    Mutant(
        "numbers-only",
        5,
        "1",
        "two reigns of one number count as the same, and promises are by number only",
        (
            (taking, "common_point", _numbers_only),
            (opening, "common_point", _numbers_only),
            (welcoming, "common_point", _numbers_only),
            (aligning, "common_point", _numbers_only),
            (Promise, "allows", lambda self, number, id: number >= self.number),
            (Promise, "__eq__", lambda self, other: self.number == other.number),
        ),
    ),
    Mutant(
        "epoch-not-saved",
        35,
        "1",
        "a reign begins without its epoch on disk",
        ((opening.Opening, "prepared", _prepared_without_saving),),
    ),
    Mutant(
        "ack-counted-twice",
        0,
        "2",
        "one slave counts as two copies",
        ((acks.AckQueue, "acked", _acked_per_connection),),
    ),
    Mutant(
        "ack-above-sent",
        2,
        "2",
        "acks of bytes that were never sent count",
        ((classic.ClassicFollowers, "receive", _any_report),),
    ),
    Mutant(
        "no-truncation",
        3,
        "2",
        "a slave keeps its own bytes behind the common point",
        ((aligning.Aligning, "_align", _no_cut),),
    ),
    Mutant(
        "asks-nobody",
        10,
        "3",
        "a crashed master writes without asking",
        ((accession, "_missing_of_holder", _hears_nobody),),
    ),
    Mutant(
        "in-sync-not-on-record",
        12,
        "3",
        "acks count before it is on disk who is in sync",
        ((membership.Membership, "_join", _join_unrecorded),),
    ),
    Mutant(
        "takes-nothing-back",
        0,
        "3",
        "a crashed master asks but does not take its tail back",
        ((taking.Taking, "_furthest", _nobody_further),),
    ),
    Mutant(
        "leaves-at-once",
        77,
        "3",
        "a replica leaves the record before the master's own disk has what it held",
        ((membership.Membership, "drop_absent", _leaves_at_once),),
    ),
    Mutant("cut-not-saved", 3, "4", "cut bytes are not saved aside", ((hands.StoreHands, "save_aside", _nothing),)),
    Mutant(
        "reigns-on",
        1,
        "5",
        "a higher epoch does not end a reign",
        ((Reign, "step_down", _nothing),),
    ),
    Mutant(
        "serves-older-masters",
        9,
        "5",
        "a slave that promised a newer master still serves an older one",
        ((Promise, "allows", _serves_anybody),),
    ),
    Mutant(
        "shows-unconfirmed",
        1,
        "6",
        "readers see what has no copies yet",
        ((confirming.Confirming, "_confirmable", _everything_confirmed),),
    ),
    Mutant(
        "slave-shows-unconfirmed",
        1,
        "6",
        "a slave shows what it has, not what is confirmed",
        ((following_core.SlaveCore, "confirm", _slave_confirms_all),),
    ),
    Mutant(
        "durable-before-fdatasync",
        0,
        "7",
        "a slave says durable when it has only received",
        ((receiving.Receiving, "ack", _durable_at_once),),
    ),
    Mutant(
        "own-disk-ignored",
        1,
        "7",
        "copies on disk count without the master's own fdatasync",
        ((acks.AckQueue, "watermark", _own_disk_ignored),),
    ),
    Mutant(
        "history-before-cut",
        141,
        "order",
        "a slave adopts the master's history before its own bytes are cut",
        ((aligning.Aligning, "welcomed", _adopts_before_cutting),),
    ),
    Mutant(
        "damaged-frames",
        3,
        "checksums",
        "frames with a wrong checksum are taken",
        ((ha.SessionReader, "sound", property(lambda self: True)),),
    ),
    Mutant(
        "holder-needs-no-other-member",
        0,
        "case 1",
        "the last holder opens regularly without another member",
        ((accession, "_missing_of_holder", _without_another_member),),
    ),
    Mutant(
        "promoted-hears-in-sync-only",
        0,
        "case 2",
        "a promoted member hears only those in sync",
        ((asking, "judge", _all_but_holder_in_sync), (promotion, "judge", _all_but_holder_in_sync)),
    ),
    Mutant(
        "promote-asks-nobody",
        0,
        "case 2",
        "a promoted member opens without asking",
        ((asking, "judge", _promote_asks_nobody), (promotion, "judge", _promote_asks_nobody)),
    ),
    Mutant(
        "lost-disk-asks-nobody",
        0,
        "case 3",
        "the empty store of the holder opens with whoever came first",
        ((asking, "judge", _lost_disk_asks_nobody), (promotion, "judge", _lost_disk_asks_nobody)),
    ),
    Mutant(
        "own-register-judges",
        0,
        "accession",
        "a candidate judges by its own register, not by the newest heard",
        ((asking, "judge", _own_register_judges), (promotion, "judge", _own_register_judges)),
    ),
    Mutant(
        "crashed-machines-count",
        0,
        "accession",
        "a replica whose machine crashed counts as heard",
        ((asking, "judge", _crashed_count), (promotion, "judge", _crashed_count)),
    ),
    Mutant(
        "cut-short-is-holder",
        0,
        "case 1",
        "a promotion cut short counts as a reign",
        ((asking, "judge", _cut_short_as_holder), (promotion, "judge", _cut_short_as_holder)),
    ),
    Mutant(
        "joining-not-heard",
        0,
        "register",
        "those who join need not be heard",
        ((Register, "everybody", property(lambda self: self.member_ids)),),
    ),
    Mutant(
        "newer-by-revision",
        0,
        "register",
        "the newer register is the one with the higher revision",
        (
            (registers, "is_newer", _by_revision),
            (promising, "is_newer", _by_revision),
            (aligning, "is_newer", _by_revision),
            (following_registers, "is_newer", _by_revision),
            (rivals, "is_newer", _by_revision),
            (accession, "is_newer", _by_revision),
        ),
    ),
    Mutant(
        "promise-not-saved",
        0,
        "promise",
        "a slave promises and does not save it before HELLO",
        ((promising.Promising, "_promise", _promise_unsaved),),
    ),
    Mutant(
        "promise-of-equal-number",
        0,
        "promise",
        "a promise allows another epoch of the same number",
        ((Promise, "allows", lambda self, number, id: number >= self.number),),
    ),
    Mutant(
        "register-not-stored",
        0,
        "register",
        "a slave says that it stored a register, and has not",
        ((following_registers.Registers, "told", _registered_unsaved),),
    ),
    Mutant(
        "opens-before-stored",
        0,
        "register",
        "a master opens before those it heard have its register",
        ((opening.Opening, "open_if_stored", _opens_unstored),),
    ),
    Mutant(
        "own-register-not-saved",
        0,
        "register",
        "a candidate does not save its own register",
        ((opening.Opening, "_write_register", _own_register_unsaved),),
    ),
    Mutant(
        "joins-at-once",
        0,
        "register",
        "a newcomer is a member before every member knows",
        ((registers.RegisterKeeper, "waits_of_joining", _joins_at_once),),
    ),
    Mutant(
        "members-count-at-once",
        0,
        "register",
        "a membership counts before every member knows",
        ((registers.RegisterKeeper, "counted_members", property(_all_members_count)),),
    ),
    Mutant(
        "enters-without-holding",
        0,
        "register",
        "a replica enters the in-sync set without what is confirmed",
        ((membership.Membership, "_holds_confirmed", _holds_anything),),
    ),
    Mutant(
        "opens-with-all-in-sync",
        0,
        "register",
        "all who were heard begin in sync, whatever they hold",
        ((opening.Opening, "_holds_all", _holds_anything),),
    ),
    Mutant(
        "rank-of-last-byte",
        0,
        "rank",
        "a log ranks by the epoch of its last byte",
        ((taking, "rank", _rank_of_last_byte), (epochs, "rank", _rank_of_last_byte)),
    ),
    Mutant(
        "rank-of-last-hello",
        0,
        "rank",
        "a log ranks by the newest epoch it heard of",
        ((taking, "rank", _rank_of_hello), (epochs, "rank", _rank_of_hello)),
    ),
    Mutant(
        "provisional-ranks-high",
        0,
        "provisional",
        "bytes of provisional reigns rank like any others",
        ((taking, "rank", _rank_without_regard), (epochs, "rank", _rank_without_regard)),
    ),
    Mutant(
        "anybody-is-named",
        0,
        "named",
        "a replica follows a master that its register does not name",
        ((promising, "is_named", _anybody_named), (accession, "is_named", _anybody_named)),
    ),
    Mutant(
        "identity-is-address",
        0,
        "named",
        "a new store at an address is taken for the lost one",
        ((sim_node, "new_identity", _identity_is_address),),
    ),
    Mutant(
        "taken-log-not-durable",
        0,
        "accession",
        "a candidate opens before the log it took is on disk",
        ((hands.StoreHands, "prepare", _prepare_unflushed),),
    ),
    Mutant(
        "stayers-disks-ignored",
        0,
        "register",
        "an absentee is dropped without a look at the disks of those who stay",
        ((Followers, "durable_of", _disks_of_stayers_ignored),),
    ),
    Mutant(
        "cut-copy-not-synced",
        0,
        "4",
        "what is cut is not on disk before the log is truncated",
        ((hands.StoreHands, "save_aside", _save_aside_unsynced),),
    ),
    Mutant(
        "joining-counts",
        0,
        "register",
        "the acks of one who joins count",
        ((membership.Membership, "_join_by_register", _joining_count),),
    ),
    Mutant(
        "classic-counts",
        0,
        "classic",
        "a RocketMQ slave counts like a member",
        ((copies.CopyCounts, "counted", _classic_always_counts), (classic.ClassicCounting, "counts", _counts_classic)),
    ),
    Mutant(
        "size-of-in-sync",
        0,
        "register",
        "majority and all count against those in sync",
        ((registers.RegisterKeeper, "size", _size_of_in_sync),),
    ),
    Mutant(
        "begins-another-group",
        0,
        "case 4",
        "an empty store with a master's file begins a group beside the one there is",
        ((sim_world.Ground, "group_exists", _begins_a_group),),
    ),
    Mutant(
        "appended-called-flushed",
        0,
        "7",
        "what a slave appended is reported as flushed",
        ((_SLAVE, "flushed", _append_called_flushed),),
    ),
    Mutant(
        "ack-before-append",
        0,
        "order",
        "a slave acknowledges before it appends",
        ((_SLAVE, "receive", _acks_before_append),),
    ),
    Mutant(
        "old-session-stays",
        0,
        "2",
        "a new connection does not replace the old one of its identity",
        ((Followers, "replace", _nothing),),
    ),
    Mutant(
        "waiters-outlive-the-reign",
        0,
        "5",
        "sends that wait are not failed when a reign ends",
        ((acks.AckQueue, "fail_all", _keeps_waiting),),
    ),
    Mutant(
        "stores-any-register",
        0,
        "promise",
        "a slave stores a register of an epoch it has not promised",
        ((following_registers.Registers, "told", _any_register),),
    ),
    Mutant(
        "crash-forgotten",
        0,
        "accession",
        "a crash of its machine leaves no trace in a replica's record",
        ((epochs.ReplicaRecord, "after_machine_crash", _never_crashed),),
    ),
    Mutant(
        "reigns-beside-newer-register",
        0,
        "5",
        "a master that meets the register of a newer epoch goes on",
        ((rivals.Rivals, "met_another_register", _meets_nobody),),
    ),
    Mutant(
        "slave-ignores-register",
        0,
        "register",
        "a slave takes no note of changes of the register",
        ((following_registers.Registers, "told", _nothing),),
    ),
    Mutant(
        "complete-always",
        0,
        "accession",
        "a replica whose machine crashed counts as complete before it has caught up",
        ((aligning.Aligning, "welcomed", _complete_always),),
    ),
    Mutant(
        "classic-not-silent",
        0,
        "classic",
        "RocketMQ slaves whose copies were counted need not be heard",
        (
            (asking, "judge", _classic_not_silent),
            (promotion, "judge", _classic_not_silent),
        ),
    ),
    Mutant(
        "forgets-blindly",
        0,
        "register",
        "a member is forgotten though only its disk has what was acknowledged",
        ((membership.Membership, "forget", _forgets_blindly),),
    ),
    Mutant(
        "forgotten-at-once",
        0,
        "register",
        "one forgotten no longer counts before those who can be reached know it",
        ((registers.RegisterKeeper, "size", _forgotten_at_once),),
    ),
    Mutant(
        "alone-is-regular",
        0,
        "provisional",
        "the last holder that hears nobody reigns regularly",
        ((opening.Opening, "_open_provisionally", _alone_is_regular),),
    ),
    Mutant(
        "stays-provisional",
        0,
        "provisional",
        "a provisional master does not open anew when those it needs are heard",
        ((asking.Asking, "_decide_by_register", _stays_provisional),),
    ),
    Mutant(
        "alone-at-once",
        0,
        "provisional",
        "a SYNC_MASTER opens provisionally though others were in sync",
        ((asking.Asking, "_may_be_alone", _holder_alone_at_once),),
    ),
    Mutant(
        "joins-any-group",
        0,
        "named",
        "a store with a register promises to a master of another group",
        ((promising.Promising, "_unnamed", _of_any_group),),
    ),
    Mutant(
        "empty-stores-are-named",
        0,
        "case 3",
        "any empty store is answered, not only the one at the last holder's address",
        (
            (promising, "is_named", _any_place_is_named),
            (accession, "is_named", _any_place_is_named),
        ),
    ),
    Mutant(
        "takes-no-place",
        0,
        "register",
        "a new store at a lost one's address joins beside it",
        ((registers, "replaced_by", _new_store_joins_beside),),
    ),
    Mutant(
        "demote-does-not-drain",
        0,
        "order",
        "a master hands over before those who follow have everything",
        (
            (draining, "have_all", _hands_over_at_once),
            (sim_operated, "have_all", _hands_over_at_once),
        ),
    ),
    Mutant(
        "writer-not-refused",
        0,
        "5",
        "a broker whose reign has ended goes on to take messages",
        ((reigning.Reigning, "closed", _keeps_writing),),
    ),
    Mutant(
        "bytes-beyond-the-end",
        0,
        "seen 1",
        "bytes of a frame that never counted stay where the log goes on",
        ((hands.StoreHands, "log_ends", _keeps_what_lies_beyond),),
    ),
    Mutant(
        "accept-loss-asks-nobody",
        0,
        "seen 8",
        "accepting a loss opens at once, without asking those who live",
        ((asking.Asking, "allow", _allows_at_once),),
    ),
    Mutant(
        "file-decides",
        0,
        "seen 10",
        "a node takes its role from its file, not from the register",
        (
            (sim_node.SimNode, "_role_of_register", _nothing),
            (roles.Roles, "take_that_of_register", _nothing),
        ),
    ),
    Mutant(
        "tables-run-ahead",
        0,
        "seen 5",
        "a table is taken before the log it speaks of is here",
        ((pair_tables.HeldTables, "reached", _true_at_once),),
    ),
    Mutant(
        "offsets-beyond-the-log",
        104,
        "tables",
        "offsets of groups stay beyond the end of a log that was cut",
        ((offsets.OffsetTable, "clamp", _takes_nothing_back_from_groups),),
        Beside(),
    ),
    Mutant(
        "progress-not-in-the-log",
        87,
        "tables",
        "a master's services begin where a file says, not where the log does",
        ((progress_log.ProgressLog, "last", _nothing),),
        Beside(),
    ),
    Mutant(
        "halves-forgotten",
        2,
        "tables",
        "transaction checks begin behind all half messages there are",
        ((transactions.TransactionService, "start", _starts_behind_all_halves),),
        Beside(),
    ),
    Mutant(
        "half-received-is-whole",
        114,
        "seen 1",
        "a record that came only in part is taken for whole after kill -9",
        ((recovery, "has_lost_its_end", _never),),
        Beside(),
    ),
)
