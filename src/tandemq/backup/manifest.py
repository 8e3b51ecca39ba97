"""`backup.json`: what a backup consists of. Pure.

    {"content": {"position": P, "taken": wall ms, "segmentSize": …, "queueFileSize": …, "indexSlots": …,
                 "indexEntries": …, "delayLevels": "1s 5s …",
                 "segments": [{"base": …, "name": "commitlog/…", "size": …, "crc": …}, …],
                 "files": [{"path": "config/topics.json", "name": "tables/…/config/topics.json", …}, …]},
     "crc": CRC-32 of the content}

It is written last and replaced whole, and no object that it names is ever overwritten: whatever happens to the next
backup, this one can be restored. A segment's object has only the bytes below the position.
"""

from typing import Any

import msgspec

from tandemq.errors import StoreError
from tandemq.formats.crc import crc32

NAME = "backup.json"
SIZE_MAX = 256 << 20
"""Bytes of the file; a million segments have half of it."""
OFFSET_MAX = 1 << 62
"""Beyond every log: the sum of two such numbers still fits where offsets are kept."""


class SegmentPart(msgspec.Struct, frozen=True):
    """The bytes [base, base + size) of the log."""

    base: int
    name: str
    """Of the object that has them."""
    size: int
    crc: int

    @property
    def end(self) -> int:
        return self.base + self.size


class FilePart(msgspec.Struct, frozen=True):
    """A small file of the store: a table, or one that lies beside the log."""

    path: str
    """Where it lies under the store's root."""
    name: str
    size: int
    crc: int


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    position: int
    """The log ends here: behind a whole record."""
    taken: int
    segment_size: int
    queue_file_size: int
    index_slots: int
    index_entries: int
    delay_levels: str
    """messageDelayLevel, as far as the store told."""
    segments: list[SegmentPart]
    files: list[FilePart]

    @property
    def first_offset(self) -> int:
        return self.segments[0].base if self.segments else self.position

    @property
    def names(self) -> set[str]:
        """All objects that this backup needs."""
        return {part.name for part in self.segments} | {part.name for part in self.files}


class _Sealed(msgspec.Struct):
    content: msgspec.Raw
    crc: int


def encode(manifest: Manifest) -> bytes:
    text = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), crc32(text)))


def decode(data: bytes, where: str) -> Manifest:
    """Returns what the file says; StoreError that names it, if it is damaged or not of a backup."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if crc32(bytes(sealed.content)) != sealed.crc:
            raise ValueError("its checksum is wrong")
        manifest = msgspec.json.decode(bytes(sealed.content), type=Manifest)
        _check(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise StoreError(f"{where} is damaged or no list of a backup ({error}): take the backup anew") from error
    return manifest


def _check(manifest: Manifest) -> None:
    """Refuses names that lead out of the store being made: the file may have been written by others."""
    at = manifest.first_offset
    if not (0 < manifest.segment_size <= OFFSET_MAX and at >= 0 and manifest.position <= OFFSET_MAX):
        raise ValueError(f"no log has segments of {manifest.segment_size} bytes from {at} to {manifest.position}")
    for part in manifest.segments:
        if part.base != at or not 0 < part.size <= manifest.segment_size:
            raise ValueError(f"the log has a hole at {at}")
        at = part.end
    if at != manifest.position:
        raise ValueError(f"the log ends at {at}, not at {manifest.position}")
    names: list[Any] = [*manifest.names, *(part.path for part in manifest.files)]
    for name in names:
        if not name.isprintable() or not set(name.split("/")).isdisjoint(("", ".", "..")):
            raise ValueError(f"{name[:200]!r} is no name of a file in it")
