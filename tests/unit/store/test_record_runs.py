"""Runs of records for the array path of dispatch: where a run must end so that the other path takes over."""

import pytest
from tests.unit.store.stores import HOST, ROOT

from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted, encode_mark
from tandemq.formats.queue_entry import ENTRY
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.message_store import MessageStore
from tandemq.store.record_runs import ROWS_MIN, RecordRun

COUNT = 2 * ROWS_MIN
DELAYS = (1000,)


def store_with(count: int = COUNT) -> tuple[MessageStore, list[int]]:
    config = StoreConfig(commit_log_segment_size=1 << 20, index_slots=100, index_entries=1000)
    store = MessageStore.open(ROOT, config, clock=ManualClock(), disk=MemoryDisk(), store_host=HOST)
    return store, [put(store, number) for number in range(count)]


def put(store: MessageStore, number: int, topic: str = "t") -> int:
    text = b"KEYS\x01k%d\x02TAGS\x01a\x02" % number
    return store.append(topic, number % 2, 0, 0, 1, HOST, 0, 0, b"body", text).physical_offset


def read(store: MessageStore, at: int = 0, enough: int | None = None) -> RecordRun | None:
    view = store.log.chain.segment(0).view
    return RecordRun.read(view, 0, at, store.appended, store.appended if enough is None else enough, DELAYS)


class Queues:
    """Queues by (topic, id), empty unless told otherwise."""

    def __init__(self, counts: dict[tuple[str, int], int] | None = None) -> None:
        self._counts = counts or {}
        self.made: dict[tuple[str, int], ConsumeQueue] = {}

    def __call__(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        key = (topic.decode(), queue_id)
        if key not in self.made:
            queue = ConsumeQueue(MemoryDisk(), ROOT, 2000, *key)
            queue.start_at(self._counts.get(key, 0))
            self.made[key] = queue
        return self.made[key]


def test_a_run_gives_each_queue_its_entries_in_order() -> None:
    store, offsets = store_with()
    run = read(store)
    assert run is not None
    found = {queue.key: entries for queue, entries in run.by_queue(Queues())}
    assert set(found) == {("t", 0), ("t", 1)}
    for queue_id in (0, 1):
        entries = list(ENTRY.iter_unpack(found["t", queue_id]))
        assert [offset for offset, _, _ in entries] == offsets[queue_id::2]
        assert {tags for _, _, tags in entries} == {ord("a")}
    assert (run.count, run.stop) == (COUNT, store.appended)


def test_few_records_are_not_worth_a_run() -> None:
    store, offsets = store_with(ROWS_MIN)
    assert read(store) is not None
    assert read(store, at=offsets[1]) is None
    assert read(store, enough=offsets[ROWS_MIN - 1]) is None


@pytest.mark.parametrize("row", [ROWS_MIN, COUNT - 1])
@pytest.mark.parametrize(("at", "damage"), [(4, b"\0\0\0\0"), (28, b"\0\0\0\0\0\0\0\1")])
def test_a_run_ends_before_a_record_that_is_damaged_or_elsewhere(row: int, at: int, damage: bytes) -> None:
    """An unknown magic, or a physical offset that is not where the record lies."""
    store, offsets = store_with()
    store.log.chain.segment(0).view[offsets[row] + at : offsets[row] + at + len(damage)] = damage
    run = read(store)
    assert run is not None
    assert (run.count, run.stop) == (row, offsets[row])


def test_a_run_ends_before_a_number_its_queue_does_not_expect() -> None:
    store, offsets = store_with()
    run = read(store)
    assert run is not None
    assert [entries for _, entries in run.by_queue(Queues({("t", 1): 5}))] == [
        ENTRY.pack(offsets[0], offsets[1] - offsets[0], ord("a"))
    ]
    assert run.count == 1


def test_a_run_ends_before_a_mark() -> None:
    """A mark changes queues: dispatch treats it by itself."""
    store, _ = store_with(ROWS_MIN)
    end = store.appended
    store.append(LOG_MARK_TOPIC, 0, 0, 0, 1, HOST, 0, 0, encode_mark(TopicDeleted("t")), b"")
    for number in range(ROWS_MIN):
        put(store, number)
    run = read(store)
    assert run is not None
    run.by_queue(Queues())
    assert (run.count, run.stop) == (ROWS_MIN, end)


def test_keys_are_those_of_messages_from_an_offset_on() -> None:
    store, offsets = store_with()
    run = read(store)
    assert run is not None
    run.by_queue(Queues())
    hashes, physical, times = run.keys(offsets[COUNT - 3])
    assert physical.tolist() == offsets[-3:]
    assert len(set(hashes.tolist())) == 3
    assert set(times.tolist()) == {run.last_timestamp}
    assert len(run.keys(0)[0]) == COUNT
