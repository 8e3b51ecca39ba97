"""Small stores on a real disk, for the tests of this folder."""

from pathlib import Path

from tandemq.replication import replica_file
from tandemq.replication.epochs import Epoch, History, Promise, ReplicaRecord
from tandemq.sim.clock import ManualClock
from tandemq.store.config import StoreConfig
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore
from tandemq.store.verify import verify

HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
CONFIG = StoreConfig(commit_log_segment_size=4096, consume_queue_segment_size=200, index_slots=20, index_entries=100)
HOURS_100 = 100 * 3_600_000


def opened(root: Path) -> MessageStore:
    return MessageStore.open(root, CONFIG, clock=ManualClock(), disk=FileDisk(16), store_host=HOST)


def put(store: MessageStore, count: int = 20, queue_id: int = 0, flush: bool = True) -> None:
    for number in range(count):
        store.append("t", queue_id, 0, 0, 1, HOST, 0, 0, bytes([number]) * 300, f"KEYS\x01k{number}\x02".encode())
    store.dispatch()
    if flush:
        store.flush_all()


def expire(store: MessageStore) -> None:
    """All files of the log but the newest go."""
    store.flush_all()
    store.retain(store._clock.wall_ms() + HOURS_100, True, store.append_mark)


def remember(root: Path, *epochs: Epoch, confirmed: int = 0) -> None:
    last = epochs[-1]
    record = ReplicaRecord(
        "10.0.0.1:1#abc", History(epochs), Promise(last.number + 2, "x"), frozenset({"b"}), frozenset({"b"}), confirmed
    )
    replica_file.save(FileDisk(1), root, record)


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def is_whole(root: Path) -> bool:
    disk = FileDisk(16)
    report = verify(disk, root, discover_config(disk, root))
    assert report.ok, report.problems
    return report.ok
