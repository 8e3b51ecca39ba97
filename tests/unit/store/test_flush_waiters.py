"""Who is told when bytes are durable."""

import threading

import pytest
from tests.unit.store.stores import ROOT, SYNC, opened, put

from tandemq.errors import LogPoisoned
from tandemq.sim.disk import MemoryDisk


def test_waiters_are_told_in_order_and_at_once() -> None:
    store = opened(config=SYNC)
    told: list[int] = []
    for number in range(3):
        put(store)
        store.when_flushed(store.appended, lambda error, number=number: told.append(number))
    assert told == []
    store.flush_once()
    assert told == [0, 1, 2]
    store.when_flushed(store.appended, lambda error: told.append(9))
    assert told[-1] == 9


def test_a_failed_fsync_poisons_the_log() -> None:
    """Every waiter hears of it, nothing is ever reported flushed again, not even after the disk says it is well."""
    disk = MemoryDisk()
    store = opened(disk, SYNC)
    put(store)
    store.flush_once()
    good = store.flushed
    errors: list[Exception | None] = []
    put(store)
    store.when_flushed(store.appended, errors.append)
    disk.sync_error = OSError(5, "Input/output error")
    with pytest.raises(LogPoisoned):
        store.flush_once()
    disk.sync_error = None
    store.when_flushed(store.appended, errors.append)
    assert [type(error) for error in errors] == [LogPoisoned, LogPoisoned]
    with pytest.raises(LogPoisoned):
        store.flush_once()
    with pytest.raises(LogPoisoned):
        put(store)
    assert store.flushed == good
    assert not store.health.writable
    store.close()
    assert disk.file_size(ROOT / "abort") is not None


def test_the_flush_thread_serves_group_commit() -> None:
    """One fdatasync for many waiters; close answers whoever is left."""
    store = opened(config=SYNC)
    store.start()
    done = threading.Event()
    for _ in range(50):
        put(store)
        store.when_flushed(store.appended, lambda error: None)
    store.when_flushed(store.appended, lambda error: done.set())
    assert done.wait(20)
    assert store.flushed == store.appended
    store.close()
