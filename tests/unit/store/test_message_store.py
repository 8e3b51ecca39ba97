"""What the broker asks of a store: append, follow a master, dispatch, delete."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tests.unit.store.stores import CONFIG, FOREVER, HOST, ROOT, SYNC, opened, put

from tandemq.errors import DiskFull, OffsetOutOfRange, StoreError, StoreLocked
from tandemq.formats.batch import MessageBatch
from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted
from tandemq.formats.record import parse_record
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store.message_store import MessageStore


def test_queue_offsets_count_per_queue() -> None:
    store = opened()
    done = [store.append("t", i % 2, 0, 0, 1, HOST, 0, 0, b"x", b"") for i in range(6)]
    assert [d.queue_offset for d in done] == [0, 0, 1, 1, 2, 2]
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 3)
    assert store.reader.queue_range("t", 9) == (0, 0)


def test_readers_stop_at_the_confirmed_offset() -> None:
    """Dispatch, and with it every reader, waits for what replication confirms."""
    store = opened()
    put(store)
    second = put(store)
    store.set_confirmed(second)
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 1)
    with pytest.raises(OffsetOutOfRange):
        store.reader.read(second)
    store.set_confirmed(None)
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 2)


def test_a_crash_takes_nothing_from_readers_that_the_views_had_on_disk() -> None:
    """What replication remembers of the confirmed offset may be old; nothing was dispatched before it was confirmed."""
    disk = MemoryDisk()
    store = opened(disk, confirmed=0)
    put(store, properties=b"KEYS\x01k\x02")
    store.set_confirmed(store.appended)
    store.dispatch()
    store.flush_all()
    unseen = put(store)
    store.abandon()
    again = opened(disk, confirmed=0)
    assert again.reader.queue_range("t", 0) == (0, 1)
    assert len(again.reader.query("t", "k", 9, 0, FOREVER)) == 1
    assert again.dispatched == again.readable_limit == unseen
    again.close()


def test_sync_flush_shows_only_what_is_flushed() -> None:
    store = opened(config=SYNC)
    put(store)
    assert store.dispatch() == set()
    store.flush_once()
    assert store.dispatch() == {("t", 0)}


def test_a_slave_waits_for_the_rest_of_a_record() -> None:
    """Bytes cut anywhere, even in the middle of the next record's head, make the same store."""
    master = opened()
    for number in range(30):
        put(master, bytes([number]) * 300, f"KEYS\x01k{number}\x02".encode(), queue_id=number % 3)
    master.dispatch()
    slave = opened()
    position = 0
    while position < master.appended:
        size = min(97, master.appended - position, 4096 - position % 4096)
        slave.append_raw(position, master.slice(position, size))
        position += size
        slave.dispatch()
    assert slave.dispatched == master.dispatched == master.appended
    for queue_id in range(3):
        assert slave.reader.queue_range("t", queue_id) == master.reader.queue_range("t", queue_id)
    assert [m.body for m in slave.reader.query("t", "k7", 5, 0, FOREVER)] == [bytes([7]) * 300]


def test_receiving_into_the_log() -> None:
    """raw_window and commit_raw: what was not committed is not log, and a cut wipes it."""
    source = opened()
    put(source)
    raw = bytes(source.slice(0, source.appended))
    store = opened()
    window = store.raw_window(0, 1000)
    window[: len(raw)] = raw
    window[len(raw) :] = b"\xee" * (1000 - len(raw))
    assert store.commit_raw(len(raw)) == len(raw)
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 1)
    store.truncate(store.appended)
    assert not any(store.raw_window(store.appended, 800))
    with pytest.raises(OffsetOutOfRange):
        store.raw_window(5, 10)


def unfinished() -> MessageStore:
    """A store of one message, behind whose end lie two whole records that were received and never committed."""
    source = opened()
    for number in range(3):
        put(source, bytes([number]) * 300)
    raw, first = bytes(source.slice(0, source.appended)), source.reader.read(0).size
    store = opened(CrashableDisk())
    store.append_raw(0, raw[:first])
    store.write_raw(0, raw[first:])
    return store


@pytest.mark.parametrize("power", [False, True])
def test_what_was_received_and_not_committed_is_no_log_for_the_next_process(power: bool) -> None:
    """Whoever sent it may not reign any more, so it goes for good before anybody else is followed."""
    store = unfinished()
    end = store.appended
    store.flush_once()
    assert store.drop_unfinished() > 500
    assert store.drop_unfinished() == 0
    disk = store._disk
    assert isinstance(disk, CrashableDisk)
    assert opened(disk.after_crash(Random(1) if power else None, keep_all=not power)).appended == end


def test_a_clean_end_leaves_nothing_behind_it() -> None:
    store = unfinished()
    end, disk = store.appended, store._disk
    store.close()
    assert opened(disk).appended == end  # type: ignore[arg-type]


def test_a_slave_may_begin_late() -> None:
    """A queue whose first message is not number 0 starts where its history does."""
    master = opened()
    for _ in range(40):
        put(master, bytes(200))
    slave = opened()
    slave.reset(8192)
    position = 8192
    slave.append_raw(position, bytes(master.slice(position, master.appended - position)))
    slave.dispatch()
    low, high = slave.reader.queue_range("t", 0)
    assert 0 < low < high == 40
    assert parse_record(slave.reader.get("t", 0, low, 1, 1).slices[0]).queue_offset == low
    slave.flush_all()
    disk = slave._disk
    slave.close()
    assert opened(disk).reader.queue_range("t", 0) == (low, high)  # type: ignore[arg-type]


def test_names_that_are_no_directories_stay_out_of_the_queues() -> None:
    """The log of a hostile master must not write outside the store."""
    source = opened()
    put(source, topic="x" * 9)
    raw = bytes(source.slice(0, source.appended)).replace(b"x" * 9, b"../../../")
    store = opened()
    store.append_raw(0, raw)
    assert store.dispatch() == set()
    assert store.status().skipped_records == 1
    with pytest.raises(StoreError):
        put(store, topic="../up")


def test_garbage_from_a_master_stops_dispatch_with_a_reason() -> None:
    store = opened()
    store.append_raw(0, b"\x01" * 200)
    store.dispatch()
    assert store.dispatched == 0
    assert "magic" in store.status().reason


def test_delayed_messages_carry_their_delivery_time() -> None:
    clock = ManualClock(wall_ms=5000)
    store = opened(clock=clock)
    put(store, properties=b"DELAY\x013\x02TAGS\x01x\x02", topic=SCHEDULE_TOPIC, queue_id=2)
    store.dispatch()
    seen: list[int] = []
    store.reader.get(SCHEDULE_TOPIC, 2, 0, 1, 1, lambda code: bool(seen.append(code)) or True)
    assert seen == [15_000]


def test_prepared_and_rolled_back_records_are_in_no_queue() -> None:
    store = opened()
    for kind in (0x4, 0xC, 0x8, 0x0):
        store.append("t", 0, 0, kind, 1, HOST, 0, 0, b"x", b"")
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 2)
    assert store.reader.get("t", 0, 0, 9, 1 << 20).count == 2


def test_batches_are_contiguous_in_one_segment() -> None:
    store = opened()
    put(store, bytes(1900))
    done = store.append_batch("t", 1, 0, 1, HOST, 0, MessageBatch([(0, bytes(700), b"") for _ in range(3)]))
    assert done.queue_offset == 0
    assert done.physical_offsets[0] == 4096
    sizes = [stop - start for start, stop in pairwise([*done.physical_offsets, done.end])]
    assert sizes == [91 + 700 + len("t")] * 3
    assert [
        parse_record(store.reader.read_raw(at, limit=done.end), crc=True).queue_offset for at in done.physical_offsets
    ] == [0, 1, 2]
    store.dispatch()
    assert store.reader.queue_range("t", 1) == (0, 3)


@pytest.mark.parametrize(("body", "properties"), [(bytes(2001), b""), (b"", bytes(40_000))])
def test_too_large_messages_are_refused_with_the_limit(body: bytes, properties: bytes) -> None:
    store = opened()
    with pytest.raises(StoreError, match="limit"):
        put(store, body, properties)
    assert store.appended == 0


def test_deleting_a_topic_forgets_its_queues_only() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store, topic="a")
    put(store, topic="b")
    store.dispatch()
    store.append_mark(TopicDeleted("a"))
    store.dispatch()
    assert list(store.reader.queues()) == [("b", 0), (LOG_MARK_TOPIC, 0)]
    store.close()
    assert sorted(opened(disk).reader.queues()) == [("b", 0), (LOG_MARK_TOPIC, 0)]


def test_one_writer_at_a_time_many_readers() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store)
    with pytest.raises(StoreLocked):
        opened(disk)
    reader = opened(disk, read_only=True)
    assert reader.reader.read(0).body == b"body"
    with pytest.raises(StoreError):
        put(reader)
    reader.close()
    store.close()
    opened(disk).close()


def test_two_processes_never_write_one_store(tmp_path: Path) -> None:
    """The lock is the operating system's, and ends with the process."""
    store = MessageStore.open(tmp_path, CONFIG)
    script = (
        "import sys; from pathlib import Path; from tandemq.store.message_store import MessageStore\n"
        "from tandemq.store.config import StoreConfig\n"
        "from tandemq.errors import StoreLocked\n"
        "try: MessageStore.open(Path(sys.argv[1]), StoreConfig(commit_log_segment_size=4096))\n"
        "except StoreLocked: print('locked')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "locked\n"
    store.close()


def test_long_topics_need_their_option() -> None:
    store = opened(config=replace(CONFIG, auto_message_version=False))
    with pytest.raises(StoreError, match="autoMessageVersionOnTopicLen"):
        put(store, topic="t" * 128)
    put(store, topic="t" * 127)


def test_a_cut_brings_back_a_topic_whose_deletion_a_full_disk_left_half_dispatched() -> None:
    """Its queue was gone already, and the position of dispatch still below the mark that said so."""
    disk = MemoryDisk()
    store = opened(disk)
    put(store, topic="back")
    store.dispatch()
    store.flush_all()
    cut_at = put(store, b"last")
    store.append_mark(TopicDeleted("back"))
    put(store, b"indexed", b"KEYS\x01k\x02")
    disk.capacity = disk.usage(ROOT)[0]
    with pytest.raises(DiskFull):
        store.dispatch()
    disk.capacity = None
    store.retain()
    store.truncate(cut_at)
    assert store.queue_end("back", 0) == 1
    assert put_number(store, "back") == 1


def put_number(store: MessageStore, topic: str) -> int:
    return store.append(topic, 0, 0, 0, 1, HOST, 0, 0, b"", b"").queue_offset


def test_the_more_queues_have_entries_the_rarer_they_are_written() -> None:
    """A file is opened and synced for each: for a single entry that costs more than its message did."""
    disk, clock = CrashableDisk(), ManualClock()
    store = opened(disk, config=replace(CONFIG, flush_views_interval_ms=1000), clock=clock)
    for queue_id in range(3000):
        put(store, b"", queue_id=queue_id)
        if queue_id % 500 == 499:
            store.dispatch()
    clock.advance(2)
    store.flush_once()
    assert "00000000000000000000" not in disk.list(ROOT / "consumequeue" / "t" / "2999")
    clock.advance(2)
    store.flush_once()
    assert "00000000000000000000" in disk.list(ROOT / "consumequeue" / "t" / "2999")
