"""When bytes become durable, and who is told: the flusher without its thread, and with it."""

import errno
from pathlib import Path

import pytest

from tandemq.errors import DiskFull, LogPoisoned, NoDescriptors
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.disk import SyncFile
from tandemq.store.message_store import MessageStore
from tandemq.testing.waiting import wait_until

ROOT = Path("/store")
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
CONFIG = StoreConfig(commit_log_segment_size=4096, index_enable=False)


class PoorDisk(MemoryDisk):
    """A disk whose process can be without descriptors."""

    poor = False
    full = False
    opened = 0

    def open_to_sync(self, path: Path) -> SyncFile:
        if self.poor:
            raise NoDescriptors("no descriptor left")
        self.opened += 1
        return super().open_to_sync(path)

    def sync_file(self, path: Path) -> None:
        if self.poor:
            raise NoDescriptors("no descriptor left")
        super().sync_file(path)

    def write_synced(self, path: Path, data: bytes) -> None:
        if self.full:
            raise DiskFull("no room")
        super().write_synced(path, data)


def store_on(disk: MemoryDisk) -> MessageStore:
    return MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST)


def put(store: MessageStore, size: int = 100) -> int:
    store.append("t", 0, 0, 0, 1, HOST, 0, 0, bytes(size), b"")
    return store.appended


def test_a_file_is_opened_once_for_many_syncs() -> None:
    disk = PoorDisk()
    store = store_on(disk)
    for _ in range(5):
        put(store)
        store.flush_once()
    assert disk.opened == 1
    while store.appended < 3 * 4096:
        put(store, 1000)
    store.flush_once()
    assert list(store._flusher._open) == [3 * 4096 - 4096 if store.appended < 3 * 4096 else 3 * 4096]


def test_no_descriptor_is_no_failed_sync() -> None:
    """Nothing is reported flushed, nothing is poisoned, and with descriptors back it goes on by itself."""
    disk = PoorDisk()
    store = store_on(disk)
    end = put(store)
    told: list[Exception | None] = []
    store.when_flushed(end, told.append)
    disk.poor = True
    with pytest.raises(NoDescriptors):
        store.flush_once()
    assert (store.flushed, told, store.health.writable) == (0, [], True)
    disk.poor = False
    assert store.flush_once() == end
    assert told == [None]


def test_the_thread_tries_views_again_that_could_not_be_opened() -> None:
    disk = PoorDisk()
    store = store_on(disk)
    store.start()
    put(store)
    store.dispatch()
    disk.poor = True
    store._views.hand_over()
    wait_until(lambda: store._flusher.delay)
    assert store._flusher.views_problem is None
    disk.poor = False
    store.when_flushed(store.appended, lambda error: None)
    wait_until(lambda: not store._flusher.views_busy)
    assert store._flusher.views_problem is None
    assert store._views._durable_offset == store.appended
    store.close()


def test_the_thread_tries_a_checkpoint_again_that_had_no_room() -> None:
    """Without it no checkpoint was written until a restart, and each start after a crash read more and more."""
    disk = PoorDisk()
    store = store_on(disk)
    store.start()
    put(store)
    store.dispatch()
    disk.full = True
    store._views.hand_over()
    wait_until(lambda: store._flusher.delay)
    disk.full = False
    store.when_flushed(store.appended, lambda error: None)
    wait_until(lambda: not store._flusher.views_busy)
    assert store._flusher.views_problem is None
    assert store._views._durable_offset == store.appended
    store.close()


def test_a_checkpoint_that_had_no_room_at_once_is_written_later() -> None:
    """Whoever waits is told, and the next hand-over vouches for what that one could not."""
    disk = PoorDisk()
    store = store_on(disk)
    put(store)
    store.dispatch()
    disk.full = True
    with pytest.raises(DiskFull):
        store.flush_all()
    assert store._flusher.views_problem is None
    disk.full = False
    store._views.hand_over()
    assert store._views._durable_offset == store.appended


def test_a_close_that_could_not_sync_leaves_the_marker() -> None:
    disk = PoorDisk()
    store = store_on(disk)
    put(store)
    disk.poor = True
    store.close()
    assert disk.file_size(ROOT / "abort") is not None


def test_a_failed_sync_poisons_for_good() -> None:
    disk = MemoryDisk()
    store = store_on(disk)
    put(store)
    disk.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(LogPoisoned, match="fdatasync"):
        store.flush_once()
    disk.sync_error = None
    with pytest.raises(LogPoisoned):
        store.flush_once()
    with pytest.raises(LogPoisoned):
        put(store)


def test_a_cut_opens_files_anew() -> None:
    """A file that was removed and made again is another file: syncing the old one would promise what is not there."""
    disk = PoorDisk()
    store = store_on(disk)
    first = put(store)
    while store.appended < 4096:
        put(store, 1000)
    put(store)
    store.flush_once()
    store.truncate(first)
    while store.appended < 4096:
        put(store, 1000)
    put(store)
    store.flush_once()
    path = ROOT / "commitlog" / f"{4096:020d}"
    assert disk.files[path].durable == bytes(disk.files[path].data)
