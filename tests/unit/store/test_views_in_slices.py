"""Views on their way to disk, queue by queue, with everything else in between."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.stores import CONFIG, ROOT, opened, put

from tandemq.errors import DiskFull
from tandemq.formats.log_mark import TopicDeleted
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store import views
from tandemq.store.flush import Flusher
from tandemq.store.message_store import MessageStore

QUEUES = 10


@pytest.fixture(autouse=True)
def _sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is as much as fits into a slice, and the flusher syncs what it is handed at once."""
    monkeypatch.setattr(Flusher, "is_posting", True)
    monkeypatch.setattr(views, "SLICE_SECONDS", 0.0)


class Loop:
    """A store, and the turns of its owner's loop."""

    def __init__(self, disk: MemoryDisk, **options: object) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.store: MessageStore = opened(disk, CONFIG, post=self.calls.append, **options)

    def spread(self) -> None:
        for number in range(QUEUES):
            put(self.store, queue_id=number)
        self.store.flush_once()
        while self.store.dispatch():
            pass

    def turns(self, count: int = 10_000) -> int:
        """Takes so many turns; returns how many there were to take."""
        taken = 0
        while self.calls and taken < count:
            self.calls.popleft()()
            taken += 1
        return taken


def written(disk: MemoryDisk) -> int:
    return sum(path.parts[2] == "consumequeue" for path in disk.files)


def test_a_turn_makes_the_file_of_one_queue() -> None:
    disk = MemoryDisk()
    loop = Loop(disk)
    loop.spread()
    loop.store._views.hand_over()
    loop.turns()
    before = written(disk)
    for number in range(QUEUES, 2 * QUEUES):
        put(loop.store, queue_id=number)
    loop.store.dispatch()
    loop.store._views.hand_over()
    sizes = [written(disk) - before]
    while loop.turns(1):
        sizes.append(written(disk) - before)
    assert sizes[-1] == QUEUES
    assert max(b - a for a, b in zip([0, *sizes], sizes, strict=False)) == 1


def test_the_checkpoint_vouches_for_where_the_hand_over_began() -> None:
    disk = CrashableDisk()
    loop = Loop(disk)
    loop.spread()
    began = loop.store.dispatched
    loop.store._views.hand_over()
    loop.turns(3)
    loop.spread()  # entries of the same queues, while the hand-over is on its way
    loop.turns()
    assert loop.store._views._durable_offset == began
    again = Loop(disk.after_crash()).store
    assert again.recovered is not None
    assert again.recovered.problem == ""
    assert again.recovered.dispatched_from == began
    assert [again.reader.queue_range("t", q)[1] for q in range(QUEUES)] == [2] * QUEUES


def test_a_crash_between_two_turns_loses_nothing() -> None:
    for count in range(QUEUES * 3):
        disk = CrashableDisk()
        loop = Loop(disk)
        loop.spread()
        loop.store._views.hand_over()
        loop.turns(count)
        again = Loop(disk.after_crash()).store
        assert [again.reader.queue_range("t", q)[1] for q in range(QUEUES)] == [1] * QUEUES


def test_a_topic_deleted_on_the_way_starts_it_over() -> None:
    disk = CrashableDisk()
    loop = Loop(disk)
    loop.spread()
    put(loop.store, topic="other")
    loop.store.append_mark(TopicDeleted("t"))
    loop.store._views.hand_over()
    loop.turns(3)
    loop.store.flush_once()
    loop.store.dispatch()
    loop.turns()
    assert loop.store._views._durable_offset < loop.store.dispatched
    loop.store._views.hand_over()
    loop.turns()
    assert loop.store._views._durable_offset == loop.store.dispatched
    again = Loop(disk.after_crash()).store
    assert again.recovered is not None
    assert again.recovered.problem == ""
    assert again.reader.queue_range("t", 0) == (0, 0)
    assert again.reader.queue_range("other", 0) == (0, 1)


def test_a_full_disk_on_the_way_is_told_and_tried_again() -> None:
    disk = MemoryDisk()
    loop = Loop(disk)
    loop.spread()
    disk.capacity = disk.usage(ROOT)[0]
    loop.store._views.hand_over()
    loop.turns()
    assert not loop.store.health.writable
    disk.capacity = None
    loop.store._views.hand_over()
    loop.turns()
    assert loop.store._views._durable_offset == loop.store.dispatched


def test_what_was_handed_over_and_forgotten_is_synced_with_the_next() -> None:
    """A close, or a cut, comes before the flusher had its turn: the checkpoint must not vouch for unsynced files."""
    disk = CrashableDisk()
    loop = Loop(disk)
    loop.spread()
    work = loop.store._views.work(clean=False)
    assert work.files
    loop.store._flusher._work = work
    loop.store.flush_all()
    again = Loop(disk.after_crash()).store
    assert again.recovered is not None
    assert (again.recovered.problem, again.recovered.dispatched_from) == ("", loop.store.dispatched)


def test_a_close_on_the_way_is_clean() -> None:
    disk = CrashableDisk()
    loop = Loop(disk)
    loop.spread()
    loop.store._views.hand_over()
    loop.turns(2)
    loop.store.close()
    assert loop.turns() <= 1
    again = Loop(disk.after_crash()).store
    assert again.recovered is not None
    assert again.recovered.clean
    assert again.recovered.problem == ""


class CountingDisk(MemoryDisk):
    """Counts what is read from files of queues."""

    reads = 0

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        self.reads += path.parts[2] == "consumequeue"
        return super().read_at(path, position, size)


def test_deleting_a_topic_reads_no_file_of_its_queues() -> None:
    disk = CountingDisk()
    loop = Loop(disk)
    loop.spread()
    loop.store._views.hand_over()
    loop.turns()
    loop.store.append_mark(TopicDeleted("t"))
    reads = disk.reads
    loop.store.dispatch()
    assert loop.store.reader.queue_range("t", 0) == (0, 0)
    assert disk.reads == reads


def test_a_full_disk_ends_a_hand_over_in_one_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "is_posting", False)
    disk = MemoryDisk()
    loop = Loop(disk)
    loop.spread()
    disk.capacity = disk.usage(ROOT)[0]
    with pytest.raises(DiskFull):
        loop.store._views.hand_over()
    disk.capacity = None
    loop.store._views.hand_over()
    assert loop.store._views._durable_offset == loop.store.dispatched


def test_numbers_outlive_files_that_went_before_any_checkpoint_told_of_them() -> None:
    disk = CrashableDisk()
    loop = Loop(disk)
    store = loop.store
    put(store)
    store.dispatch()
    store.flush_all()
    vouched = store._views._durable_offset
    for _ in range(3):
        put(store, queue_id=7)
    while store.appended < 3 * store.segment_size:
        put(store, b"x" * 500)
    store.flush_once()
    while store.dispatch():
        pass
    assert store._views._durable_offset == vouched
    store.retain(1 << 60, manual=True)
    assert store.first_offset > vouched
    again = Loop(disk.after_crash()).store
    while again.dispatch():
        pass
    assert again.reader.queue_range("t", 7)[1] == 3
    assert again.queue_end("t", 7) == 3
