"""Queue order: queues of a cluster or of store directories as Spark partitions, batch and streaming.

What differs between the two is an *access*: which queues there are, what they hold, and how their messages are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tandemq.clock import Clock, SystemClock
from tandemq.model.topic import QueueRef
from tandemq.spark.options import EARLIEST, LATEST, Mode, SelectOptions, milliseconds
from tandemq.spark.runtime.task_log import note
from tandemq.spark.runtime.worker_setup import settle
from tandemq.spark.source import offsets
from tandemq.spark.source.asked import EVERYTHING, Asked
from tandemq.spark.source.decoder import Decoder, Wanted
from tandemq.spark.source.marks import QueueMarks
from tandemq.spark.source.offsets import Marks, Numbering, Offsets, Ranges, Slice
from tandemq.spark.source.prefetch import first_at_once, handed_over


class QueueAccess(Protocol):
    """Where queues come from. Picklable: it holds options, and opens files and connections when used."""

    def ranges(self, *, complete: bool = False) -> Ranges:
        """Returns the selected queues and what each holds now, as the preferred member of each group has it.

        `complete`: up to where the master has it, as other members may be a little behind.
        """
        ...

    @property
    def numbering(self) -> Numbering:
        """How queues are numbered; known after `ranges`."""
        ...

    @property
    def replicas(self) -> dict[str, dict[str, Any]]:
        """Who serves each broker group: its address, and how many bytes it is behind the master (-1: not known)."""
        ...

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        """Returns what the member that has most of each queue says of it."""
        ...

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        """Returns the message at an offset of each queue; queues that have none there are left out."""
        ...

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        """Returns the first offset stored at or after a time (ms), per queue."""
        ...

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        """Returns about how many bytes a record of [start, stop) has."""
        ...

    def read(self, piece: Slice, decoder: Decoder, rows_max: int, skip_lost: bool) -> Iterator[pa.RecordBatch]:
        """Yields the messages of one slice, in order."""
        ...

    def commit_group(self, group: str, done: Offsets) -> None:
        """Publishes progress for tools; failures are noted, never raised."""
        ...


class QueuePartition(InputPartition):
    """The slices that one task reads, one after the other."""

    def __init__(self, slices: list[Slice], numbering: Numbering = offsets.PLAIN) -> None:
        super().__init__([(offsets.key_of(s.queue), s.start, s.stop) for s in slices])
        self.slices = slices
        self.partition_bases = {s.queue.broker_name: dict(numbering.bases_of(s.queue.broker_name)) for s in slices}


class _QueueReading:
    """What batch and streaming share."""

    options: SelectOptions
    access: QueueAccess
    arrow_schema: pa.Schema
    asked: Asked = EVERYTHING

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueuePartition):
            return  # InputPartition(None): Spark starts one task even where there are no partitions
        settle()
        yield from first_at_once(handed_over(self._batches(partition), self.options.prefetch))

    def _batches(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
        for piece in partition.slices:
            decoder = Decoder(
                self.arrow_schema,
                broker=piece.queue.broker_name,
                partition_bases=partition.partition_bases[piece.queue.broker_name],
                wanted=self.asked.wanted(Wanted(tags=self.options.wanted_tags, keys=self.options.wanted_keys)),
                permissive=self.options.mode is Mode.PERMISSIVE,
                verify_crc=self.options.verify_crc,
            )
            yield from self.access.read(piece, decoder, self.options.rows_per_batch, not self.options.fail_on_data_loss)
            if decoder.damage.count:
                note(
                    f"{offsets.key_of(piece.queue)}: left out {decoder.damage.count} damaged records",
                    decoder.damage.examples,
                )

    def _partitions(self, starts: Offsets, stops: Offsets, ranges: Ranges) -> list[InputPartition]:
        starts, lost = offsets.checked_starts(starts, ranges, self.options.fail_on_data_loss)
        for text in lost:
            note(text)
        tasks = offsets.tasks_of(
            self.asked.slices(offsets.slices_of(starts, stops)),
            tasks_min=self.options.min_partitions,
            count_max=self.options.max_records_per_partition,
            count_min=self.options.min_records_per_partition,
        )
        return [QueuePartition(task, self.access.numbering) for task in tasks]


class QueueBatchReader(_QueueReading, DataSourceReader):
    def __init__(
        self, options: SelectOptions, access: QueueAccess, arrow_schema: pa.Schema, asked: Asked = EVERYTHING
    ) -> None:
        self.options = options
        self.access = access
        self.arrow_schema = arrow_schema
        self.asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        ranges, access = self.access.ranges(complete=True), self.access
        starts = offsets.starting(self.options, ranges, access.at_time, EARLIEST, access.numbering)
        stops = offsets.ending(self.options, ranges, access.at_time, access.numbering)
        return self._partitions(starts, offsets.check_order(self.options, starts, stops), ranges)


class QueueStreamReader(_QueueReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        options: SelectOptions,
        access: QueueAccess,
        arrow_schema: pa.Schema,
        *,
        group: str = "",
        clock: Clock | None = None,
    ) -> None:
        """`group`: the consumer group that progress is committed to, if any."""
        self.options = options
        self.access = access
        self.arrow_schema = arrow_schema
        self._group = group
        self._clock = clock or SystemClock()
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._last_batch_at: float | None = None
        self._committed: dict[str, Any] | None = None
        self._ranges: Ranges | None = None
        """What the queues held at the last latestOffset: Spark asks for reports and partitions right after it."""
        self._marks = QueueMarks(access, self._clock)

    def initialOffset(self) -> dict[str, Any]:
        # Spark calls this twice for batch 0: the second answer must be the first one's.
        if self._initial is None:
            ranges = self.access.ranges(complete=True)
            at_time, numbering = self.access.at_time, self.access.numbering
            self._initial = offsets.starting(self.options, ranges, at_time, LATEST, numbering)
        return offsets.to_json(self._initial, initial=True)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        initial = bool(start.get("initial"))
        given = offsets.from_json(start)
        if not initial:
            self._commit_group(start, given)
        # A query of Trigger.AvailableNow ends with the first answer that brings nothing new: it must not be a slave's.
        ranges = self._ranges = self.access.ranges(complete=self._target is not None)
        starts, begin = dict(given), dict(given) if initial else {}
        for queue, bounds in ranges.items():
            if queue not in starts:  # a queue that appeared later is read from its beginning
                starts[queue] = begin[queue] = bounds.first
        if not initial:
            begin |= self._moved(start, given, ranges)
            starts |= begin
        stops = {queue: max(start_, self._available(queue, start_, ranges)) for queue, start_ in starts.items()}
        # Trigger.Once asks for everything whatever the options say; all other triggers pass our own default limit back.
        if not isinstance(limit, ReadAllAvailable):
            stops = self._limited(starts, stops, ranges, initial)
        if stops == given and not initial:
            return start
        self._last_batch_at = self._clock.monotonic()
        self._marks.renew(starts, stops, ranges)
        extra: dict[str, Any] = {"from": offsets.to_json(begin)["q"]} if begin else {}
        if marks := self._marks.known:
            extra["m"] = offsets.marks_to_json(marks)
        return offsets.to_json(stops, **extra)

    def _moved(self, start: dict[str, Any], given: Offsets, ranges: Ranges) -> Offsets:
        """Returns where queues begin now that no longer hold what was read of them; DataLost if that may not be."""
        self._marks.load(start)
        anew = self._marks.made_anew(given, ranges, lambda queue: ranges[queue].next > given[queue])
        if not anew:
            return {}
        moved, lost = offsets.checked_starts(
            {queue: given[queue] for queue in anew}, ranges, self.options.fail_on_data_loss, anew
        )
        for text in lost:
            note(text)
        return moved

    def _available(self, queue: QueueRef, start: int, ranges: Ranges) -> int:
        """Returns where a queue ends now; one that was removed keeps its place, should it come back."""
        if queue not in ranges:
            return start
        end = ranges[queue].next
        return end if self._target is None else min(end, self._target.get(queue, start))

    def _limited(self, starts: Offsets, stops: Offsets, ranges: Ranges, initial: bool) -> Offsets:
        options = self.options
        # Messages that are gone already must not use up the limit.
        real = {queue: max(start, ranges[queue].first) if queue in ranges else start for queue, start in starts.items()}
        real = {queue: min(start, stops[queue]) for queue, start in real.items()}
        waiting = sum(stops[queue] - start for queue, start in real.items())
        if (
            0 < waiting < options.min_offsets_per_trigger
            and self._target is None
            and not initial
            and not self._overdue()
        ):
            return dict(starts)
        if options.max_offsets_per_trigger:
            stops = offsets.limited(real, stops, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            sizes = {
                queue: self.access.mean_size(queue, start, stops[queue])
                for queue, start in real.items()
                if start < stops[queue]
            }
            stops = offsets.limited_bytes(real, stops, options.max_bytes_per_trigger, sizes)
        return stops

    def _overdue(self) -> bool:
        if self._last_batch_at is None:
            self._last_batch_at = self._clock.monotonic()
        waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
        return waited_ms >= milliseconds("maxTriggerDelay", self.options.max_trigger_delay)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {queue: bounds.next for queue, bounds in self.access.ranges(complete=True).items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        ranges = self.access.ranges() if self._ranges is None else self._ranges
        extra = {"replicas": replicas} if (replicas := self.access.replicas) else {}
        return offsets.to_json({queue: bounds.next for queue, bounds in ranges.items()}, **extra)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []  # another source of the query has news; `from` is about the batch that ended here
        starts = {**offsets.from_json(start), **offsets.from_json(end, "from")}
        stops = offsets.from_json(end)
        slices = offsets.slices_of(starts, stops)
        if not slices:
            return []
        if self._ranges is None:  # no latestOffset came before: a batch that is replayed after a restart
            self._ranges = self.access.ranges()
            self._check_replay(end, {piece.queue: piece.stop for piece in slices})
        ranges = self._ranges
        return self._partitions({s.queue: s.start for s in slices}, {s.queue: s.stop for s in slices}, ranges)

    def _check_replay(self, end: dict[str, Any], stops: Offsets) -> None:
        """Raises DataLost if queues hold other messages than the replayed batch read the first time."""
        assert self._ranges is not None
        self._marks.load(end)
        anew = self._marks.made_anew(stops, self._ranges, lambda queue: True)
        _, lost = offsets.checked_starts(
            {queue: stops[queue] for queue in anew}, self._ranges, self.options.fail_on_data_loss, anew
        )
        for text in lost:
            note(text)

    def _commit_group(self, start: dict[str, Any], done: Offsets) -> None:
        """Commits `start`, the end of the last completed batch; Spark's own commit() lags and misses the last one."""
        if self._group and start != self._committed:
            self.access.commit_group(self._group, done)
            self._committed = start

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: see `_commit_group`."""
