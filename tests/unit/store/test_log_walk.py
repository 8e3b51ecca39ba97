"""Walking a damaged log file."""

from tests.unit.store.stores import CONFIG, ROOT, filled

from tandemq.formats import layout
from tandemq.sim.disk import MemoryDisk
from tandemq.store.log_walk import whole_records
from tandemq.store.verify import verify


def first_file(disk: MemoryDisk) -> bytearray:
    return bytearray(disk.read_at(ROOT / layout.COMMIT_LOG / layout.segment_name(0), 0, CONFIG.commit_log_segment_size))


def test_a_whole_file_has_no_damage() -> None:
    disk = MemoryDisk()
    offsets = filled(disk)
    in_file = [offset for offset in offsets if offset < CONFIG.commit_log_segment_size]
    assert list(whole_records(memoryview(first_file(disk)), 0)) == [(offset, None) for offset in in_file]


def test_the_walk_goes_on_after_a_damaged_record() -> None:
    disk = MemoryDisk()
    offsets = filled(disk)
    data = first_file(disk)
    data[offsets[2] : offsets[4]] = b"\xee" * (offsets[4] - offsets[2])
    found = list(whole_records(memoryview(data), 0))
    assert [at for at, damage in found if damage is None] == [
        offset for offset in offsets if offset < len(data) and offset not in offsets[2:4]
    ]
    [(at, damage)] = [(at, damage) for at, damage in found if damage is not None]
    assert at == offsets[2]
    assert damage.after == offsets[4]


def test_one_damage_is_one_problem() -> None:
    disk = MemoryDisk()
    offsets = filled(disk)
    path = ROOT / layout.COMMIT_LOG / layout.segment_name(0)
    disk.write_at(path, offsets[1] + 100, b"\xee")
    report = verify(disk, ROOT, CONFIG)
    assert [problem.where for problem in report.problems] == [f"commitlog/{path.name} offset {offsets[1]}"]
    assert report.records == len(offsets) - 1
