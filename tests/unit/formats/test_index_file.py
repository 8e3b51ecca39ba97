"""One index file in memory: what is put is found, what is cut leaves no trace."""

import pytest

from tandemq.formats.index_file import HEADER, HEADER_SIZE, IndexFile, file_size

SLOTS, ENTRIES = 10, 40


def new_file(content: bytearray | None = None) -> tuple[IndexFile, bytearray]:
    content = bytearray(file_size(SLOTS, ENTRIES)) if content is None else content
    return IndexFile(memoryview(content), SLOTS, ENTRIES, lambda stop: len(content)), content


def put(file: IndexFile, *keys: tuple[int, int, int]) -> None:
    hashes, offsets, times = (list(column) for column in zip(*keys, strict=True))
    done = 0
    while done < len(keys):
        done = file.put_some(hashes, offsets, times, done)


def test_a_first_key_makes_the_bytes_of_the_layout() -> None:
    """Header, slot and entry at the places the table of the module names."""
    file, content = new_file()
    put(file, (13, 1024, 5000), (23, 2048, 9999))
    assert HEADER.unpack_from(content) == (5000, 9999, 1024, 2048, 1, 3)
    assert int.from_bytes(content[40 + 4 * 3 : 40 + 4 * 4], "big") == 2
    entry = content[40 + 4 * SLOTS + 20 * 2 :][:20]
    assert entry == bytes.fromhex("00000017 0000000000000800 00000004 00000001")


def test_keys_of_one_slot_are_found_newest_first() -> None:
    file, _ = new_file()
    put(file, (3, 100, 1000), (13, 200, 2000), (3, 300, 3000), (3, 400, 4000))
    assert list(file.find(3, 0, 1 << 60)) == [400, 300, 100]
    assert list(file.find(3, 2500, 3500)) == [300]
    assert list(file.find(23, 0, 1 << 60)) == []


@pytest.mark.parametrize("count", [2, 13, 30])
def test_one_by_one_and_in_runs_make_the_same_bytes(count: int) -> None:
    keys = [(number * 7, number * 100, number * 900) for number in range(1, count + 1)]
    (file, content), (other, expected) = new_file(), new_file()
    put(file, *keys)
    for key in keys:
        put(other, key) if not other.put_one(*key) else None
    assert content == expected


def test_a_cut_restores_what_was_before() -> None:
    file, content = new_file()
    put(file, (3, 100, 1000), (13, 200, 2000))
    before = bytes(content)
    put(file, (3, 300, 3000), (4, 300, 3000))
    file.cut(300)
    assert bytes(content)[HEADER_SIZE:] == before[HEADER_SIZE:]
    assert (file.count, file.slot_count, file.end_physical) == (3, 1, 200)


def test_a_full_file_takes_no_more() -> None:
    file, _ = new_file()
    put(file, *((number, number, 0) for number in range(1, ENTRIES)))
    assert file.count == file.entries_max
    assert file.make_room(0, 5) == 0
    assert not file.put_one(1, 1, 1)


def test_slots_are_made_anew_from_trusted_entries() -> None:
    """After a machine crash only entries that a checkpoint vouches for count."""
    file, content = new_file()
    put(file, (3, 100, 1000), (13, 200, 2000), (4, 300, 3000))
    content[HEADER_SIZE : HEADER_SIZE + 4 * SLOTS] = bytes(4 * SLOTS)
    file.make_slots(3, 1 << 40)
    assert (file.slot(3), file.slot(4), file.count, file.slot_count) == (2, 0, 3, 1)


def test_damage_never_makes_a_search_endless() -> None:
    """A chain that leads forwards ends there."""
    file, content = new_file()
    put(file, (3, 100, 1000), (3, 200, 2000))
    at = file.entry_at(1) + 16
    content[at : at + 4] = (2).to_bytes(4, "big")
    assert list(file.find(3, 0, 1 << 60)) == [200, 100]
