"""Small stores on a disk in memory, for the tests of this folder."""

from dataclasses import replace
from pathlib import Path

from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import MessageStore

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


def filled(disk: MemoryDisk, count: int = 30) -> list[int]:
    store = opened(disk)
    offsets = [put(store, bytes([n % 256]) * 300, f"KEYS\x01k{n}\x02".encode(), queue_id=n % 2) for n in range(count)]
    store.dispatch()
    store.close()
    return offsets


def check_filled(store: MessageStore, count: int = 30) -> None:
    assert sum(store.reader.queue_range("t", q)[1] for q in range(2)) == count
    for number in range(count):
        assert len(store.reader.query("t", f"k{number}", 9, 0, FOREVER)) == 1
