"""Index files as RocketMQ writes them, and we do not: `verify` finds nothing wrong with them."""

from tests.unit.store.stores import CONFIG, ROOT, opened, put

from tandemq.formats.index_file import ENTRY
from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.layout import CHECKPOINT
from tandemq.sim.disk import MemoryDisk
from tandemq.store.verify import Report, verify

PROPERTIES = b"KEYS\x01k0\x02TAGS\x01red\x02"


def verified_with_entry(key: bytes) -> Report:
    """Returns the report on a store with one message and an index entry more for it, under `key`."""
    disk = MemoryDisk()
    store = opened(disk)
    offset = put(store, properties=PROPERTIES)
    store.dispatch()
    index = store._views.index
    index.put([TopicHasher("t").key_hash(key)], [offset], [0])
    store.close()
    return verify(disk, ROOT, CONFIG)


def test_tags_are_indexed_by_rocketmq_5_5() -> None:
    assert verified_with_entry(b"T#red").problems == []


def test_a_key_stands_twice_where_a_file_ended_between_two_keys() -> None:
    assert verified_with_entry(b"k0").problems == []


def test_a_key_that_the_message_does_not_have_is_a_problem() -> None:
    assert [problem.where for problem in verified_with_entry(b"other").problems] == ["index"]


def verified_with_a_stale_slot(of_rocketmq: bool) -> Report:
    """Returns the report on two messages of different slots, the second of which leads to the first."""
    disk = MemoryDisk()
    store = opened(disk)
    for key in (b"k0", b"k1"):
        put(store, properties=b"KEYS\x01" + key + b"\x02")
    store.dispatch()
    index = store._views.index
    file = index.file(index.names[0])
    first, second = file.all_entries()
    assert first[0] % file.slots != second[0] % file.slots
    ENTRY.pack_into(file.view, file.entry_at(2), *second[:3], 1)
    store.close()
    if of_rocketmq:
        disk.remove(ROOT / CHECKPOINT)
    return verify(disk, ROOT, CONFIG)


def test_a_file_that_rocketmq_filled_twice_within_a_millisecond_is_a_note() -> None:
    report = verified_with_a_stale_slot(of_rocketmq=True)
    assert report.problems == []
    assert any("filled twice" in note for note in report.notes)


def test_a_wrong_chain_in_our_own_index_is_a_problem() -> None:
    report = verified_with_a_stale_slot(of_rocketmq=False)
    assert [problem.what for problem in report.problems] == ["entry 2 leads to 1, not 0"]
