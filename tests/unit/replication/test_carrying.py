"""Carrier: decisions are carried out in order, each one finished before the next, and none after one that failed."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.codec.ha_reasons import Reason
from tandemq.errors import DiskFull
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.carrying import Carrier, fail_undone
from tandemq.replication.decisions import Append, Close, Commit, Confirm, Decision, FlushSoon, Note, Save, Send
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.hands import StoreHands
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk

RECORD = ReplicaRecord("a:1#1")


class Shell:
    """What a carrier reaches: everything writes down its name."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.acks = AckQueue()
        self.full = False
        store: Any = SimpleNamespace(
            append_raw=lambda offset, data: self.done.append("append"),
            commit_raw=lambda size: self.done.append("commit"),
        )
        self.hands = StoreHands(store, CrashableDisk(), Path("/store"), ManualClock())
        self.hands.save = self._save  # type: ignore[method-assign]
        machine: Any = SimpleNamespace(saved=self._told_saved)
        self.carrier = Carrier(self.hands, self, ManualClock(), lambda: machine, acks=self.acks, reign=self)

    def _save(self, save: Save) -> None:
        if self.full:
            raise DiskFull("no room")
        self.done.append("save")

    def _told_saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        return [Confirm(7)]

    def send(self, send: Send) -> None:
        self.done.append("send")

    def close(self, close: Close) -> None:
        self.done.append("close")

    def confirm(self, confirm: Confirm) -> None:
        self.done.append(f"confirm {confirm.offset}")

    def flush_soon(self, decision: FlushSoon) -> None:
        self.done.append("flush")

    def note(self, note: Note) -> None:
        self.done.append("note")

    def saved(self, record: ReplicaRecord) -> None:
        self.done.append("saved")

    def opened(self, opened: Any) -> None: ...

    def stepped_down(self, ended: Any) -> None: ...

    def propose(self, proposal: Any) -> None: ...

    def waiter(self) -> Callable[[PutStatus, str], None]:
        return lambda status, reason: self.done.append(status.value)

    def waits(self, end: int) -> Complete:
        """A send that an ack completes; the decision is not carried out yet."""
        out: list[Complete] = []
        self.acks.acked(out, "b", 0, 0)
        self.acks.add(end, AckLevel(2), False, 9.0, self.waiter())
        self.acks.acked(out, "b", end, 0)
        return out[-1]


def test_decisions_are_carried_out_in_order_and_what_comes_of_them_after_them() -> None:
    shell = Shell()
    todo: deque[Decision] = deque(
        [
            Save(RECORD),
            Append(0, b"x"),
            Commit(1),
            shell.waits(10),
            Confirm(5),
            Send(1, b"ack"),
            FlushSoon(),
            Note("event", "text"),
            Close(1, Reason.LOST, "gone"),
        ]
    )
    shell.carrier.carry_out(todo)
    assert shell.done == [
        "save", "saved", "append", "commit", "PUT_OK", "confirm 5", "send", "flush", "note", "close", "confirm 7",
    ]  # fmt: skip
    assert not todo


def test_an_acknowledgement_waits_for_the_record_before_it() -> None:
    """Nobody is told PUT_OK when the record that comes first can't be saved."""
    shell = Shell()
    shell.full = True
    todo: deque[Decision] = deque([Send(1, b""), Save(RECORD), shell.waits(10), Confirm(10)])
    with pytest.raises(DiskFull):
        shell.carrier.carry_out(todo)
    assert shell.done == ["send"]
    assert [type(one) for one in todo] == [Save, Complete, Confirm], "what failed is the first of what is left"
    shell.full = False
    shell.carrier.carry_out(todo)
    assert shell.done == ["send", "save", "saved", "PUT_OK", "confirm 10", "confirm 7"]


def test_who_waits_for_a_decision_that_is_given_up_is_refused() -> None:
    shell = Shell()
    fail_undone(shell.acks, [Save(RECORD), shell.waits(10), Confirm(10)], "the store failed")
    assert shell.done == ["SERVICE_NOT_AVAILABLE"]
    assert len(shell.acks) == 0


def test_a_process_that_has_ended_carries_nothing_out() -> None:
    shell = Shell()
    todo: deque[Decision] = deque([Confirm(1), Confirm(2)])
    shell.carrier.is_over = True
    shell.carrier.carry_out(todo)
    assert shell.done == []


def test_what_nothing_carries_out_is_an_error() -> None:
    shell = Shell()
    slave = Carrier(shell.hands, shell, ManualClock(), lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(KeyError):
        slave.carry_out(deque([shell.waits(10)]))
