"""The chain of a log's files: what may be opened, and how the next file is made ahead of its use."""

import threading
from pathlib import Path

import pytest

from tandemq.errors import CorruptLog, DiskFull, OffsetOutOfRange, StoreError
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.store.segments import SegmentChain
from tandemq.testing.waiting import wait_until

DIRECTORY = Path("/log")
SIZE = 4096
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))


def chain_on(disk: MemoryDisk, **options: object) -> SegmentChain:
    chain = SegmentChain(disk, DIRECTORY, SIZE, **options)  # type: ignore[arg-type]
    chain.load()
    return chain


def names(disk: MemoryDisk) -> list[int]:
    return [int(name) for name in disk.list(DIRECTORY)]


def test_files_follow_each_other() -> None:
    chain = chain_on(MemoryDisk())
    chain.add(8192)
    chain.add()
    assert (chain.bases, chain.first_offset, chain.end) == ([8192, 12288], 8192, 16384)
    assert chain.base_of(9000) == 8192
    with pytest.raises(OffsetOutOfRange):
        chain.base_of(16384)
    with pytest.raises(StoreError, match="no multiple"):
        chain_on(MemoryDisk()).add(100)


def test_a_gap_and_a_wrong_size_are_refused_by_name() -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    for base in (0, 8192):
        disk.create_file(DIRECTORY / f"{base:020d}", SIZE)
    with pytest.raises(CorruptLog, match="00000000000000004096 is missing"):
        chain_on(disk)
    assert chain_on(disk, writable=False).missing == [(4096, 8192)]
    disk.create_file(DIRECTORY / f"{4096:020d}", 100)
    with pytest.raises(CorruptLog, match="has 100 bytes"):
        chain_on(disk)


def test_the_next_file_is_made_when_the_last_is_half_full_and_used_when_it_is_full() -> None:
    disk = MemoryDisk()
    chain = chain_on(disk)
    chain.add(0)
    chain.prepare(SIZE // 2)
    assert names(disk) == [0]
    chain.prepare(SIZE // 2 + 1)
    assert names(disk) == [0, SIZE]
    assert chain.bases == [0], "it is no part of the log yet"
    chain.add()
    assert (chain.bases, names(disk)) == ([0, SIZE], [0, SIZE])


def test_the_owner_makes_a_file_itself_when_nobody_has() -> None:
    disk = CrashableDisk()
    chain = chain_on(disk)
    chain.add(0)
    chain.add()
    chain.sync_names()
    chain.sync_names()
    assert disk.steps == [
        "sync directory log",  # what a killed process may have left
        "create 00000000000000000000",
        "sync directory log",  # the first file is durable at once
        "sync directory ",
        "create 00000000000000004096",
        "sync directory log",
    ]


def test_a_log_that_was_begun_has_a_file_after_a_power_cut() -> None:
    """A replica's record may say that bytes were confirmed which were never flushed; the store must still open."""
    disk = CrashableDisk()
    chain_on(disk).add(0)
    assert chain_on(disk.after_crash()).bases == [0]


def test_a_cut_takes_the_spare_along() -> None:
    disk = MemoryDisk()
    chain = chain_on(disk)
    chain.add(0)
    chain.prepare(SIZE - 1)
    chain.drop_from(SIZE)
    assert names(disk) == [0]
    chain.add()
    assert chain.bases == [0, SIZE]


def test_a_full_disk_is_left_for_the_owner_to_meet() -> None:
    """The thread says nothing; the owner's own attempt is the error, and is told to the gate."""
    disk = MemoryDisk(capacity=SIZE)
    told: list[DiskFull] = []
    chain = SegmentChain(disk, DIRECTORY, SIZE, on_full=told.append)
    chain.load()
    chain.add(0)
    chain.reserve(0, SIZE)
    chain.prepare(SIZE - 1)
    assert (names(disk), told) == ([0], [])
    chain.add()
    with pytest.raises(DiskFull):
        chain.reserve(SIZE, 1)
    assert len(told) == 1


class WatchedDisk(MemoryDisk):
    """Remembers what the owner's thread had to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = threading.current_thread()
        self.waited: list[str] = []

    def step(self, what: str, path: Path) -> None:
        if threading.current_thread() is self.owner and what != "write":
            self.waited.append(f"{what} {path.name}")


def test_rolling_to_the_next_file_makes_the_owner_wait_for_nothing() -> None:
    """Creating the file and syncing its directory are the flush thread's work, done before the file is needed."""
    disk = WatchedDisk()
    config = StoreConfig(commit_log_segment_size=1 << 16, index_enable=False, flush_interval_ms=1, flush_pages_min=0)
    store = MessageStore.open(Path("/store"), config, clock=ManualClock(), disk=disk, store_host=HOST)
    store.start()
    chain = store.log.chain
    store.append("t", 0, 0, 0, 1, HOST, 0, 0, bytes(100), b"")
    disk.waited.clear()
    for base in range(0, 5 << 16, 1 << 16):
        while store.appended < base + (3 << 14):
            store.append("t", 0, 0, 0, 1, HOST, 0, 0, bytes(1000), b"")
        store.when_flushed(store.appended, lambda error: None)
        wait_until(lambda: chain._spare is not None)
    assert (disk.waited, len(chain.bases)) == ([], 5)
    store.close()
    assert len(disk.list(Path("/store/commitlog"))) == 5, "an orderly close leaves no file that was never written"
