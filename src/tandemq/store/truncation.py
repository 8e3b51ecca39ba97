"""The intent file of a truncation: written first, removed last, so that a crash in between is finished on the next
open.

    magic 8 | offset 8 | reset 4 | CRC-32 4

`offset` is where the log shall end; with `reset` the whole log goes and an empty one starts there.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from tandemq.formats.crc import crc32
from tandemq.formats.layout import TRUNCATION
from tandemq.store.disk import Disk

_INTENT = Struct(">8sqi")
_MAGIC = b"TandemQT"


@dataclass(frozen=True, slots=True)
class Truncation:
    offset: int
    reset: bool = False


def announce(disk: Disk, root: Path, truncation: Truncation) -> None:
    data = _INTENT.pack(_MAGIC, truncation.offset, int(truncation.reset))
    disk.replace_file(root / TRUNCATION, data + crc32(data).to_bytes(4, "big"))


def pending(disk: Disk, root: Path) -> Truncation | None:
    """Returns what was announced and not finished, None for a damaged file: that one was never announced."""
    path = root / TRUNCATION
    if disk.file_size(path) != _INTENT.size + 4:
        return None
    data = disk.read_file(path)
    magic, offset, reset = _INTENT.unpack_from(data)
    if magic != _MAGIC or crc32(data[: _INTENT.size]).to_bytes(4, "big") != data[_INTENT.size :]:
        return None
    return Truncation(offset, bool(reset))


def finish(disk: Disk, root: Path) -> None:
    disk.remove(root / TRUNCATION)
    disk.sync_directory(root)
