"""The sizes a store was made with, found from its files: tools open any store without being told its settings."""

from dataclasses import replace
from pathlib import Path

from tandemq.errors import CorruptLog
from tandemq.formats import layout
from tandemq.formats.index_file import ENTRY, HEADER, HEADER_SIZE, SLOT, SLOT_SIZE
from tandemq.formats.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from tandemq.formats.queue_entry import ENTRY as QUEUE_ENTRY
from tandemq.formats.queue_entry import ENTRY_SIZE, FILLER_SIZE
from tandemq.formats.record import BODY_AT, store_timestamp
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk

_RATIOS = (4, 2, 1, 3, 5, 8, 10)
"""Entries per slot of an index file, the common ones first: upstream's default is 4."""


def discover_config(disk: Disk, root: Path, default: StoreConfig | None = None) -> StoreConfig:
    """Returns `default` with the sizes of the files under `root`."""
    config = default if default is not None else StoreConfig()
    log_size = _common_size(disk, root / layout.COMMIT_LOG)
    if log_size:
        config = replace(config, commit_log_segment_size=log_size)
    queue_size = _queue_file_size(disk, root / layout.CONSUME_QUEUE)
    if queue_size:
        config = replace(config, consume_queue_segment_size=queue_size)
    config = replace(config, message_delay_level=" ".join(_delay_levels(disk, root, config)))
    names = [name for name in disk.list(root / layout.INDEX) if name.isdecimal()]
    for name in names:
        try:
            slots, entries = index_shape(disk, root / layout.INDEX / name)
        except CorruptLog:
            continue  # the next one may tell; if none does, `verify` says so
        return replace(config, index_slots=slots, index_entries=entries)
    return config


def _delay_levels(disk: Disk, root: Path, config: StoreConfig) -> list[str]:
    """Returns messageDelayLevel as far as the queues of delayed messages tell it; the rest by default.

    An entry there has the time of delivery, the message has the time when it was stored.
    """
    levels = config.message_delay_level.split()
    directory = root / layout.CONSUME_QUEUE / SCHEDULE_TOPIC
    for level in sorted(int(name) for name in disk.list(directory) if name.isdecimal()):
        delay_ms = _delay_of(disk, root, directory / str(level), config.commit_log_segment_size)
        if delay_ms > 0 and delay_ms % 1000 == 0 and level <= len(levels):
            levels[level : level + 1] = [f"{delay_ms // 1000}s"]
    return levels


def _delay_of(disk: Disk, root: Path, queue: Path, segment_size: int) -> int:
    """Returns how long the newest message of a level waits whose record the log still has; 0 if there is none."""
    for name in reversed([name for name in disk.list(queue) if layout.is_segment_name(name)]):
        size = (disk.file_size(queue / name) or 0) // ENTRY_SIZE * ENTRY_SIZE
        entries = list(QUEUE_ENTRY.iter_unpack(disk.read_at(queue / name, 0, size)))
        for physical_offset, record_size, due_ms in reversed(entries):
            if record_size in (0, FILLER_SIZE):
                continue
            base = physical_offset - physical_offset % segment_size
            path = root / layout.COMMIT_LOG / layout.segment_name(base)
            if disk.file_size(path) is None:
                return 0
            head = disk.read_at(path, physical_offset - base, BODY_AT)
            return due_ms - store_timestamp(head, 0) if len(head) == BODY_AT else 0
    return 0


def _common_size(disk: Disk, directory: Path) -> int:
    """Returns the size most files have: one of them may have been cut."""
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
    """Returns (slots, entries) of an index file.

    The size gives one equation for two unknowns; the place of the first entry gives the other: its physical offset is
    the header's beginPhyOffset, and its slot leads to it."""
    size = disk.file_size(path) or 0
    header = disk.read_at(path, 0, HEADER_SIZE)
    if len(header) == HEADER_SIZE:
        _, _, begin_physical, _, _, count = HEADER.unpack(header)
        room = size - HEADER_SIZE
        by_ratio = [room // (SLOT_SIZE + INDEX_ENTRY_SIZE * ratio) for ratio in _RATIOS]
        # Slots that leave whole entries differ by 5, for five slots take the room of one entry.
        words, step = room // SLOT_SIZE, INDEX_ENTRY_SIZE // SLOT_SIZE
        for slots in (*by_ratio, *range(words % step or step, words, step)):
            entries, rest = divmod(room - SLOT_SIZE * slots, INDEX_ENTRY_SIZE)
            if rest == 0 and entries >= 2 and _leads_to_first(disk, path, slots, begin_physical, count):
                return slots, entries
    raise CorruptLog(f"{path}: its {size} bytes are no index file of any shape; delete it, or `tandemq store rebuild`")


def _leads_to_first(disk: Disk, path: Path, slots: int, begin_physical: int, count: int) -> bool:
    if slots < 1:
        return False
    if count <= 1:
        return True  # empty: any shape that fits the size will do
    at = HEADER_SIZE + SLOT_SIZE * slots
    key_hash, physical_offset, _, previous = ENTRY.unpack(disk.read_at(path, at + INDEX_ENTRY_SIZE, INDEX_ENTRY_SIZE))
    if previous != 0 or (physical_offset != begin_physical and begin_physical != 0):
        return False
    number: int = SLOT.unpack(disk.read_at(path, HEADER_SIZE + SLOT_SIZE * (key_hash % slots), SLOT_SIZE))[0]
    while number > 1:
        if number >= count:
            return False
        found, _, _, previous = ENTRY.unpack(disk.read_at(path, at + INDEX_ENTRY_SIZE * number, INDEX_ENTRY_SIZE))
        if found % slots != key_hash % slots or not 0 < previous < number:
            return False
        number = previous
    return number == 1
