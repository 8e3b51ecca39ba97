"""Dispatch of many records at once, with the thresholds it really has; what it must yield is in tests/property."""

from pathlib import Path

import pytest

from tandemq.errors import DiskFull
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.store import record_runs
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
COUNT = 600


def filled(disk: CrashableDisk, count: int = COUNT) -> tuple[MessageStore, list[int]]:
    """A store with messages of one producer, bodies of many sizes, that are not dispatched yet."""
    config = StoreConfig(commit_log_segment_size=1 << 22, index_slots=5000, index_entries=5000)
    store = MessageStore.open(Path("/store"), config, clock=ManualClock(), disk=disk, store_host=HOST)
    offsets = []
    for number in range(count):
        text = b"KEYS\x01order-%06d\x02UNIQ_KEY\x010A00000104D218B4AAC2%012X\x02WAIT\x01true" % (number, number)
        body = b"b" * (number * 7 % 400)
        offsets.append(store.append("T", number % 4, 0, 0, 1, HOST, 0, 0, body, text).physical_offset)
    return store, offsets


def dispatch_all(store: MessageStore) -> None:
    while store.dispatch():
        pass


def indexed(store: MessageStore) -> list[int]:
    """Physical offsets in the index, in its order."""
    index = store._views.index
    assert index is not None
    return [entry[1] for name in index.names for entry in index.file(name).all_entries()]


def test_messages_of_one_producer_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together = []
    by_queue = record_runs.RecordRun.by_queue

    def counted(run: record_runs.RecordRun, queue_of: object) -> object:
        found = by_queue(run, queue_of)  # type: ignore[arg-type]
        together.append(run.count)
        return found

    monkeypatch.setattr(record_runs.RecordRun, "by_queue", counted)
    store, offsets = filled(CrashableDisk())
    store.dispatch()
    assert sum(together) > COUNT * 0.8, "the first of each queue are alone, and some after them"
    assert [store.reader.queue_range("T", queue_id) for queue_id in range(4)] == [(0, COUNT // 4)] * 4
    assert indexed(store) == [offset for offset in offsets for _ in ("unique", "user's")]


def test_what_is_indexed_already_is_not_indexed_again() -> None:
    store, offsets = filled(CrashableDisk())
    store._dispatcher.index_from = offsets[500]
    store.dispatch()
    assert indexed(store) == [offset for offset in offsets[500:] for _ in ("unique", "user's")]


def test_a_full_disk_repeats_and_loses_nothing() -> None:
    """The index finds no room: the next dispatch goes on where this one stopped."""
    disk = CrashableDisk()
    store, offsets = filled(disk, 20)
    store.dispatch()
    for number in range(20, 4000):
        text = b"UNIQ_KEY\x010A00000104D218B4AAC2%012X" % number
        offsets.append(store.append("T", number % 4, 0, 0, 1, HOST, 0, 0, b"body", text).physical_offset)
    disk.capacity = disk.usage(Path("/store"))[0] + 4096
    with pytest.raises(DiskFull):
        dispatch_all(store)
    disk.capacity = None
    dispatch_all(store)
    expected = [offset for offset in offsets[:20] for _ in ("unique", "user's")] + offsets[20:]
    assert indexed(store) == expected
    assert [store.reader.queue_range("T", queue_id) for queue_id in range(4)] == [(0, 1000)] * 4
