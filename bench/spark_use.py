"""What people wait for at a prompt and in a loop: first rows, count(), an idle trigger, a plan of many queues."""

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.frame import Benchmark, Figure, Run
from bench.spark import FORMAT, floor, growing, pair, session, work_directory, write_store
from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.client.bulk import BatchSender
from tandemq.formats.batch import encode_batch
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.source.broker_queues import BrokerAccess
from tandemq.spark.source.queue_order import QueueBatchReader, QueueStreamReader

MESSAGES = 1_000_000
QUEUES = 1000
TOPICS = 10
"""Topics of QUEUES queues each that are planned together."""
ROWS = 20
WARM_UP = 8
"""Queries before the first round, while the JVM compiles."""


@dataclass
class Log:
    spark: Any
    store: str
    messages: int
    root: Path


@contextlib.contextmanager
def log(run: Run) -> Iterator[Log]:
    store = run.directory / "store"
    messages = write_store(store, run.count(MESSAGES, 20_000))
    with session(run) as spark:
        df = spark.read.format(FORMAT).load(str(store))
        df.write.parquet(str(run.directory / "parquet"))
        os.sync()  # no figure pays for what was written before
        for _ in range(WARM_UP):
            df.count()
            df.take(ROWS)
            spark.read.parquet(str(run.directory / "parquet")).count()
        yield Log(spark, str(store), messages, run.directory)


def seconds(action: Callable[[], object], times: int = 5) -> float:
    """Median of several runs."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def first_rows(load: Callable[[Log], Any]) -> Callable[[Run], dict[str, float]]:
    def measure(run: Run) -> dict[str, float]:
        shared: Log = run.shared
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return {
                "take": seconds(lambda: load(shared).take(ROWS)),
                "limit": seconds(lambda: load(shared).limit(ROWS).collect()),
                "show": seconds(lambda: load(shared).show(ROWS)),
            }

    return measure


def of_log(shared: Log) -> Any:
    return shared.spark.read.format(FORMAT).load(shared.store)


def of_parquet(shared: Log) -> Any:
    return shared.spark.read.parquet(str(shared.root / "parquet"))


def counted(load: Callable[[Log], Any]) -> Callable[[Run], dict[str, float]]:
    def measure(run: Run) -> dict[str, float]:
        shared: Log = run.shared
        taken = seconds(lambda: load(shared).count())
        return {"seconds": taken * 1_000_000 / shared.messages}

    return measure


# -- a session without our settings ------------------------------------------------------------------------


@contextlib.contextmanager
def plain_session(run: Run) -> Iterator[tuple[Any, Path]]:
    """Spark as it comes, and a log that grows while it is read."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.local.dir", str(work_directory() / "local"))
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        store = run.directory / "growing"
        with growing(store):
            yield spark, store
    finally:
        spark.stop()


def plain_floor(run: Run) -> dict[str, float]:
    spark, store = run.shared
    df = spark.readStream.format(FORMAT).schema("body BINARY").option("minPartitions", "2").load(str(store))
    return {"milliseconds": floor(df, run.directory / f"floor-{run.round}", 40)}


# -- many queues --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def many_queues(run: Run) -> Iterator[dict[str, str]]:
    topics = {f"wide{number}": run.count(QUEUES, 10) for number in range(TOPICS)}
    with pair(run.directory / "pair", topics) as nameserver:
        fill(nameserver, "wide0", topics["wide0"])
        yield {"nameserver": nameserver, "startingOffsets": "earliest"}


def fill(nameserver: str, topic: str, queues: int) -> None:
    """A message to every queue, and until a slave has them: empty queues are asked for at every member."""
    access = ClusterAccess(namesrv=nameserver)
    cluster = BlockingCluster(access)
    route = cluster.route(topic)
    assert route is not None
    master = route.groups[0].master
    assert master is not None
    with BatchSender(master, depth=8) as sender:
        for queue in range(queues):
            sender.send(topic, queue, encode_batch([(0, b"x", b"")]))
        sender.flush()
    slaves = [address for broker_id, address in route.groups[0].addresses.items() if broker_id]
    deadline = time.monotonic() + 60
    while any(cluster.log_end(slave) < cluster.log_end(master) for slave in slaves) and time.monotonic() < deadline:
        time.sleep(0.05)


def idle_trigger(run: Run) -> dict[str, float]:
    """What the source does in a trigger without news, after the first ones."""
    options = parse(PullOptions, {**run.shared, "subscribe": "wide0"})
    reader = QueueStreamReader(options, BrokerAccess(options), default_arrow_schema())
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    def trigger() -> None:
        nonlocal offset
        offset = reader.latestOffset(offset, ReadAllAvailable())
        reader.reportLatestOffset()

    seconds(trigger)
    return {"milliseconds": 1000 * seconds(trigger, 21)}


def planned(run: Run) -> dict[str, float]:
    options = parse(PullOptions, {**run.shared, "subscribe": ",".join(f"wide{n}" for n in range(TOPICS))})
    return {"seconds": seconds(lambda: QueueBatchReader(options, BrokerAccess(options), SCHEMA).partitions(), 3)}


SCHEMA = default_arrow_schema()
BENCHMARKS = {
    "first-rows": Benchmark(
        "the first 20 rows of a log, all columns, by take, limit and show",
        {name: Figure("s", "less", goal=0.3) for name in ("take", "limit", "show")},
        {"ours": first_rows(of_log), "parquet": first_rows(of_parquet)},
        setup=log,
        rounds=3,
    ),
    "count": Benchmark(
        "count() of a DataFrame without options",
        {"seconds": Figure("s per million", "less", goal=0.4)},
        {"ours": counted(of_log), "parquet": counted(of_parquet)},
        setup=log,
        rounds=3,
    ),
    "plain-floor": Benchmark(
        "micro-batch, two partitions, a session without our settings",
        {"milliseconds": Figure("ms", "less", goal=100)},
        {"ours": plain_floor},
        setup=plain_session,
        rounds=3,
    ),
    "idle": Benchmark(
        "the source's part of a trigger without news, 1,000 queues of a live pair",
        {"milliseconds": Figure("ms", "less", goal=50)},
        {"ours": idle_trigger},
        setup=many_queues,
        rounds=3,
    ),
    "plan": Benchmark(
        "10,000 queues of ten topics on a live pair, planned for a batch read",
        {"seconds": Figure("s", "less", goal=2)},
        {"ours": planned},
        setup=many_queues,
        rounds=3,
    ),
}
