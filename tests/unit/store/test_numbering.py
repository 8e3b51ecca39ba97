"""The numbers that appends hand out, ahead of what is dispatched."""

import pytest
from tests.unit.store.stores import HOST, opened, put

from tandemq.errors import StoreError
from tandemq.formats.log_mark import QueueNumbers, TopicDeleted
from tandemq.store.message_store import MessageStore


def number(store: MessageStore, topic: str = "t") -> int:
    return store.append(topic, 0, 0, 0, 1, HOST, 0, 0, b"", b"").queue_offset


def test_numbers_go_on_before_anything_is_dispatched() -> None:
    store = opened()
    assert [number(store) for _ in range(3)] == [0, 1, 2]
    assert store.reader.queue_range("t", 0) == (0, 0)


def test_a_deleted_topic_begins_at_zero_at_once() -> None:
    """Readers follow when the mark is dispatched; twice is as good as once."""
    store = opened()
    for _ in range(3):
        number(store)
    store.dispatch()
    for _ in range(2):
        store.append_mark(TopicDeleted("t"))
        assert [number(store), number(store, "u")] == [0, store._numbering.cells["u", 0][0] - 1]
    assert store.reader.queue_range("t", 0) == (0, 3)
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 1)


def test_what_a_slave_was_sent_counts_when_it_begins_to_write() -> None:
    """Records that readers may not see yet have their numbers, and marks among them are followed."""
    master = opened()
    for _ in range(4):
        number(master)
    master.append_mark(QueueNumbers({("idle", 0): 40}))
    master.append_mark(TopicDeleted("t"))
    number(master)
    slave = opened()
    slave.append_raw(0, master.slice(0, master.appended))
    slave.number_undispatched()
    assert (number(slave), number(slave, "idle"), number(slave, "new")) == (1, 40, 0)


def test_a_cut_takes_numbers_back() -> None:
    store = opened()
    number(store)
    store.dispatch()
    place = put(store)
    number(store)
    store.truncate(place)
    assert number(store) == 1


def test_a_name_that_is_no_directory_is_refused() -> None:
    with pytest.raises(StoreError, match="not a name for a directory"):
        opened()._numbering.cell("a/b", 0)
