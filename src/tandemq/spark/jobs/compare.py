"""Replicas of one log against each other, byte for byte: pure over mapped files; the audit job runs it in parallel.

Windows of equal bytes cost one memory comparison. Where bytes differ, the records around them are found in each replica
and told apart: which replica deviates (the minority, or the one whose record is damaged), at which message. The unused
rest of a segment (its blank record) may differ: it holds no message.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq.errors import CorruptRecord
from tandemq.formats.record import check_record, parse_record
from tandemq.formats.record_starts import End, resynchronise, walk
from tandemq.spark.source.store_files import Segment, StoreFiles, forget, mapped

_WINDOW = 8 << 20
_JOIN = 64
"""Differing bytes closer than this count as one place."""
PLACES_MAX = 100_000
"""Places reported per range at most; beyond that the replicas simply hold different logs."""

DIFFERENCE_DDL = (
    "kind STRING, replica STRING, reference STRING, physical_offset BIGINT, size BIGINT, topic STRING, queue_id INT, "
    "queue_offset BIGINT, msg_id STRING, detail STRING"
)
DIFFERENCE = pa.schema(
    [("kind", pa.string()), ("replica", pa.string()), ("reference", pa.string()), ("physical_offset", pa.int64()),
     ("size", pa.int64()), ("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64()),
     ("msg_id", pa.string()), ("detail", pa.string())]
)  # fmt: skip


@dataclass(frozen=True)
class Replica:
    """One replica's log as seen by a task."""

    label: str
    root: str
    end: int
    """End of its last whole record."""


@dataclass(frozen=True)
class CompareRange:
    start: int
    stop: int
    replicas: tuple[Replica, ...]


class _Log:
    """Bytes of a replica by physical offset, whatever its segment sizes."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.segments = StoreFiles(Path(replica.root), replica.label).segments()
        self._starts = [segment.start for segment in self.segments]

    def segment_at(self, offset: int) -> Segment | None:
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self.segments[index].stop:
            return None
        return self.segments[index]

    def piece(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Returns up to `size` bytes from `offset`, not beyond its segment nor the log's end."""
        segment = self.segment_at(offset)
        if segment is None:
            return np.empty(0, dtype=np.uint8)
        at = offset - segment.start
        size = max(0, min(size, segment.stop - offset, self.replica.end - offset))
        return np.frombuffer(mapped(segment.path), dtype=np.uint8)[at : at + size]

    def forget(self, offset: int, size: int) -> None:
        segment = self.segment_at(offset)
        if segment is not None:
            forget(mapped(segment.path), offset - segment.start, min(segment.size, offset - segment.start + size))

    def records_around(self, start: int, stop: int) -> list[int]:
        """Returns physical offsets of the records that overlap [start, stop), found from the segment's beginning."""
        segment = self.segment_at(start)
        if segment is None:
            return []
        buffer, base = mapped(segment.path), segment.start
        limit = min(segment.size, self.replica.end - base)
        found: list[int] = []
        at = _boundary_before(buffer, start - base, limit, base)
        while at < min(limit, stop - base):
            steps = walk(buffer, at, min(limit, stop - base), limit, base=base)
            found += (base + int(p) for p in steps.positions)
            at = steps.next
            if steps.end is End.BLANK:
                break
            if steps.end is not End.LIMIT:
                again = resynchronise(buffer, at + 1, limit, limit, base)
                if again is None:
                    break
                at = again
        return [offset for offset in found if offset + self._size(offset) > start and offset < stop]

    def _size(self, offset: int) -> int:
        return int.from_bytes(self.piece(offset, 4).tobytes(), "big")

    def record(self, offset: int) -> bytes | None:
        """Returns the bytes of the record at `offset`, or None if no whole record begins there."""
        head = self.piece(offset, 8)
        if len(head) < 8:
            return None
        size = int.from_bytes(head[:4].tobytes(), "big")
        data = self.piece(offset, size).tobytes()
        return data if len(data) == size and size >= 8 and head[4:7].tobytes() == b"\xda\xa3\x20" else None


def _boundary_before(buffer: Any, at: int, limit: int, base: int) -> int:
    """Returns a record boundary at or before `at`: searches in growing steps back, up to the segment's start."""
    back = 1 << 16
    while back < at:
        found = resynchronise(buffer, at - back, at, limit, base)
        if found is not None and found + int.from_bytes(buffer[found : found + 4], "big") <= at:
            return found
        back *= 8
    return 0


def compare(piece: CompareRange) -> Iterator[pa.RecordBatch]:
    """Returns the differences of the replicas in one range."""
    logs = [_Log(replica) for replica in piece.replicas]
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    offset = piece.start
    while offset < piece.stop and len(seen) < PLACES_MAX:
        size = min(_WINDOW, piece.stop - offset)
        for log in logs:
            segment = log.segment_at(offset)
            if segment is not None:
                size = min(size, segment.stop - offset)
        views = [log.piece(offset, size) for log in logs]
        for start, stop in _places(views, offset, size):
            for record in sorted({o for log in logs for o in log.records_around(start, stop)}):
                if record not in seen:
                    seen.add(record)
                    rows += _told_apart(logs, record)
        for log in logs:
            log.forget(offset, size)
        offset += size
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=DIFFERENCE)


def _places(views: list[npt.NDArray[np.uint8]], offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Returns [start, stop) of the places where not all views are equal; the tail that some views lack is one place."""
    common = min(len(view) for view in views)
    reference = views[0][:common]
    differs = None
    for view in views[1:]:
        if not np.array_equal(reference, view[:common]):
            unequal = reference != view[:common]
            differs = unequal if differs is None else differs | unequal
    if differs is not None:
        at = np.flatnonzero(differs)
        edges = np.flatnonzero(np.diff(at) > _JOIN)
        starts = at[np.concatenate([[0], edges + 1])]
        stops = at[np.concatenate([edges, [len(at) - 1]])] + 1
        yield from zip((starts + offset).tolist(), (stops + offset).tolist(), strict=True)
    longest = max(len(view) for view in views)
    if longest > common:
        yield offset + common, offset + longest


def _told_apart(logs: list[_Log], offset: int) -> list[dict[str, Any]]:
    """Returns one row per replica whose record at `offset` is not the reference's."""
    records = [log.record(offset) for log in logs]
    sound = [data is not None and check_record(data, 0, len(data)) is None for data in records]
    groups: dict[bytes | None, list[int]] = {}
    for index, data in enumerate(records):
        groups.setdefault(data, []).append(index)
    if len(groups) == 1:
        return []
    # The reference: whole records before damaged ones, then what most replicas hold, then the first.
    best = max(groups, key=lambda data: (sound[groups[data][0]], len(groups[data]), -groups[data][0]))
    # Most replicas agree that nothing is here: then what the others have is extra.
    none = groups.get(None, [])
    if best is not None and len(none) > len(groups[best]):
        best = None
    rows = []
    for data, members in groups.items():
        if data == best:
            continue
        for index in members:
            rows.append(_row(logs, index, groups[best][0], offset, data, best, sound[index]))
    return rows


def _row(
    logs: list[_Log], index: int, reference: int, offset: int, data: bytes | None, best: bytes | None, is_sound: bool
) -> dict[str, Any]:
    if data is None:
        kind, detail = "missing", f"{logs[index].replica.label} has no whole message here"
    elif best is None:
        kind, detail = "extra", f"only {logs[index].replica.label} has a message here"
    elif not is_sound:
        kind, detail = "damaged", check_record(data, 0, len(data)) or ""
    else:
        kind, detail = "differs", _first_difference(data, best)
    shown = best if best is not None else data
    assert shown is not None
    row: dict[str, Any] = {
        "kind": kind, "replica": logs[index].replica.label, "reference": logs[reference].replica.label,
        "physical_offset": offset, "size": len(shown), "detail": detail,
    }  # fmt: skip
    try:
        message = parse_record(shown)
    except CorruptRecord:
        return {**dict.fromkeys(("topic", "queue_id", "queue_offset", "msg_id")), **row}
    return {
        **row, "topic": message.topic, "queue_id": message.queue_id, "queue_offset": message.queue_offset,
        "msg_id": message.properties.get("UNIQ_KEY", message.message_id),
    }  # fmt: skip


def _first_difference(data: bytes, best: bytes) -> str:
    common = min(len(data), len(best))
    unequal = np.flatnonzero(
        np.frombuffer(data, dtype=np.uint8, count=common) != np.frombuffer(best, dtype=np.uint8, count=common)
    )
    where = int(unequal[0]) if len(unequal) else common
    return f"first differing byte {where} of {len(best)}, {len(unequal)} in all; both are whole messages"
