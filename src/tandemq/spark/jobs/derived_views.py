"""Rebuilding what a broker derives from its log, in parallel: consume queues and key index, byte for byte as dispatch
writes them.

What a record adds to the views is derived by formats/derived_arrays, as in the broker. Tasks over log ranges write
queue entries straight to their places (a record says its queue offset) and leave the index keys they met in order;
tasks over index files then put the keys into them.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq import private
from tandemq.errors import CorruptRecord
from tandemq.formats.derived_arrays import Derived
from tandemq.formats.index_arrays import put_some
from tandemq.formats.index_file import IndexFile, file_size
from tandemq.formats.layout import segment_name
from tandemq.formats.queue_entry import ENTRY_SIZE, FILLER, file_name
from tandemq.formats.record_fields import Fields
from tandemq.formats.record_starts import End, looks_like_record, resynchronise, walk
from tandemq.spark.source.scan import LogRange
from tandemq.spark.source.store_files import forget, mapped

KEY = np.dtype([("hash", "<u4"), ("offset", "<i8"), ("time", "<i8")])
"""One index key on its way from range tasks to file tasks."""
_WALK_BYTES = 32 << 20
_ROWS = 20_000

Bounds = dict[tuple[str, int], tuple[int, int]]
"""[first, next) queue offsets of each queue."""


@dataclass(frozen=True)
class ViewSizes:
    """The sizes a store's views have."""

    queue_file: int
    index_slots: int
    index_entries: int
    delays_ms: tuple[int, ...]

    @property
    def entries_per_file(self) -> int:
        """Entries of one consume-queue file."""
        return self.queue_file // ENTRY_SIZE


@dataclass(frozen=True)
class RangeWork:
    """One log range to turn into entries."""

    piece: LogRange
    queues: str
    """Directory of the new consume queues."""
    keys: str
    """Directory for index keys."""
    sizes: ViewSizes


@dataclass(frozen=True)
class IndexWork:
    """One index file to build: keys [start, stop) of all keys, which lie in these files."""

    path: str
    sources: tuple[tuple[str, int, int], ...]
    """(file, first key, number of keys)."""
    previous: tuple[str, int] | None
    """(file, position) of the last key of the file before, whose time this one inherits."""
    sizes: ViewSizes


RESULT_DDL = "topic STRING, queue_id INT, first BIGINT, next BIGINT, start BIGINT, keys BIGINT"
RESULT = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("first", pa.int64()), ("next", pa.int64()),
     ("start", pa.int64()), ("keys", pa.int64())]
)  # fmt: skip


def rebuild_range(work: RangeWork) -> Iterator[pa.RecordBatch]:
    """Writes the queue entries of a range and its index keys; yields [first, next) of each queue, and how many keys
    there are."""
    bounds: Bounds = {}
    keys = [np.empty(0, dtype=KEY)]
    for fields in _records(work.piece):
        derived = Derived(fields, work.sizes.delays_ms)
        entries = derived.entries()
        for raw_topic, queue_id, rows in derived.by_queue():
            topic, offsets = _checked_topic(raw_topic), derived.queue_offsets[rows]
            _place(work, topic, queue_id, offsets, entries[rows])
            first, next_ = bounds.get((topic, queue_id), (int(offsets[0]), 0))
            bounds[topic, queue_id] = min(first, int(offsets[0])), max(next_, int(offsets[-1]) + 1)
        keys.append(_keys(derived))
    found = np.concatenate(keys)
    np.save(keys_file(work.keys, work.piece.start), found)
    found_rows = [
        {"topic": topic, "queue_id": queue_id, "first": first, "next": next_, "start": None, "keys": None}
        for (topic, queue_id), (first, next_) in bounds.items()
    ]
    found_rows.append(
        {"topic": None, "queue_id": None, "first": None, "next": None, "start": work.piece.start, "keys": len(found)}
    )
    yield pa.RecordBatch.from_pylist(found_rows, schema=RESULT)


def keys_file(folder: str | Path, start: int) -> Path:
    """Returns where the range that begins at `start` leaves its keys."""
    return Path(folder) / f"{segment_name(start)}.npy"


def _records(piece: LogRange) -> Iterator[Fields]:
    """Yields the records that begin in the range; damage is an error, a view must not hide it."""
    segment, base = piece.segment, piece.segment.start
    buffer = mapped(segment.path)
    at, stop, limit = piece.start - base, piece.stop - base, piece.limit - base
    if not piece.starts_at_record and not looks_like_record(buffer, at, limit, base):
        found = resynchronise(buffer, at, stop, limit, base)
        if found is None:
            return
        at = found
    while at < stop:
        steps = walk(buffer, at, min(stop, at + _WALK_BYTES), limit, base=base)
        for start in range(0, len(steps.positions), _ROWS):
            fields = Fields(buffer, steps.positions[start : start + _ROWS])
            problems = fields.broken()
            if problems:
                index, problem = next(iter(problems.items()))
                raise CorruptRecord(f"{segment.path}, physical offset {base + int(fields.positions[index])}: {problem}")
            yield fields
        forget(buffer, at, steps.next)
        at = steps.next
        if steps.end is End.BLANK:
            return
        if steps.end is not End.LIMIT:
            raise CorruptRecord(
                f"{segment.path}, physical offset {base + at}: {steps.end.value}; audit the store first"
            )


def _checked_topic(name: bytes) -> str:
    topic = name.decode("utf-8", "replace")
    if "/" in topic or topic in ("", ".", ".."):
        raise CorruptRecord(f"a message has topic {topic!r}, which can't be a directory: audit the store first")
    return topic


def _place(
    work: RangeWork, topic: str, queue_id: int, offsets: npt.NDArray[np.int64], entries: npt.NDArray[Any]
) -> None:
    """Writes entries to their files, consecutive ones at once."""
    folder = Path(work.queues) / topic / str(queue_id)
    private.make_directory(folder)
    per_file = work.sizes.entries_per_file
    cuts = np.flatnonzero((np.diff(offsets) != 1) | (offsets[1:] % per_file == 0)) + 1
    for start, stop in pairwise((0, *cuts.tolist(), len(offsets))):
        file_start, inside = divmod(int(offsets[start]), per_file)
        target = os.open(folder / file_name(file_start * per_file), os.O_WRONLY | os.O_CREAT, private.FILE_MODE)
        try:
            os.ftruncate(target, work.sizes.queue_file)
            os.pwrite(target, entries[start:stop].tobytes(), inside * ENTRY_SIZE)
        finally:
            os.close(target)


def _keys(derived: Derived) -> npt.NDArray[Any]:
    hashes, rows = derived.index_keys()
    found = np.empty(len(rows), dtype=KEY)
    found["hash"], found["offset"], found["time"] = hashes, derived.physical[rows], derived.stored_at[rows]
    return found


def build_index(work: IndexWork) -> Iterator[pa.RecordBatch]:
    """Makes one index file from its keys."""
    keys = np.concatenate([np.load(path)[first : first + count] for path, first, count in work.sources])
    sizes = work.sizes
    with open(work.path, "w+b", opener=private.opener) as file:
        file.truncate(file_size(sizes.index_slots, sizes.index_entries))
        with mmap.mmap(file.fileno(), 0) as content:
            _fill(content, keys, work)
        os.fsync(file.fileno())
    row = {"topic": None, "queue_id": None, "first": None, "next": None, "start": 0, "keys": len(keys)}
    yield pa.RecordBatch.from_pylist([row], schema=RESULT)


def _fill(content: mmap.mmap, keys: npt.NDArray[Any], work: IndexWork) -> None:
    view = memoryview(content)
    index = IndexFile(view, work.sizes.index_slots, work.sizes.index_entries, lambda stop: stop)
    if work.previous is not None:
        index.begin_timestamp = int(np.load(work.previous[0])[work.previous[1]]["time"])
    done = 0
    while done < len(keys):
        done = put_some(index, keys["hash"], keys["offset"], keys["time"], done)
    index.close()
    view.release()


def fill_start(queues: str, topic: str, queue_id: int, first: int, sizes: ViewSizes) -> None:
    """Marks the entries before the first one of a queue whose history begins late."""
    inside = first % sizes.entries_per_file
    if inside:
        path = Path(queues) / topic / str(queue_id) / file_name(first - inside)
        with open(path, "r+b") as file:
            file.write(FILLER * inside)
