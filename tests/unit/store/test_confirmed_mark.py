"""What a replica has shown is shown again after a kill, and never more than that."""

from pathlib import Path

from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path("/store")
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
CONFIG = StoreConfig(commit_log_segment_size=4096, index_slots=13, index_entries=40, message_size_max=3000)


def opened(disk: CrashableDisk) -> MessageStore:
    """Opens a replica's store whose record is as old as the group."""
    return MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST, confirmed=0)


def append(store: MessageStore, count: int = 1) -> int:
    for _ in range(count):
        store.append("orders", 0, 0, 0, 1, HOST, 0, 0, bytes(100), b"")
    return store.appended


def shown_after(disk: CrashableDisk) -> int:
    return opened(disk).reader.queue_range("orders", 0)[1]


def test_a_killed_replica_shows_what_it_showed_and_no_more() -> None:
    """Neither its record nor its queues were saved since."""
    disk = CrashableDisk()
    store = opened(disk)
    store.set_confirmed(append(store, 3))
    append(store, 2)
    store.abandon()
    assert shown_after(disk.after_crash(keep_all=True)) == 3


def test_after_a_crash_of_the_machine_it_is_not_trusted() -> None:
    """The log may have been cut and written anew, and only that may have reached the disk."""
    disk = CrashableDisk()
    store = opened(disk)
    store.set_confirmed(append(store, 3))
    store.flush_once()
    disk.sync_file(ROOT / "confirmed")
    disk.sync_directory(ROOT)
    store.abandon()
    assert shown_after(disk.after_crash()) == 0


def test_a_cut_takes_it_back_before_other_bytes_come() -> None:
    """What comes where the log was cut has to be confirmed itself."""
    disk = CrashableDisk()
    store = opened(disk)
    first = append(store)
    store.set_confirmed(append(store, 2))
    store.truncate(first)
    append(store, 3)
    store.abandon()
    assert shown_after(disk.after_crash(keep_all=True)) == 1


def test_a_full_disk_is_no_reason_not_to_start() -> None:
    """Readers are served; after a kill they may have to wait for the master."""
    disk = CrashableDisk()
    opened(disk).abandon()
    disk = disk.after_crash(keep_all=True)
    disk.remove(ROOT / "confirmed")
    disk.capacity = disk.usage(ROOT)[0]
    opened(disk).set_confirmed(1)
