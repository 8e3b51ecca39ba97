"""The log alone: records one after the other, segments that end in a blank, raw bytes of a master, cuts."""

from pathlib import Path

import pytest

from tandemq.errors import CorruptRecord, MessageTooLarge, OffsetOutOfRange, StoreError
from tandemq.formats.record import MAGIC_BLANK, MAGIC_V1, SIZE_MAGIC, parse_record
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store.commit_log import CommitLog
from tandemq.store.segments import SegmentChain

SIZE = 4096
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))


def opened(disk: MemoryDisk | None = None) -> CommitLog:
    chain = SegmentChain(disk or MemoryDisk(), Path("/log"), SIZE)
    chain.load()
    return CommitLog(chain)


def put(log: CommitLog, body: bytes = b"body", number: int = 0) -> int:
    """Appends one record. Returns where it begins."""
    size = log.append(b"\x01t", MAGIC_V1, 0, number, 0, 0, 1, HOST, 2, HOST, 0, 0, body, b"k\x01v\x02")
    return log.appended - size


def test_records_follow_each_other_and_are_read_back() -> None:
    log = opened()
    offsets = [put(log, bytes([number]) * number, number) for number in range(5)]
    assert offsets[0] == 0
    found = [parse_record(log.record(offset, log.appended), crc=True) for offset in offsets]
    assert [message.body for message in found] == [bytes([number]) * number for number in range(5)]
    assert [message.physical_offset for message in found] == offsets
    assert [message.queue_offset for message in log.messages(0, log.appended)] == [0, 1, 2, 3, 4]


def test_a_record_that_does_not_fit_begins_the_next_segment() -> None:
    """The rest of the segment is one blank record, and walking the log steps over it."""
    log = opened()
    first = put(log, bytes(3000))
    end = log.appended
    second = put(log, bytes(3000))
    assert (first, second) == (0, SIZE)
    assert SIZE_MAGIC.unpack(log.slice(end, 8)) == (SIZE - end, MAGIC_BLANK)
    assert [message.physical_offset for message in log.messages(0, log.appended)] == [0, SIZE]
    with pytest.raises(CorruptRecord, match="no record starts"):
        log.record(end, log.appended)


def test_a_record_larger_than_a_segment_is_refused_and_changes_nothing() -> None:
    log = opened()
    put(log)
    end = log.appended
    with pytest.raises(MessageTooLarge, match="mappedFileSizeCommitLog"):
        put(log, bytes(SIZE))
    assert log.appended == end


def test_the_size_of_a_record_is_written_last() -> None:
    """A process killed in the middle of an append leaves no record: where its size would be there are zeros."""
    log = opened()
    put(log)
    end = log.appended
    seen: list[bytes] = []

    class Watched(bytes):
        """A body that is looked at while the record is being written: its checksum is taken at the very end."""

        def __len__(self) -> int:
            seen.append(bytes(log.chain.segment(0).view[end : end + 8]))
            return super().__len__()

    put(log, Watched(b"body"))
    assert set(seen) == {bytes(8)}


def test_half_a_segment_is_announced_once() -> None:
    """So that the flush thread makes the next file before it is needed."""
    log = opened()
    told: list[int] = []
    log.on_half_full = lambda: told.append(log.appended)
    while log.appended < 3 * SIZE:
        put(log, bytes(300))
    assert len(told) == 3
    assert all(SIZE // 4 < offset % SIZE < SIZE * 3 // 4 for offset in told)


@pytest.mark.parametrize("step", [1, 7, 1000, 5000])
def test_raw_bytes_make_the_same_log_however_they_are_cut(step: int) -> None:
    master, slave = opened(), opened()
    while master.appended < 3 * SIZE:
        put(master, bytes(700))
    data = b"".join(
        bytes(master.slice(base, min(SIZE, master.appended - base))) for base in (0, SIZE, 2 * SIZE, 3 * SIZE)
    )
    for start in range(0, len(data), step):
        assert slave.append_raw(start, data[start : start + step]) == min(start + step, len(data))
    assert list(slave.messages(0, slave.appended)) == list(master.messages(0, master.appended))


def test_raw_bytes_that_leave_a_gap_or_overlap_are_refused() -> None:
    log = opened()
    log.append_raw(0, b"x" * 10)
    for offset in (9, 11):
        with pytest.raises(OffsetOutOfRange):
            log.append_raw(offset, b"y")
    assert log.appended == 10


def test_a_window_counts_only_as_far_as_it_was_filled() -> None:
    log = opened()
    window = log.raw_window(0, 100)
    window[:30] = b"z" * 30
    assert log.appended == 0
    assert log.commit_raw(30) == 30
    assert bytes(log.slice(0, 30)) == b"z" * 30
    with pytest.raises(StoreError, match="can't be committed"):
        log.commit_raw(71)


def test_bytes_past_the_end_stay_within_the_segment() -> None:
    log = opened()
    log.append_raw(0, b"x" * 100)
    log.write_raw(50, b"later")
    assert (log.appended, log.written) == (100, 155)
    with pytest.raises(OffsetOutOfRange):
        log.write_raw(SIZE - 100, b"y")


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 200), (100, 1), (SIZE - 2, 4)])
def test_what_is_not_in_the_log_or_spans_two_files_is_not_sliced(offset: int, size: int) -> None:
    log = opened()
    log.append_raw(0, b"x" * 100)
    with pytest.raises(OffsetOutOfRange):
        log.slice(offset, size)


def test_slices_of_many_runs_are_those_of_each() -> None:
    log = opened()
    offsets = [put(log, bytes(400), number) for number in range(20)]
    runs = [(offset, offset + len(log.record(offset, log.appended))) for offset in reversed(offsets)]
    assert log.slices(runs) == [log.slice(start, stop - start) for start, stop in runs]
    with pytest.raises(OffsetOutOfRange):
        log.slices([(log.appended - 5, log.appended + 1)])


def test_a_cut_leaves_zeros_that_survive_a_power_loss() -> None:
    """Else an old record could line up with what is appended later and come back to life."""
    disk = CrashableDisk()
    log = opened(disk)
    offsets = [put(log, bytes([1]) * 900, number) for number in range(12)]
    assert offsets[6] > SIZE
    log.cut(offsets[2])
    assert (log.appended, log.written, log.chain.bases) == (offsets[2], offsets[2], [0])
    after = disk.after_crash()
    rest = after.read_at(Path("/log") / f"{0:020d}", offsets[2], SIZE)
    assert rest == bytes(SIZE - offsets[2])
    assert put(log) == offsets[2]


def test_a_log_cut_to_nothing_keeps_its_first_offset() -> None:
    log = opened()
    log.chain.add(5 * SIZE)
    log.set_end(5 * SIZE)
    put(log)
    log.cut(5 * SIZE)
    assert (log.first_offset, log.appended) == (5 * SIZE, 5 * SIZE)
    assert put(log) == 5 * SIZE


def test_a_thorough_cut_finds_what_nobody_remembers() -> None:
    """After a crash it is not known how far a receive window had been filled."""
    log = opened()
    put(log)
    end = log.appended
    log.chain.segment(0).view[2000:2005] = b"stale"
    log.cut(end)
    assert bytes(log.chain.segment(0).view[2000:2005]) == b"stale"
    log.cut(end, thorough=True)
    assert bytes(log.chain.segment(0).view[end:]) == bytes(SIZE - end)
