"""The sink: Arrow batches to topics, batch and streaming; a task succeeds only when every message was acknowledged.

Rows go to the queue their `queue_id` or `sharding_key` says; others fill the queues in turns, a whole send at a time.
Where a row goes and which key it gets depends on its place in the partition only, so a repeated task repeats itself.
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
from tandemq.errors import ConfigError
from tandemq.model.message import ACK_COPIES, TRANSACTION_PREPARED, UNIQUE_KEY, java_hash
from tandemq.model.topic import QueueRef
from tandemq.spark.encoder import Encoder, Rows, checked_columns, cuts, elements, keyed
from tandemq.spark.idempotent_key import PREFIX, producer_id, sequence
from tandemq.spark.options import Delivery, SinkOptions
from tandemq.spark.sender import WAIT_STORED, Outgoing, Sender
from tandemq.spark.transactions import Coordinator, Half, half_of, half_properties, refuses_repeats
from tandemq.spark.worker import settle

IDEMPOTENT = "__TQ_IDEMPOTENT"
"""Property of a send that our broker checks: producer:first sequence:count."""


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


class TaskWriter:
    """Encodes and sends the rows of one task."""

    def __init__(
        self, options: SinkOptions, columns: dict[str, str], place: Any, sender: Sender, *, transactional: bool = False
    ) -> None:
        self._options = options
        self._transactional = transactional
        self.halves: list[Half] = []
        if transactional:
            sender.on_ack = self._half_stored
        self._encoder = Encoder(options, columns)
        self._place = place
        self._sender = sender
        self._rows_of: dict[QueueRef, int] = {}
        self._producers: dict[QueueRef, str] = {}
        self._turn: dict[str, int] = {}
        self._copies = f"{ACK_COPIES}\x01{options.copies}\x02" if options.copies else ""

    def write(self, batch: pa.RecordBatch) -> None:
        for topic, rows in self._encoder.by_topic(batch):
            for queue, part in self._placed(topic, rows):
                self._send(queue, part)

    def _placed(self, topic: str, rows: Rows) -> Iterator[tuple[QueueRef, Rows]]:
        """(queue, rows that go there); rows without a wish go round in runs of about one send."""
        queues = self._sender.queues(topic)
        if rows.queue_ids is None and rows.sharding is None:
            mean = max(1, rows.bodies.nbytes // max(1, len(rows)) + 150)
            run = max(1, self._options.batch_bytes // mean)
            for start in range(0, len(rows), run):
                turn = self._turn.get(topic, self._place.partition)
                self._turn[topic] = turn + 1
                yield queues[turn % len(queues)], rows.between(start, min(len(rows), start + run))
            return
        chosen = self._chosen(topic, rows, queues)
        for number in np.unique(chosen).tolist():
            yield queues[number], rows.taken(np.flatnonzero(chosen == number))

    def _chosen(self, topic: str, rows: Rows, queues: tuple[QueueRef, ...]) -> npt.NDArray[np.int64]:
        """Index into `queues` per row: the column queue_id, else the hash of the sharding key, else the row's turn."""
        chosen = (np.arange(len(rows)) + self._place.partition) % len(queues)
        if rows.sharding is not None:
            encoded = rows.sharding.dictionary_encode()
            hashes = [abs(java_hash(key)) % len(queues) for key in encoded.dictionary.to_pylist()]
            known = np.asarray(encoded.indices.is_valid())
            numbers = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
            if hashes:
                chosen = np.where(known, np.array(hashes, dtype=np.int64)[numbers], chosen)
        if rows.queue_ids is not None:
            for number in np.unique(rows.queue_ids).tolist():
                if number >= 0:
                    chosen[rows.queue_ids == number] = queues.index(self._sender.queue(topic, number))
        return np.asarray(chosen, dtype=np.int64)

    def _send(self, queue: QueueRef, rows: Rows) -> None:
        if self._transactional:
            self._send_halves(queue, rows)
            return
        if not rows.alone.any():
            self._send_batches(queue, rows)
            return
        # Order within the queue is the data's: runs of ordinary rows as batches, the others one by one.
        edges = np.flatnonzero(np.diff(rows.alone.astype(np.int8))) + 1
        for part in np.split(np.arange(len(rows)), edges):
            if rows.alone[part[0]]:
                for row in part:
                    self._send_single(queue, rows.taken(np.array([row])))
            else:
                self._send_batches(queue, rows.taken(part))

    def _keyed(self, queue: QueueRef, rows: Rows) -> tuple[pa.Array, str, int]:
        if queue not in self._producers:
            place = self._place
            self._producers[queue] = producer_id(
                place.sink, place.partition, queue.topic, queue.broker_name, queue.queue_id
            )
        row = self._rows_of.get(queue, 0)
        self._rows_of[queue] = row + len(rows)
        first = sequence(self._place.batch, row)
        return keyed(rows, self._producers[queue], PREFIX, first), self._producers[queue], first

    def _checked(self, producer: str, first: int, count: int) -> str:
        if self._options.delivery is not Delivery.EXACTLY_ONCE or self._transactional:
            return ""
        return f"{IDEMPOTENT}\x01{producer}:{first:x}:{count}\x02"

    def _send_batches(self, queue: QueueRef, rows: Rows) -> None:
        properties, producer, first = self._keyed(queue, rows)
        data, starts = elements(rows, properties)
        for start, stop in cuts(starts, self._options.batch_bytes):
            self._sender.send(
                Outgoing(
                    queue,
                    bytes(data[starts[start] : starts[stop]]),
                    stop - start,
                    0,
                    self._copies + WAIT_STORED + self._checked(producer, first + start, stop - start),
                )
            )

    def _send_single(self, queue: QueueRef, rows: Rows) -> None:
        properties, producer, first = self._keyed(queue, rows)
        text = properties[0].as_py().decode("utf-8", "replace") + WAIT_STORED + self._checked(producer, first, 1)
        self._sender.send(Outgoing(queue, rows.bodies[0].as_py(), 1, int(rows.sys_flags[0]), text, single=True))

    def _send_halves(self, queue: QueueRef, rows: Rows) -> None:
        """Each row as a half message of its own; transactions know no batches."""
        if "delay_level" in self._encoder.columns:
            raise ConfigError("column `delay_level`: a transactional message can't be delayed; leave the column out")
        properties, _, _ = self._keyed(queue, rows)
        extra = half_properties(self._options) + WAIT_STORED
        for row in range(len(rows)):
            text = properties[row].as_py().decode("utf-8", "replace") + extra
            flags = int(rows.sys_flags[row]) | TRANSACTION_PREPARED
            self._sender.send(Outgoing(queue, rows.bodies[row].as_py(), 1, flags, text, single=True))

    def _half_stored(self, outgoing: Outgoing, ack: Ack) -> None:
        key = outgoing.properties.partition(f"{UNIQUE_KEY}\x01")[2].partition("\x02")[0]
        self.halves.append(half_of(outgoing.queue, key, ack.queue_offset, ack.message_ids))


class _Writing:
    """What batch and streaming share: a task, and whether it needs transactions."""

    options: SinkOptions
    columns: dict[str, str]
    sink: str
    transactional: bool

    def prepare(self, options: SinkOptions, schema: Any, sink: str) -> None:
        self.options = options
        self.columns = checked_columns(schema, options)
        self.sink = sink
        exactly = options.delivery is Delivery.EXACTLY_ONCE
        self.transactional = exactly and (options.transactional or not refuses_repeats(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        place = Place(self.sink)
        sender = Sender(self.options)
        try:
            task = TaskWriter(self.options, self.columns, place, sender, transactional=self.transactional)
            for batch in iterator:
                if batch.num_rows:
                    task.write(batch)
            sender.flush()
            sent = sender.sent
            return Written(place.partition, sent.messages, sent.size, place.sink, place.batch, task.halves)
        finally:
            sender.close()

    def decide(self, messages: list[WriterCommitMessage | None]) -> None:
        """The micro-batch counts from here on. Other deliveries have nothing to decide: all was acknowledged."""
        written = [message for message in messages if isinstance(message, Written)]
        if self.transactional and written:
            halves = [half for message in written for half in message.halves]
            Coordinator(self.options, written[0].sink).commit(written[0].batch, halves)

    def take_back(self, messages: list[WriterCommitMessage | None]) -> None:
        """Also called when commit() itself raised: only what no decision names is rolled back."""
        written = [message for message in messages if isinstance(message, Written)]
        if self.transactional and written:
            halves = [half for message in written for half in message.halves]
            Coordinator(self.options, written[0].sink).abort(written[0].batch, halves)


class TopicWriter(_Writing, DataSourceArrowWriter):
    """Batch sink."""

    def __init__(self, options: SinkOptions, schema: Any) -> None:
        self.prepare(options, schema, options.sink_id or uuid.uuid4().hex)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.decide(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.take_back(messages)


class TopicStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Streaming sink. The query's id is part of the keys, so a replayed micro-batch makes the same ones."""

    def __init__(self, options: SinkOptions, schema: Any) -> None:
        self.prepare(options, schema, options.sink_id or "stream")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.decide(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.take_back(messages)
