"""Replication with one rule broken at a time: proof that the simulator would notice.

Each mutant replaces one small piece of the real code while it is active.  `rule` is the number of the safety rule it
breaks (replication/master_state.py lists them), or a word for what else it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tandemq.codec import ha
from tandemq.replication import acks, epochs, hands, master_state, slave_state
from tandemq.replication.decisions import Confirm, Decision, Save, Send, Truncate
from tandemq.replication.epochs import Epoch, History, Promise
from tandemq.replication.session import SessionState
from tandemq.testing import sim_node

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
_PREPARED = master_state.MasterState.prepared
_ACKED = acks.AckQueue.acked
_ON_WELCOME = slave_state.SlaveState._on_welcome


def _prepared_without_saving(self: Any, end: int, now: float) -> list[Decision]:
    return [decision for decision in _PREPARED(self, end, now) if not isinstance(decision, Save)]


def _acked_per_connection(self: Any, replica: str, received: int, durable: int) -> None:
    _ACKED(self, replica, received, durable)
    _ACKED(self, replica + " again", received, durable)


def _any_report(self: Any, out: list[Decision], session: Any, data: bytes, now: float) -> None:
    for report in session.reports.feed(data):
        if session.state is SessionState.CONNECTED:
            self._on_first_report(out, session, report, now)
        else:
            session.received = report
            self._progress(out, session, now)
        if session.id not in self.sessions:
            return


def _no_cut(self: Any, out: list[Decision], welcome: Any) -> int:
    end: int = self.log.end
    return end


def _ask_nobody(record: Any, end: int) -> frozenset[str]:
    return frozenset()


def _join_unrecorded(self: Any, out: list[Decision], session: Any) -> None:
    session.state = SessionState.IN_SYNC


def _nobody_further(self: Any) -> None:
    return None


def _nothing(self: Any, *arguments: Any, **more: Any) -> None:
    return None


def _everything_confirmed(self: Any) -> int:
    return int(self.log.end) if self.phase is master_state.Phase.OPEN else 0


def _slave_confirms_all(self: Any, out: list[Decision], offset: int) -> None:
    if self.log.end > self.confirmed:
        self.confirmed = self.log.end
        out.append(Confirm(self.log.end))


def _durable_at_once(self: Any, out: list[Decision], now: float) -> None:
    received = self.log.end
    self._acked = (received, received)
    self.last_sent = now
    out.append(Send(self._session, ha.encode_ack(self._number, received, received, self.applied)))


def _own_disk_ignored(self: Any, level: acks.AckLevel, local_flush: bool = False) -> int:
    others = level.needed(self.group_size) - 1
    return int(self._kth(others, level.durable)) if others > 0 else 1 << 62


def _serves_anybody(self: Promise, number: int, id: str) -> bool:
    return True


def _adopts_before_cutting(self: Any, out: list[Decision], welcome: Any, now: float) -> None:
    mine: list[Decision] = []
    _ON_WELCOME(self, mine, welcome, now)
    mine.sort(key=lambda decision: 0 if isinstance(decision, Save) else 1 if isinstance(decision, Truncate) else 2)
    out.extend(mine)


def _leaves_at_once(self: Any, out: list[Decision], now: float) -> None:
    for replica in list(self._away):
        del self._away[replica]
        if replica in self.record.in_sync:
            self._save(out, in_sync=self.record.in_sync - {replica})


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "offsets-alone",
        3,
        "1",
        "logs are compared by length, not by named epochs",
        ((master_state, "common_point", _offsets_alone), (slave_state, "common_point", _offsets_alone)),
    ),
    Mutant(
        "numbers-only",
        5,
        "1",
        "two reigns of one number count as the same, and promises are by number only",
        (
            (master_state, "common_point", _numbers_only),
            (slave_state, "common_point", _numbers_only),
            (Promise, "allows", lambda self, number, id: number >= self.number),
            (Promise, "__eq__", lambda self, other: self.number == other.number),
        ),
    ),
    Mutant(
        "epoch-not-saved",
        35,
        "1",
        "a reign begins without its epoch on disk",
        ((master_state.MasterState, "prepared", _prepared_without_saving),),
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
        ((master_state.MasterState, "_receive_classic", _any_report),),
    ),
    Mutant(
        "no-truncation",
        3,
        "2",
        "a slave keeps its own bytes behind the common point",
        ((slave_state.SlaveState, "_align", _no_cut),),
    ),
    Mutant("asks-nobody", 10, "3", "a crashed master writes without asking", ((sim_node, "must_ask", _ask_nobody),)),
    Mutant(
        "in-sync-not-on-record",
        12,
        "3",
        "acks count before it is on disk who is in sync",
        ((master_state.MasterState, "_join", _join_unrecorded),),
    ),
    Mutant(
        "takes-nothing-back",
        0,
        "3",
        "a crashed master asks but does not take its tail back",
        ((master_state.MasterState, "_furthest", _nobody_further),),
    ),
    Mutant(
        "leaves-at-once",
        77,
        "3",
        "a replica leaves the record before the master's own disk has what it held",
        ((master_state.MasterState, "_drop_absent", _leaves_at_once),),
    ),
    Mutant("cut-not-saved", 3, "4", "cut bytes are not saved aside", ((hands.StoreHands, "save_aside", _nothing),)),
    Mutant(
        "reigns-on",
        1,
        "5",
        "a higher epoch does not end a reign",
        ((master_state.MasterState, "_step_down", _nothing),),
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
        ((master_state.MasterState, "_confirmable", _everything_confirmed),),
    ),
    Mutant(
        "slave-shows-unconfirmed",
        1,
        "6",
        "a slave shows what it has, not what is confirmed",
        ((slave_state.SlaveState, "_confirm", _slave_confirms_all),),
    ),
    Mutant(
        "durable-before-fdatasync",
        0,
        "7",
        "a slave says durable when it has only received",
        ((slave_state.SlaveState, "_ack", _durable_at_once),),
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
        ((slave_state.SlaveState, "_on_welcome", _adopts_before_cutting),),
    ),
    Mutant(
        "damaged-frames",
        3,
        "checksums",
        "frames with a wrong checksum are taken",
        ((ha.FrameReader, "sound", property(lambda self: True)),),
    ),
)
