"""Queues of store directories, read through their consume queues: no broker, no network."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tandemq.errors import ConfigError
from tandemq.formats.queue_entry import FILLER_SIZE, search
from tandemq.formats.record import store_timestamp
from tandemq.model.message import tags_code
from tandemq.model.topic import QueueRef
from tandemq.spark.options import FileOptions, SchemaKind
from tandemq.spark.source.broker_queues import assigned_queues
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.losses import tell_loss
from tandemq.spark.source.offsets import PLAIN, Mark, Marks, Numbering, Offsets, Range, Ranges, Slice, key_of
from tandemq.spark.source.physical_order import LogPlanner
from tandemq.spark.source.scan import scan_entries
from tandemq.spark.source.store_files import Segment, StoreFiles, mapped
from tandemq.spark.source.system_topics import is_system_topic

_ENTRIES_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Tells of deleted entries, given by their index, by their queue offsets."""

    numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    deleted: Callable[[int, int], None]

    def __call__(self, first: int, last: int) -> None:
        self.deleted(int(self.numbers[first]), int(self.numbers[last]))


class FileAccess:
    """The stores that the options name."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options
        self.numbering = PLAIN
        self.replicas: dict[str, dict[str, Any]] = {}

    def _stores(self) -> Iterator[StoreFiles]:
        yield from LogPlanner(self._options).stores()

    def ranges(self, *, complete: bool = False) -> Ranges:
        planner = LogPlanner(self._options)
        found: dict[QueueRef, Range] = {}
        for store in planner.stores():
            first, end, _ = planner.bounds(store)
            for topic, queue_id in store.queues():
                queue = QueueRef(topic, store.label, queue_id)
                if self._options.selects(topic, system=is_system_topic(topic)):
                    found[queue] = Range(*store.queue(topic, queue_id).bounds(first, end))
        if self._options.schema is SchemaKind.KAFKA:
            counts: dict[tuple[str, str], int] = {}
            for queue in found:
                place = queue.topic, queue.broker_name
                counts[place] = max(counts.get(place, 0), queue.queue_id + 1)
            self.numbering = Numbering.of(counts)
        if self._options.assign:
            return {queue: found[queue] for queue in assigned_queues(self._options, list(found), self.numbering)}
        return found

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        """Returns the only member there is: the files."""
        ranges = self.ranges()
        return {queue: ranges[queue] for queue in queues if queue in ranges}

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        found: Marks = {}
        for queue, offset in offsets.items():
            store = self._store(queue.broker_name)
            physical = int(store.queue(queue.topic, queue.queue_id).entries(offset, offset + 1)["offset"][0])
            stored = self._stored_ms(store.segments(), physical)
            if stored is not None:
                found[queue] = Mark(offset, physical, stored)
        return found

    def _store(self, label: str) -> StoreFiles:
        for store in self._stores():
            if store.label == label:
                return store
        raise ConfigError(f"store {label!r} is not among path={self._options.path!r}")

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        ranges = self.ranges()
        return {queue: self._search(queue, ranges[queue], time) for queue, time in times.items()}

    def _stored_ms(self, segments: list[Segment], offset: int) -> int | None:
        """Returns when the message at a physical offset was stored; None if it is no longer there."""
        segment = next((s for s in segments if s.start <= offset < s.stop), None)
        if segment is None:
            return None
        try:
            return store_timestamp(memoryview(mapped(segment.path)), offset - segment.start)
        except FileNotFoundError:
            return None

    def _search(self, queue: QueueRef, bounds: Range, time: int) -> int:
        """Searches by halving on the store times of the records that the entries point to."""
        store = self._store(queue.broker_name)
        segments, entries = store.segments(), store.queue(queue.topic, queue.queue_id)

        def is_wanted(index: int) -> bool:
            offset = int(entries.entries(index, index + 1)["offset"][0])
            stored = self._stored_ms(segments, offset)
            return stored is not None and stored >= time

        return search(*bounds, entries.skip_fillers, is_wanted)[1]

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        stop = min(stop, start + 1000)
        entries = self._store(queue.broker_name).queue(queue.topic, queue.queue_id).entries(start, stop)
        entries = entries[entries["size"] != FILLER_SIZE]
        return float(np.mean(entries["size"])) if len(entries) else 0.0

    def read(self, piece: Slice, decoder: Decoder, rows_max: int, skip_lost: bool) -> Iterator[pa.RecordBatch]:
        store = self._store(piece.queue.broker_name)
        segments = store.segments()
        queue = store.queue(piece.queue.topic, piece.queue.queue_id)
        codes = [tags_code(tag) for tag in sorted(self._options.wanted_tags)]

        def deleted(first: int, last: int) -> None:
            text = f"{key_of(piece.queue)}: offsets {first} to {last} were deleted before they were read"
            tell_loss(text, not skip_lost)

        begin = piece.start
        if queue.first > begin:
            begin = min(piece.stop, queue.first)
            deleted(piece.start, begin - 1)
        for start in range(begin, piece.stop, _ENTRIES_AT_ONCE):
            entries = queue.entries(start, min(piece.stop, start + _ENTRIES_AT_ONCE))
            numbers = np.arange(start, start + len(entries))
            if (fillers := entries["size"] == FILLER_SIZE).any():
                entries, numbers = entries[~fillers], numbers[~fillers]  # the log does not have their messages
            if codes:
                # The hash in the queue spares reading most records; the decoder then compares the tags themselves.
                hits = np.isin(entries["tags"], codes)
                entries, numbers = entries[hits], numbers[hits]
            yield from scan_entries(segments, entries, decoder, rows_max, _Numbered(numbers, deleted))

    def commit_group(self, group: str, done: Offsets) -> None:
        """Does nothing: files have no groups."""
