"""Opening a store: what is trusted, what is built anew, what is refused."""

from dataclasses import replace

import pytest
from tests.unit.store.stores import CONFIG, ROOT, check_filled, filled, opened, put

from tandemq.errors import CorruptLog
from tandemq.formats.log_mark import TopicDeleted
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, MemoryDisk, PowerCut
from tandemq.store.message_store import MessageStore
from tandemq.store.segments import SegmentChain

HALF = b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(300)


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
        assert store.reader.queue_range("t", 0) == (0, 2)
        store.abandon()
        disk.files[ROOT / "checkpoint"].data[:] = before


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


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_young_store_knows_whether_its_machine_or_its_process_ended(rebooted: bool) -> None:
    """Before its first checkpoint too: a promotion must not take a killed process for a crashed machine."""
    disk = MemoryDisk()
    store = opened(disk)
    put(store, b"young")
    store.abandon()
    disk.boot += rebooted
    store = opened(disk)
    assert store.recovered is not None
    assert store.recovered.after_machine_crash == rebooted


def with_expired_files(disk: CrashableDisk, clock: ManualClock) -> MessageStore:
    """A log whose first files expired before a checkpoint vouched for what they told of queues.

    Topic gone had 3 messages and was deleted, queue 1 of t has 3 messages: nothing in the rest of the log says so.
    """
    store = opened(disk, clock=clock)
    for _ in range(3):
        put(store, topic="gone")
    store.dispatch()
    store.flush_all()
    store.append_mark(TopicDeleted("gone"))
    for _ in range(3):
        put(store, queue_id=1)
    for _ in range(30):
        put(store, bytes(300))
    while store.dispatch():
        pass
    store.flush_once()
    clock.advance(1000 * 3600)
    assert store.retain(manual=True) > 0
    return store


@pytest.mark.parametrize("crash", ["kill -9", "power cut"])
def test_what_expired_after_the_last_checkpoint_is_still_told(crash: str) -> None:
    """The deleted topic stays deleted and begins at 0 when it is made anew; the empty queue goes on where it was."""
    disk, clock = CrashableDisk(), ManualClock()
    with_expired_files(disk, clock).abandon()
    store = opened(disk.after_crash(keep_all=crash == "kill -9"), clock=clock)
    assert [store.queue_end(*key) for key in (("gone", 0), ("t", 1), ("t", 0))] == [0, 3, 30]
    assert store.recovered is not None
    assert "vouches" in store.recovered.problem


def test_what_was_about_to_expire_is_dispatched_whatever_was_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention stops after it saved what the files tell and before they go; then the views are lost.

    The replica's record is old, so it says that nothing was confirmed. Dispatch must not begin above what is there.
    """

    def stop(chain: SegmentChain) -> int:
        raise PowerCut("before the first file goes")

    disk, clock = CrashableDisk(), ManualClock()
    filled(disk)
    store = opened(disk, clock=clock)
    monkeypatch.setattr(SegmentChain, "drop_oldest", stop)
    with pytest.raises(PowerCut):
        store.retain(clock.wall_ms() + 1000 * 3_600_000, manual=True)
    store.abandon()
    disk = disk.after_crash(keep_all=True)
    disk.remove(ROOT / "checkpoint")
    disk.remove_tree(ROOT / "consumequeue")
    store = opened(disk, clock=clock, confirmed=0)
    store.set_confirmed(None)
    while store.dispatch():
        pass
    check_filled(store)


def test_a_queue_whose_only_message_left_was_not_durable_goes_on_where_it_was() -> None:
    """Its older messages expired, a power cut took the newest, the views are lost: its numbers must not begin anew."""
    disk, clock = CrashableDisk(), ManualClock()
    store = opened(disk, clock=clock)
    for _ in range(2):
        put(store, queue_id=1)
    for _ in range(30):
        put(store, bytes(300))
    while store.dispatch():
        pass
    store.flush_all()
    put(store, queue_id=1)
    store.dispatch()
    assert store.retain(clock.wall_ms() + 1000 * 3_600_000, manual=True) > 0
    store.abandon()
    disk = disk.after_crash()
    disk.remove(ROOT / "checkpoint")
    disk.remove_tree(ROOT / "consumequeue")
    store = opened(disk, clock=clock)
    assert [store.queue_end("t", queue_id) for queue_id in range(2)] == [30, 2]


@pytest.mark.parametrize("properties", [b"", b"KEYS\x01k\x02", b"KEYS\x01a longer key, without an end"])
def test_a_record_that_a_slave_got_only_in_part_is_not_whole(properties: bytes) -> None:
    """Simulator seed 114 with tables: the missing end of the properties, which no checksum covers, became zeros."""
    master = opened()
    put(master, b"first")
    start = put(master, b"second", properties)
    raw = bytes(master.slice(0, master.appended))
    for missing in range(1, len(raw) - start):
        disk = CrashableDisk()
        slave = opened(disk)
        slave.append_raw(0, raw[:start])
        slave.flush_all()  # a checkpoint of this boot of the machine
        slave.append_raw(start, raw[start : len(raw) - missing])
        is_whole = not raw[len(raw) - missing :].strip(b"\0")  # what had not come is what is there already
        assert opened(disk.after_crash(keep_all=True)).appended == (len(raw) if is_whole else start)
    disk = CrashableDisk()
    opened(disk).append_raw(0, raw)
    assert opened(disk.after_crash(keep_all=True)).appended == len(raw)
