"""Queues of store directories, read through their consume queues: no broker, no network."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from tandemq.codec.record import store_timestamp
from tandemq.errors import ConfigError
from tandemq.model.message import tags_code
from tandemq.model.topic import QueueRef
from tandemq.spark.decoder import Decoder
from tandemq.spark.log_reader import LogPlanner
from tandemq.spark.offsets import Offsets, Range, Ranges, Slice
from tandemq.spark.options import FileOptions
from tandemq.spark.scan import scan_entries
from tandemq.spark.store_files import StoreFiles, mapped
from tandemq.spark.topics import is_system_topic

_ENTRIES_AT_ONCE = 100_000


class FileAccess:
    """The stores that the options name."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    def _stores(self) -> Iterator[StoreFiles]:
        yield from LogPlanner(self._options).stores()

    def ranges(self) -> Ranges:
        planner = LogPlanner(self._options)
        found: dict[QueueRef, Range] = {}
        for store in planner.stores():
            first, end, _ = planner.bounds(store)
            for topic, queue_id in store.queues():
                queue = QueueRef(topic, store.label, queue_id)
                if self._options.selects(topic, system=is_system_topic(topic)) and self._options.selects_queue(queue):
                    found[queue] = Range(*store.queue(topic, queue_id).bounds(first, end))
        return found

    def _store(self, label: str) -> StoreFiles:
        for store in self._stores():
            if store.label == label:
                return store
        raise ConfigError(f"store {label!r} is not among path={self._options.path!r}")

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        ranges = self.ranges()
        return {queue: self._search(queue, ranges[queue], time) for queue, time in times.items()}

    def _search(self, queue: QueueRef, bounds: Range, time: int) -> int:
        """Binary search on the store times of the records that the entries point to."""
        store = self._store(queue.broker_name)
        segments, entries = store.segments(), store.queue(queue.topic, queue.queue_id)
        low, high = bounds
        while low < high:
            middle = (low + high) // 2
            offset = int(entries.entries(middle, middle + 1)["offset"][0])
            segment = next(s for s in segments if s.start <= offset < s.stop)
            view = mapped(segment.path)
            at = offset - segment.start
            stored = store_timestamp(memoryview(view), at, int.from_bytes(view[at + 36 : at + 40], "big"))
            if stored < time:
                low = middle + 1
            else:
                high = middle
        return low

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        stop = min(stop, start + 1000)
        entries = self._store(queue.broker_name).queue(queue.topic, queue.queue_id).entries(start, stop)
        return float(np.mean(entries["size"])) if len(entries) else 0.0

    def read(self, piece: Slice, decoder: Decoder, rows_max: int, skip_lost: bool) -> Iterator[pa.RecordBatch]:
        store = self._store(piece.queue.broker_name)
        segments = store.segments()
        queue = store.queue(piece.queue.topic, piece.queue.queue_id)
        codes = [tags_code(tag) for tag in sorted(self._options.wanted_tags)]
        for start in range(piece.start, piece.stop, _ENTRIES_AT_ONCE):
            entries = queue.entries(start, min(piece.stop, start + _ENTRIES_AT_ONCE))
            if codes:
                # The hash in the queue spares reading most records; the decoder then compares the tags themselves.
                entries = entries[np.isin(entries["tags"], codes)]
            yield from scan_entries(segments, entries, decoder, rows_max)

    def commit_group(self, group: str, done: Offsets) -> None:
        """Files have no groups."""
