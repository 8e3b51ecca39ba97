"""The sizes a store was made with, found from its files: tools open any store without being told its settings."""

from dataclasses import replace
from pathlib import Path

from tandemq.errors import CorruptLog
from tandemq.store import layout
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.store.key_index import ENTRY, HEADER

_RATIOS = (4, 2, 1, 3, 5, 8, 10)
"""Entries per slot of an index file, the common ones first: upstream's default is 4."""


def discover_config(disk: Disk, root: Path, default: StoreConfig | None = None) -> StoreConfig:
    """`default` with the sizes of the files under `root`."""
    config = default if default is not None else StoreConfig()
    log_size = _common_size(disk, root / layout.COMMIT_LOG)
    if log_size:
        config = replace(config, commit_log_segment_size=log_size)
    queue_size = _queue_file_size(disk, root / layout.CONSUME_QUEUE)
    if queue_size:
        config = replace(config, consume_queue_segment_size=queue_size)
    names = [name for name in disk.list(root / layout.INDEX) if name.isdecimal()]
    for name in names:
        try:
            slots, entries = index_shape(disk, root / layout.INDEX / name)
        except CorruptLog:
            continue  # the next one may tell; if none does, `verify` says so
        return replace(config, index_slots=slots, index_entries=entries)
    return config


def _common_size(disk: Disk, directory: Path) -> int:
    """The size most files have: one of them may have been cut."""
    sizes = [disk.file_size(directory / name) or 0 for name in disk.list(directory) if layout.is_segment_name(name)]
    return max(sizes, key=lambda size: (size > 0, sizes.count(size), size), default=0)


def _queue_file_size(disk: Disk, directory: Path) -> int:
    for topic in disk.list(directory):
        for queue in disk.list(directory / topic):
            size = _common_size(disk, directory / topic / queue)
            if size:
                return size
    return 0


def index_shape(disk: Disk, path: Path) -> tuple[int, int]:
    """(slots, entries). The size gives one equation for two unknowns; the place of the first entry gives the other:
    its physical offset is the header's beginPhyOffset, and its slot leads to it."""
    size = disk.file_size(path) or 0
    header = disk.read_at(path, 0, HEADER.size)
    if len(header) == HEADER.size:
        _, _, begin_physical, _, _, count = HEADER.unpack(header)
        room = size - HEADER.size
        by_ratio = [room // (4 + ENTRY.size * ratio) for ratio in _RATIOS]
        # Slots that leave whole entries differ by 5: 4 * 5 = 20.
        for slots in (*by_ratio, *range(room // 4 % 5 or 5, room // 4, 5)):
            entries, rest = divmod(room - 4 * slots, ENTRY.size)
            if rest == 0 and entries >= 2 and _leads_to_first(disk, path, slots, begin_physical, count):
                return slots, entries
    raise CorruptLog(f"{path}: its {size} bytes are no index file of any shape; delete it, or `tandemq store rebuild`")


def _leads_to_first(disk: Disk, path: Path, slots: int, begin_physical: int, count: int) -> bool:
    if slots < 1:
        return False
    if count <= 1:
        return True  # empty: any shape that fits the size will do
    at = HEADER.size + 4 * slots
    key_hash, physical_offset, _, previous = ENTRY.unpack(disk.read_at(path, at + ENTRY.size, ENTRY.size))
    if previous != 0 or (physical_offset != begin_physical and begin_physical != 0):
        return False
    number = int.from_bytes(disk.read_at(path, HEADER.size + 4 * (key_hash % slots), 4), "big")
    while number > 1:
        if number >= count:
            return False
        found, _, _, previous = ENTRY.unpack(disk.read_at(path, at + ENTRY.size * number, ENTRY.size))
        if found % slots != key_hash % slots or not 0 < previous < number:
            return False
        number = previous
    return number == 1
