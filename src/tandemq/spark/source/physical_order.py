"""Physical order: store directories as Spark partitions, batch and streaming.

A stream offset is {"v": 1, "log": {"store label": physical offset}, "initial": true?, "from": {...}?}; `from` as in
`offsets`. All offsets are record boundaries.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from tandemq.errors import ConfigError
from tandemq.formats.record_starts import resynchronise
from tandemq.spark.options import EARLIEST, LATEST, FileOptions, Mode, UpTo, offsets_of
from tandemq.spark.options.texts import EARLIEST_NUMBER, LATEST_NUMBER, PHYSICAL, ByQueue
from tandemq.spark.runtime.task_log import note
from tandemq.spark.runtime.worker_setup import settle
from tandemq.spark.source.asked import EVERYTHING, Asked
from tandemq.spark.source.decoder import Decoder, Wanted
from tandemq.spark.source.losses import tell_loss
from tandemq.spark.source.offsets import VERSION, DataLost
from tandemq.spark.source.prefetch import first_at_once, handed_over
from tandemq.spark.source.scan import LogRange, plan_ranges, scan
from tandemq.spark.source.store_files import (
    Segment,
    StoreFiles,
    find_stores,
    first_store_time,
    log_end,
    mapped,
    missing_end,
)
from tandemq.spark.source.system_topics import is_system_topic

_CLOCK_SLACK_MS = 60_000
"""A broker's clock may step back: segments are left out by time only with this margin."""


class LogPartition(InputPartition):
    def __init__(self, piece: LogRange) -> None:
        super().__init__((piece.store, piece.start, piece.stop))
        self.piece = piece


def wanted_of(options: FileOptions) -> Wanted:
    """Returns the row filter that the options describe."""
    topics = frozenset(options.topics)
    unselected = None if topics else _Unselected(options)
    return Wanted(
        topics=topics,
        excluded_topic=unselected,
        tags=options.wanted_tags,
        keys=options.wanted_keys,
        stored_from_ms=options.starting_timestamp if options.starting_timestamp >= 0 else None,
        stored_before_ms=options.ending_timestamp if options.ending_timestamp >= 0 else None,
    )


class _Unselected:
    """A picklable predicate: topics that the options leave out."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    def __call__(self, topic: str) -> bool:
        return not self._options.selects(topic, system=is_system_topic(topic))


class LogPlanner:
    """Where each store's log begins and ends, and its ranges. Driver side; remembers how far it has walked."""

    def __init__(self, options: FileOptions) -> None:
        self.options = options
        self._known_ends: dict[str, int] = {}

    def stores(self) -> list[StoreFiles]:
        return find_stores(self.options.path, self.options.broker_name)

    def bounds(self, store: StoreFiles) -> tuple[int, int, list[Segment]]:
        """Returns first offset, end and segments of what may be read now."""
        confirmed = store.confirmed()  # first: what is confirmed now is in the files that are listed then
        segments = store.segments()
        if not segments:
            return 0, 0, []
        limit = confirmed if self.options.read_up_to is UpTo.CONFIRMED else None
        end = log_end(segments, limit, self._known_ends.get(store.label, 0))
        self._known_ends[store.label] = end
        if missing := missing_end(segments, end, confirmed):
            tell_loss(f"{store.label}: {missing}", self.options.fail_on_data_loss)
        return segments[0].start, end, segments

    def start_of(self, label: str, first: int, end: int, default: str) -> int:
        given = offsets_of(self.options.starting_offsets or default, "startingOffsets")
        return self._resolved("startingOffsets", given, label, first, end)

    def stop_of(self, label: str, first: int, end: int) -> int:
        given = offsets_of(self.options.ending_offsets or LATEST, "endingOffsets")
        return self._resolved("endingOffsets", given, label, first, end)

    def _resolved(self, name: str, given: str | ByQueue, label: str, first: int, end: int) -> int:
        if isinstance(given, str):
            return first if given == EARLIEST else end
        known = [store.label for store in self.stores()]
        for other in given:
            if other not in known:
                raise ConfigError(f"{name}: there is no store {other!r}; there are {', '.join(known)}")
        if label not in given or PHYSICAL not in given[label]:
            raise ConfigError(
                f'{name}: physical order needs JSON like {{"{label}": 1048576}} with each store, not {given!r}'
            )
        offset = given[label][PHYSICAL]
        if offset > end:
            raise ConfigError(f"{name}: {label!r}: offset {offset} is beyond the end of the log, from {first} to {end}")
        return {EARLIEST_NUMBER: first, LATEST_NUMBER: end}.get(offset, offset)

    def ranges(self, store: StoreFiles, segments: list[Segment], start: int, stop: int) -> list[LogRange]:
        size_max = self.options.max_bytes_per_partition
        if self.options.min_partitions:
            size_max = min(size_max, max(1 << 16, -(-(stop - start) // self.options.min_partitions)))
        return [
            piece
            for piece in plan_ranges(store.label, segments, start, stop, size_max)
            if self._in_time(piece.segment, segments)
        ]

    def _in_time(self, segment: Segment, segments: list[Segment]) -> bool:
        options = self.options
        if options.starting_timestamp >= 0:
            after = next((s for s in segments if s.start == segment.stop), None)
            time = first_store_time(after) if after else None
            if time is not None and time < options.starting_timestamp - _CLOCK_SLACK_MS:
                return False
        if options.ending_timestamp >= 0:
            time = first_store_time(segment)
            return time is None or time < options.ending_timestamp + _CLOCK_SLACK_MS
        return True


class _LogReading:
    """What batch and streaming share: reading one partition, on an executor."""

    options: FileOptions
    arrow_schema: pa.Schema
    asked: Asked = EVERYTHING

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            return  # InputPartition(None): Spark starts one task even where there are no partitions
        settle()
        piece = partition.piece
        decoder = Decoder(
            self.arrow_schema,
            broker=piece.store,
            wanted=self.asked.wanted(wanted_of(self.options)),
            permissive=self.options.mode is Mode.PERMISSIVE,
            verify_crc=self.options.verify_crc,
        )
        batches = self._scanned(piece, decoder)
        yield from first_at_once(handed_over(batches, self.options.prefetch))
        if decoder.damage.count:
            note(
                f"{piece.segment.path}: left out {decoder.damage.count} damaged places, {decoder.damage.size} bytes",
                decoder.damage.examples,
            )

    def _scanned(self, piece: LogRange, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan(piece, decoder, self.options.rows_per_batch)
        except FileNotFoundError:
            text = f"{piece.store}: the log from {piece.start} to {piece.stop} was deleted before it was read"
            tell_loss(text, self.options.fail_on_data_loss)


class LogBatchReader(_LogReading, DataSourceReader):
    def __init__(self, options: FileOptions, arrow_schema: pa.Schema, asked: Asked = EVERYTHING) -> None:
        self.options = options
        self.arrow_schema = arrow_schema
        self.asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        planner = LogPlanner(self.options)
        found: list[InputPartition] = []
        for store in planner.stores():
            first, end, segments = planner.bounds(store)
            start = planner.start_of(store.label, first, end, EARLIEST)
            if start < first:
                _lost(self.options, store.label, start, first)
                start = first
            stop = planner.stop_of(store.label, first, end)
            if start > stop:
                raise ConfigError(
                    f"endingOffsets={self.options.ending_offsets}: {store.label!r} would end at {stop} but begin at "
                    f"{start}; the start must not be after the end"
                )
            found += (LogPartition(piece) for piece in planner.ranges(store, segments, start, stop))
        return found


class LogStreamReader(_LogReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: FileOptions, arrow_schema: pa.Schema) -> None:
        self.options = options
        self.arrow_schema = arrow_schema
        self._initial: dict[str, int] | None = None
        self._target: dict[str, int] | None = None
        self._ends_seen: dict[str, int] | None = None
        """Where the logs ended at the last latestOffset: Spark asks for a report right after it."""

    def __getstate__(self) -> dict[str, Any]:
        planned = dict.fromkeys(("_initial", "_target", "_ends_seen"))
        return {"options": self.options, "arrow_schema": self.arrow_schema, **planned}

    @property
    def _planner(self) -> LogPlanner:
        # Made on first use: the reader is pickled to executors, which never plan.
        if "_planner_made" not in self.__dict__:
            self.__dict__["_planner_made"] = LogPlanner(self.options)
        planner: LogPlanner = self.__dict__["_planner_made"]
        return planner

    def _ends(self) -> dict[str, int]:
        return {store.label: self._planner.bounds(store)[1] for store in self._planner.stores()}

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = {}
            for store in self._planner.stores():
                first, end, _ = self._planner.bounds(store)
                default = EARLIEST if self.options.starting_timestamp >= 0 else LATEST
                self._initial[store.label] = self._planner.start_of(store.label, first, end, default)
        return {"v": VERSION, "log": self._initial, "initial": True}

    def getDefaultReadLimit(self) -> ReadLimit:
        return (
            ReadMaxBytes(self.options.max_bytes_per_trigger)
            if self.options.max_bytes_per_trigger
            else ReadAllAvailable()
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        starts = _log_of(start)
        begin: dict[str, int] = dict(starts) if start.get("initial") else {}
        ends: dict[str, int] = dict(starts)
        stores = self._planner.stores()
        per_store = limit.max_bytes // max(1, len(stores)) if isinstance(limit, ReadMaxBytes) else 0
        self._ends_seen = {}
        for store in stores:
            first, end, segments = self._planner.bounds(store)
            self._ends_seen[store.label] = end
            if starts.get(store.label, 0) > end:
                self._lost_end(store.label, starts[store.label], end)
                begin[store.label] = starts[store.label] = end
            if self._target is not None:
                end = min(end, self._target.get(store.label, 0))
            if store.label not in starts:  # a store that appeared later is read from its beginning
                begin[store.label] = starts[store.label] = first
            if per_store:
                end = _bounded(segments, max(first, starts[store.label]), end, per_store)
            ends[store.label] = max(end, starts[store.label])
        if ends == _log_of(start) and not start.get("initial"):
            return start
        return {"v": VERSION, "log": ends, **({"from": begin} if begin else {})}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"v": VERSION, "log": self._ends() if self._ends_seen is None else self._ends_seen}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []  # another source of the query has news; `from` is about the batch that ended here
        starts, stops, begin = _log_of(start), _log_of(end), end.get("from", {})
        found: list[InputPartition] = []
        stores = {store.label: store for store in self._planner.stores()}
        for label, stop in stops.items():
            begins = begin.get(label, starts.get(label, stop))
            if begins >= stop:
                continue
            if label not in stores:
                raise DataLost(
                    f"store {label!r} is gone from path={self.options.path!r}; it was read up to {begins} of {stop}"
                )
            store = stores[label]
            first, log_stop, segments = self._planner.bounds(store)
            if stop > log_stop:
                self._lost_end(label, stop, log_stop)
                stop = log_stop
            if begins < first:
                _lost(self.options, label, begins, first)
                begins = first
            found += (LogPartition(piece) for piece in self._planner.ranges(store, segments, begins, stop))
        return found

    def _lost_end(self, label: str, read: int, end: int) -> None:
        text = f"{label} was read up to {read}, but its log ends at {end}: it is another log, or lost its end"
        tell_loss(text, self.options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: progress is in Spark's checkpoint."""


def _lost(options: FileOptions, label: str, start: int, first: int) -> None:
    tell_loss(f"{label}: the log from {start} to {first} was deleted before it was read", options.fail_on_data_loss)


def _log_of(stored: dict[str, Any]) -> dict[str, int]:
    if stored.get("v") != VERSION or "log" not in stored:
        raise ConfigError(
            f"the checkpoint's offset {stored!r} is not one of physical order, version {VERSION}: was the query "
            f"started "
            "with another `order`? Use a new checkpoint"
        )
    return {label: int(offset) for label, offset in stored["log"].items()}


def _bounded(segments: list[Segment], start: int, end: int, size: int) -> int:
    """Returns a record boundary about `size` bytes after start, at most `end`."""
    target = start + size
    if target >= end:
        return end
    for segment in segments:
        if segment.start <= target < segment.stop:
            buffer, base = mapped(segment.path), segment.start
            limit = min(end, segment.stop) - base
            found = resynchronise(buffer, target - base, limit, limit, base)
            return min(end, segment.stop) if found is None else base + found
    return end
