"""A store directory seen from outside: segments, where the log ends, what is confirmed, consume queues. Read-only.

No broker needs to run, and one may: a live replica only ever appends. Everything here goes by the files' bytes
(`formats`), never through `store`.
"""

import glob
import mmap
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tandemq.errors import ConfigError, CorruptLog
from tandemq.formats import layout
from tandemq.formats.checkpoint import CheckpointFile
from tandemq.formats.derived_arrays import QUEUE_ENTRY
from tandemq.formats.queue_entry import ENTRY_SIZE, FILLER_SIZE, first_index, search
from tandemq.formats.record import BLANK_SIZE_MIN, store_timestamp
from tandemq.formats.record_starts import End, looks_like_record, resynchronise, walk
from tandemq.formats.replica_record import confirmed_offset

_RESYNC_BYTES_MAX = 64 << 20
_LEAP_BYTES = 16 << 20
"""Less than what is searched for a record after damage: a leap never skips what would have ended the log."""
_FILLERS_AT_ONCE = 4096
"""Entries that a search reads at a time where it has met a filler."""
_WALK_BYTES_MIN = 256 << 10
_WALK_BYTES = 32 << 20
"""Window of one vectorised walk: large enough for thousands of lanes, small enough to stay in reach of the cache.
Looking for the end of a live log starts small, for there is nothing but zeros after the few records that are new."""


class Segment(NamedTuple):
    """One file of the log: [start, start + size)."""

    start: int
    size: int
    path: str

    @property
    def stop(self) -> int:
        return self.start + self.size


_maps: OrderedDict[tuple[str, int, int], mmap.mmap] = OrderedDict()
_MAPS_MAX = 8


def mapped(path: str) -> mmap.mmap:
    """Returns the mapped file; a few are kept open between tasks of one worker process."""
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
        inside = self.root / layout.COMMIT_LOG
        return inside if inside.is_dir() else self.root

    def segments(self) -> list[Segment]:
        """Returns the log's files in order; raises an error that names a hole between them."""
        found = []
        for name in sorted(os.listdir(self.log_directory)):
            if layout.is_segment_name(name):
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
        """Returns up to where the replicas agree for good, if this store knows; None for stores of RocketMQ itself.

        Our nodes keep it in `replica.json`, and in the checkpoint's confirmPhyOffset, which moves with every flush.
        """
        confirmed = confirmed_offset(_content(self.root / layout.REPLICA))
        if confirmed is None:
            return None
        return max(confirmed, CheckpointFile(_content(self.root / layout.CHECKPOINT)).read().confirmed_offset)

    def queues(self) -> Iterator[tuple[str, int]]:
        """Returns topic and queue id of every consume queue."""
        root = self.root / layout.CONSUME_QUEUE
        if not root.is_dir():
            raise ConfigError(
                f"{self.root} has no consumequeue directory: read it with order=physical, or rebuild the queues first "
                "with `tandemq spark reindex`"
            )
        for topic in sorted(os.listdir(root)):
            for queue_id in sorted((n for n in os.listdir(root / topic) if n.isdecimal()), key=int):
                yield topic, int(queue_id)

    def queue(self, topic: str, queue_id: int) -> "QueueFile":
        return QueueFile(layout.queue_directory(self.root, topic, queue_id))


def _content(path: Path) -> bytes:
    """Returns what a small file holds, nothing if it can't be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def find_stores(paths: str, label: str = "") -> list[StoreFiles]:
    """Returns the stores that a comma-separated list of directories and globs names; each must hold a log."""
    found: list[Path] = []
    for pattern in (part.strip() for part in paths.split(",")):
        pattern = pattern.removeprefix("file://").removeprefix("file:")  # catalogs write the second form
        hits = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        hits = [hit for hit in hits if os.path.isdir(hit)]
        if not hits:
            raise ConfigError(
                f"path: {pattern!r} is no directory (paths must be readable on the driver and every executor)"
            )
        found += (Path(hit) for hit in hits)
    if label and len(found) > 1:
        raise ConfigError(
            f"brokerName={label!r} is the name of one store, but path={paths!r} names {len(found)}: leave it out, or "
            "read each store by itself"
        )
    stores = []
    for root in found:
        store = StoreFiles(root, label or label_of(root, found))
        if not any(map(layout.is_segment_name, os.listdir(store.log_directory))):
            raise ConfigError(
                f"path: {root} holds no commit log: files of 20 digits, in commitlog/ or in the directory itself"
            )
        stores.append(store)
    return stores


def label_of(root: Path, among: list[Path]) -> str:
    """Returns the shortest name that tells the stores apart: the directory's, its parent's, or the whole path."""
    for name in (_short_name, str):
        if len({name(other) for other in among}) == len(set(among)):
            return name(root)
    return str(root)


def _short_name(root: Path) -> str:
    generic = root.name in ("store", "commitlog")
    return f"{root.parent.name}" if generic and root.parent.name else root.name


# the end of the log


def log_end(segments: list[Segment], limit: int | None, known: int = 0) -> int:
    """Returns the end of the last whole record at or below `limit`; `known` is an earlier answer to go on from.

    What is not a record ends the log, as in a broker's recovery, unless a record follows it: then the middle is
    damaged, which reading will report, and the log goes on after it.
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


def missing_end(segments: list[Segment], end: int, confirmed: int | None) -> str:
    """Returns what is known to be missing after `end`, the end of the log; nothing where all is there.

    A copy may be cut: the store then knows that more was confirmed, or the last file ends within a record, which never
    happens where a broker writes, as files have their full size from the beginning.
    """
    if confirmed is not None and end < confirmed:
        return f"the log ends at {end}, but was confirmed up to {confirmed}: {confirmed - end} bytes are missing"
    last = next((segment for segment in segments if segment.start <= end < segment.stop), None)
    if last is None or last.stop - end < BLANK_SIZE_MIN:
        return ""
    buffer, at = mapped(last.path), end - last.start
    size = int.from_bytes(buffer[at : at + 4], "big")
    if size > last.stop - end and walk(buffer, at, at + 1, last.size, base=last.start).end is End.CUT:
        return f"{last.path} ends at {last.stop} within the message at {end}, of {size} bytes: the file was cut"
    return ""


def _last_with_data(segments: list[Segment], limit: int | None) -> Segment:
    for segment in reversed(segments[1:]):
        if limit is not None and segment.start >= limit:
            continue
        if any(mapped(segment.path)[:BLANK_SIZE_MIN]):
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
    """Returns the position of a record near the end, found in leaps.

    Walking through a whole segment takes longer than all else that planning a query does, and damage on the way is for
    reading to find.
    """
    while (target := at + _LEAP_BYTES) < stop and buffer[target : target + mmap.PAGESIZE].rstrip(b"\0"):
        found = resynchronise(buffer, target, min(stop, target + _LEAP_BYTES), stop, base)
        if found is None:
            break
        at = found
    return at


def first_store_time(segment: Segment) -> int | None:
    """Returns the store timestamp of a segment's first record; None if it has none."""
    buffer = mapped(segment.path)
    if not looks_like_record(buffer, 0, len(buffer), segment.start):
        return None
    return store_timestamp(memoryview(buffer), 0)


# consume queues


class _QueueEntries:
    """One file of a consume queue, searched by halving: records of a queue follow one another in the log."""

    def __init__(self, path: str) -> None:
        self._entries = np.memmap(path, dtype=QUEUE_ENTRY, mode="r")
        self.count = len(self._entries)
        self.written = bisect_left(range(self.count), True, key=lambda i: not self._entries[i]["size"])

    def first_at_or_after(self, offset: int) -> int:
        """Returns the first entry whose record begins at or after a physical offset; `written` if none does."""
        entries = self._entries
        return search(0, self.written, self._skip_fillers, lambda index: bool(entries[index]["offset"] >= offset))[1]

    def first_that_ends_after(self, limit: int) -> int:
        """Returns the first entry whose record ends after a physical offset; `written` if none does."""
        return search(0, self.written, self._skip_fillers, lambda index: self._end(index) > limit)[1]

    def _skip_fillers(self, start: int, stop: int) -> int:
        """Returns the first entry of [start, stop) that is no filler, `stop` if there is none."""
        if start < stop and self._entries[start]["size"] != FILLER_SIZE:
            return start
        real = self._entries["size"][start:stop] != FILLER_SIZE
        return start + int(real.argmax()) if real.any() else stop

    def _end(self, index: int) -> int:
        return int(self._entries[index]["offset"]) + int(self._entries[index]["size"])


class QueueFile:
    """The consume queue of one (topic, queue id): see formats/queue_entry."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        files = []
        for name in sorted(os.listdir(directory)) if directory.is_dir() else []:
            if layout.is_segment_name(name):
                files.append((first_index(name), str(directory / name)))
        self._files = files

    def bounds(self, log_first: int, log_limit: int) -> tuple[int, int]:
        """Returns [first, next): the queue offsets whose records lie in [log_first, log_limit).

        Records of a queue follow one another in the log, so both ends are found by halving: a few entries are read, not
        whole files.
        """
        if not self._files:
            return 0, 0
        first: int | None = None
        next_ = self._files[0][0]
        for start, path in self._files:
            entries = _QueueEntries(path)
            if first is None:
                begins = entries.first_at_or_after(log_first)
                first = start + begins if begins < entries.written else None
            within = entries.first_that_ends_after(log_limit)
            next_ = start + within
            if within < entries.count:
                break
        return (next_ if first is None else min(first, next_)), next_

    @property
    def first(self) -> int:
        """The first queue offset that the files have."""
        return self._files[0][0] if self._files else 0

    def skip_fillers(self, start: int, stop: int) -> int:
        """Returns the first entry of [start, stop) that is no filler, `stop` if there is none."""
        count = 1
        while start < stop:
            real = self.entries(start, min(stop, start + count))["size"] != FILLER_SIZE
            if real.any():
                return start + int(real.argmax())
            start, count = start + len(real), _FILLERS_AT_ONCE
        return stop

    def entries(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Returns entries [start, stop)."""
        parts = []
        for position, path in self._files:
            size = os.stat(path).st_size // ENTRY_SIZE
            low, high = max(start, position), min(stop, position + size)
            if low < high:
                at = (low - position) * ENTRY_SIZE
                parts.append(np.fromfile(path, dtype=QUEUE_ENTRY, count=high - low, offset=at))
        found = np.concatenate(parts) if parts else np.empty(0, dtype=QUEUE_ENTRY)
        if len(found) != stop - start:
            raise CorruptLog(
                f"{self._directory}: entries {start} to {stop - 1} were asked for, {len(found)} are there: "
                "rebuild the queue with `tandemq spark reindex`"
            )
        return found
