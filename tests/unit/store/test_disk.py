"""The operating system's files: what a full disk and a process without descriptors do, and do not do."""

import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tandemq.errors import DiskFull, NoDescriptors, StoreError, StoreLocked
from tandemq.store.disk import DescriptorReserve, FileDisk, StandInSegment, store_error


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Takes every descriptor that the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, len(os.listdir("/proc/self/fd")) + 50), hard))
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_are_written_and_synced_although_clients_took_all_descriptors(tmp_path: Path) -> None:
    """A reserve is kept: an open file is synced by its own descriptor, others are opened from the reserve."""
    disk = FileDisk()
    path = tmp_path / "log"
    segment = disk.create_segment(path, 8192)
    file = disk.open_to_sync(path)
    with no_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(path, os.O_RDONLY)
        for _ in range(3):
            segment.write(0, b"hello")
            file.sync()
            disk.sync_file(path)
            disk.sync_directory(tmp_path)
            disk.replace_file(tmp_path / "small", b"content")
            assert "log" in disk.list(tmp_path)
        another = disk.create_segment(tmp_path / "next", 8192)
        another.write(0, b"x")
    assert disk.read_file(tmp_path / "small") == b"content"
    file.close()
    for mapped in (segment, another):
        mapped.close()
    disk.close()


def test_a_reserve_that_is_used_up_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Not an OSError, which a sync would take for a failed disk; with descriptors back it is filled again."""
    reserve = DescriptorReserve(1)
    os.close(reserve.open(tmp_path / "first", os.O_CREAT | os.O_RDWR))
    with no_descriptor_left():
        held = reserve.open(tmp_path / "first", os.O_RDWR)
        with pytest.raises(NoDescriptors, match="raise its limit"):
            reserve.open(tmp_path / "first", os.O_RDWR)
        assert not reserve.give_back()
    os.close(held)
    os.close(reserve.open(tmp_path / "first", os.O_RDWR))
    assert reserve.give_back()
    reserve.close()


def test_other_errors_pass_through_the_reserve(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DescriptorReserve(1).open(tmp_path / "missing", os.O_RDONLY)


def test_no_room_is_told_from_other_errors() -> None:
    assert isinstance(store_error(OSError(errno.ENOSPC, "no space"), "f"), DiskFull)
    assert isinstance(store_error(OSError(errno.EDQUOT, "quota"), "f"), DiskFull)
    assert type(store_error(OSError(errno.EIO, "io"), "f")) is StoreError


def test_a_replaced_file_has_the_old_content_or_the_new(tmp_path: Path) -> None:
    disk = FileDisk()
    path = tmp_path / "file"
    disk.replace_file(path, b"one")
    disk.replace_file(path, b"two")
    assert (disk.read_file(path), disk.list(tmp_path), disk.file_size(path)) == (b"two", ["file"], 3)
    disk.remove(path)
    disk.remove(path)
    assert disk.file_size(path) is None


def test_few_descriptors_serve_many_files(tmp_path: Path) -> None:
    """The least recently used is closed, and opened again when it is asked for."""
    disk = FileDisk(open_files_max=4)
    for number in range(20):
        disk.create_file(tmp_path / str(number), 8)
        disk.write_at(tmp_path / str(number), 2, b"%02d" % number)
    assert [disk.read_at(tmp_path / str(n), 2, 2) for n in range(20)] == [b"%02d" % n for n in range(20)]
    assert len(disk._open) == 4
    disk.rename(tmp_path / "19", tmp_path / "18")
    assert disk.read_at(tmp_path / "18", 2, 2) == b"19"
    disk.close()


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    """Locks are per process: another one is asked."""
    lock = FileDisk().lock(tmp_path / "lock")
    child = os.fork()
    if not child:
        try:
            FileDisk().lock(tmp_path / "lock")
        except StoreLocked:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    lock.release()


def test_a_mapping_outlives_its_segment_for_those_who_read(tmp_path: Path) -> None:
    segment = FileDisk().create_segment(tmp_path / "f", 4096)
    segment.write(10, b"abc")
    part = segment.view[10:13]
    segment.close()
    assert bytes(part) == b"abc"


def test_blocks_are_known_and_holes_are_left_out(tmp_path: Path) -> None:
    segment = FileDisk().create_segment(tmp_path / "f", 1 << 20)
    segment.write(1 << 19, b"x")
    ranges = list(segment.data_ranges(0, 1 << 20))
    assert any(start <= 1 << 19 < stop for start, stop in ranges)
    segment.close()


def test_a_missing_file_is_stood_in_for_but_never_written() -> None:
    segment = StandInSegment(b"abc", 4096)
    assert (bytes(segment.view[:4]), list(segment.data_ranges(0, 4096))) == (b"abc\0", [])
    for use in (lambda: segment.reserve(1), lambda: segment.write(0, b"x"), segment.fileno):
        with pytest.raises(StoreError):
            use()
    segment.sync()
    segment.close()


def test_a_reserve_that_nobody_closed_keeps_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reserve = DescriptorReserve(16)
    os.close(reserve.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    assert len(os.listdir("/proc/self/fd")) >= before + 16
    del reserve
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
