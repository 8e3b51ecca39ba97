"""All queues of a store: finding and making them, deleting topics, numbers whose messages have expired."""

from pathlib import Path

import pytest

from tandemq.formats.layout import CONSUME_QUEUE, DELETED_QUEUES
from tandemq.formats.queue_entry import ENTRY, ENTRY_SIZE
from tandemq.sim.disk import MemoryDisk
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.queues import QueueTable

ROOT = Path("/store")
PER_FILE = 5


def table_on(disk: MemoryDisk) -> QueueTable:
    return QueueTable(disk, ROOT, PER_FILE * ENTRY_SIZE)


def add(table: QueueTable, topic: str, queue_id: int, *offsets: int) -> ConsumeQueue:
    """Makes a queue if need be, and adds entries that point to these offsets."""
    queue = table.table.get((topic, queue_id)) or table.create(topic, queue_id)
    assert queue is not None
    for offset in offsets:
        queue.tail += ENTRY.pack(offset, 50, 0)
        queue.count += 1
    queue.write_tail()
    return queue


def test_queues_are_found_again_and_damaged_ones_are_named() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    add(table, "a", 0, 100)
    add(table, "a", 7, *range(100, 1300, 100))
    add(table, "b", 0, 100)
    disk.remove(ROOT / CONSUME_QUEUE / "a" / "7" / f"{PER_FILE * ENTRY_SIZE:020d}")
    again = table_on(disk)
    assert [queue.key for queue in again.load()] == [("a", 7)]
    assert sorted(again.table) == [("a", 0), ("b", 0)]
    assert again.entries() == 2


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "x" * 256, "é" * 128])
def test_a_topic_that_can_be_no_directory_gets_no_queue(topic: str) -> None:
    """Names come out of the log, and the log may come from a peer."""
    table = table_on(MemoryDisk())
    assert table.create(topic, 0) is None
    assert table.create("fine", -1) is None
    assert table.table == {}


def test_new_directories_are_named_with_those_above_them_once() -> None:
    table = table_on(MemoryDisk())
    made = table.create("a", 3)
    assert made is not None
    assert table.take_new_directories(made) == [], "it has no file yet"
    add(table, "a", 3, 100)
    queue, queues = table.table["a", 3], ROOT / CONSUME_QUEUE
    assert table.take_new_directories(queue) == [ROOT, queues, queues / "a", queues / "a" / "3"]
    assert table.take_new_directories(queue) == []


def test_a_deleted_topic_comes_back_if_no_checkpoint_knows_of_it() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    add(table, "a", 0, 100, 200)
    assert table.delete_topic("a", 300) == 1
    assert ("a", 0) not in table.table
    assert [path.name.rpartition("-")[2] for path in table.deleted_below(301)] == ["a"]
    assert table.deleted_below(300) == []
    again = table_on(disk)
    again.settle_deleted(300)
    again.load()
    assert again.table["a", 0].count == 2


def test_a_deleted_topic_is_gone_once_a_checkpoint_lies_after_it() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    add(table, "a", 0, 100)
    table.delete_topic("a", 300)
    add(table, "a", 0, 400)
    again = table_on(disk)
    again.settle_deleted(301)
    again.load()
    assert again.table["a", 0].entry(0)[0] == 400
    assert disk.list(ROOT / CONSUME_QUEUE / DELETED_QUEUES) == []


def test_a_topic_deleted_twice_comes_back_as_it_was_before_the_first() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    add(table, "a", 0, 100, 200)
    table.delete_topic("a", 300)
    add(table, "a", 0, 400)
    table.delete_topic("a", 500)
    again = table_on(disk)
    again.settle_deleted(250)
    again.load()
    assert again.table["a", 0].count == 2


def test_what_a_log_will_not_tell_any_more_is_kept() -> None:
    """Idle queues by their next number, files that begin above 0, queues that have no file."""
    table = table_on(MemoryDisk())
    add(table, "old", 0, 100, 200)
    add(table, "live", 0, *range(100, 1300, 100))
    bare = table.create("bare", 0)
    assert bare is not None
    bare.start_at(9)
    found = table.starts(900)
    assert found.idle == {("old", 0): 2, ("bare", 0): 9}
    assert found.begin == {("live", 0): 5, ("bare", 0): 5}
    assert found.fileless == {("bare", 0): 9}


def test_a_deleted_queue_keeps_its_number_while_the_mark_is_in_the_log() -> None:
    table = table_on(MemoryDisk())
    add(table, "a", 0, 100, 200)
    table.delete_topic("a", 300)
    assert table.starts(250).idle == {("a", 0): 2}
    assert table.starts(301).idle == {}


def test_a_queue_goes_on_at_a_number_without_its_messages() -> None:
    table = table_on(MemoryDisk())
    table.start_idle({("new", 0): 4})
    near = add(table, "near", 0, 100)
    far = add(table, "far", 0, 100)
    table.start_idle({("near", 0): 3, ("far", 0): 1000, ("new", 0): 2})
    assert (table.table["new", 0].first, table.table["new", 0].count) == (4, 4)
    assert (near.first, near.count) == (0, 3), "a small gap is filled"
    assert (far.first, far.count) == (1000, 1000), "a large one would be files of fillers"
    assert table.starts_changed


def test_fresh_queues_take_the_place_of_old_ones() -> None:
    disk = MemoryDisk()
    table, fresh = table_on(disk), QueueTable(disk, ROOT / "rebuild", PER_FILE * ENTRY_SIZE)
    add(table, "a", 0, 100)
    add(fresh, "a", 0, 100, 200)
    disk.remove_tree(ROOT / CONSUME_QUEUE)
    disk.rename(ROOT / "rebuild" / CONSUME_QUEUE, ROOT / CONSUME_QUEUE)
    table.adopt(fresh, [("a", 0)])
    assert table.table["a", 0].entry(1)[0] == 200
    assert ROOT / CONSUME_QUEUE / "a" / "0" in table.take_new_directories(table.table["a", 0])


def test_a_deleted_queue_is_looked_into_where_its_files_are_put_aside() -> None:
    disk = MemoryDisk()
    add(table_on(disk), "a", 0, 100, 200)
    table = table_on(disk)
    table.load()
    table.delete_topic("a", 300)
    assert not disk.list(ROOT / CONSUME_QUEUE / "a")
    assert table.starts(250).idle == {("a", 0): 2}, "its last message lies below"
    assert table.starts(200).idle == {}, "the log will tell"


def test_a_topic_that_goes_for_good_is_known_before_its_files_are_removed() -> None:
    disk = MemoryDisk()
    add(table_on(disk), "a", 0, 100, 200)
    table = table_on(disk)
    table.load()
    table.keeps_deleted = False
    table.delete_topic("a", 300)
    assert not disk.list(ROOT / CONSUME_QUEUE / "a")
    assert table.has_deleted_from(300)
    assert table.starts(250).idle == {("a", 0): 2}


def test_a_topic_made_anew_before_its_deletion_is_noted_is_still_new() -> None:
    table = table_on(MemoryDisk())
    add(table, "a", 0, 100)
    table.delete_topic("a", 300)
    queue = add(table, "a", 0, 400)
    for _ in table.note_gone():
        pass
    assert table.take_new_directories(queue)


def test_two_may_go_through_what_was_deleted_at_a_time() -> None:
    """Retention comes between two slices of a hand-over, which ended in an IndexError and no more checkpoints."""
    table = table_on(MemoryDisk())
    for queue_id in range(3):
        add(table, "t", queue_id, queue_id * 50)
    table.delete_topic("t", 200)
    slices = table.note_gone()
    next(slices, None)
    for _ in table.note_gone():
        pass
    assert list(slices) == []
    assert not table._gone
