"""Reading the log itself: physical ranges of segments, and single records found through a consume queue.

A range [start, stop) yields the records that *begin* in it, so a segment may be cut anywhere: a range that does not
start at a record looks for the first one. Damage belongs to the range whose last record comes before it, so that every
damaged place is reported exactly once however the log is cut.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tandemq.formats.record_starts import End, Positions, are_records, looks_like_record, resynchronise, walk
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.store_files import Segment, forget, mapped

RUN_BYTES = 12 << 20
"""Log bytes decoded at a time. A run costs 0.2 to 1 ms however short it is; its columns should stay in the cache."""
BATCH_BYTES = (4 << 20) - (1 << 14)
"""Bytes of one Arrow batch, about: what fits into one piece of the JVM's buffer pool (4 MiB in Netty) with its
metadata. Larger ones are taken from the system and given back each time, and wide rows come to Spark a tenth slower."""
_WALK_BYTES = 3 * RUN_BYTES
_FIRST_BYTES = 1 << 18
"""Log bytes of a task's first run: a LIMIT takes no more, and should not wait for more."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Names a position of a segment's buffer for people."""

    segment: Segment

    def __call__(self, position: int) -> str:
        return f"{self.segment.path}, physical offset {self.segment.start + position}"


@dataclass(frozen=True, slots=True)
class LogRange:
    """A piece of one segment to read."""

    store: str
    """Label of the store."""
    segment: Segment
    start: int
    stop: int
    limit: int
    """End of the readable log: records may go beyond `stop`, never beyond this."""
    starts_at_record: bool = True
    stops_at_record: bool = True

    @property
    def size(self) -> int:
        return self.stop - self.start


def plan_ranges(store: str, segments: list[Segment], start: int, stop: int, size_max: int) -> list[LogRange]:
    """Divides [start, stop) of the log into ranges of at most `size_max` bytes, none across a segment's end."""
    ranges = []
    for segment in segments:
        low, high = max(start, segment.start), min(stop, segment.stop)
        if low >= high:
            continue
        parts = -(-(high - low) // size_max)
        edges = [low + (high - low) * i // parts for i in range(parts + 1)]
        for n, (a, b) in enumerate(pairwise(edges)):
            ranges.append(LogRange(store, segment, a, b, min(stop, segment.stop), n == 0, n == parts - 1))
    return ranges


def scan(piece: LogRange, decoder: Decoder, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yields the messages that begin in the range, in physical order."""
    segment = piece.segment
    base = segment.start
    buffer = mapped(segment.path)
    decoder.place = _Place(segment)
    at, stop, limit = piece.start - base, piece.stop - base, piece.limit - base
    if not piece.starts_at_record and not looks_like_record(buffer, at, limit, base):
        found = resynchronise(buffer, at, stop, limit, base)
        if found is None:
            return
        at = found
    size = _FIRST_BYTES
    while at < stop:
        steps = walk(buffer, at, min(stop, at + size), limit, base=base)
        size = _WALK_BYTES
        for positions in runs(steps.positions):
            yield from decoded(decoder, buffer, positions, base, rows_max)
        forget(buffer, at, steps.next)
        at = steps.next
        if steps.end is End.BLANK:
            break
        if steps.end is not End.LIMIT:
            at = _over_damage(piece, decoder, buffer, at, steps.end)
    else:
        if not piece.stops_at_record and at < limit and not _plausible(buffer, at, limit, base):
            _over_damage(piece, decoder, buffer, at, End.BROKEN)
    yield from decoder.leftovers()


def _plausible(buffer: Any, at: int, limit: int, base: int) -> bool:
    """Returns whether a record or the segment's blank begins here."""
    return walk(buffer, at, at + 1, limit, base=base).end in (End.LIMIT, End.BLANK)


def _over_damage(piece: LogRange, decoder: Decoder, buffer: Any, at: int, end: End) -> int:
    """Reports the damage at `at`; returns the position of the next whole record."""
    base, limit = piece.segment.start, piece.limit - piece.segment.start
    again = resynchronise(buffer, at + 1, limit, limit, base)
    after = limit if again is None else again
    decoder.report(
        base + at,
        f"{piece.segment.path}, physical offset {base + at}: {after - at} bytes that are no message ({end.value})",
        after - at,
    )
    return after


def runs(positions: Positions) -> Iterator[Positions]:
    """Yields the records in runs of about RUN_BYTES bytes."""
    start = 0
    while start < len(positions):
        end = max(int(np.searchsorted(positions, positions[start] + RUN_BYTES)), start + 1)
        yield positions[start:end]
        start = end


def decoded(
    decoder: Decoder, buffer: Any, positions: Positions, base: int | None, rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yields the records as batches of a size that suits Spark: decoded together, handed over in slices."""
    for whole in decoder.decode(buffer, positions, base):
        rows = whole.num_rows
        parts = max(-(-whole.nbytes // BATCH_BYTES), -(-rows // rows_max))
        for start, end in pairwise(rows * part // parts for part in range(parts + 1)):
            if end > start:
                yield whole.slice(start, end - start)


def scan_entries(
    segments: list[Segment],
    entries: "np.ndarray[tuple[int], np.dtype[np.void]]",
    decoder: Decoder,
    rows_max: int,
    gone: Callable[[int, int], None],
) -> Iterator[pa.RecordBatch]:
    """Yields the messages that consume-queue entries point to, in their order.

    `gone(first, last)` is told of entries, by their index, whose part of the log is no longer there; it may raise.
    """
    offsets, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    there = np.zeros(len(offsets), dtype=bool)
    for segment in segments:
        inside = (offsets >= segment.start) & (offsets < segment.stop)
        if not inside.any():
            continue
        try:
            buffer, base = mapped(segment.path), segment.start
        except FileNotFoundError:
            continue
        _tell_gone(there, int(np.argmax(inside)), gone)
        there |= inside
        decoder.place = _Place(segment)
        positions = offsets[inside] - base
        good = _agreeing(buffer, positions, sizes[inside], base, decoder)
        for run in runs(good):
            yield from decoded(decoder, buffer, run, base, rows_max)
            forget(buffer, int(run[0]), int(run[-1]))
    _tell_gone(there, len(there), gone)
    yield from decoder.leftovers()


def _tell_gone(
    there: "np.ndarray[tuple[int], np.dtype[np.bool_]]", before: int, gone: Callable[[int, int], None]
) -> None:
    """Tells of the entries before an index that were not found, once."""
    missing = np.flatnonzero(~there[:before])
    if len(missing):
        gone(int(missing[0]), int(missing[-1]))
        there[:before] = True


def _agreeing(buffer: Any, positions: Positions, sizes: Positions, base: int, decoder: Decoder) -> Positions:
    """Returns positions where a record of the entry's size begins; others are damage."""
    good = are_records(buffer, positions, sizes)
    for index in np.flatnonzero(~good).tolist():
        position, size = int(positions[index]), int(sizes[index])
        decoder.report(
            base + position, f"{decoder.place(position)}: no record of {size} bytes as the consume queue says", size
        )
    return np.asarray(positions[good])
