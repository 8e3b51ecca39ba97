"""What the broker asks of a store, on a disk in memory."""

import datetime
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tandemq.codec.batch import Batch
from tandemq.codec.record import parse_record
from tandemq.errors import CorruptLog, CorruptRecord, DiskFull, LogPoisoned, OffsetOutOfRange, StoreError, StoreLocked
from tandemq.model.message import tags_code
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import GetStatus, MessageStore
from tandemq.testing.clock import ManualClock
from tandemq.testing.disk import MemoryDisk

ROOT = Path("/store")
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
CONFIG = StoreConfig(
    commit_log_segment_size=4096,
    consume_queue_segment_size=200,
    index_slots=20,
    index_entries=100,
    message_size_max=2000,
)
SYNC = replace(CONFIG, flush_disk_type=FlushDiskType.SYNC_FLUSH)
FOREVER = 1 << 62


def opened(disk: MemoryDisk | None = None, config: StoreConfig = CONFIG, **options: object) -> MessageStore:
    clock = options.pop("clock", None) or ManualClock()
    disk = disk if disk is not None else MemoryDisk()
    return MessageStore.open(ROOT, config, clock=clock, disk=disk, store_host=HOST, **options)  # type: ignore[arg-type]


def put(
    store: MessageStore, body: bytes = b"body", properties: bytes = b"", topic: str = "t", queue_id: int = 0
) -> int:
    return store.append(topic, queue_id, 0, 0, 1, HOST, 0, 0, body, properties).physical_offset


def test_queue_offsets_count_per_queue() -> None:
    store = opened()
    done = [store.append("t", i % 2, 0, 0, 1, HOST, 0, 0, b"x", b"") for i in range(6)]
    assert [d.queue_offset for d in done] == [0, 0, 1, 1, 2, 2]
    store.dispatch()
    assert store.queue_range("t", 0) == (0, 3)
    assert store.queue_range("t", 9) == (0, 0)


def test_status_of_reads_outside_a_queue() -> None:
    """The cases of a pull, with the offset to go on from."""
    store = opened()
    put(store, topic="t")
    assert store.get("t", 0, 0, 1, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.dispatch()
    assert store.get("none", 0, 0, 1, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    one = store.get("t", 0, 1, 1, 1)
    assert (one.status, one.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    far = store.get("t", 0, 99, 1, 1)
    assert (far.status, far.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)
    low = store.get("t", 0, -3, 1, 1)
    assert (low.status, low.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)


def test_neighbours_come_as_one_slice_within_limits() -> None:
    """Zero-copy runs; counts and bytes are limits, but one message always comes."""
    store = opened()
    for number in range(8):
        put(store, bytes([number]) * 50)
    store.dispatch()
    result = store.get("t", 0, 0, 5, 1 << 20)
    assert (result.count, len(result.slices), result.next_offset) == (5, 1, 5)
    assert store.get("t", 0, 0, 32, 300).count == 2
    assert store.get("t", 0, 3, 32, 1).count == 1


def test_filter_by_tags_code_steps_over_the_rest() -> None:
    store = opened()
    for tag in "aabab":
        put(store, properties=f"TAGS\x01{tag}\x02".encode())
    store.dispatch()
    wanted = tags_code("b")
    result = store.get("t", 0, 0, 10, 1 << 20, lambda code: code == wanted)
    assert (result.count, result.next_offset) == (2, 5)
    nothing = store.get("t", 0, 0, 10, 1 << 20, lambda code: False)
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_readers_stop_at_the_confirmed_offset() -> None:
    """Dispatch, and with it every reader, waits for what replication confirms."""
    store = opened()
    put(store)
    second = put(store)
    store.set_confirmed(second)
    store.dispatch()
    assert store.queue_range("t", 0) == (0, 1)
    with pytest.raises(OffsetOutOfRange):
        store.read(second)
    store.set_confirmed(None)
    store.dispatch()
    assert store.queue_range("t", 0) == (0, 2)


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
        assert slave.queue_range("t", queue_id) == master.queue_range("t", queue_id)
    assert [m.body for m in slave.query("t", "k7", 5, 0, FOREVER)] == [bytes([7]) * 300]


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
    assert store.queue_range("t", 0) == (0, 1)
    store.truncate(store.appended)
    assert not any(store.raw_window(store.appended, 800))
    with pytest.raises(OffsetOutOfRange):
        store.raw_window(5, 10)


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
    low, high = slave.queue_range("t", 0)
    assert 0 < low < high == 40
    assert parse_record(slave.get("t", 0, low, 1, 1).slices[0]).queue_offset == low
    slave.flush_all()
    disk = slave._disk
    slave.close()
    assert opened(disk).queue_range("t", 0) == (low, high)  # type: ignore[arg-type]


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


def test_search_by_time() -> None:
    """Lower: first at or after; upper: last at or before; both clamped to the queue."""
    clock = ManualClock(wall_ms=1000)
    store = opened(clock=clock)
    for _ in range(5):  # stored at 1000, 2000, 2000+…
        put(store)
        clock.advance(1)
    store.dispatch()
    assert [store.search_by_time("t", 0, t) for t in (0, 1000, 1001, 3000, 9999)] == [0, 0, 1, 2, 5]
    assert [store.search_by_time("t", 0, t, upper=True) for t in (0, 1000, 1500, 3000, 9999)] == [0, 0, 0, 2, 4]
    assert store.earliest_store_time("t", 0) == 1000
    assert store.store_time("t", 0, 3) == 4000


def test_query_finds_by_key_topic_and_time_and_nothing_else() -> None:
    clock = ManualClock(wall_ms=1_000_000)
    store = opened(clock=clock)
    for number in range(30):
        keys = f"UNIQ_KEY\x01U{number}\x02KEYS\x01a b{number % 3}\x02".encode()
        put(store, bytes([number]), keys, topic="tu"[number % 2])
        clock.advance(1)
    store.dispatch()
    assert [m.body[0] for m in store.query("t", "b0", 99, 0, FOREVER)] == [24, 18, 12, 6, 0]
    assert [m.body[0] for m in store.query("t", "U4", 99, 0, FOREVER)] == [4]
    assert [m.body[0] for m in store.query("t", "a", 99, 1_004_000, 1_008_000)] == [8, 6, 4]
    assert len(store.query("u", "a", 3, 0, FOREVER)) == 3
    assert store.query("t", "missing", 9, 0, FOREVER) == []


def test_delayed_messages_carry_their_delivery_time() -> None:
    clock = ManualClock(wall_ms=5000)
    store = opened(clock=clock)
    put(store, properties=b"DELAY\x013\x02TAGS\x01x\x02", topic=SCHEDULE_TOPIC, queue_id=2)
    store.dispatch()
    seen: list[int] = []
    store.get(SCHEDULE_TOPIC, 2, 0, 1, 1, lambda code: bool(seen.append(code)) or True)
    assert seen == [15_000]


def test_prepared_and_rolled_back_records_are_in_no_queue() -> None:
    store = opened()
    for kind in (0x4, 0xC, 0x8, 0x0):
        store.append("t", 0, 0, kind, 1, HOST, 0, 0, b"x", b"")
    store.dispatch()
    assert store.queue_range("t", 0) == (0, 2)
    assert store.get("t", 0, 0, 9, 1 << 20).count == 2


def test_batches_are_contiguous_in_one_segment() -> None:
    store = opened()
    put(store, bytes(1900))
    done = store.append_batch("t", 1, 0, 1, HOST, 0, Batch([(0, bytes(700), b"") for _ in range(3)]))
    assert done.queue_offset == 0
    assert done.physical_offsets[0] == 4096
    sizes = [stop - start for start, stop in pairwise([*done.physical_offsets, done.end])]
    assert sizes == [91 + 700 + len("t")] * 3
    assert [
        parse_record(store.read_raw(at, limit=done.end), crc=True).queue_offset for at in done.physical_offsets
    ] == [0, 1, 2]
    store.dispatch()
    assert store.queue_range("t", 1) == (0, 3)


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
    assert store.delete_topic("a") == 1
    assert list(store.queues()) == [("b", 0)]
    store.close()
    assert list(opened(disk).queues()) == [("b", 0)]


# -- durability


def test_waiters_are_told_in_order_and_at_once() -> None:
    store = opened(config=SYNC)
    told: list[int] = []
    for number in range(3):
        put(store)
        store.when_flushed(store.appended, lambda error, number=number: told.append(number))
    assert told == []
    store.flush_once()
    assert told == [0, 1, 2]
    store.when_flushed(store.appended, lambda error: told.append(9))
    assert told[-1] == 9


def test_a_failed_fsync_poisons_the_log() -> None:
    """Every waiter hears of it, nothing is ever reported flushed again, not even after the disk says it is well."""
    disk = MemoryDisk()
    store = opened(disk, SYNC)
    put(store)
    store.flush_once()
    good = store.flushed
    errors: list[Exception | None] = []
    put(store)
    store.when_flushed(store.appended, errors.append)
    disk.sync_error = OSError(5, "Input/output error")
    with pytest.raises(LogPoisoned):
        store.flush_once()
    disk.sync_error = None
    store.when_flushed(store.appended, errors.append)
    assert [type(error) for error in errors] == [LogPoisoned, LogPoisoned]
    with pytest.raises(LogPoisoned):
        store.flush_once()
    with pytest.raises(LogPoisoned):
        put(store)
    assert store.flushed == good
    assert not store.health.writable
    store.close()
    assert disk.file_size(ROOT / "abort") is not None


def test_the_flush_thread_serves_group_commit() -> None:
    """One fdatasync for many waiters; close answers whoever is left."""
    store = opened(config=SYNC)
    store.start()
    done = threading.Event()
    for _ in range(50):
        put(store)
        store.when_flushed(store.appended, lambda error: None)
    store.when_flushed(store.appended, lambda error: done.set())
    assert done.wait(20)
    assert store.flushed == store.appended
    store.close()


def test_one_writer_at_a_time_many_readers() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store)
    with pytest.raises(StoreLocked):
        opened(disk)
    reader = opened(disk, read_only=True)
    assert reader.read(0).body == b"body"
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


# -- recovery


def filled(disk: MemoryDisk, count: int = 30) -> list[int]:
    store = opened(disk)
    offsets = [put(store, bytes([n]) * 300, f"KEYS\x01k{n}\x02".encode(), queue_id=n % 2) for n in range(count)]
    store.dispatch()
    store.close()
    return offsets


def check_filled(store: MessageStore, count: int = 30) -> None:
    assert sum(store.queue_range("t", q)[1] for q in range(2)) == count
    for number in range(count):
        assert len(store.query("t", f"k{number}", 9, 0, FOREVER)) == 1


def test_a_clean_store_is_opened_without_reading_the_log() -> None:
    disk = MemoryDisk()
    filled(disk)
    store = opened(disk)
    assert store.recovered is not None
    assert store.recovered.scanned_from == store.recovered.end == store.appended
    check_filled(store)


@pytest.mark.parametrize("lost", ["consumequeue", "index", "checkpoint", "consumequeue/t/1", "all"])
@pytest.mark.parametrize("aborted", [False, True])
def test_lost_views_are_built_again(lost: str, aborted: bool) -> None:
    disk = MemoryDisk()
    filled(disk)
    for name in ("consumequeue", "index", "checkpoint") if lost == "all" else (lost,):
        disk.remove(ROOT / name)
        disk.remove_tree(ROOT / name)
    if aborted:
        disk.create_file(ROOT / "abort", 0)
    store = opened(disk)
    check_filled(store)


@pytest.mark.parametrize("damage", ["short queue file", "zeroed queue file", "garbage checkpoint", "short index file"])
def test_damaged_views_are_built_again(damage: str) -> None:
    disk = MemoryDisk()
    filled(disk)
    queue_file = next(p for p in disk.files if "consumequeue" in str(p))
    index_file = next(p for p in disk.files if "/index/" in str(p))
    if damage == "short queue file":
        disk.files[queue_file].data = disk.files[queue_file].data[:90]
    elif damage == "zeroed queue file":
        disk.files[queue_file].data[:] = bytes(len(disk.files[queue_file].data))
    elif damage == "garbage checkpoint":
        disk.files[ROOT / "checkpoint"].data[:] = b"\xa5" * 4096
    else:
        disk.files[index_file].data = disk.files[index_file].data[:50]
    check_filled(opened(disk))


def test_a_missing_segment_is_refused_by_name() -> None:
    """Data behind a hole is never dropped silently."""
    disk = MemoryDisk()
    filled(disk)
    disk.remove(ROOT / "commitlog" / "00000000000000004096")
    with pytest.raises(CorruptLog, match="00000000000000004096 is missing"):
        opened(disk)
    assert not disk.locked
    assert disk.file_size(ROOT / "commitlog" / "00000000000000008192") == 4096


def test_a_missing_last_segment_is_refused_by_name() -> None:
    disk = MemoryDisk()
    filled(disk)
    last = max(p for p in disk.files if "commitlog" in str(p))
    disk.remove(last)
    with pytest.raises(CorruptLog, match=f"{last.name} is missing"):
        opened(disk)


def test_another_segment_size_is_refused_with_both_numbers() -> None:
    disk = MemoryDisk()
    filled(disk)
    with pytest.raises(CorruptLog, match="4096 bytes, the setting is 8192"):
        opened(disk, replace(CONFIG, commit_log_segment_size=8192))


HALF = b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(300)


@pytest.mark.parametrize("tail", [b"\xff" * 700, HALF, bytes(50) + b"x" * 9])
def test_a_torn_tail_is_cut_off(tail: bytes) -> None:
    """Garbage, half a record, zeros and then garbage: the log ends with its last whole record, zeros follow."""
    disk = MemoryDisk()
    filled(disk, 3)
    store = opened(disk)
    end = store.appended
    store.raw_window(end, len(tail))[:] = tail
    store.abandon()
    store = opened(disk)
    assert store.appended == end
    check_filled(store, 3)
    assert not any(store.raw_window(end, 2000))


def test_whole_records_behind_a_damaged_one_are_kept_aside() -> None:
    """They are cut off, as upstream does, but not lost: cut/ has them, and the report says so."""
    disk = MemoryDisk()
    store = opened(disk)
    offsets = [put(store, bytes([number]) * 300) for number in range(5)]
    raw = bytes(store.slice(0, store.appended))
    store.abandon()
    disk.boot += 1
    disk.files[ROOT / "commitlog" / "00000000000000000000"].data[offsets[2] + 100] ^= 0xFF
    store = opened(disk)
    assert store.appended == offsets[2]
    assert store.recovered is not None
    assert store.recovered.saved_to == len(raw)
    kept = disk.read_file(ROOT / "cut" / f"{offsets[2]:020d}")
    assert kept[offsets[3] - offsets[2] :] == raw[offsets[3] :]


def test_a_torn_checkpoint_leaves_the_one_before() -> None:
    """Two places in turn: whatever happens to the newer one, recovery starts from the older."""
    disk = MemoryDisk()
    store = opened(disk)
    put(store)
    store.dispatch()
    store.flush_all()
    older = store.dispatched
    put(store)
    store.dispatch()
    store.flush_all()
    store.abandon()
    for place in (512, 1024):
        data = disk.files[ROOT / "checkpoint"].data
        before = bytes(data)
        data[place + 20 : place + 60] = bytes(40)
        store = opened(disk)
        assert store.recovered is not None
        assert store.recovered.scanned_from <= older or place == 1024  # the second write went to 512
        assert store.queue_range("t", 0) == (0, 2)
        store.abandon()
        disk.files[ROOT / "checkpoint"].data[:] = before


def test_long_topics_need_their_option() -> None:
    store = opened(config=replace(CONFIG, auto_message_version=False))
    with pytest.raises(StoreError, match="autoMessageVersionOnTopicLen"):
        put(store, topic="t" * 128)
    put(store, topic="t" * 127)


def test_a_preallocated_next_segment_is_kept_for_use() -> None:
    disk = MemoryDisk()
    filled(disk, 3)
    disk.create_file(ROOT / "abort", 0)
    disk.create_file(ROOT / "commitlog" / "00000000000000004096", 4096)
    store = opened(disk)
    check_filled(store, 3)
    for number in range(3, 30):
        put(store, bytes([number]) * 300, f"KEYS\x01k{number}\x02".encode(), queue_id=number % 2)
    store.dispatch()
    check_filled(store)


# -- retention


def test_expired_segments_go_at_the_hour_and_queues_follow() -> None:
    clock = ManualClock()
    config = replace(CONFIG, delete_when="0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23")
    store = opened(config=config, clock=clock)
    for number in range(60):
        put(store, bytes(300), f"KEYS\x01k{number}\x02".encode())
        clock.advance(3600)
    store.dispatch()
    store.flush_all()
    before = store.first_offset
    deleted = store.retain()
    assert deleted == 0 or store.first_offset > before
    clock.advance(71 * 3600)
    assert store.retain() > 0
    low, high = store.queue_range("t", 0)
    assert 0 < low < high == 60
    assert parse_record(store.get("t", 0, low, 1, 1).slices[0]).physical_offset >= store.first_offset
    assert store.get("t", 0, 0, 1, 1).status is GetStatus.OFFSET_TOO_SMALL
    assert store.query("t", "k0", 9, 0, FOREVER) == []
    clock.advance(100 * 3600)
    store.retain(manual=True)
    assert store.status().segments == 1


def test_nothing_goes_before_its_hour() -> None:
    clock = ManualClock()
    hour = 5 if clock.wall_ms() // 3_600_000 % 24 == 4 else 4
    store = opened(config=replace(CONFIG, delete_when=f"{hour:02d}"), clock=clock)
    for _ in range(30):
        put(store, bytes(300))
    store.dispatch()
    store.flush_all()
    clock.advance(24 * 3600 * 4)
    now = clock.wall_ms()
    local_hour = datetime.datetime.fromtimestamp(now / 1000, tz=datetime.UTC).astimezone().hour
    store.retain(now if local_hour != hour else now + 3_600_000)
    assert store.first_offset == 0
    assert store.retain(manual=True) > 0


def test_disk_use_makes_room_and_stops_writes() -> None:
    """Above the forcible ratio unexpired files go; above the warning ratio writes stop until it is below again."""
    disk = MemoryDisk()
    store = opened(disk)
    for _ in range(60):
        put(store, bytes(300))
    store.dispatch()
    store.flush_all()
    used = disk.usage(ROOT)[0]
    disk.capacity = int(used / 0.92)
    store.retain()
    assert not store.health.writable
    assert "full" in store.health.reason
    with pytest.raises(DiskFull):
        put(store)
    store.retain()
    assert store.first_offset > 0
    assert store.health.writable
    put(store)


def test_opening_is_quick_and_reading_a_wrong_place_is_an_error() -> None:
    store = opened()
    put(store)
    with pytest.raises(CorruptRecord):
        put(store) and store.read(3)
    with pytest.raises(OffsetOutOfRange):
        store.read(10_000)


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
    assert len(store.query("t", "k2", 8, stored_at - 1, stored_at + 1)) == 1
    assert not store.query("t", "k2", 8, stored_at + 2000, stored_at + 90_000)
