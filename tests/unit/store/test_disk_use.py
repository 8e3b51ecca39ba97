"""How full the disk is, known from the moment a store is open."""

from pathlib import Path

from tandemq.store.config import StoreConfig
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore


class HalfFull(FileDisk):
    def usage(self, path: Path) -> tuple[int, int]:
        assert path.is_dir()
        return 50, 100


def test_status_of_a_store_that_was_just_opened(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", StoreConfig(), disk=HalfFull())
    assert store.status().disk_used_ratio == 0.5
    store.close()
