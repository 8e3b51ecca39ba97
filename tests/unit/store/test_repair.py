import pytest
from tests.unit.store.stores import CONFIG, ROOT, check_filled, filled, opened

from tandemq.formats.checkpoint import SIZE
from tandemq.sim.disk import MemoryDisk
from tandemq.store.repair import repair
from tandemq.store.verify import verify

QUEUE = ROOT / "consumequeue" / "t" / "0"


@pytest.mark.parametrize("damage", ["queue", "queue file", "first queue file", "index", "no checkpoint", "checkpoint"])
def test_what_can_be_derived_is_mended_and_told(damage: str) -> None:
    disk = MemoryDisk()
    filled(disk)
    if damage == "queue":
        disk.write_at(QUEUE / f"{0:020d}", 20, bytes(20))
    elif damage == "queue file":
        disk.remove(QUEUE / f"{200:020d}")
    elif damage == "first queue file":
        disk.remove(QUEUE / f"{0:020d}")
    elif damage == "index":
        name = disk.list(ROOT / "index")[0]
        disk.write_at(ROOT / "index" / name, 60, bytes(40))
    elif damage == "no checkpoint":
        disk.remove(ROOT / "checkpoint")
    else:
        disk.write_at(ROOT / "checkpoint", 0, bytes(SIZE))
    report = verify(disk, ROOT, CONFIG)
    assert not report.ok or report.checkpoint
    repaired = repair(disk, ROOT, CONFIG)
    assert repaired.after.ok
    assert not repaired.after.checkpoint
    mended = {"queue file": "queue", "first queue file": "queue", "no checkpoint": "checkpoint"}.get(damage, damage)
    assert any(mended in line for line in repaired.done), repaired.done
    store = opened(disk)
    assert store.recovered is not None
    assert store.recovered.problem == ""
    check_filled(store)
    store.close()


def test_a_whole_store_is_left_alone() -> None:
    disk = MemoryDisk()
    filled(disk)
    before = dict(disk.files)
    assert repair(disk, ROOT, CONFIG).done == []
    assert disk.files == before


def test_a_damaged_log_is_not_touched() -> None:
    disk = MemoryDisk()
    offsets = filled(disk)
    disk.write_at(ROOT / "commitlog" / f"{0:020d}", offsets[2] + 100, b"?")
    disk.write_at(QUEUE / f"{0:020d}", 20, bytes(20))
    before = {path: bytes(disk.read_file(path)) for path in disk.files}
    repaired = repair(disk, ROOT, CONFIG)
    assert not repaired.after.ok
    assert repaired.done == []
    assert "the log is damaged" in repaired.refused
    assert {path: bytes(disk.read_file(path)) for path in disk.files} == before


def test_a_log_whose_last_file_is_missing_is_not_called_whole() -> None:
    disk = MemoryDisk()
    filled(disk)
    disk.remove(ROOT / "commitlog" / disk.list(ROOT / "commitlog")[-1])
    for path in [path for path in disk.files if path.parts[2] in ("consumequeue", "index")]:
        disk.remove(path)
    report = verify(disk, ROOT, CONFIG)
    assert not report.ok
    assert repair(disk, ROOT, CONFIG).refused
