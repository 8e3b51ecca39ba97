"""Consume queues of replicas against each other, entry by entry; the audit job runs it in parallel.

A consume queue is derived from the log, so equal logs have equal queues. A replica that kept the queue of a topic that
was deleted and made anew serves old messages from it although its log is right.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq.errors import CorruptRecord
from tandemq.formats import layout
from tandemq.formats.record import parse_record
from tandemq.spark.jobs.compare import DIFFERENCE, Replica
from tandemq.spark.source.store_files import QueueFile, StoreFiles, mapped

_ENTRIES = 200_000
_LISTED_MAX = 1000
"""Differing entries reported per queue; the first one says what to do."""


@dataclass(frozen=True)
class CompareQueues:
    """Some queues, and the replicas to compare them in."""

    queues: tuple[tuple[str, int], ...]
    replicas: tuple[Replica, ...]
    first: int
    """Physical offset from which on all replicas have the log."""
    stop: int
    """Physical offset up to which they are compared."""


def queues_of(replicas: tuple[Replica, ...]) -> list[tuple[str, int]]:
    """Returns the queues that any replica has."""
    found: set[tuple[str, int]] = set()
    for replica in replicas:
        found.update(StoreFiles(Path(replica.root), replica.label).queues())
    return sorted(found)


def compare_queues(piece: CompareQueues) -> Iterator[pa.RecordBatch]:
    """Yields the differences of the replicas in these queues."""
    rows = [row for topic, queue_id in piece.queues for row in _differences(piece, topic, queue_id)]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=DIFFERENCE)


def _differences(piece: CompareQueues, topic: str, queue_id: int) -> Iterator[dict[str, Any]]:
    files = [QueueFile(layout.queue_directory(Path(r.root), topic, queue_id)) for r in piece.replicas]
    bounds = [file.bounds(piece.first, min(piece.stop, r.end)) for file, r in zip(files, piece.replicas, strict=True)]
    longest = max(range(len(files)), key=lambda i: (bounds[i][1] - bounds[i][0], bounds[i][1]))
    for index, (file, own) in enumerate(zip(files, bounds, strict=True)):
        if index != longest:
            yield from _against(piece, (topic, queue_id), longest, index, files[longest], file, bounds[longest], own)


def _against(
    piece: CompareQueues,
    queue: tuple[str, int],
    reference: int,
    index: int,
    one: QueueFile,
    other: QueueFile,
    bounds: tuple[int, int],
    own: tuple[int, int],
) -> Iterator[dict[str, Any]]:
    """Yields what differs between the longest queue and another replica's."""
    low, high = max(bounds[0], own[0]), min(bounds[1], own[1])
    listed = 0
    for start in range(low, high, _ENTRIES):
        stop = min(high, start + _ENTRIES)
        ours, theirs = one.entries(start, stop), other.entries(start, stop)
        for at in np.flatnonzero(ours != theirs).tolist():
            if listed >= _LISTED_MAX:
                return
            listed += 1
            pair = {reference: ours[at], index: theirs[at]}
            right = next((i for i in pair if _is_right(piece.replicas[i], queue, start + at, pair[i])), reference)
            wrong = index if right == reference else reference
            detail = (
                f"entry {start + at} points to {pair[wrong]['offset']}, that of the log is at {pair[right]['offset']}"
            )
            yield _row(piece, wrong, right, queue, start + at, pair[right], detail)
    if own[1] < bounds[1] and piece.replicas[index].end >= piece.stop:
        entry = one.entries(max(own[1], bounds[0]), max(own[1], bounds[0]) + 1)[0]
        missing = bounds[1] - max(own[1], bounds[0])
        detail = f"{missing} entries from {max(own[1], bounds[0])} on are missing, although the log is there"
        if not _is_right(piece.replicas[reference], queue, max(own[1], bounds[0]), entry):
            detail = f"{missing} entries from {max(own[1], bounds[0])} on that the log does not have"
            yield _row(piece, reference, index, queue, max(own[1], bounds[0]), entry, detail)
            return
        yield _row(piece, index, reference, queue, max(own[1], bounds[0]), entry, detail)


def _is_right(replica: Replica, queue: tuple[str, int], index: int, entry: "npt.NDArray[np.void] | np.void") -> bool:
    """Returns whether a replica's own log has the message of this entry at the place it names."""
    offset, size = int(entry["offset"]), int(entry["size"])
    for segment in StoreFiles(Path(replica.root), replica.label).segments():
        if segment.start <= offset and offset + size <= segment.stop:
            at = offset - segment.start
            try:
                message = parse_record(mapped(segment.path)[at : at + size])
            except (CorruptRecord, ValueError):
                return False
            return (message.topic, message.queue_id, message.queue_offset) == (*queue, index)
    return False


def _row(
    piece: CompareQueues, wrong: int, right: int, queue: tuple[str, int], index: int, entry: Any, detail: str
) -> dict[str, Any]:
    return {
        "kind": "queue", "replica": piece.replicas[wrong].label, "reference": piece.replicas[right].label,
        "physical_offset": int(entry["offset"]), "size": int(entry["size"]), "topic": queue[0], "queue_id": queue[1],
        "queue_offset": index, "msg_id": None, "detail": detail,
    }  # fmt: skip
