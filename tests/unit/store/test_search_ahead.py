"""What a search by time will read is read before, by another thread: the same way, and on any files."""

import pytest
from tests.unit.store.stores import ROOT, opened, put

from tandemq.formats.layout import queue_directory
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.message_store import MessageStore


def filled(disk: MemoryDisk) -> tuple[MessageStore, list[int]]:
    """Returns a store with a message every second in one queue, and the times of all."""
    clock, times = ManualClock(), []
    store = opened(disk, clock=clock)
    for _ in range(40):
        times.append(clock.wall_ms())
        put(store, bytes(300))
        clock.advance(1)
    store.dispatch()
    store.flush_all()
    return store, times


@pytest.mark.parametrize("number", [0, 1, 20, 39])
def test_it_goes_the_same_way(number: int) -> None:
    store, times = filled(MemoryDisk())
    for timestamp in (times[number], times[number] - 500):
        ahead = store.search_ahead("t", 0, timestamp)
        assert ahead is not None
        assert ahead() == store.reader.search_by_time("t", 0, timestamp) == number


def test_files_that_went_end_it() -> None:
    disk = MemoryDisk()
    store, times = filled(disk)
    ahead = store.search_ahead("t", 0, times[3])
    assert ahead is not None
    disk.remove_tree(queue_directory(ROOT, "t", 0))
    assert ahead() is None


def test_a_queue_without_files_needs_none() -> None:
    store = opened()
    put(store)
    store.dispatch()
    assert store.search_ahead("t", 0, 1) is None
    assert store.search_ahead("t", 7, 1) is None
