"""Cutting the log and starting it anew: views, numbers and what was saved aside follow."""

from pathlib import Path

import pytest
from tests.unit.store.stores import FOREVER, ROOT, check_filled, opened, put

from tandemq.errors import DiskFull, OffsetOutOfRange, StoreError
from tandemq.formats import layout
from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted, encode_mark
from tandemq.formats.record import parse_record
from tandemq.sim.disk import MemoryDisk
from tandemq.store import truncation
from tandemq.store.message_store import MessageStore

ASIDE = Path("/aside")


class FullDisk(MemoryDisk):
    """Has no room for some files."""

    full: tuple[str, ...] = ()

    def write_at(self, path: Path, position: int, data: bytes | bytearray | memoryview) -> None:
        if any(part in self.full for part in path.parts):
            raise DiskFull(f"no room for {path}")
        super().write_at(path, position, data)


def filled(disk: MemoryDisk | None = None, count: int = 12) -> tuple[MessageStore, list[int]]:
    store = opened(disk)
    offsets = [put(store, bytes([n]) * 300, f"KEYS\x01k{n}\x02".encode(), queue_id=n % 2) for n in range(count)]
    store.dispatch()
    return store, offsets


def test_a_cut_takes_messages_entries_keys_and_numbers_back() -> None:
    store, offsets = filled()
    end = store.appended
    assert store.truncate(offsets[5]) == end - offsets[5]
    assert store.appended == offsets[5]
    check_filled(store, 5)
    assert store.reader.query("t", "k7", 9, 0, FOREVER) == []
    put(store, queue_id=1)
    store.dispatch()
    assert store.reader.queue_range("t", 1) == (0, 3), "numbers go on where the queue ends now"


def test_what_is_cut_is_saved_aside_first() -> None:
    disk = MemoryDisk()
    store, offsets = filled(disk)
    whole = b"".join(bytes(part) for part in (store.slice(offsets[9], 300), store.slice(offsets[9] + 300, 10)))
    store.truncate(offsets[9], save_to=ASIDE)
    [name] = disk.list(ASIDE)
    assert name == layout.segment_name(offsets[9])
    saved = disk.read_file(ASIDE / name)
    assert saved[:310] == whole
    assert parse_record(saved).queue_offset == 4


def test_a_cut_at_the_end_changes_nothing() -> None:
    disk = MemoryDisk()
    store, _ = filled(disk)
    assert store.truncate(store.appended, save_to=ASIDE) == 0
    assert disk.list(ASIDE) == []
    check_filled(store, 12)


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_a_cut_outside_the_log_is_refused(offset: int) -> None:
    store, _ = filled()
    with pytest.raises(OffsetOutOfRange):
        store.truncate(offset)
    check_filled(store, 12)


def test_those_who_wait_for_what_was_cut_are_told() -> None:
    store, offsets = filled()
    told: list[tuple[str, Exception | None]] = []
    store.when_flushed(offsets[3], lambda error: told.append(("below", error)))
    store.when_flushed(store.appended, lambda error: told.append(("above", error)))
    store.truncate(offsets[5])
    [(who, error)] = told
    assert who == "above"
    assert isinstance(error, StoreError)
    store.flush_once()
    assert told[1] == ("below", None)


def test_a_cut_below_a_deletion_brings_the_topic_back() -> None:
    store, _ = filled()
    end = store.appended
    store.append(LOG_MARK_TOPIC, 0, 0, 0, 1, bytes(8), 0, 0, encode_mark(TopicDeleted("t")), b"")
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 0)
    store.truncate(end)
    store.dispatch()
    check_filled(store, 12)


def test_an_interrupted_cut_is_finished_by_the_next_open() -> None:
    disk = MemoryDisk()
    store, offsets = filled(disk)
    store.flush_all()
    store.abandon()
    truncation.announce(disk, ROOT, truncation.Truncation(offsets[5]))
    disk.locked.clear()
    again = opened(disk)
    again.dispatch()
    assert again.appended == offsets[5]
    check_filled(again, 5)
    assert truncation.pending(disk, ROOT) is None


@pytest.mark.parametrize("full", [layout.CONSUME_QUEUE, layout.CHECKPOINT])
def test_a_cut_that_finds_no_room_for_its_views_is_over(full: str) -> None:
    """Else the next opening would cut again, and what was appended meanwhile would go.

    No checkpoint vouches for the views as they were: they may say what the log no longer says.
    """
    disk = FullDisk()
    store, _ = filled(disk, 10)
    store.flush_all()
    put(store, b"kept", b"KEYS\x01k10\x02")
    cut = put(store)
    store.dispatch()
    disk.full = (full,)
    store.truncate(cut)
    assert truncation.pending(disk, ROOT) is None
    assert disk.file_size(ROOT / layout.CHECKPOINT) is None
    disk.full = ()
    store.retain()
    put(store, b"after", b"KEYS\x01k11\x02", queue_id=1)
    store.abandon()
    again = opened(disk)
    again.dispatch()
    check_filled(again, 12)
    again.flush_all()
    assert disk.file_size(ROOT / layout.CHECKPOINT) is not None


def test_an_interrupted_cut_is_finished_on_a_full_disk_too() -> None:
    disk = FullDisk()
    store, offsets = filled(disk)
    store.flush_all()
    store.abandon()
    truncation.announce(disk, ROOT, truncation.Truncation(offsets[5]))
    disk.full = (layout.CHECKPOINT,)
    again = opened(disk)
    assert again.appended == offsets[5]
    assert truncation.pending(disk, ROOT) is None
    check_filled(again, 5)


def test_a_reset_log_is_empty_and_begins_elsewhere() -> None:
    store, _ = filled()
    store.reset(5 * 4096)
    assert (store.first_offset, store.appended) == (5 * 4096, 5 * 4096)
    assert list(store.reader.queues()) == []
    assert put(store) == 5 * 4096
    store.dispatch()
    assert store.reader.queue_range("t", 0) == (0, 1)


def test_a_log_begins_only_where_a_file_may() -> None:
    store, _ = filled()
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        store.reset(4097)
    check_filled(store, 12)


def test_bytes_that_never_became_log_are_zeros_again() -> None:
    store, _ = filled()
    store.log.write_raw(0, b"half a frame")
    assert store.drop_unfinished() == 12
    assert store.drop_unfinished() == 0
    check_filled(store, 12)
