"""Backups and records that somebody else wrote: nothing is read, written or deleted outside, nothing is believed."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.backup.stores import opened, put

from tandemq.backup import manifest as manifests
from tandemq.backup.manifest import FilePart, Manifest
from tandemq.backup.restore import restore
from tandemq.backup.take import back_up, read_manifest
from tandemq.backup.target import DirectoryTarget
from tandemq.errors import CorruptLog, StoreError, TandemError
from tandemq.formats.crc import crc32
from tandemq.formats.replica_record import confirmed_offset
from tandemq.replication import replica_file
from tandemq.sim.clock import ManualClock


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a real backup."""
    store = opened(tmp_path / "store")
    put(store, 20)
    target = DirectoryTarget(tmp_path / "backup")
    back_up(tmp_path / "store", target, ManualClock())
    target.close()
    store.close()
    return tmp_path / "backup"


def listed(place: Path) -> Manifest:
    found = read_manifest(DirectoryTarget(place))
    assert found is not None
    return found


def rewritten(place: Path, found: Manifest, **changes: Any) -> DirectoryTarget:
    """Puts another list into the backup, with a right checksum, as its owner can."""
    (place / manifests.NAME).write_bytes(manifests.encode(msgspec.structs.replace(found, **changes)))
    return DirectoryTarget(place)


def added(place: Path, found: Manifest, path: str, name: str, data: bytes = b"evil") -> DirectoryTarget:
    return rewritten(place, found, files=[*found.files, FilePart(path, name, len(data), crc32(data))])


@pytest.mark.parametrize(
    "path", ["../evil", "a/../../evil", "/tmp/evil", "a//b", "", ".", "./evil", "a\0b", "a\nb", "config/../../x"]
)
def test_no_name_in_a_backup_leads_out_of_the_store(tmp_path: Path, place: Path, path: str) -> None:
    (place / "evil").write_bytes(b"evil")
    found = listed(place)
    for where, name in ((path, "evil"), ("config/x.json", path)):
        with pytest.raises(StoreError, match=r"backup\.json is damaged"):
            restore(added(place, found, where, name), tmp_path / "new" / "store")
    assert not (tmp_path / "new").exists()


def test_a_link_in_a_backup_is_not_followed(tmp_path: Path, place: Path) -> None:
    (tmp_path / "secret").write_bytes(b"evil")
    os.symlink(tmp_path / "secret", place / "linked")
    os.symlink(tmp_path, place / "way")
    found = listed(place)
    for name in ("linked", "way/secret"):
        with pytest.raises(StoreError, match="leads out"):
            restore(added(place, found, f"config/{name.replace('/', '-')}.json", name), tmp_path / "new")


def test_the_next_backup_deletes_nothing_outside(tmp_path: Path, place: Path) -> None:
    """What the list of the last backup names and the next one does not need is removed."""
    (tmp_path / "precious").write_bytes(b"mine")
    os.symlink(tmp_path, place / "way")
    target = added(place, listed(place), "config/x.json", "way/precious")
    store = opened(tmp_path / "store")
    put(store, 5)
    with pytest.raises(StoreError, match="leads out"):
        back_up(tmp_path / "store", target, ManualClock())
    store.close()
    target.close()
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_an_object_larger_than_the_list_says_does_not_fill_the_disk(tmp_path: Path, place: Path) -> None:
    found = listed(place)
    with open(place / found.segments[0].name, "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreError, match="it has more than"):
        restore(DirectoryTarget(place), tmp_path / "new")
    written = [path.stat().st_blocks * 512 for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert sum(written) < 64 << 20


def test_a_list_larger_than_any_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "SIZE_MAX", 100)
    with pytest.raises(StoreError, match="more than 100 bytes"):
        read_manifest(DirectoryTarget(place))


@pytest.mark.parametrize(
    "changes",
    [
        {"segment_size": 0},
        {"segment_size": -4096},
        {"segment_size": 1 << 63},
        {"position": (1 << 63) - 1},
        {"index_slots": 1 << 60},
        {"index_entries": -1},
        {"queue_file_size": 1 << 62},
        {"queue_file_size": 0},
        {"delay_levels": "never"},
    ],
)
def test_numbers_that_no_store_has_are_refused_in_words(tmp_path: Path, place: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(TandemError):
        restore(rewritten(place, listed(place), **changes), tmp_path / "new")
    assert not (tmp_path / "new" / "commitlog").exists()


def test_a_log_that_begins_before_the_beginning_is_refused(tmp_path: Path, place: Path) -> None:
    found = listed(place)
    shift = found.segment_size

    def moved(by: int) -> Manifest:
        parts = [msgspec.structs.replace(part, base=part.base + by) for part in found.segments]
        return msgspec.structs.replace(found, segments=parts, position=found.position + by)

    for by in (-shift, (1 << 62) - found.position + shift, shift):
        changed = moved(by)
        target = rewritten(place, found, segments=changed.segments, position=changed.position)
        with pytest.raises(TandemError):
            restore(target, tmp_path / f"new{by}")


# --- replica.json -----------------------------------------------------------------------------------------------------


def sealed(content: bytes) -> bytes:
    return b'{"content":%b,"crc":%d}' % (content, crc32(content))


GOOD: dict[str, Any] = {
    "replica": "r", "history": [[1, "a", 0]], "promised_number": 1, "promised_id": "a",
    "members": [], "in_sync": [], "confirmed": 5, "reigning": False,
}  # fmt: skip


def test_a_record_is_read_as_it_was_written() -> None:
    assert replica_file.decode(sealed(json.dumps(GOOD).encode()), "replica.json").confirmed == 5


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"replica":' + b"[" * 5000 + b"]" * 5000 + b"}",
        json.dumps({**GOOD, "confirmed": 1 << 63}).encode(),
        json.dumps({**GOOD, "confirmed": -1}).encode(),
        json.dumps({**GOOD, "promised_number": 1 << 64}).encode(),
        json.dumps({**GOOD, "history": [[1 << 64, "a", 0]]}).encode(),
        json.dumps({**GOOD, "history": [[1, "a", -1]]}).encode(),
        json.dumps({**GOOD, "confirmed": "many"}).encode(),
        b"null",
        b"",
    ],
)
def test_a_damaged_record_is_told_in_words(content: bytes) -> None:
    with pytest.raises(CorruptLog, match=r"replica\.json is damaged"):
        replica_file.decode(sealed(content), "replica.json")


@pytest.mark.parametrize(
    "data",
    [b'{"content":{"confirmed":1e999}}', b'{"content":' * 100_000, b'{"content":{"confirmed":null}}', b"\xff", b""],
)
def test_readers_of_a_damaged_record_go_on_without_it(data: bytes) -> None:
    assert confirmed_offset(data) is None
