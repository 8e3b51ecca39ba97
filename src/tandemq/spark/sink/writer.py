"""The sink: Arrow batches to topics, batch and streaming; a task succeeds only when every message was acknowledged.

Where a row goes and which key it gets depends on its place in the partition only (`placement`, `idempotent_key`), so a
repeated task repeats itself; with `exactly_once` the queues to choose from are agreed on before (`ledger`).
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tandemq.client.bulk import Ack
from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.model.message import ACK_COPIES, TRANSACTION_PREPARED, UNIQUE_KEY
from tandemq.model.topic import QueueRef
from tandemq.spark.options import Delivery, SinkOptions
from tandemq.spark.runtime.stderr_filter import quiet_stderr
from tandemq.spark.runtime.worker_setup import settle
from tandemq.spark.sink import placement
from tandemq.spark.sink.encoder import Elements, Encoder, Rows, elements, keys
from tandemq.spark.sink.idempotent_key import (
    CHECKED_PREFIX,
    PREFIX,
    ROWS_MAX,
    claim,
    producer_id,
    sequence,
    writer_id,
)
from tandemq.spark.sink.ledger import LedgerBook, Placement, WriteLedger
from tandemq.spark.sink.outbox import WAIT_STORED, Outbox, Outgoing
from tandemq.spark.sink.routes import WriteRoutes, routes_of_process
from tandemq.spark.sink.transactions import Coordinator, Half, half_of, half_properties, refuses_repeats
from tandemq.spark.sink.writable_columns import checked_columns

quiet_stderr()  # of a process that commits: Spark ends it after a minute without work, and pyspark prints a traceback

_ENCODED_BYTES_MAX = 64 << 20
"""Bytes of rows that are encoded at a time; a larger Arrow batch is cut."""

_PLACEMENT_SECONDS = 60.0

Array = npt.NDArray[np.int64]


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote; travels to the driver."""

    partition: int
    messages: int
    size: int
    sink: str = ""
    batch: int = 0
    halves: list[Half] = field(default_factory=list)


class Place:
    """Where a task stands: sink, micro-batch and partition."""

    def __init__(self, sink: str) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "write() runs in a Spark task"
        self.partition = context.partitionId()
        self.batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        query = context.getLocalProperty("sql.streaming.queryId")
        self.sink = f"{sink}:{query}" if query else sink


_placements: dict[tuple[SinkOptions, str, str, int], tuple[float, Placement]] = {}
"""What the tasks of this worker process agreed on lately, and until when it is kept."""


def _agreed(options: SinkOptions, routes: WriteRoutes, sink: str, topic: str, batch: int, clock: Clock) -> Placement:
    """Returns the placement of a topic in a micro-batch; the tasks of a worker process ask once."""
    key, now = (options, sink, topic, batch), clock.monotonic()
    for other in [other for other, (until, _) in _placements.items() if until < now]:
        del _placements[other]
    if key not in _placements:
        book = LedgerBook(options, routes)
        found = WriteLedger(sink, book.groups, book).placement(topic, batch, routes.queues(topic))
        _placements[key] = (now + _PLACEMENT_SECONDS, found)
    return _placements[key][1]


class TaskWriter:
    """Encodes and sends the rows of one task."""

    def __init__(
        self,
        options: SinkOptions,
        columns: dict[str, str],
        place: Any,
        outbox: Outbox,
        *,
        transactional: bool = False,
        known_rows: list[int] | None = None,
    ) -> None:
        """`known_rows`: how many rows each partition had when this write was completed before."""
        self._options = options
        self._transactional = transactional
        self._is_checked = options.delivery is Delivery.EXACTLY_ONCE and not transactional
        self._known_rows = known_rows
        self.halves: list[Half] = []
        if transactional:
            outbox.on_ack = self._half_stored
        self._encoder = Encoder(options, columns)
        self._clock = SystemClock()
        self._place = place
        self._outbox = outbox
        self._rows = 0
        """Rows of this partition so far."""
        self._before: dict[QueueRef, int] = {}
        """Sequence of the last row sent to each queue."""
        self._copies = f"{ACK_COPIES}\x01{options.copies}\x02" if options.copies else ""

    def write(self, batch: pa.RecordBatch) -> None:
        parts = max(1, -(-batch.nbytes // _ENCODED_BYTES_MAX))
        step = -(-len(batch) // parts)
        for start in range(0, len(batch), step):
            self._write(batch.slice(start, step))

    def _write(self, batch: pa.RecordBatch) -> None:
        first, self._rows = self._rows, self._rows + len(batch)
        if self._rows > ROWS_MAX:
            raise ConfigError(f"partition {self._place.partition} has more than {ROWS_MAX:,} rows: use more partitions")
        self._check_rows(is_all=False)
        for topic, rows in self._encoder.by_topic(batch, first):
            self._send(topic, rows)

    def finish(self) -> None:
        """Returns when all rows are acknowledged."""
        self._check_rows(is_all=True)
        self._outbox.flush()

    def _check_rows(self, *, is_all: bool) -> None:
        if self._known_rows is not None:
            place = self._place
            WriteLedger.check_rows(place.sink, self._known_rows, place.partition, self._rows, is_all=is_all)

    def _send(self, topic: str, rows: Rows) -> None:
        agreed = self._placement(topic)
        chosen = self._chosen(rows, agreed.queues)
        made = elements(rows, self._keys(rows, chosen, agreed.queues))
        for index in np.unique(chosen).tolist():
            mine, queue = np.flatnonzero(chosen == index), agreed.queues[index]
            if self._transactional:
                self._send_halves(queue, rows, made, mine)
            elif not rows.alone.any():
                self._send_batches(queue, rows, made, mine, agreed.since_ms)
            else:
                # The order within the queue is the data's: runs of ordinary rows as batches, the others one by one.
                edges = np.flatnonzero(np.diff(rows.alone[mine].astype(np.int8))) + 1
                for part in np.split(mine, edges):
                    send = self._send_singles if rows.alone[part[0]] else self._send_batches
                    send(queue, rows, made, part, agreed.since_ms)

    def _placement(self, topic: str) -> Placement:
        if self._is_checked:
            place = self._place
            return _agreed(self._options, self._outbox.routes, place.sink, topic, place.batch, self._clock)
        return Placement(self._outbox.routes.queues(topic), 0)

    def _chosen(self, rows: Rows, queues: tuple[QueueRef, ...]) -> Array:
        """Returns the index of each row's queue: the column queue_id, else the sharding key, else in turns."""
        chosen = placement.in_turns(rows.numbers, len(queues), self._place.partition, self._place.batch)
        if rows.sharding is not None:
            chosen = placement.by_key(rows.sharding, chosen, len(queues))
        if rows.partitions is not None:
            chosen = placement.by_partition(rows.partitions.astype(np.int64), chosen, queues)
        if rows.queue_ids is not None:
            chosen = placement.by_queue_id(rows.queue_ids.astype(np.int64), chosen, queues)
        return chosen

    def _keys(self, rows: Rows, chosen: Array, queues: tuple[QueueRef, ...]) -> pa.Array:
        sequences = sequence(self._place.batch, 0) + rows.numbers
        if self._is_checked:
            return keys(CHECKED_PREFIX, [self._producer(queue) for queue in queues], chosen, sequences)
        writer = writer_id(self._place.sink, self._place.partition)
        return keys(PREFIX, [writer], np.zeros(len(rows), dtype=np.int64), sequences)

    def _producer(self, queue: QueueRef) -> str:
        place = self._place
        return producer_id(place.sink, place.partition, queue.topic, queue.broker_name, queue.queue_id)

    def _claim(self, queue: QueueRef, numbers: Array, since_ms: int) -> str:
        if not self._is_checked:
            return ""
        first, last = (sequence(self._place.batch, int(number)) for number in (numbers[0], numbers[-1]))
        text = claim(self._producer(queue), self._before.get(queue), first, last, len(numbers), since_ms)
        self._before[queue] = last
        return text

    def _send_batches(self, queue: QueueRef, rows: Rows, made: Elements, mine: Array, since_ms: int) -> None:
        for part in made.cuts(mine, self._options.batch_bytes):
            properties = self._copies + WAIT_STORED + self._claim(queue, rows.numbers[part], since_ms)
            self._outbox.send(Outgoing(queue, made.taken(part), len(part), 0, properties))

    def _send_singles(self, queue: QueueRef, rows: Rows, made: Elements, mine: Array, since_ms: int) -> None:
        for row in mine.tolist():
            text = made.properties(row) + WAIT_STORED + self._claim(queue, rows.numbers[row : row + 1], since_ms)
            self._outbox.send(Outgoing(queue, rows.bodies[row].as_py(), 1, int(rows.sys_flags[row]), text, single=True))

    def _send_halves(self, queue: QueueRef, rows: Rows, made: Elements, mine: Array) -> None:
        """Sends each row as a half message of its own; transactions know no batches."""
        if "delay_level" in self._encoder.columns:
            raise ConfigError("column `delay_level`: a transactional message can't be delayed; leave the column out")
        extra = half_properties(self._options) + WAIT_STORED
        for row in mine.tolist():
            flags = int(rows.sys_flags[row]) | TRANSACTION_PREPARED
            text = made.properties(row) + extra
            self._outbox.send(Outgoing(queue, rows.bodies[row].as_py(), 1, flags, text, single=True))

    def _half_stored(self, outgoing: Outgoing, ack: Ack) -> None:
        key = outgoing.properties.partition(f"{UNIQUE_KEY}\x01")[2].partition("\x02")[0]
        self.halves.append(half_of(outgoing.queue, key, ack.queue_offset, ack.message_ids))


class _SinkWriting:
    """What batch and streaming share: a task, and whether it needs transactions."""

    options: SinkOptions
    columns: dict[str, str]
    sink: str
    write_id: str
    """Names the write or micro-batch."""
    transactional: bool
    known_rows: list[int] | None = None

    def prepare(self, options: SinkOptions, schema: Any, sink: str) -> None:
        self.options = options
        self.columns = checked_columns(schema, options)
        self.sink = sink
        self.write_id = uuid.uuid4().hex
        exactly = options.delivery is Delivery.EXACTLY_ONCE
        self.transactional = exactly and (options.transactional or not refuses_repeats(options))

    @property
    def is_checked(self) -> bool:
        """Whether our broker checks for repeats."""
        return self.options.delivery is Delivery.EXACTLY_ONCE and not self.transactional

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        place = Place(self.sink)
        outbox = Outbox(self.options, routes_of_process(self.options, self.write_id))
        try:
            task = TaskWriter(
                self.options,
                self.columns,
                place,
                outbox,
                transactional=self.transactional,
                known_rows=self.known_rows,
            )
            for batch in iterator:
                if batch.num_rows:
                    task.write(batch)
            task.finish()
            sent = outbox.sent
            return Written(place.partition, sent.messages, sent.size, place.sink, place.batch, task.halves)
        finally:
            outbox.close()

    def decide(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the micro-batch count. Other deliveries have nothing to decide: all was acknowledged."""
        written = [message for message in messages if isinstance(message, Written)]
        if self.transactional and written:
            halves = [half for message in written for half in message.halves]
            Coordinator(self.options, written[0].sink).commit(written[0].batch, halves)

    def take_back(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rolls back only what no decision names: Spark calls this also when commit() itself raised."""
        written = [message for message in messages if isinstance(message, Written)]
        if self.transactional and written:
            halves = [half for message in written for half in message.halves]
            Coordinator(self.options, written[0].sink).abort(written[0].batch, halves)


class TopicWriter(_SinkWriting, DataSourceArrowWriter):
    """Batch sink."""

    def __init__(self, options: SinkOptions, schema: Any) -> None:
        self.prepare(options, schema, options.sink_id or uuid.uuid4().hex)
        if self.is_checked and options.sink_id:
            known = LedgerBook(options, WriteRoutes(options)).find(f"complete/{self.sink}")
            self.known_rows = None if known is None else known["rows"]

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.decide(messages)
        if self.is_checked and self.options.sink_id:
            written = sorted((m for m in messages if isinstance(m, Written)), key=lambda message: message.partition)
            book = LedgerBook(self.options, WriteRoutes(self.options))
            WriteLedger(self.sink, book.groups, book).complete([message.messages for message in written])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.take_back(messages)


class TopicStreamWriter(_SinkWriting, DataSourceStreamArrowWriter):
    """Streaming sink. The query's id is part of the keys, so a replayed micro-batch makes the same ones."""

    def __init__(self, options: SinkOptions, schema: Any) -> None:
        self.prepare(options, schema, options.sink_id or "stream")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.decide(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.take_back(messages)
