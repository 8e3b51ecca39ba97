from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.backup.stores import expire, is_whole, log_bytes, opened, put, remember

from tandemq.backup.restore import restore
from tandemq.backup.take import Taken, back_up, read_manifest
from tandemq.backup.target import DirectoryTarget
from tandemq.errors import StoreError
from tandemq.replication.epochs import Epoch
from tandemq.sim.clock import ManualClock

CLOCK = ManualClock()


def take(root: Path, target: DirectoryTarget) -> Taken:
    CLOCK.advance(1)
    return back_up(root, target, CLOCK)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[DirectoryTarget]:
    target = DirectoryTarget(tmp_path / "backup")
    yield target
    target.close()


def restored(target: DirectoryTarget, root: Path) -> bytes:
    restore(target, root)
    assert is_whole(root)
    return log_bytes(root)


@pytest.mark.parametrize("replicated", [True, False])
def test_the_next_one_copies_what_is_new(tmp_path: Path, target: DirectoryTarget, replicated: bool) -> None:
    root = tmp_path / "store"
    store = opened(root)
    if replicated:
        remember(root, Epoch(1, "a", 0))
    put(store, 40)
    first = take(root, target)
    assert (first.copied, first.kept) == (len(first.manifest.segments), 0)
    again = take(root, target)
    assert (again.copied, again.kept) == (0, first.copied)
    put(store, 20)
    grown = take(root, target)
    assert grown.kept == first.copied - 1
    assert restored(target, tmp_path / "new")[: store.appended] == log_bytes(root)[: store.appended]
    names = {str(path.relative_to(tmp_path / "backup")) for path in (tmp_path / "backup").rglob("*") if path.is_file()}
    assert names == grown.manifest.names | {"backup.json", ".lock"}
    store.close()


def test_what_the_store_deleted_leaves_the_backup(tmp_path: Path, target: DirectoryTarget) -> None:
    root = tmp_path / "store"
    store = opened(root)
    put(store, 3, queue_id=1)
    put(store, 40)
    before = take(root, target)
    expire(store)
    after = take(root, target)
    assert after.manifest.first_offset == store.first_offset
    assert after.removed > 0
    assert len(list((tmp_path / "backup" / "commitlog").iterdir())) == len(after.manifest.segments)
    assert len(after.manifest.segments) < len(before.manifest.segments)
    restore(target, tmp_path / "new")
    assert is_whole(tmp_path / "new")
    again = opened(tmp_path / "new")
    assert again.reader.queue_range("t", 1) == (3, 3)
    assert again.append("t", 1, 0, 0, 1, bytes(8), 0, 0, b"", b"").queue_offset == 3
    again.close()
    store.close()


def test_a_backup_that_is_cut_short_leaves_the_one_before(
    tmp_path: Path, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = opened(root)
    put(store, 10)
    end = take(root, target).manifest.position
    put(store, 30)
    with monkeypatch.context() as patched:
        real = target.write

        def fails(name: str, pieces: Iterator[bytes]) -> None:
            if name == "backup.json":
                raise StoreError("the network is gone")
            real(name, pieces)

        patched.setattr(target, "write", fails)
        with pytest.raises(StoreError, match="network"):
            take(root, target)
    assert restored(target, tmp_path / "old")[:end] == log_bytes(root)[:end]
    assert take(root, target).manifest.position == store.appended
    assert restored(target, tmp_path / "new")[: store.appended] == log_bytes(root)[: store.appended]
    store.close()


def test_a_log_that_was_cut_back_and_went_on_replaces_what_differs(tmp_path: Path, target: DirectoryTarget) -> None:
    root = tmp_path / "store"
    store = opened(root)
    remember(root, Epoch(1, "a", 0))
    put(store, 40)
    take(root, target)
    cut = store.reader.get("t", 0, 30, 1, 1 << 20).slices[0]
    offset = int.from_bytes(bytes(cut[28:36]), "big")
    store.truncate(offset)
    remember(root, Epoch(1, "a", 0), Epoch(2, "b", offset))
    for _ in range(40):
        store.append("t", 0, 0, 0, 1, bytes(8), 0, 0, b"other" * 60, b"")
    store.dispatch()
    taken = take(root, target)
    assert taken.kept == offset // 4096
    assert restored(target, tmp_path / "new")[: store.appended] == log_bytes(root)[: store.appended]
    store.close()


def test_the_backup_of_another_store_is_not_overwritten(tmp_path: Path, target: DirectoryTarget) -> None:
    for number, root in enumerate((tmp_path / "a", tmp_path / "b")):
        store = opened(root)
        remember(root, Epoch(1, f"id{number}", 0))
        put(store, 10 + number, queue_id=number)
        store.close()
    before = take(tmp_path / "a", target).manifest
    with pytest.raises(StoreError, match="another log"):
        take(tmp_path / "b", target)
    assert read_manifest(target) == before


def test_an_object_that_somebody_removed_is_copied_again(tmp_path: Path, target: DirectoryTarget) -> None:
    root = tmp_path / "store"
    store = opened(root)
    put(store, 40)
    name = take(root, target).manifest.segments[0].name
    target.remove(name)
    assert take(root, target).copied == 1
    assert is_whole(root)
    restored(target, tmp_path / "new")
    store.close()
