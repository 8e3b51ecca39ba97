"""The pipeline against Kafka's own Spark connector: one Spark session, the same rows, the sides in turn.

Messages with 16-byte keys and 600-byte bodies, two partitions each. Both sides deliver and archive the same seven
columns (key, body, topic, partition, offset, timestamp, a flag); `all columns` is everything a record has. Kafka's
micro-batches run with Spark's own settings, ours with those of `session_builder`: what each gives out of the box.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.tools import Missing

from bench.frame import Benchmark, Figure, Run, Unavailable
from bench.kafka_broker import BROKER_VERSION, CONNECTOR_VERSION, Kafka, connector_jars, kafka
from bench.spark import (
    BODY,
    FORMAT,
    RATE,
    await_slave,
    floor,
    noop,
    pair,
    rate,
    session,
    write_store,
)
from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.client.bulk import BatchSender
from tandemq.formats.batch import encode_batch
from tandemq.spark.columns import DEFAULT_COLUMNS
from tandemq.spark.jobs.archive import ArchivePlan, archive
from tandemq.spark.runtime.query_start import started

MESSAGES = 2_000_000
"""What a query costs before its first row must not decide the comparison."""
SENT = 500_000
OURS = "keys STRING, body BINARY, topic STRING, queue_id INT, queue_offset BIGINT, store_timestamp TIMESTAMP, flag INT"
SAME_COLUMNS = tuple(column.split()[0] for column in OURS.split(", "))
THEIRS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
PER_BATCH = 100_000
"""Messages of a micro-batch when a backlog is read as a stream."""
TRICKLE = 20
"""Messages a second while the floor is measured."""
BATCHES = 30
SPARKS_OWN = {
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": None,
}


@dataclass
class Field:
    """What all rounds share."""

    spark: Any
    root: Path
    store: Path
    rows: Path
    messages: int
    sent: int
    nameserver: str
    kafka: Kafka | None
    missing: str


@contextlib.contextmanager
def field(run: Run) -> Iterator[Field]:
    """A log with its rows on a live pair and in Kafka, and a file of rows to send."""
    root = run.directory
    with contextlib.ExitStack() as stack:
        broker, jars, missing = None, "", ""
        try:
            jars = connector_jars()
            broker = stack.enter_context(kafka(root / "kafka"))
            for topic in ("bench", "sink", "trickle"):
                broker.create_topic(topic, 2)
        except Missing as reason:
            missing = str(reason)
        nameserver = stack.enter_context(pair(root / "pair", {"bench": 2, "sink": 2, "trickle": 2}))
        spark = stack.enter_context(session(run, {"spark.jars": jars} if jars else {}))
        store, rows = root / "store", root / "rows.parquet"
        messages = write_store(store, run.count(MESSAGES, 20_000))
        all_rows = spark.read.format(FORMAT).schema("keys STRING, body BINARY").load(str(store))
        all_rows.write.format("rocketmq").option("nameserver", nameserver).option("topic", "bench").mode(
            "append"
        ).save()
        sent = run.count(SENT, 5000)
        all_rows.limit(sent).repartition(2).write.parquet(str(rows))
        if broker is not None:
            send_kafka(all_rows, broker, "bench")
        await_slave(spark, nameserver, "bench", messages)
        shared = Field(spark, root, store, rows, messages, sent, nameserver, broker, missing)
        # JIT and workers are warm before the first round.
        noop(spark.read.format(FORMAT).load(str(store)))
        archive_ours(shared, root / "warm", SAME_COLUMNS)
        if broker is not None:
            noop(of_kafka(spark.read, broker, "bench").load())
            archive_kafka(shared, broker, root / "warm")
        yield shared


def send_kafka(df: Any, broker: Kafka, topic: str) -> None:
    writer = df.selectExpr("keys as key", "body as value").write.format("kafka")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic).save()


def of_kafka(reader: Any, broker: Kafka, topic: str) -> Any:
    return reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)


def kafka_rows(f: Field, broker: Kafka) -> Any:
    return of_kafka(f.spark.read, broker, "bench").load().select(*THEIRS)


def archive_ours(f: Field, target: Path, columns: tuple[str, ...]) -> float:
    paths = str(target / "lake"), str(target / "checkpoint")
    plan = ArchivePlan(*paths, FORMAT, {"path": str(f.store)}, columns)
    reached = settled(f.messages, lambda: archive(f.spark, plan))
    shutil.rmtree(target)
    return reached


def archive_kafka(f: Field, broker: Kafka, target: Path) -> float:
    reached = settled(f.messages, lambda: kafka_rows(f, broker).write.parquet(str(target)))
    shutil.rmtree(target)
    return reached


def settled(messages: int, action: Callable[[], object]) -> float:
    """Messages per second, once the disk has what was written before: no figure pays for another one's bytes."""
    os.sync()
    return rate(messages, action)


def ours(run: Run) -> dict[str, float]:
    f: Field = run.shared
    files = f.spark.read.format(FORMAT)
    live = f.spark.read.format("rocketmq").schema(OURS).option("nameserver", f.nameserver).option("subscribe", "bench")
    written = f.spark.read.parquet(str(f.rows)).write.format("rocketmq").option("nameserver", f.nameserver)
    found = {
        "batch": settled(f.messages, lambda: noop(files.schema(OURS).load(str(f.store)))),
        "all columns": settled(f.messages, lambda: noop(f.spark.read.format(FORMAT).load(str(f.store)))),
        "pull": settled(f.messages, lambda: noop(live.load())),
        "sink": settled(f.sent, lambda: written.option("topic", "sink").mode("append").save()),
    }
    backlog = f.spark.readStream.format("rocketmq").schema(OURS).option("nameserver", f.nameserver)
    backlog = backlog.option("subscribe", "bench").option("startingOffsets", "earliest")
    found["stream"] = settled(f.messages, lambda: caught_up(backlog, f.root / f"stream-ours-{run.round}"))
    # The slave shows what poured in a little later: what is measured next must not share the machine with that.
    await_slave(f.spark, f.nameserver, "sink", f.sent * (run.round + 1))
    with trickle(f.nameserver):
        stream = f.spark.readStream.format("rocketmq").schema(OURS).option("nameserver", f.nameserver)
        stream = stream.option("subscribe", "trickle").option("minRecordsPerPartition", "0").load()
        found["floor"] = floor(stream, f.root / f"floor-ours-{run.round}", BATCHES + 10)
    return found


def their_broker(f: Field) -> Kafka:
    if f.kafka is None:
        raise Unavailable(f.missing)
    return f.kafka


def archived_ours(run: Run) -> dict[str, float]:
    f: Field = run.shared
    return {
        "same columns": archive_ours(f, f.root / f"lake-{run.round}", SAME_COLUMNS),
        "all columns": archive_ours(f, f.root / f"lake-all-{run.round}", DEFAULT_COLUMNS),
    }


def archived_theirs(run: Run) -> dict[str, float]:
    f: Field = run.shared
    written = archive_kafka(f, their_broker(f), f.root / f"kafka-parquet-{run.round}")
    return {"same columns": written, "all columns": written}


def theirs(run: Run) -> dict[str, float]:
    f: Field = run.shared
    broker = their_broker(f)
    read = settled(f.messages, lambda: noop(kafka_rows(f, broker)))
    found = {
        "batch": read,
        "all columns": read,
        "pull": read,
        "sink": settled(f.sent, lambda: send_kafka(f.spark.read.parquet(str(f.rows)), broker, "sink")),
    }
    with sparks_own_settings(f.spark):
        backlog = of_kafka(f.spark.readStream, broker, "bench").option("startingOffsets", "earliest")
        target = f.root / f"stream-kafka-{run.round}"
        found["stream"] = settled(f.messages, lambda: caught_up(backlog, target, THEIRS))
    with broker.trickle("trickle", TRICKLE), sparks_own_settings(f.spark):
        stream = of_kafka(f.spark.readStream, broker, "trickle").load().select(*THEIRS)
        found["floor"] = floor(stream, f.root / f"floor-kafka-{run.round}", BATCHES + 10)
    return found


def caught_up(reader: Any, checkpoint: Path, columns: tuple[str, ...] = ("*",)) -> None:
    """Reads all that is there as a stream, in limited micro-batches, to a sink that drops it."""
    df = reader.option("maxOffsetsPerTrigger", str(PER_BATCH)).load().select(*columns)
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started(writer).awaitTermination()


@contextlib.contextmanager
def sparks_own_settings(spark: Any) -> Iterator[None]:
    """Micro-batches as Spark makes them without our session's settings."""
    ours = {key: spark.conf.get(key) for key in SPARKS_OWN}
    for key, value in SPARKS_OWN.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in ours.items():
            spark.conf.set(key, value)


@contextlib.contextmanager
def trickle(nameserver: str) -> Iterator[None]:
    """A thread that sends messages at a steady rate, to both queues in turn."""
    route = BlockingCluster(ClusterAccess(namesrv=nameserver)).route("trickle")
    assert route is not None
    master = route.groups[0].master
    assert master is not None
    stopped = threading.Event()

    def feed() -> None:
        batch = encode_batch([(0, bytes(BODY), b"")])
        with BatchSender(master, depth=1) as sender:
            number = 0
            while not stopped.wait(1 / TRICKLE):
                sender.send("trickle", number % 2, batch)
                number += 1
            sender.flush()

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


THEM = f"kafka {BROKER_VERSION}, connector {CONNECTOR_VERSION}"
NOTES = "one Kafka node without replicas; ours is an async pair"
BENCHMARKS = {
    "connector": Benchmark(
        "Spark with our sources and sink, and with Kafka's connector, on the same rows",
        {
            "batch": Figure(RATE, goal_ratio=1.5, what="a log of ours as files; Kafka's batch read"),
            "all columns": Figure(RATE, what="the same with all eighteen columns of ours"),
            "pull": Figure(RATE, goal_ratio=1.8, what="from a live slave; Kafka's batch read"),
            "stream": Figure(RATE, goal_ratio=1.2, what="a backlog as a stream, 100,000 messages per micro-batch"),
            "sink": Figure(RATE, goal_ratio=1.2, what="rows of a Parquet file to a topic, one copy"),
            "floor": Figure("ms", "less", goal_ratio=0.7, what="a micro-batch of two partitions, median"),
        },
        {"ours": ours, THEM: theirs},
        setup=field,
        rounds=3,
        takes_memory=True,
        notes=NOTES,
    ),
    "archive": Benchmark(
        "to Parquet: our archive job with its Delta commits; Kafka's batch read to Spark's writer",
        {
            "same columns": Figure(RATE, goal_ratio=2.0, what="seven columns on both sides"),
            "all columns": Figure(RATE, what="all eighteen columns of ours"),
        },
        {"ours": archived_ours, THEM: archived_theirs},
        setup=field,
        rounds=3,
        takes_memory=True,
        notes=NOTES,
    ),
}
