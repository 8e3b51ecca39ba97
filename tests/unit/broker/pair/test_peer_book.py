"""The remembered addresses of a group."""

from pathlib import Path

from tandemq.broker.pair.peer_book import ADDRESSES_MAX, PeerBook
from tandemq.sim.disk import CrashableDisk, MemoryDisk

PATH = Path("/store/peers.json")


def disk_with_a_store() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory(PATH.parent)
    return disk


def test_addresses_are_remembered_across_a_power_loss() -> None:
    disk = disk_with_a_store()
    book = PeerBook(disk, PATH)
    book.note(["a:1", "", "b:1", "a:1"])
    book.note(["b:1"])
    assert PeerBook(disk.after_crash(), PATH).addresses == ("a:1", "b:1")
    book.drop("a:1")
    book.drop("unknown:1")
    assert PeerBook(disk.after_crash(), PATH).addresses == ("b:1",)


def test_what_is_known_is_not_written_again() -> None:
    disk = disk_with_a_store()
    book = PeerBook(disk, PATH)
    book.note(["a:1"])
    steps = len(disk.steps)
    book.note(["a:1", ""])
    book.drop("b:1")
    assert len(disk.steps) == steps


def test_only_the_newest_are_kept() -> None:
    book = PeerBook(disk_with_a_store(), PATH)
    book.note(f"a:{number}" for number in range(20))
    assert book.addresses == tuple(f"a:{number}" for number in range(20 - ADDRESSES_MAX, 20))


def test_a_damaged_file_costs_a_question_and_no_start() -> None:
    disk = disk_with_a_store()
    for content in (b"", b"{", b'{"a": 1}', b"[1]"):
        disk.replace_file(PATH, content)
        assert PeerBook(disk, PATH).addresses == ()


def test_a_full_disk_does_not_stop_the_broker() -> None:
    disk = MemoryDisk(capacity=0)
    disk.make_directory(PATH.parent)
    book = PeerBook(disk, PATH)
    book.note(["a:1"])
    assert book.addresses == ("a:1",)
