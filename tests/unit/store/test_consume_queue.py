"""One consume queue: a tail in memory, files behind it, and what a crash or a cut leaves of them."""

import gc
from pathlib import Path

import pytest

from tandemq.formats.queue_entry import ENTRY, ENTRY_SIZE, FILLER
from tandemq.sim.disk import MemoryDisk
from tandemq.store.consume_queue import ConsumeQueue

DIRECTORY = Path("/store/consumequeue/t/0")
PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE


def queue_on(disk: MemoryDisk) -> ConsumeQueue:
    return ConsumeQueue(disk, DIRECTORY, FILE_SIZE, "t", 0)


def loaded(disk: MemoryDisk) -> ConsumeQueue:
    queue = queue_on(disk)
    assert queue.load()
    return queue


def add(queue: ConsumeQueue, count: int, *, written: bool = True) -> None:
    """Adds entries that point to offsets 100, 200, … by their number."""
    for number in range(queue.count, queue.count + count):
        queue.tail += ENTRY.pack(100 + number * 100, 50, number)
        queue.count += 1
    if written:
        queue.write_tail()


def offsets(queue: ConsumeQueue) -> list[int]:
    return [queue.entry(index)[0] for index in range(queue.first, queue.count)]


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13])
@pytest.mark.parametrize("written", [0, 3, 5, 13])
def test_entries_are_the_same_wherever_the_line_between_file_and_tail_runs(count: int, written: int) -> None:
    queue = queue_on(MemoryDisk())
    add(queue, min(count, written))
    add(queue, count - queue.count, written=False)
    assert offsets(queue) == [100 + number * 100 for number in range(count)]
    start = 0
    pieces = b""
    while start < count:
        found = queue.entries(start, count)
        assert found, "a reader gets on"
        pieces += found
        start += len(found) // ENTRY_SIZE
    assert pieces == b"".join(ENTRY.pack(100 + n * 100, 50, n) for n in range(count))


@pytest.mark.parametrize("count", [1, 4, 5, 6, 10, 14])
def test_a_queue_is_found_again_as_it_was(count: int) -> None:
    disk = MemoryDisk()
    add(queue_on(disk), count)
    again = loaded(disk)
    assert (again.first, again.count, again.hole()) == (0, count, None)
    assert offsets(again) == [100 + number * 100 for number in range(count)]


def test_a_queue_that_begins_above_zero_has_fillers_before() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    queue.start_at(7)
    assert queue.is_fileless
    add(queue, 2)
    assert disk.read_at(DIRECTORY / f"{FILE_SIZE:020d}", 0, 3 * ENTRY_SIZE)[: 2 * ENTRY_SIZE] == FILLER * 2
    again = loaded(disk)
    assert (again.first, again.count, again.begin) == (7, 9, 5)


@pytest.mark.parametrize("damage", ["size", "gap", "misplaced"])
def test_files_that_are_no_chain_are_refused(damage: str) -> None:
    disk = MemoryDisk()
    add(queue_on(disk), 12)
    if damage == "size":
        disk.remove(DIRECTORY / f"{FILE_SIZE:020d}")
        disk.create_file(DIRECTORY / f"{FILE_SIZE:020d}", FILE_SIZE - 1)
    elif damage == "gap":
        disk.remove(DIRECTORY / f"{FILE_SIZE:020d}")
    else:
        disk.create_file(DIRECTORY / f"{3 * FILE_SIZE + 20:020d}", FILE_SIZE)
    assert not queue_on(disk).load()


def test_a_page_lost_at_the_edge_of_a_file_is_a_hole() -> None:
    disk = MemoryDisk()
    add(queue_on(disk), 12)
    disk.write_at(DIRECTORY / f"{0:020d}", 4 * ENTRY_SIZE, bytes(ENTRY_SIZE))
    assert loaded(disk).hole() == 4


def test_recovery_drops_what_the_log_does_not_confirm() -> None:
    disk = MemoryDisk()
    add(queue_on(disk), 8)
    queue = loaded(disk)
    queue.keep_below(700, lambda offset, size, number: True)
    assert queue.count == 6
    queue.keep_below(700, lambda offset, size, number: number < 4)
    assert queue.count == 4


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize(("limit", "left"), [(100, 0), (101, 1), (550, 5), (600, 5), (601, 6), (5000, 8)])
def test_a_cut_takes_entries_out_of_memory_and_files(written: bool, limit: int, left: int) -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    add(queue, 3)
    add(queue, 5, written=written)
    assert queue.cut(limit) is (left < 8)
    assert queue.count == left
    queue.write_tail()
    add(queue, 2)
    if left:
        assert offsets(loaded(disk)) == [100 + number * 100 for number in range(left + 2)]


def test_only_files_that_point_below_the_log_go() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    add(queue, 14)
    assert (queue.begin_after(1000), queue.begin_after(1001)) == (5, 10)
    assert queue.drop_before(1000) == 1
    assert queue.drop_before(1001) == 1
    assert queue.drop_before(10_000) == 0, "the last file says where numbers go on"
    assert (queue.first, queue.count, len(disk.list(DIRECTORY))) == (10, 14, 1)


def test_the_first_readable_entry_follows_the_start_of_the_log() -> None:
    queue = queue_on(MemoryDisk())
    add(queue, 8)
    assert [queue.min_offset(start) for start in (0, 100, 101, 800, 801)] == [0, 0, 1, 7, 8]
    assert [queue.lower_bound(offset) for offset in (0, 100, 101, 900)] == [0, 0, 1, 8]


@pytest.mark.parametrize("hole", [1, 4, 30])
@pytest.mark.parametrize("written", [True, False])
def test_searches_step_over_fillers(hole: int, written: bool) -> None:
    """They stand for messages that the log lacks, anywhere in the queue, and have no place in its order."""
    queue = queue_on(MemoryDisk())
    add(queue, 2)
    after = 2 + hole
    queue.fill_to(after)
    add(queue, 2, written=written)
    third, fourth = 100 + after * 100, 200 + after * 100
    sought = [0, 100, 101, 200, 201, third, third + 1, fourth, fourth + 1]
    expected = [0, 0, 1, 1, after, after, after + 1, after + 1, after + 2]
    assert [queue.lower_bound(offset) for offset in sought] == expected
    assert [queue.min_offset(offset) for offset in sought] == expected


def test_a_cut_below_fillers_leaves_no_entry_of_what_was_cut() -> None:
    queue = queue_on(MemoryDisk())
    add(queue, 3)
    queue.fill_to(20)
    add(queue, 1)
    assert queue.cut(200)
    assert offsets(queue) == [100]


def test_what_must_be_synced_is_named_once() -> None:
    queue = queue_on(MemoryDisk())
    add(queue, 7)
    paths, named = queue.take_dirty()
    assert ([path.name for path in paths], named) == ([f"{0:020d}", f"{FILE_SIZE:020d}"], True)
    assert queue.take_dirty() == ([], False)
    add(queue, 1)
    assert queue.take_dirty() == ([DIRECTORY / f"{FILE_SIZE:020d}"], False)


def test_an_idle_queue_has_no_message_at_or_above_an_offset() -> None:
    queue = queue_on(MemoryDisk())
    assert queue.is_idle(0)
    add(queue, 3)
    assert (queue.is_idle(300), queue.is_idle(301)) == (False, True)


def test_a_collection_of_garbage_looks_at_a_queue_and_nothing_below_it() -> None:
    """A hundred thousand queues stop a broker for as long as a collection looks at all they hold."""
    disk = MemoryDisk()
    add(queue_on(disk), 2 * PER_FILE + 1)
    queue = loaded(disk)
    add(queue, 1)
    gc.collect()
    held = [getattr(queue, name) for name in ConsumeQueue.__slots__ if name != "_disk"]
    assert queue._files
    assert queue._dirty
    assert [one for one in held if gc.is_tracked(one)] == []


@pytest.mark.parametrize("written", [False, True])
def test_a_queue_has_messages_while_the_log_has_one_of_them(written: bool) -> None:
    queue = queue_on(MemoryDisk())
    assert not queue.has_messages(0)
    add(queue, 2, written=written)
    assert queue.has_messages(200)
    assert not queue.has_messages(201)


@pytest.mark.parametrize("written", [False, True])
def test_fillers_at_the_end_of_a_queue_are_no_messages(written: bool) -> None:
    queue = queue_on(MemoryDisk())
    queue.fill_to(3)
    if written:
        queue.write_tail()
    assert not queue.has_messages(0)
    queue.tail += ENTRY.pack(0, 50, 0)
    queue.count += 1
    assert queue.has_messages(0), "the first message of all"
    queue.fill_to(6)
    assert queue.has_messages(0)
