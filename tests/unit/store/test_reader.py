"""Reading by offset, queue, time and key."""

from dataclasses import replace

import pytest
from tests.unit.store.stores import CONFIG, FOREVER, opened, put

from tandemq.errors import CorruptRecord, OffsetOutOfRange, StoreError
from tandemq.model.message import tags_code
from tandemq.sim.clock import ManualClock
from tandemq.store.message_store import GetStatus


def test_status_of_reads_outside_a_queue() -> None:
    """The cases of a pull, with the offset to go on from."""
    store = opened()
    put(store, topic="t")
    assert store.reader.get("t", 0, 0, 1, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.dispatch()
    assert store.reader.get("none", 0, 0, 1, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    one = store.reader.get("t", 0, 1, 1, 1)
    assert (one.status, one.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    far = store.reader.get("t", 0, 99, 1, 1)
    assert (far.status, far.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)
    low = store.reader.get("t", 0, -3, 1, 1)
    assert (low.status, low.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)


def test_neighbours_come_as_one_slice_within_limits() -> None:
    """Zero-copy runs; counts and bytes are limits, but one message always comes."""
    store = opened()
    for number in range(8):
        put(store, bytes([number]) * 50)
    store.dispatch()
    result = store.reader.get("t", 0, 0, 5, 1 << 20)
    assert (result.count, len(result.slices), result.next_offset) == (5, 1, 5)
    assert store.reader.get("t", 0, 0, 32, 300).count == 2
    assert store.reader.get("t", 0, 3, 32, 1).count == 1


def test_filter_by_tags_code_steps_over_the_rest() -> None:
    store = opened()
    for tag in "aabab":
        put(store, properties=f"TAGS\x01{tag}\x02".encode())
    store.dispatch()
    wanted = tags_code("b")
    result = store.reader.get("t", 0, 0, 10, 1 << 20, lambda code: code == wanted)
    assert (result.count, result.next_offset) == (2, 5)
    nothing = store.reader.get("t", 0, 0, 10, 1 << 20, lambda code: False)
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_search_by_time() -> None:
    """Lower: first at or after; upper: last at or before; both clamped to the queue."""
    clock = ManualClock(wall_ms=1000)
    store = opened(clock=clock)
    for _ in range(5):  # stored at 1000, 2000, 2000+…
        put(store)
        clock.advance(1)
    store.dispatch()
    assert [store.reader.search_by_time("t", 0, t) for t in (0, 1000, 1001, 3000, 9999)] == [0, 0, 1, 2, 5]
    assert [store.reader.search_by_time("t", 0, t, upper=True) for t in (0, 1000, 1500, 3000, 9999)] == [0, 0, 0, 2, 4]
    assert store.reader.earliest_store_time("t", 0) == 1000
    assert store.reader.store_time("t", 0, 3) == 4000


def test_query_finds_by_key_topic_and_time_and_nothing_else() -> None:
    clock = ManualClock(wall_ms=1_000_000)
    store = opened(clock=clock)
    for number in range(30):
        keys = f"UNIQ_KEY\x01U{number}\x02KEYS\x01a b{number % 3}\x02".encode()
        put(store, bytes([number]), keys, topic="tu"[number % 2])
        clock.advance(1)
    store.dispatch()
    assert [m.body[0] for m in store.reader.query("t", "b0", 99, 0, FOREVER)] == [24, 18, 12, 6, 0]
    assert [m.body[0] for m in store.reader.query("t", "U4", 99, 0, FOREVER)] == [4]
    assert [m.body[0] for m in store.reader.query("t", "a", 99, 1_004_000, 1_008_000)] == [8, 6, 4]
    assert len(store.reader.query("u", "a", 3, 0, FOREVER)) == 3
    assert store.reader.query("t", "missing", 9, 0, FOREVER) == []


def test_opening_is_quick_and_reading_a_wrong_place_is_an_error() -> None:
    store = opened()
    put(store)
    with pytest.raises(CorruptRecord):
        put(store) and store.reader.read(3)
    with pytest.raises(OffsetOutOfRange):
        store.reader.read(10_000)


def test_the_first_message_of_an_index_file_is_found_by_its_time() -> None:
    """As upstream, its entry counts seconds from the end of the file before; a query must not be misled by that."""
    clock = ManualClock()
    store = opened(config=replace(CONFIG, index_entries=3), clock=clock)
    for number in range(3):
        put(store, properties=b"KEYS\x01k%d" % number)
        store.dispatch()
        clock.advance(60)
    index = store._views.index
    assert index is not None
    newest = index.newest
    assert newest is not None
    assert (newest.count, newest.entry(1)[2]) == (2, 60)
    stored_at = newest.begin_timestamp
    assert len(store.reader.query("t", "k2", 8, stored_at - 1, stored_at + 1)) == 1
    assert not store.reader.query("t", "k2", 8, stored_at + 2000, stored_at + 90_000)


def test_times_are_found_on_either_side_of_messages_that_the_log_lacks() -> None:
    clock = ManualClock()
    store = opened(clock=clock)
    times = []
    for _ in range(3):
        put(store)
        times.append(clock.wall_ms())
        clock.advance(10)
    store.dispatch()
    queue = store._views.queue_table.table["t", 0]
    queue.fill_to(30)
    store._numbering.cells["t", 0][0] = 30
    for _ in range(2):
        put(store)
        times.append(clock.wall_ms())
        clock.advance(10)
    store.dispatch()
    found = [store.reader.search_by_time("t", 0, time) for time in times]
    assert found == [0, 1, 2, 30, 31]
    assert [store.reader.search_by_time("t", 0, time, upper=True) for time in times] == [0, 1, 2, 30, 31]
    assert store.reader.search_by_time("t", 0, times[2] + 1) == 30
    assert store.reader.search_by_time("t", 0, times[3] - 1, upper=True) == 2


def test_an_entry_that_points_outside_the_log_names_its_queue_and_the_remedy() -> None:
    """A flipped bit in the middle of a queue file; only the offset was told, to a consumer that asked for ever."""
    store = opened()
    for _ in range(5):
        put(store)
    store.dispatch()
    store.flush_all()
    [path] = [path for path in store._disk.files if path.parts[2] == "consumequeue"]  # type: ignore[attr-defined]
    store._disk.write_at(path, 3 * 20, (1 << 40).to_bytes(8, "big"))
    assert store.reader.get("t", 0, 0, 3, 1 << 20).count == 3
    with pytest.raises(StoreError, match=r"consumequeue/t/0 is damaged, one of its entries 2 to 4 .*--online"):
        store.reader.get("t", 0, 2, 32, 1 << 20)
