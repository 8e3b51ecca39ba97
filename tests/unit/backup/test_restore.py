import os
from pathlib import Path

import pytest
from tests.unit.backup.stores import is_whole, opened, put, remember

from tandemq.backup import restore as restoring
from tandemq.backup.restore import restore
from tandemq.backup.take import back_up
from tandemq.backup.target import DirectoryTarget
from tandemq.errors import CorruptLog, StoreError
from tandemq.replication import replica_file
from tandemq.replication.epochs import Epoch, Promise, ReplicaRecord
from tandemq.sim.clock import ManualClock
from tandemq.store.disk import FileDisk


@pytest.fixture
def target(tmp_path: Path) -> DirectoryTarget:
    """A backup of forty messages, of which the newest are of the second reign; a third has begun and written none."""
    root = tmp_path / "store"
    store = opened(root)
    put(store, 40)
    remember(root, Epoch(1, "a", 0), Epoch(2, "b", 3000), Epoch(3, "c", store.appended), confirmed=1 << 40)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    target = DirectoryTarget(tmp_path / "backup")
    back_up(root, target, ManualClock())
    target.close()
    store.close()
    return target


def test_a_restored_store_is_a_new_replica_with_the_old_history(tmp_path: Path, target: DirectoryTarget) -> None:
    root = tmp_path / "new"
    found = restore(target, root)
    record = replica_file.load(FileDisk(1), root)
    end = found.manifest.position
    assert record == ReplicaRecord("", found.history, Promise(3, "c"), confirmed=end)
    assert [(epoch.number, epoch.id) for epoch in found.history.epochs] == [(1, "a"), (2, "b"), (3, "c")]
    assert (root / "config" / "topics.json").read_text() == '{"topicConfigTable":{}}'
    assert is_whole(root)
    store = opened(root)
    assert store.recovered is not None
    assert store.recovered.clean
    assert not store.recovered.rebuilt
    assert store.reader.queue_range("t", 0) == (0, 40)
    store.close()


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path, target: DirectoryTarget) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(StoreError, match="is not empty"):
        restore(target, tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["file"]


@pytest.mark.parametrize("damage", ["flip", "short", "missing"])
def test_a_damaged_object_is_named_and_nothing_looks_like_a_store(
    tmp_path: Path, target: DirectoryTarget, damage: str
) -> None:
    path = sorted((tmp_path / "backup" / "commitlog").iterdir())[1]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "short" else data[:50] + b"?" + data[51:])
    root = tmp_path / "new"
    with pytest.raises(StoreError, match=path.name):
        restore(target, root)
    assert os.listdir(root) == [".restore"]
    path.write_bytes(data)
    restore(target, root)
    assert is_whole(root)


def test_a_restore_that_is_cut_short_is_refused_by_a_broker(
    tmp_path: Path, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "new"
    real = os.rename

    def rename(old: Path, new: Path) -> None:
        if new.name == "commitlog":
            raise OSError(28, "No space left on device")
        real(old, new)

    monkeypatch.setattr(restoring.os, "rename", rename)
    with pytest.raises(StoreError, match="No space left"):
        restore(target, root)
    with pytest.raises(CorruptLog, match="holds no log"):
        opened(root)


def test_where_there_is_no_backup_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no backup: .*backup\.json"):
        restore(DirectoryTarget(tmp_path / "nothing"), tmp_path / "new")
