"""Writes rows as a task of the sink does, and reads a topic back, without a JVM."""

from typing import Any

import pyarrow as pa

from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.options import PullOptions, SinkOptions, parse
from tandemq.spark.sink import writer as sink_writer
from tandemq.spark.sink.outbox import Outbox, Sent
from tandemq.spark.sink.routes import WriteRoutes, forget_routes_of_process
from tandemq.spark.sink.writable_columns import checked_columns
from tandemq.spark.sink.writer import TaskWriter
from tandemq.spark.source.broker_queues import BrokerAccess
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.offsets import slices_of

ROWS = default_arrow_schema(["queue_id", "queue_offset", "keys", "tags", "body", "msg_id", "properties"])


class Place:
    """Where a task stands."""

    def __init__(self, batch: int = 0, partition: int = 0, sink: str = "s") -> None:
        self.batch, self.partition, self.sink = batch, partition, sink


def sink(cluster: Any, **given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": cluster.nameserver, "topic": "t", **given})


def write(
    options: SinkOptions,
    batch: pa.RecordBatch,
    place: Place | None = None,
    *,
    known_rows: list[int] | None = None,
    arrow_rows: int = 10_000,
) -> Sent:
    """Writes as a task of a fresh worker process would, in Arrow batches of `arrow_rows`."""
    forget_process()
    outbox = Outbox(options, WriteRoutes(options))
    try:
        columns = checked_columns(batch.schema, options)
        task = TaskWriter(options, columns, place or Place(), outbox, known_rows=known_rows)
        for start in range(0, len(batch), arrow_rows):
            task.write(batch.slice(start, arrow_rows))
        task.finish()
    finally:
        outbox.close()
    return outbox.sent


def forget_process() -> None:
    """Drops what the tasks of one worker process share."""
    forget_routes_of_process()
    sink_writer._placements.clear()


def read(cluster: Any, **given: str) -> list[dict[str, Any]]:
    options = parse(PullOptions, {"nameserver": cluster.nameserver, "subscribe": "t", **given})
    access = BrokerAccess(options)
    ranges = access.ranges()
    rows = []
    for piece in slices_of({q: r.first for q, r in ranges.items()}, {q: r.next for q, r in ranges.items()}):
        for batch in access.read(piece, Decoder(ROWS, broker=piece.queue.broker_name), 1000, False):
            rows += batch.to_pylist()
    return rows


def numbered(count: int, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [f"m{n}".encode() for n in range(count)], **more})


def numbers(cluster: Any, **given: str) -> list[int]:
    """Returns the numbers of `numbered` rows in a topic, sorted."""
    return sorted(int(row["body"][1:]) for row in read(cluster, **given))
