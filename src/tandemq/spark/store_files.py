"""A store directory seen from outside: segments, where the log ends, what is confirmed, consume queues. Read-only.

No broker needs to run, and one may: a live replica only ever appends. Everything here goes by the files' bytes
(`codec.record` for records; a consume-queue entry is physicalOffset 8 | size 4 | tagsCode 8), never through `store`.
"""

import glob
import json
import mmap
import os
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tandemq.errors import ConfigError, CorruptLog
from tandemq.spark.walk import End, looks_like_record, resynchronise, walk

NAME_DIGITS = 20
ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
"""One consume-queue entry."""
FILLER_SIZE = 0x7FFFFFFF
"""Size in entries that stand before the first real one of a queue that began late."""
_CONFIRMED_AT = 32
_RESYNC_BYTES_MAX = 64 << 20
_LEAP_BYTES = 16 << 20
"""Less than what is searched for a record behind damage: a leap never skips what would have ended the log."""
_WALK_BYTES_MIN = 256 << 10
_WALK_BYTES = 32 << 20
"""Window of one vectorised walk: large enough for thousands of lanes, small enough to stay in reach of the cache.
Looking for the end of a live log starts small, for there is nothing but zeros behind the few records that are new."""


class Segment(NamedTuple):
    """One file of the log: [start, start + size)."""

    start: int
    size: int
    path: str

    @property
    def stop(self) -> int:
        return self.start + self.size


class LogEnd(NamedTuple):
    """A record boundary, and the segment walk that led there (to go on from later)."""

    offset: int


_maps: OrderedDict[tuple[str, int, int], mmap.mmap] = OrderedDict()
_MAPS_MAX = 8


def mapped(path: str) -> mmap.mmap:
    """The file, mapped; a few are kept open between tasks of one worker process."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        key = (path, status.st_ino, status.st_size)
        known = _maps.pop(key, None)
        if known is None:
            if not status.st_size:
                raise CorruptLog(f"{path} is empty: not a segment")
            known = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        _maps[key] = known
        while len(_maps) > _MAPS_MAX:
            _maps.popitem(last=False)
        return known


def forget(buffer: mmap.mmap, start: int, stop: int) -> None:
    """Lets the pages of a part that was read go, so that a worker's memory follows the batch, not the segment."""
    page = mmap.PAGESIZE
    start, stop = start // page * page, stop // page * page
    if stop > start:
        buffer.madvise(mmap.MADV_DONTNEED, start, stop - start)


@dataclass(frozen=True)
class StoreFiles:
    """One store directory. `label` is the value of the `broker` column."""

    root: Path
    label: str

    @property
    def log_directory(self) -> Path:
        inside = self.root / "commitlog"
        return inside if inside.is_dir() else self.root

    def segments(self) -> list[Segment]:
        """The log's files in order; a hole between them is an error that names it."""
        found = []
        for name in sorted(os.listdir(self.log_directory)):
            if len(name) == NAME_DIGITS and name.isdecimal():
                path = self.log_directory / name
                size = path.stat().st_size
                if size:
                    found.append(Segment(int(name), size, str(path)))
        for before, after in pairwise(found):
            if before.stop != after.start:
                raise CorruptLog(
                    f"{before.path} ends at offset {before.stop}, the next file is {after.path}: a segment is "
                    f"missing or cut"
                )
        return found

    def confirmed(self) -> int | None:
        """Up to where the replicas agree for good, if this store knows; None for stores of RocketMQ itself.

        Our nodes keep it in `replica.json`, and in the checkpoint's confirmPhyOffset, which moves with every flush.
        """
        try:
            content = json.loads((self.root / "replica.json").read_bytes())["content"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        confirmed = int(content.get("confirmed", 0))
        try:
            point = (self.root / "checkpoint").read_bytes()
        except OSError:
            return confirmed
        if len(point) >= _CONFIRMED_AT + 8:
            confirmed = max(confirmed, int.from_bytes(point[_CONFIRMED_AT : _CONFIRMED_AT + 8], "big", signed=True))
        return confirmed

    def queues(self) -> Iterator[tuple[str, int]]:
        """(topic, queue id) of every consume queue."""
        root = self.root / "consumequeue"
        if not root.is_dir():
            raise ConfigError(
                f"{self.root} has no consumequeue directory: read it with order=physical, or rebuild the queues first "
                "with `tandemq spark reindex`"
            )
        for topic in sorted(os.listdir(root)):
            for queue_id in sorted((n for n in os.listdir(root / topic) if n.isdecimal()), key=int):
                yield topic, int(queue_id)

    def queue(self, topic: str, queue_id: int) -> "QueueFile":
        return QueueFile(self.root / "consumequeue" / topic / str(queue_id))


def find_stores(paths: str, label: str = "") -> list[StoreFiles]:
    """The stores that a comma-separated list of directories and globs names; each must hold a log."""
    found: list[Path] = []
    for pattern in (part.strip() for part in paths.split(",")):
        pattern = pattern.removeprefix("file://")
        hits = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        hits = [hit for hit in hits if os.path.isdir(hit)]
        if not hits:
            raise ConfigError(
                f"path: {pattern!r} is no directory (paths must be readable on the driver and every executor)"
            )
        found += (Path(hit) for hit in hits)
    stores = []
    for root in found:
        store = StoreFiles(root, label or label_of(root, found))
        if not any(len(n) == NAME_DIGITS and n.isdecimal() for n in os.listdir(store.log_directory)):
            raise ConfigError(
                f"path: {root} holds no commit log: files of 20 digits, in commitlog/ or in the directory itself"
            )
        stores.append(store)
    return stores


def label_of(root: Path, among: list[Path]) -> str:
    """The shortest name that tells the stores apart: the directory's, its parent's for `…/store`, or the whole path."""
    for name in (_short_name, str):
        if len({name(other) for other in among}) == len(set(among)):
            return name(root)
    return str(root)


def _short_name(root: Path) -> str:
    generic = root.name in ("store", "commitlog")
    return f"{root.parent.name}" if generic and root.parent.name else root.name


# -- the end of the log


def log_end(segments: list[Segment], limit: int | None, known: int = 0) -> int:
    """The end of the last whole record at or below `limit`; `known` is an earlier answer to go on from.

    What is not a record ends the log, as in a broker's recovery, unless a record follows it: then the middle is
    damaged, which reading will report, and the log goes on behind it.
    """
    if not segments:
        return 0
    if limit is not None and limit <= segments[0].start:
        return segments[0].start
    current = _last_with_data(segments, limit)
    position = max(current.start, known if known < current.stop else current.start)
    if limit is None or limit > current.stop:
        limit = current.stop
    return _end_within(current, position, limit)


def _last_with_data(segments: list[Segment], limit: int | None) -> Segment:
    for segment in reversed(segments[1:]):
        if limit is not None and segment.start >= limit:
            continue
        if any(mapped(segment.path)[:8]):
            return segment
    return segments[0]


def _end_within(segment: Segment, position: int, limit: int) -> int:
    buffer, base = mapped(segment.path), segment.start
    at, stop, window = _leapt(buffer, position - base, limit - base, base), limit - base, _WALK_BYTES_MIN
    while at < stop:
        found = walk(buffer, at, min(stop, at + window), stop, base=base)
        window = min(4 * window, _WALK_BYTES)
        forget(buffer, at, found.next)
        at = found.next
        if found.end is End.LIMIT:
            continue
        if found.end is End.BLANK:
            return segment.stop if limit == segment.stop else base + at
        if found.end is End.ZEROS and not buffer[at : at + (1 << 16)].rstrip(b"\0"):
            return base + at
        again = resynchronise(buffer, at + 1, min(stop, at + _RESYNC_BYTES_MAX), stop, base)
        if again is None:
            return base + at
        at = again
    return base + min(at, stop)


def _leapt(buffer: mmap.mmap, at: int, stop: int, base: int) -> int:
    """A record further on, found in leaps: the end is near it. Walking through a whole segment takes longer than all
    else that planning a query does, and damage on the way is for reading to find.
    """
    while (target := at + _LEAP_BYTES) < stop and buffer[target : target + mmap.PAGESIZE].rstrip(b"\0"):
        found = resynchronise(buffer, target, min(stop, target + _LEAP_BYTES), stop, base)
        if found is None:
            break
        at = found
    return at


def first_store_time(segment: Segment) -> int | None:
    """Store timestamp of a segment's first record; None if it has none."""
    buffer = mapped(segment.path)
    if not looks_like_record(buffer, 0, len(buffer), segment.start):
        return None
    shift = 12 if int.from_bytes(buffer[36:40], "big") & 0x10 else 0
    return int(struct.unpack_from(">q", buffer, 56 + shift)[0])


# -- consume queues --------------------------------------------------------------------------------------


class QueueFile:
    """The consume queue of one (topic, queue id): entry i is at byte 20 × i of the files taken together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        files = []
        for name in sorted(os.listdir(directory)) if directory.is_dir() else []:
            if len(name) == NAME_DIGITS and name.isdecimal():
                files.append((int(name) // ENTRY.itemsize, str(directory / name)))
        self._files = files

    def bounds(self, log_first: int, log_limit: int) -> tuple[int, int]:
        """[first, next) queue offsets whose records lie in [log_first, log_limit)."""
        if not self._files:
            return 0, 0
        first = next_ = self._files[0][0]
        found_first = False
        for start, path in self._files:
            offsets, ends = self._columns(path)
            valid = len(ends) if len(ends) and ends[-1] else int(np.count_nonzero(ends))
            if not valid:
                break
            if not found_first:
                real = (ends[:valid] != FILLER_SIZE) & (offsets[:valid] >= log_first)
                if real.any():
                    first, found_first = start + int(np.argmax(real)), True
                else:
                    first = start + valid
            within = int(np.searchsorted(offsets[:valid] + ends[:valid], log_limit, side="right"))
            next_ = start + within
            if within < valid:
                break
        return min(first, next_) if not found_first else first, max(first, next_)

    def _columns(self, path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        entries = np.fromfile(path, dtype=ENTRY)
        return entries["offset"].astype(np.int64), entries["size"].astype(np.int64)

    def entries(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Entries [start, stop)."""
        parts = []
        for position, path in self._files:
            size = os.stat(path).st_size // ENTRY.itemsize
            low, high = max(start, position), min(stop, position + size)
            if low < high:
                at = (low - position) * ENTRY.itemsize
                parts.append(np.fromfile(path, dtype=ENTRY, count=high - low, offset=at))
        found = np.concatenate(parts) if parts else np.empty(0, dtype=ENTRY)
        if len(found) != stop - start:
            raise CorruptLog(
                f"{self._directory}: entries {start} to {stop - 1} were asked for, {len(found)} are there: "
                "rebuild the queue with `tandemq spark reindex`"
            )
        return found
