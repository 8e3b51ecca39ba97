"""Index files as RocketMQ writes them, and we do not: `verify` finds nothing wrong with them."""

from tests.unit.store.stores import CONFIG, ROOT, opened, put

from tandemq.formats.key_hash import TopicHasher
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
