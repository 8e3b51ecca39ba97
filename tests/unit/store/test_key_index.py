"""The index of a store over several files: finding, cutting, dropping, making slots anew."""

from pathlib import Path

import pytest

from tandemq.errors import CorruptLog
from tandemq.sim.disk import MemoryDisk
from tandemq.store.key_index import MAPPED_MAX, KeyIndex

DIRECTORY = Path("/store/index")
SLOTS, ENTRIES = 7, 11
"""One entry of a file is never used: ten keys fit."""
FOREVER = 1 << 62
NOW = 1_700_000_000_000


def index_on(disk: MemoryDisk, now: int = NOW) -> KeyIndex:
    return KeyIndex(disk, DIRECTORY, SLOTS, ENTRIES, lambda: now)


def filled(disk: MemoryDisk, count: int) -> KeyIndex:
    """Key n, of hash n, lies at offset 100 n and was stored at second n."""
    index = index_on(disk)
    numbers = list(range(count))
    index.put(numbers, [100 * n for n in numbers], [NOW + 1000 * n for n in numbers])
    return index


def found(index: KeyIndex, key: int, begin: int = 0, end: int = FOREVER) -> list[int]:
    return list(index.find(key, begin, end))


@pytest.mark.parametrize("count", [1, 10, 11, 35, 300])
def test_every_key_is_found_once_across_files(count: int) -> None:
    disk = MemoryDisk()
    index = filled(disk, count)
    assert len(index.names) == -(-count // 10)
    assert [found(index, key) for key in range(count + 1)] == [[100 * key] for key in range(count)] + [[]]


def test_the_newest_of_equal_keys_comes_first_and_times_narrow_it_down() -> None:
    index = index_on(MemoryDisk())
    for number in range(25):
        index.put([5], [number], [NOW + 1000 * number])
    assert found(index, 5) == list(range(24, -1, -1))
    assert found(index, 5, NOW + 3000, NOW + 12_000) == list(range(12, 2, -1))
    assert found(index, 5, NOW + 60_000) == []


def test_one_by_one_and_in_runs_give_the_same_files() -> None:
    runs, singles = MemoryDisk(), MemoryDisk()
    filled(runs, 300)
    index = index_on(singles)
    for number in range(300):
        index.put([number], [100 * number], [NOW + 1000 * number])
    assert runs.list(DIRECTORY) == singles.list(DIRECTORY)
    for name in runs.list(DIRECTORY):
        assert runs.read_file(DIRECTORY / name) == singles.read_file(DIRECTORY / name), name


def test_files_made_in_one_millisecond_get_names_that_follow_each_other() -> None:
    """Upstream names a file by the millisecond, and of two made in the same one loses the first."""
    index = filled(MemoryDisk(), 35)
    assert [int(b) - int(a) for a, b in zip(index.names, index.names[1:], strict=False)] == [1, 1, 1]


def test_what_was_written_is_found_by_the_next_process() -> None:
    disk = MemoryDisk()
    filled(disk, 35)
    again = index_on(disk)
    assert again.load()
    assert again.end_physical == 3400
    assert found(again, 34) == [3400]
    again.put([99], [9900], [NOW])
    assert len(again.names) == 4


def test_few_files_are_mapped_at_a_time() -> None:
    index = filled(MemoryDisk(), 200)
    assert [found(index, key) for key in range(0, 200, 10)] == [[100 * key] for key in range(0, 200, 10)]
    assert len(index._mapped) <= MAPPED_MAX


@pytest.mark.parametrize("limit", [0, 50, 1000, 1050, 2300, 9999])
def test_a_cut_forgets_what_lies_at_or_above_it(limit: int) -> None:
    index = filled(MemoryDisk(), 35)
    index.cut(limit)
    assert [found(index, key) for key in range(35)] == [[100 * key] if 100 * key < limit else [] for key in range(35)]
    index.put([77], [limit], [NOW])
    assert found(index, 77) == [limit]


def test_files_below_the_log_go_but_for_the_newest() -> None:
    disk = MemoryDisk()
    index = filled(disk, 35)
    assert index.drop_before(1900) == 1
    assert index.drop_before(1901) == 1
    assert index.drop_before(FOREVER) == 1
    assert disk.list(DIRECTORY) == index.names[-1:]


@pytest.mark.parametrize("count", [1, 2, 6])
def test_slots_are_made_anew_from_the_entries_a_checkpoint_vouches_for(count: int) -> None:
    """After a machine crash slots and newer files may be anything."""
    disk = MemoryDisk()
    index = filled(disk, 35)
    name = index.names[2]
    view = index.file(name).segment.view
    view[40 : 40 + 4 * SLOTS] = b"\xff" * 4 * SLOTS
    index.rebuild_from(name, count, FOREVER, deeper=False)
    assert index.names[-1] == name
    kept = 20 + count - 1
    assert [found(index, key) for key in range(20, 30)] == [[100 * k] if k < kept else [] for k in range(20, 30)]


def test_other_settings_than_the_files_have_are_noticed() -> None:
    disk = MemoryDisk()
    name = filled(disk, 1).names[0]
    other = KeyIndex(disk, DIRECTORY, SLOTS + 1, ENTRIES, lambda: NOW)
    assert not other.load()
    with pytest.raises(CorruptLog, match="maxHashSlotNum"):
        other.file(name)


def test_a_new_file_is_named_to_whoever_syncs() -> None:
    index = filled(MemoryDisk(), 5)
    assert index.take_dirty() == ([DIRECTORY / index.names[0]], True)
    index.put([1], [1], [NOW])
    assert index.take_dirty() == ([DIRECTORY / index.names[0]], False)
    assert index.take_dirty() == ([], False)
