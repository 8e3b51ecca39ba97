"""Stores of RocketMQ's other engines are refused by name, and not touched."""

from pathlib import Path

import pytest

from tandemq.errors import StoreError
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path("/store")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("dledger-n0/data/00000000000000000000", "DLedger"),
        ("epochFileCheckpoint", "controller"),
        ("consumequeue_rocksdb/CURRENT", "RocksDB"),
        ("consumequeue/CURRENT", "RocksDB"),
        ("config/topics/CURRENT", "RocksDB"),
    ],
)
def test_the_store_of_another_engine_is_refused(file: str, told: str) -> None:
    disk = MemoryDisk()
    disk.make_directory((ROOT / file).parent)
    disk.create_file(ROOT / file, 10)
    before = set(disk.files)
    with pytest.raises(StoreError, match=told):
        MessageStore.open(ROOT, StoreConfig(), disk=disk)
    assert {path for path in disk.files if path.name != "lock"} == before


def test_an_ordinary_store_is_not(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{}")
    MessageStore.open(tmp_path, StoreConfig(commit_log_segment_size=1 << 20)).close()
