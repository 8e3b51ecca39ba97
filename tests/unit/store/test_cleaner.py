"""Retention at work: what goes, and what it leaves behind."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.stores import CONFIG, FOREVER, HOST, ROOT, opened, put

from tandemq.errors import DiskFull
from tandemq.formats.log_mark import TopicDeleted
from tandemq.formats.record import parse_record
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store.message_store import GetStatus


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
    low, high = store.reader.queue_range("t", 0)
    assert 0 < low < high == 60
    assert parse_record(store.reader.get("t", 0, low, 1, 1).slices[0]).physical_offset >= store.first_offset
    assert store.reader.get("t", 0, 0, 1, 1).status is GetStatus.OFFSET_TOO_SMALL
    assert store.reader.query("t", "k0", 9, 0, FOREVER) == []
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


def test_deleting_makes_room_for_what_it_has_to_save() -> None:
    """A disk that is full to the last byte is mended by retention, which must save the numbers of queues before."""
    disk = MemoryDisk()
    store = opened(disk)
    for _ in range(60):
        put(store, bytes(300))
    while store.appended % 4096 < 3000:
        put(store, bytes(300))
    store.dispatch()
    store.flush_all()
    store.prepare()
    spare = store.log.chain._spare
    assert spare is not None
    spare[1].reserve(1000)  # as a file system does, in blocks
    disk.capacity = disk.usage(ROOT)[0]
    assert store.retain(manual=True) > 0
    assert store.first_offset > 0


def test_numbers_that_could_not_be_saved_leave_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start and the next rebuild go by the numbers at the first offset that the log still has."""
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(60):
        put(store, bytes(300), queue_id=number // 30)
    store.dispatch()
    store.flush_all()
    known = store._views.starts
    with monkeypatch.context() as full:
        full.setattr(disk, "replace_file", _no_room)
        disk.capacity = disk.usage(ROOT)[0]
        assert store.retain(manual=True) == 0
    assert (store.first_offset, store._views.starts) == (0, known)
    disk.capacity = None
    assert store.retain(store._clock.wall_ms() + 100 * 3_600_000, manual=True) > 0
    assert store.health.writable


def _no_room(path: Path, data: bytes) -> None:
    raise DiskFull(f"no room for {path}")


def test_settings_changed_at_run_time_hold_for_the_next_run() -> None:
    """A shorter fileReservedTime is the remedy for a disk that is filling up."""
    clock = ManualClock()
    store = opened(clock=clock)
    for _ in range(30):
        put(store, bytes(300))
    store.dispatch()
    store.flush_all()
    clock.advance(24 * 3600)
    assert store.retain(manual=True) == 0
    store.config = replace(store.config, file_reserved_hours=12)
    assert store.retain(manual=True) > 0


def test_what_was_cut_off_is_kept_as_long_as_messages_are() -> None:
    clock = ManualClock()
    disk = MemoryDisk()
    store = opened(disk, clock=clock)
    for age in (71, 73):
        disk.make_directory(ROOT / "cut" / f"{0:020d}-{clock.wall_ms() - age * 3_600_000}")
        disk.replace_file(ROOT / "cut" / f"{0:020d}-{clock.wall_ms() - age * 3_600_000}" / f"{0:020d}", b"x")
    store.retain(manual=True)
    assert [name.partition("-")[2] for name in disk.list(ROOT / "cut")] == [str(clock.wall_ms() - 71 * 3_600_000)]
    store.close()


def test_a_deletion_that_a_crash_takes_back_leaves_the_numbers_of_its_queues() -> None:
    """Files go that held the first messages of a queue; the mark of its topic's deletion is not on disk yet."""
    disk, clock = CrashableDisk(), ManualClock()
    store = opened(disk, clock=clock)
    for _ in range(2):
        put(store, bytes(300))
    while store.appended < CONFIG.commit_log_segment_size:
        put(store, bytes(300), topic="other")
    store.flush_all()
    put(store, bytes(300))
    mark = store.append_mark(TopicDeleted("t"))
    store.dispatch()
    clock.advance(1000 * 3600)
    assert store.retain(manual=True)
    store.abandon()
    again = opened(disk.after_crash(), clock=clock)
    expected = 0 if again.appended > mark.physical_offset else 2
    assert again.append("t", 0, 0, 0, 1, HOST, 0, 0, b"", b"").queue_offset == expected
