"""The pipeline: decoding, scanning a log against Parquet, archiving, pulling, the sink, the floor of a micro-batch.

One Spark session, local[2], one log of messages with 600-byte bodies and six properties; sides alternate by round.
Everything is warm: files are in the page cache, JIT and Python workers have run before the first round counts.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.frame import Benchmark, Figure, Run, Unavailable
from tandemq.codec.record import encode_record, parse_record, walk
from tandemq.model.message import encode_properties
from tandemq.spark.columns import DEFAULT_COLUMNS, default_arrow_schema
from tandemq.spark.decoder import Decoder
from tandemq.spark.jobs.archive import ArchivePlan, archive
from tandemq.spark.session import session_builder
from tandemq.spark.walk import walk as walk_vectorised

BODY = 600
SEGMENT = 1 << 30
MESSAGES = 1_500_000
FORMAT = "rocketmq-commitlog"
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")


# -- data -----------------------------------------------------------------------------------------


def block(count: int) -> tuple[bytes, np.ndarray[Any, Any]]:
    """`count` records of one topic and where they begin; offsets inside count from 0."""
    rng = np.random.default_rng(1)
    pool = rng.integers(32, 127, 1 << 20, dtype=np.uint8).tobytes()
    parts, starts, size = [], [], 0
    for n in range(count):
        at = int(rng.integers(0, len(pool) - BODY))
        properties = {
            "KEYS": f"order-{n}", "TAGS": f"tag{n % 5}", "UNIQ_KEY": f"{n:032X}", "WAIT": "true",
            "CLUSTER": "DefaultCluster", "region": f"r{n % 9}",
        }  # fmt: skip
        record = encode_record(
            topic="bench", queue_id=n % 4, queue_offset=n // 4, physical_offset=size,
            born_timestamp=1_700_000_000_000 + n, born_host=HOST, store_timestamp=1_700_000_000_001 + n,
            store_host=HOST, body=pool[at : at + BODY], properties=encode_properties(properties),
        )  # fmt: skip
        parts.append(record)
        starts.append(size)
        size += len(record)
    return b"".join(parts), np.array(starts)


def write_store(root: Path, messages: int) -> int:
    """A store of about so many messages, made of one block with its offsets rewritten; how many there are."""
    per_block = min(20_000, messages)
    data, starts = block(per_block)
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    written = offset = 0
    while written < messages:
        with open(folder / f"{offset:020d}", "wb") as file:
            left = SEGMENT
            while written < messages and left > len(data) + 8:
                copy = np.frombuffer(bytearray(data), dtype=np.uint8)
                places = (offset + SEGMENT - left + starts).astype(">i8").view(np.uint8).reshape(-1, 8)
                queue = ((written + np.arange(per_block)) // 4).astype(">i8").view(np.uint8).reshape(-1, 8)
                for byte in range(8):
                    copy[starts + 28 + byte] = places[:, byte]
                    copy[starts + 20 + byte] = queue[:, byte]
                file.write(copy)
                left -= len(data)
                written += per_block
            if written < messages:  # the last segment ends in zeros, as a broker's does
                file.write(left.to_bytes(4, "big") + bytes.fromhex("CBD43194"))
            file.truncate(SEGMENT)
        offset += SEGMENT
    return written


# -- session ---------------------------------------------------------------------------------------


@dataclass
class Shared:
    """What all rounds of one benchmark use."""

    spark: Any
    root: Path
    store: Path
    parquet: Path
    messages: int


@contextlib.contextmanager
def session(run: Run) -> Iterator[Any]:
    work = Path(tempfile.mkdtemp(prefix="tqb-"))
    builder = session_builder("bench", master="local[2]", work_directory=work).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def log_and_parquet(run: Run) -> Iterator[Shared]:
    """The log, and the same rows as Spark's own Parquet (snappy, its default)."""
    with session(run) as spark:
        store, parquet = run.directory / "store", run.directory / "rows.parquet"
        messages = write_store(store, run.count(MESSAGES, 20_000))
        spark.read.format(FORMAT).load(str(store)).write.parquet(str(parquet))
        shared = Shared(spark, run.directory, store, parquet, messages)
        noop(spark.read.format(FORMAT).load(str(store)))
        noop(spark.read.parquet(str(parquet)))
        yield shared


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def timed(messages: int, action: Any) -> dict[str, float]:
    begin = time.perf_counter()
    action()
    return {"rate": messages / (time.perf_counter() - begin)}


# -- decode ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def decode_data(run: Run) -> Iterator[bytes]:
    yield block(run.count(60_000, 2000))[0]


def decode_ours(run: Run) -> dict[str, float]:
    """All default columns, walk included, on one core's CPU time."""
    data = run.shared
    decoder = Decoder(default_arrow_schema(DEFAULT_COLUMNS))
    best = 0.0
    for _ in range(5):
        begin, rows = time.process_time(), 0
        positions = walk_vectorised(data, 0, len(data), len(data), base=0).positions
        for start in range(0, len(positions), 10_000):
            for batch in decoder.decode(data, positions[start : start + 10_000], 0):
                rows += batch.num_rows
        best = max(best, rows / (time.process_time() - begin))
    return {"rate": best}


def decode_plain(run: Run) -> dict[str, float]:
    """A Python object per message."""
    data = run.shared[: 4 << 20]
    begin, rows = time.process_time(), 0
    for position, _, _ in walk(data, 0, len(data)):
        parse_record(data, position)
        rows += 1
    return {"rate": rows / (time.process_time() - begin)}


# -- scan --------------------------------------------------------------------------------------------


def scan_ours(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    return timed(shared.messages, lambda: noop(shared.spark.read.format(FORMAT).load(str(shared.store))))


def scan_parquet(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    return timed(shared.messages, lambda: noop(shared.spark.read.parquet(str(shared.parquet))))


def body_ours(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    df = shared.spark.read.format(FORMAT).schema("body BINARY").load(str(shared.store))
    return timed(shared.messages, lambda: df.selectExpr("sum(length(body))").collect())


def body_parquet(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    df = shared.spark.read.parquet(str(shared.parquet))
    return timed(shared.messages, lambda: df.selectExpr("sum(length(body))").collect())


# -- archive -------------------------------------------------------------------------------------------


def archive_ours(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    target = shared.root / f"lake-{run.round}"
    plan = ArchivePlan(str(target / "lake"), str(target / "checkpoint"), FORMAT, {"path": str(shared.store)})
    result = timed(shared.messages, lambda: archive(shared.spark, plan))
    shutil.rmtree(target)
    return result


def archive_spark(run: Run) -> dict[str, float]:
    """The same rows through the JVM into Spark's own writer."""
    shared: Shared = run.shared
    target = shared.root / f"written-{run.round}"
    df = shared.spark.read.format(FORMAT).load(str(shared.store))
    result = timed(shared.messages, lambda: df.write.option("compression", "zstd").parquet(str(target)))
    shutil.rmtree(target)
    return result


# -- a live pair -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def live_pair(run: Run) -> Iterator[tuple[Any, str, Path, int]]:
    """An async master and its slave as processes of their own, a topic with messages, and rows to write."""
    directory = run.directory / "pair"
    tandemq = str(Path(sys.executable).parent / "tandemq")
    up = [tandemq, "up", "--dir", str(directory), "--async", "--detach", "--json"]
    started = subprocess.run(up, capture_output=True, text=True)
    if started.returncode:
        raise Unavailable(f"tandemq up: {started.stderr.strip()[-300:]}")
    nameserver = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    try:
        with session(run) as spark:
            rows = run.directory / "sink.parquet"
            count = run.count(400_000, 5000)
            columns = f"rpad(cast(id as string), {BODY}, 'x') as body", "concat('k', id) as keys", "'t' as tags"
            spark.range(0, count, 1, 2).selectExpr(*columns).write.parquet(str(rows))
            for topic in ("bench", "sink"):
                subprocess.run([tandemq, "topic", "create", topic, "-q", "4", "-n", nameserver], check=True)
            write(spark, rows, nameserver, "bench")
            yield spark, nameserver, rows, count
    finally:
        subprocess.run([tandemq, "down", "--dir", str(directory)], capture_output=True)


def write(spark: Any, rows: Path, nameserver: str, topic: str) -> None:
    writer = spark.read.parquet(str(rows)).write.format("rocketmq").option("nameserver", nameserver)
    writer.option("topic", topic).mode("append").save()


def sink_ours(run: Run) -> dict[str, float]:
    spark, nameserver, rows, count = run.shared
    return timed(count, lambda: write(spark, rows, nameserver, "sink"))


def pull_ours(run: Run) -> dict[str, float]:
    spark, nameserver, _, _ = run.shared
    reader = spark.read.format("rocketmq").option("nameserver", nameserver).option("subscribe", "bench")
    df = reader.option("minPartitions", "2").load()
    count = df.select("queue_offset").count()
    return timed(count, lambda: noop(df))


# -- the floor of a micro-batch ----------------------------------------------------------------------------


@contextlib.contextmanager
def growing_store(run: Run) -> Iterator[tuple[Any, Path]]:
    """A log that a thread appends to, so that every micro-batch has something to read, in two partitions."""
    with session(run) as spark:
        store = run.directory / "growing"
        write_store(store, 20_000)
        segment = store / "commitlog" / f"{0:020d}"
        stopped = threading.Event()
        data, starts = block(200)
        end = int.from_bytes(b"", "big")
        with open(segment, "rb") as file:
            content = file.read(64 << 20)
        for position, size, magic in walk(content, 0, len(content)):
            if magic != 0xCBD43194:
                end = position + size

        def append() -> None:
            nonlocal end
            while not stopped.wait(0.02):
                copy = np.frombuffer(bytearray(data), dtype=np.uint8)
                places = (end + starts).astype(">i8").view(np.uint8).reshape(-1, 8)
                for byte in range(8):
                    copy[starts + 28 + byte] = places[:, byte]
                with open(segment, "r+b") as file:
                    file.seek(end + 4)
                    file.write(copy[4:])
                    file.seek(end)
                    file.write(copy[:4])
                end += len(data)

        thread = threading.Thread(target=append, daemon=True)
        thread.start()
        try:
            yield spark, store
        finally:
            stopped.set()
            thread.join()


def floor_ours(run: Run) -> dict[str, float]:
    """Median trigger time of 40 micro-batches, source to a sink that drops the rows."""
    spark, store = run.shared
    reader = spark.readStream.format(FORMAT).schema("body BINARY").option("minPartitions", "2")
    df = reader.option("maxBytesPerPartition", "65536").load(str(store))
    checkpoint = run.directory / f"floor-{run.round}"
    query = (
        df.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    seen: dict[int, float] = {}
    while len(seen) < 50:
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        query.awaitTermination(0.5)
    query.stop()
    return {"milliseconds": statistics.median(list(seen.values())[10:])}


RATE = "messages/s"
BENCHMARKS = {
    "decode": Benchmark(
        "600-byte bodies to Arrow, all default columns, one core",
        {"rate": Figure(RATE, goal=800_000)},
        {"ours": decode_ours, "an object per message": decode_plain},
        setup=decode_data,
    ),
    "scan": Benchmark(
        "all columns of a log through Spark to a sink that drops them",
        {"rate": Figure(RATE, goal_ratio=0.9)},
        {"ours": scan_ours, "parquet": scan_parquet},
        setup=log_and_parquet,
    ),
    "body": Benchmark(
        "bodies only: sum(length(body))",
        {"rate": Figure(RATE, goal_ratio=1.2)},
        {"ours": body_ours, "parquet": body_parquet},
        setup=log_and_parquet,
    ),
    "archive": Benchmark(
        "a log to a lake, streaming, with its Delta commits",
        {"rate": Figure(RATE, goal_ratio=2.0)},
        {"ours": archive_ours, "spark's parquet writer": archive_spark},
        setup=log_and_parquet,
        rounds=3,
    ),
    "sink": Benchmark(
        "Arrow sink into a live async pair, 600-byte bodies",
        {"rate": Figure(RATE, goal=150_000)},
        {"ours": sink_ours},
        setup=live_pair,
        rounds=3,
    ),
    "pull": Benchmark(
        "all columns from a live slave",
        {"rate": Figure(RATE, goal=430_000)},
        {"ours": pull_ours},
        setup=live_pair,
        rounds=3,
        notes="the goal is what Kafka's own connector reached on a machine of this size",
    ),
    "floor": Benchmark(
        "micro-batch, two partitions, tuned session",
        {"milliseconds": Figure("ms", "less", goal=120)},
        {"ours": floor_ours},
        setup=growing_store,
        rounds=3,
    ),
}
