"""Damage in the beginning and in the middle of views, which no end of a file tells."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.stores import CONFIG, ROOT, check_filled, filled, opened, put

from tandemq.sim.disk import MemoryDisk
from tandemq.store.verify import verify

QUEUE = ROOT / "consumequeue" / "t" / "0"


def zero(disk: MemoryDisk, path: Path) -> None:
    disk.files[path].data[:] = bytes(len(disk.files[path].data))


def files(disk: MemoryDisk, directory: Path) -> list[Path]:
    return [directory / name for name in disk.list(directory)]


DAMAGES: dict[str, Callable[[MemoryDisk], object]] = {
    "first queue file missing": lambda disk: disk.remove(files(disk, QUEUE)[0]),
    "first queue file zeroed": lambda disk: zero(disk, files(disk, QUEUE)[0]),
    "middle queue file missing": lambda disk: disk.remove(files(disk, QUEUE)[3]),
    "middle queue file zeroed": lambda disk: zero(disk, files(disk, QUEUE)[3]),
    "last queue file missing": lambda disk: disk.remove(files(disk, QUEUE)[-1]),
    "a queue missing": lambda disk: disk.remove_tree(QUEUE),
    "first index file missing": lambda disk: disk.remove(files(disk, ROOT / "index")[0]),
    "first index file zeroed": lambda disk: zero(disk, files(disk, ROOT / "index")[0]),
    "middle index file missing": lambda disk: disk.remove(files(disk, ROOT / "index")[1]),
    "middle index file zeroed": lambda disk: zero(disk, files(disk, ROOT / "index")[1]),
    "last index file missing": lambda disk: disk.remove(files(disk, ROOT / "index")[-1]),
    "all index files missing": lambda disk: disk.remove_tree(ROOT / "index"),
    "the checkpoint missing": lambda disk: disk.remove(ROOT / "checkpoint"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("killed", [False, True])
def test_damage_is_noticed_and_mended_when_the_store_is_opened(damage: str, killed: bool) -> None:
    disk = MemoryDisk()
    filled(disk, 300)
    assert len(files(disk, QUEUE)) > 5
    assert len(files(disk, ROOT / "index")) > 2
    if killed:
        disk.create_file(ROOT / "abort", 0)
    if damage != "the checkpoint missing":
        DAMAGES[damage](disk)
        assert killed or not verify(disk, ROOT, CONFIG).ok, "verify sees it too"
    DAMAGES[damage](disk) if damage == "the checkpoint missing" else None
    store = opened(disk)
    assert store.recovered is not None
    assert store.recovered.problem
    check_filled(store, 300)
    store.close()
    assert verify(disk, ROOT, CONFIG).ok


@pytest.mark.parametrize("what", ["nothing", "a clean close", "a kill"])
def test_a_whole_store_is_not_built_anew(what: str) -> None:
    disk = MemoryDisk()
    filled(disk, 300)
    if what == "a kill":
        disk.create_file(ROOT / "abort", 0)
    store = opened(disk)
    assert store.recovered is not None
    assert (store.recovered.problem, store.recovered.rebuilt) == ("", False)
    check_filled(store, 300)


def killed_after_checkpoint(count: int) -> MemoryDisk:
    """A disk whose checkpoint vouches for a message without a key; others with keys were dispatched before the kill."""
    disk = MemoryDisk()
    store = opened(disk)
    put(store, queue_id=2)
    store.dispatch()
    store.flush_all()
    for n in range(count):
        put(store, bytes(300), f"KEYS\x01k{n}\x02".encode(), queue_id=n % 2)
    while store.dispatch():
        pass
    store.abandon()
    assert len(files(disk, ROOT / "index")) > count // 100
    return disk


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if "index" in damage])
@pytest.mark.parametrize("count", [150, 300])
def test_damage_above_the_checkpoint_of_a_killed_process_is_mended(count: int, damage: str) -> None:
    """What a kill left in the index is used again, unless a part of it is missing."""
    disk = killed_after_checkpoint(count)
    DAMAGES[damage](disk)
    check_filled(opened(disk), count)


def test_a_kill_after_many_keys_builds_nothing_anew() -> None:
    store = opened(killed_after_checkpoint(300))
    assert store.recovered is not None
    assert (store.recovered.problem, store.recovered.rebuilt) == ("", False)
    check_filled(store, 300)


@pytest.mark.parametrize("evidence", ["queues", "checkpoint", "replica"])
def test_a_store_without_its_log_is_refused_by_name(evidence: str) -> None:
    """The directory of the log was not mounted: nothing else may be destroyed for that."""
    from tandemq.errors import CorruptLog

    disk = MemoryDisk()
    filled(disk, 30)
    disk.remove_tree(ROOT / "commitlog")
    if evidence != "queues":
        disk.remove_tree(ROOT / "consumequeue")
    if evidence == "replica":
        disk.remove(ROOT / "checkpoint")
    before = sorted(disk.files)
    with pytest.raises(CorruptLog, match=r"/store/commitlog holds no log, but .*mounted"):
        opened(disk, confirmed=500 if evidence == "replica" else None)
    assert [path for path in before if path not in disk.files] == []


def test_a_store_that_never_had_a_message_opens_without_a_log() -> None:
    disk = MemoryDisk()
    for _ in range(3):
        opened(disk, confirmed=0).close()
