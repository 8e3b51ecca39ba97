"""What the decisions of a state machine do to a store, and what is counted of it."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.clock import SystemClock
from tandemq.errors import StoreError
from tandemq.replication.decisions import Append, Discard, LogEnds, Reset, Send, Truncate
from tandemq.replication.hands import StoreHands
from tandemq.replication.slave import SlaveShell
from tandemq.sim.disk import CrashableDisk, MemoryDisk, PowerCut
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path("/s")
HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


def hands() -> StoreHands:
    disk = MemoryDisk()
    store = MessageStore.open(ROOT, StoreConfig(commit_log_segment_size=1 << 20), clock=SystemClock(), disk=disk)
    return StoreHands(store, disk, ROOT, SystemClock())


def test_a_reset_is_counted_by_the_name_it_carries() -> None:
    """Whatever its sentence for people says."""
    one = hands()
    one.reset(Reset(1 << 30, 0, 0, "the log is empty, or so they say", "reset-diverged"))
    assert one.events == {"reset-diverged": 1}
    assert one.store.appended == 1 << 30
    one.store.close()


def received(one: StoreHands) -> int:
    """Two whole records lie behind the end of the log, as of a frame whose session died; where the log ends."""
    store, records = one.store, hands().store
    for _ in range(3):
        records.append("T", 0, 0, 0, 1, bytes((127, 0, 0, 1, 0, 0, 0, 1)), 0, 0, b"body" * 100, b"")
    size = records.appended // 3
    store.append_raw(0, records.slice(0, size))
    store.write_raw(0, records.slice(size, 2 * size))
    return store.appended


@pytest.mark.parametrize("begin", [StoreHands.log_ends, StoreHands.prepare])
def test_nothing_lies_behind_the_end_that_a_role_begins_with(begin: Callable[[StoreHands], object]) -> None:
    one = hands()
    end = received(one)
    begin(one)
    assert one.store.appended == end
    assert not any(one.store.raw_window(end, 2000))


def test_a_frame_with_a_wrong_checksum_leaves_nothing() -> None:
    one = hands()
    end = received(one)
    one.discard(Discard(1))
    assert not any(one.store.raw_window(end, 2000))


# --- rules of the shells that only a fault shows; each is taken away once, to see that these tests notice -------------


def cut_is_kept() -> None:
    """Whatever step of a truncation the power fails at, the bytes are in the log still or under cut/ already."""
    steps = 0
    while True:
        disk = CrashableDisk()
        store = MessageStore.open(ROOT, StoreConfig(commit_log_segment_size=1 << 16), clock=SystemClock(), disk=disk)
        for number in range(4):
            store.append("T", 0, 0, 0, 1, HOST, 0, 0, bytes([65 + number]) * 300, b"")
        store.flush_all()
        one = StoreHands(store, disk, ROOT, SystemClock())
        cut = store.appended // 4
        tail = bytes(store.slice(cut, store.appended - cut))
        disk.crash_at = len(disk.steps) + steps
        with contextlib.suppress(PowerCut):
            one.truncate(Truncate(cut, store.appended, "another history"))
        finished = len(disk.steps) < disk.crash_at
        disk.crash_at = None
        found = disk.after_crash()
        log = found.read_file(ROOT / "commitlog" / f"{0:020d}")[cut : cut + len(tail)]
        kept = [file.data for path, file in found.files.items() if "cut" in path.parts]
        assert log == tail or bytes(kept[0]) == tail, f"neither in the log nor under cut/ after step {steps}"
        if finished:
            return
        steps += 1


def acks_follow_the_log() -> None:
    """What the log refuses is not acknowledged, and nothing is before it is appended."""
    happened: list[str] = []

    def append(offset: int, data: bytes) -> None:
        happened.append("append")
        if offset:
            raise StoreError("the disk says no")

    wire: Any = SimpleNamespace(send=lambda data: happened.append("ack"))
    store: Any = SimpleNamespace(append_raw=append)
    hands = StoreHands(store, CrashableDisk(), ROOT, SystemClock())
    nothing: Any = lambda *given: None  # noqa: E731
    state: Any = SimpleNamespace(frame=SimpleNamespace(is_catching_up=False))
    shell: Any = SlaveShell(
        lambda extended: state, hands, SystemClock(), nothing, reconnect_max=1.0, on_readable=nothing,
        on_saved=nothing,
    )  # fmt: skip
    shell._wire = wire
    shell._act([Append(0, b"x"), Send(1, b"ack")])
    assert happened == ["append", "ack"]
    with pytest.raises(StoreError):
        shell._act([Append(1, b"x"), Send(1, b"ack")])
    assert happened == ["append", "ack", "append"]


def durable_is_what_was_synced() -> None:
    """A slave that has flushed nothing says so, when it begins and later."""
    disk = CrashableDisk()
    store = MessageStore.open(ROOT, StoreConfig(commit_log_segment_size=1 << 20), clock=SystemClock(), disk=disk)
    store.append("T", 0, 0, 0, 1, HOST, 0, 0, b"body", b"")
    one = StoreHands(store, disk, ROOT, SystemClock())
    assert one.log_ends().flushed == 0
    told: list[int] = []
    shell: Any = SlaveShell.__new__(SlaveShell)
    shell._store, shell._clock = store, SystemClock()
    shell.state = SimpleNamespace(flushed=lambda offset, now: told.append(offset) or [], next_batch=lambda: None)
    shell.flushed()
    store.flush_once()
    shell.flushed()
    assert told == [0, store.appended]


def taken_log_is_durable() -> None:
    """A candidate that has taken the furthest log has all of it on disk before it opens."""
    disk = CrashableDisk()
    store = MessageStore.open(ROOT, StoreConfig(commit_log_segment_size=1 << 16), clock=SystemClock(), disk=disk)
    for number in range(4):
        store.append("T", 0, 0, 0, 1, HOST, 0, 0, bytes([65 + number]) * 300, b"")
    end = StoreHands(store, disk, ROOT, SystemClock()).prepare()
    whole = bytes(store.slice(0, end))
    assert disk.after_crash().read_file(ROOT / "commitlog" / f"{0:020d}")[:end] == whole


def _saves_unsynced(hands: StoreHands, start: int, end: int) -> None:
    disk: Any = hands._disk
    disk.sync_file = lambda path: None
    try:
        _SAVE_ASIDE(hands, start, end)
    finally:
        del disk.sync_file


def _acks_first(shell: Any, decisions: Any) -> None:
    _ACT(shell, sorted(decisions, key=lambda decision: not isinstance(decision, Send)))


def _all_is_flushed(hands: StoreHands) -> LogEnds:
    ends = _LOG_ENDS(hands)
    return LogEnds(ends.first, ends.end, ends.end, ends.segment_size)


def _reports_appended(shell: Any) -> None:
    shell._act(shell.state.flushed(shell._store.appended, 0.0))


_ACT, _LOG_ENDS, _SAVE_ASIDE = SlaveShell._act, StoreHands.log_ends, StoreHands.save_aside
RULES: list[tuple[Callable[[], None], list[tuple[Any, str, Any]]]] = [
    (cut_is_kept, [(StoreHands, "save_aside", _saves_unsynced)]),
    (acks_follow_the_log, [(SlaveShell, "_act", _acks_first)]),
    (durable_is_what_was_synced, [(StoreHands, "log_ends", _all_is_flushed)]),
    (durable_is_what_was_synced, [(SlaveShell, "flushed", _reports_appended)]),
]


@pytest.mark.parametrize("rule", [cut_is_kept, acks_follow_the_log, durable_is_what_was_synced, taken_log_is_durable])
def test_the_rule_holds(rule: Callable[[], None]) -> None:
    rule()


@pytest.mark.parametrize(("rule", "mutant"), RULES, ids=["cut not synced", "ack before append", "begins", "reports"])
def test_a_broken_rule_is_noticed(
    rule: Callable[[], None], mutant: list[tuple[Any, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, broken in mutant:
        monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        rule()
