"""The pipeline: decoding, scanning a log against Parquet, archiving, pulling, the sink, the floor of a micro-batch.

One Spark session, local[2], logs of messages with 600-byte bodies and six properties; sides alternate by round.
Everything is warm: files are in the page cache, JIT and Python workers have run before the first round counts.
"""

import atexit
import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import undecoded
from bench.frame import Benchmark, Figure, Run, Unavailable
from tandemq.formats.crc import crc32
from tandemq.formats.record import (
    BODY_AT,
    CRC_AT,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    encode_record,
    parse_record,
    walk,
)
from tandemq.formats.record_starts import walk as walk_vectorised
from tandemq.model.message import encode_properties
from tandemq.spark.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema, default_arrow_schema, spark_schema
from tandemq.spark.jobs.archive import ArchivePlan, archive
from tandemq.spark.options import FileOptions, parse
from tandemq.spark.runtime.query_start import started
from tandemq.spark.session import session_builder
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.physical_order import LogBatchReader
from tandemq.spark.source.scan import decoded, runs

BODY = 600
SEGMENT = 1 << 30
MESSAGES = 2_500_000
"""About two segments: what a query costs before its first row must not decide the comparison."""
FORMAT = "rocketmq-commitlog"
BLOCK = 20
"""Messages that a growing log grows by, fifty times a second."""
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")


# -- data -----------------------------------------------------------------------------------------

Bodies = Callable[[np.random.Generator, int], "np.ndarray[Any, Any]"]
"""So many bodies of BODY bytes, a row each; no two are equal, so that a file format can't fold them together."""

ORDER = (
    '{"order":"##########","customer":"C########","status":"PAID","currency":"EUR","amount":"####.##",'
    '"created":"2026-11-1#T1#:##:##.###Z","channel":"web","coupon":"@@@@@@@@","items":['
    + ",".join('{"sku":"SKU-@@@@####","title":"Article @@@@@@","quantity":"#","price":"###.##"}' for _ in range(3))
    + '],"address":{"street":"@@@@@@@@@@ street ##","zip":"#####","city":"@@@@@@@@","country":"DE"},"trace":"'
)


def orders(rng: np.random.Generator, count: int) -> "np.ndarray[Any, Any]":
    """JSON as services send it: the same names in every body, digits and letters that differ."""
    text = ORDER + "@" * (BODY - len(ORDER) - 2) + '"}'
    template = np.frombuffer(text.encode(), dtype=np.uint8)
    rows = np.tile(template, (count, 1))
    for mark, low, high in ((b"#", 48, 58), (b"@", 65, 91)):
        places = np.flatnonzero(template == mark[0])
        rows[:, places] = rng.integers(low, high, (count, len(places)), dtype=np.uint8)
    return rows


def noise(rng: np.random.Generator, count: int) -> "np.ndarray[Any, Any]":
    """Random capitals, which no fast compressor makes smaller."""
    return rng.integers(65, 91, (count, BODY), dtype=np.uint8)


class Block:
    """`count` records of one topic, and where the parts lie that differ from block to block."""

    def __init__(self, count: int, bodies: Bodies = orders) -> None:
        self._rng = np.random.default_rng(1)
        self._bodies = bodies
        first = bodies(self._rng, count)
        parts, starts, size = [], [], 0
        for n in range(count):
            properties = {
                "KEYS": f"order-{n:010d}", "TAGS": f"tag{n % 5}", "UNIQ_KEY": f"{n:032X}", "WAIT": "true",
                "CLUSTER": "DefaultCluster", "region": f"r{n % 9 * 97}",
            }  # fmt: skip
            record = encode_record(
                topic="bench", queue_id=n % 4, queue_offset=n // 4, physical_offset=size,
                born_timestamp=1_700_000_000_000 + n, born_host=HOST, store_timestamp=1_700_000_000_001 + n,
                store_host=HOST, body=first[n].tobytes(), properties=encode_properties(properties),
            )  # fmt: skip
            parts.append(record)
            starts.append(size)
            size += len(record)
        self.data = b"".join(parts)
        self.starts = np.array(starts)
        self._keys_at = self.starts + [part.index(b"order-") + 6 for part in parts]
        self._ids_at = self.starts + [part.index(b"UNIQ_KEY") + 9 + 24 for part in parts]

    def placed(self, offset: int, first: int) -> "np.ndarray[Any, Any]":
        """A copy that begins at this physical offset, with its own bodies, as messages `first`, `first` + 1, ..."""
        copy = np.frombuffer(bytearray(self.data), dtype=np.uint8)
        count = len(self.starts)
        numbers = first + np.arange(count)
        self._put(copy, self.starts + PHYSICAL_OFFSET_AT, _big_endian(offset + self.starts))
        self._put(copy, self.starts + QUEUE_OFFSET_AT, _big_endian(numbers // 4))
        self._put(copy, self._keys_at, _digits(f"{n:010d}" for n in numbers.tolist()))
        self._put(copy, self._ids_at, _digits(f"{n:08X}" for n in numbers.tolist()))
        bodies = self._bodies(self._rng, count)
        for start, body in zip(self.starts.tolist(), bodies, strict=True):
            copy[start + BODY_AT : start + BODY_AT + BODY] = body
        checks = np.array([crc32(body) & CRC_MASK for body in bodies])
        self._put(copy, self.starts + CRC_AT, _big_endian(checks)[:, 4:])
        return copy

    def _put(self, copy: "np.ndarray[Any, Any]", at: "np.ndarray[Any, Any]", values: "np.ndarray[Any, Any]") -> None:
        for byte in range(values.shape[1]):
            copy[at + byte] = values[:, byte]


def _big_endian(numbers: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)


def _digits(texts: Iterable[str]) -> "np.ndarray[Any, Any]":
    listed = list(texts)
    return np.frombuffer("".join(listed).encode(), dtype=np.uint8).reshape(len(listed), -1)


def write_store(root: Path, messages: int, bodies: Bodies = orders) -> int:
    """A store of about so many messages; how many there are."""
    made = Block(min(20_000, messages), bodies)
    per_block, size = len(made.starts), len(made.data)
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    written = offset = 0
    while written < messages:
        with open(folder / f"{offset:020d}", "wb") as file:
            left = SEGMENT
            while written < messages and left > size + 8:
                file.write(made.placed(offset + SEGMENT - left, written))
                left -= size
                written += per_block
            if written < messages:  # the last segment ends in zeros, as a broker's does
                file.write(left.to_bytes(4, "big") + bytes.fromhex("CBD43194"))
            file.truncate(SEGMENT)
        offset += SEGMENT
    return written


# -- session ---------------------------------------------------------------------------------------


@dataclass
class Rows:
    """A log, and the same rows as Parquet."""

    store: Path
    parquet: Path
    messages: int


@dataclass
class Shared:
    """What all rounds of one benchmark use."""

    spark: Any
    root: Path
    orders: Rows
    noise: Rows


@contextlib.contextmanager
def session(run: Run, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    work = work_directory()
    builder = session_builder("bench", master="local[2]", work_directory=work).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


@functools.cache
def work_directory() -> Path:
    """One for all sessions of this process: they share a JVM, which looks for its sockets where the first had them."""
    work = Path(tempfile.mkdtemp(prefix="tqb-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    return work


@contextlib.contextmanager
def log_and_parquet(run: Run) -> Iterator[Shared]:
    """Logs with both kinds of bodies, and the same rows as Spark's own Parquet (snappy, its default)."""
    with session(run) as spark:
        undecoded.register(spark)
        yield Shared(spark, run.directory, *(_rows(spark, run, bodies) for bodies in (orders, noise)))


def _rows(spark: Any, run: Run, bodies: Bodies) -> Rows:
    store, parquet = run.directory / f"{bodies.__name__}.store", run.directory / f"{bodies.__name__}.parquet"
    messages = write_store(store, run.count(MESSAGES, 20_000), bodies)
    spark.read.format(FORMAT).load(str(store)).write.parquet(str(parquet))
    rows = Rows(store, parquet, messages)
    for name, columns in (("all", DEFAULT_COLUMNS), ("body", ("body",))):
        _sample(rows, name, columns)
    queries = (scan_ours, scan_parquet, scan_undecoded, body_ours, body_parquet, body_undecoded)
    for query in queries * 2:  # the JVM compiles for that long
        query(spark, rows)
    return rows


def _sample(rows: Rows, name: str, columns: tuple[str, ...]) -> None:
    """Batches as our source hands them over, in a file beside the store."""
    schema = arrow_schema(spark_schema(columns, may_be_damaged=False), COLUMNS, may_be_damaged=False)
    reader = LogBatchReader(parse(FileOptions, {"path": str(rows.store)}), schema)
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    undecoded.write_sample(rows.store.with_suffix(f".{name}.arrow"), batches, schema)


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def rate(messages: int, action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return messages / (time.perf_counter() - begin)


def timed(messages: int, action: Callable[[], object]) -> dict[str, float]:
    return {"rate": rate(messages, action)}


# -- decode ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def decode_data(run: Run) -> Iterator[bytes]:
    yield Block(run.count(60_000, 2000)).data


def decode_ours(run: Run) -> dict[str, float]:
    """All default columns, walk included, on one core's CPU time."""
    data = run.shared
    decoder = Decoder(default_arrow_schema(DEFAULT_COLUMNS))
    rows_max = parse(FileOptions, {"path": "-"}).rows_per_batch
    best = 0.0
    for _ in range(5):
        begin, rows = time.process_time(), 0
        positions = walk_vectorised(data, 0, len(data), len(data), base=0).positions
        for run_of_records in runs(positions):
            for batch in decoded(decoder, data, run_of_records, 0, rows_max):
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


Query = Callable[[Any, Rows], None]


def both(query: Query) -> Callable[[Run], dict[str, float]]:
    """A query on rows of either kind."""

    def measure(run: Run) -> dict[str, float]:
        shared: Shared = run.shared
        kinds = {"rate": shared.orders, "noise": shared.noise}
        return {name: rate(rows.messages, functools.partial(query, shared.spark, rows)) for name, rows in kinds.items()}

    return measure


def scan_ours(spark: Any, rows: Rows) -> None:
    noop(spark.read.format(FORMAT).load(str(rows.store)))


def scan_parquet(spark: Any, rows: Rows) -> None:
    noop(spark.read.parquet(str(rows.parquet)))


def of_sample(spark: Any, rows: Rows, name: str, columns: tuple[str, ...]) -> Any:
    reader = spark.read.format(undecoded.NAME).schema(spark_schema(columns, may_be_damaged=False))
    reader = reader.option("rows", str(rows.messages)).option("tasks", "8")
    return reader.load(str(rows.store.with_suffix(f".{name}.arrow")))


def scan_undecoded(spark: Any, rows: Rows) -> None:
    noop(of_sample(spark, rows, "all", DEFAULT_COLUMNS))


def body_undecoded(spark: Any, rows: Rows) -> None:
    of_sample(spark, rows, "body", ("body",)).selectExpr("sum(length(body))").collect()


def body_ours(spark: Any, rows: Rows) -> None:
    spark.read.format(FORMAT).option("columns", "body").load(str(rows.store)).selectExpr("sum(length(body))").collect()


def body_parquet(spark: Any, rows: Rows) -> None:
    spark.read.parquet(str(rows.parquet)).selectExpr("sum(length(body))").collect()


# -- archive -------------------------------------------------------------------------------------------


def archive_ours(run: Run) -> dict[str, float]:
    shared: Shared = run.shared
    target = shared.root / f"lake-{run.round}"
    plan = ArchivePlan(str(target / "lake"), str(target / "checkpoint"), FORMAT, {"path": str(shared.orders.store)})
    result = timed(shared.orders.messages, lambda: archive(shared.spark, plan))
    shutil.rmtree(target)
    return result


def archive_spark(run: Run) -> dict[str, float]:
    """The same rows through the JVM into Spark's own writer."""
    shared: Shared = run.shared
    target = shared.root / f"written-{run.round}"
    df = shared.spark.read.format(FORMAT).load(str(shared.orders.store))
    result = timed(shared.orders.messages, lambda: df.write.option("compression", "zstd").parquet(str(target)))
    shutil.rmtree(target)
    return result


# -- a live pair -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def pair(directory: Path, topics: Mapping[str, int]) -> Iterator[str]:
    """An async master and its slave as processes of their own, with these topics and queues; the name servers."""
    tandemq = str(Path(sys.executable).parent / "tandemq")
    up = [tandemq, "up", "--dir", str(directory), "--async", "--detach", "--json"]
    done = subprocess.run(up, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"tandemq up: {done.stderr.strip()[-300:]}")
    try:
        nameserver: str = json.loads(done.stdout)["namesrv"]
        for topic, queues in topics.items():
            subprocess.run([tandemq, "topic", "create", topic, "-q", str(queues), "-n", nameserver], check=True)
        yield nameserver
    finally:
        subprocess.run([tandemq, "down", "--dir", str(directory)], capture_output=True)


@contextlib.contextmanager
def live_pair(run: Run) -> Iterator[tuple[Any, str, Path, int]]:
    """A pair with a topic full of messages, and the same rows as a file to write from."""
    with pair(run.directory / "pair", {"bench": 4, "sink": 4}) as nameserver, session(run) as spark:
        rows = run.directory / "sink.parquet"
        count = sink_rows(spark, run, rows)
        write(spark, rows, nameserver, "bench")
        await_slave(spark, nameserver, "bench", count)
        yield spark, nameserver, rows, count


def sink_rows(spark: Any, run: Run, rows: Path) -> int:
    """A Parquet file of messages to send, in two partitions; how many there are."""
    store = run.directory / "sink-store"
    count = write_store(store, run.count(400_000, 5000))
    df = spark.read.format(FORMAT).schema("body BINARY, keys STRING, tags STRING").load(str(store))
    df.repartition(2).write.parquet(str(rows))
    shutil.rmtree(store)
    return count


def await_slave(spark: Any, nameserver: str, topic: str, count: int) -> None:
    """Until a slave has all: what is measured afterwards is read from it alone."""
    reader = spark.read.format("rocketmq").schema("queue_offset BIGINT").option("nameserver", nameserver)
    reader = reader.option("subscribe", topic).option("slaveMaxLagBytes", "0")
    deadline = time.monotonic() + 120
    while (found := reader.load().count()) < count:
        if time.monotonic() > deadline:
            raise Unavailable(f"the slave has {found} of {count} messages after two minutes")


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
    """A session, and a log that grows while it is read."""
    with session(run) as spark, growing(run.directory / "growing"):
        yield spark, run.directory / "growing"


@contextlib.contextmanager
def growing(store: Path) -> Iterator[None]:
    """A log that a thread appends a little to, so that every micro-batch has something to read, but never much."""
    write_store(store, 20_000)
    segment = store / "commitlog" / f"{0:020d}"
    stopped = threading.Event()
    made, number = Block(BLOCK), 20_000
    with open(segment, "rb") as file:
        content = file.read(64 << 20)
    end = max(position + size for position, size, _ in walk(content, 0, len(content)))

    def append() -> None:
        nonlocal end, number
        while not stopped.wait(0.02):
            added = made.placed(end, number)
            with open(segment, "r+b") as file:
                file.seek(end + 4)
                file.write(added[4:])
                file.seek(end)
                file.write(added[:4])
            end += len(added)
            number += BLOCK

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def floor_ours(run: Run) -> dict[str, float]:
    spark, store = run.shared
    reader = spark.readStream.format(FORMAT).schema("body BINARY").option("minPartitions", "2")
    df = reader.load(str(store))
    return {"milliseconds": floor(df, run.directory / f"floor-{run.round}", 50)}


def floor(df: Any, checkpoint: Path, batches: int) -> float:
    """Median milliseconds of a trigger with rows, to a sink that drops them; the first ten are warm-up."""
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = started(writer.trigger(processingTime="0 seconds"))
    seen: dict[int, float] = {}
    while len(seen) < batches:
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        query.awaitTermination(0.5)
    query.stop()
    return statistics.median(list(seen.values())[10:])


# -- memory of a worker -------------------------------------------------------------------------------------


@contextlib.contextmanager
def long_log(run: Run) -> Iterator[tuple[Any, Path]]:
    """A log of 4 GiB."""
    with session(run) as spark:
        write_store(run.directory / "long", run.count(5_000_000, 20_000))
        yield spark, run.directory / "long"


def worker_memory(partition: int) -> Callable[[Run], dict[str, float]]:
    """Most memory a Python worker had while all columns were read in partitions of this size."""

    def measure(run: Run) -> dict[str, float]:
        spark, store = run.shared
        df = spark.read.format(FORMAT).option("maxBytesPerPartition", str(partition)).load(str(store))
        noop(df.limit(1))
        for pid in workers():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the mark starts again from here
        noop(df)
        return {"memory": max((peak_memory(pid) for pid in workers()), default=0.0)}

    return measure


def workers() -> list[int]:
    """Processes below this one that run pyspark's daemon: the daemon and its workers."""
    found, parents = [], {os.getpid()}
    entries = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    for pid in entries:
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent in parents:
                parents.add(pid)
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


def peak_memory(pid: int) -> float:
    """MiB: the high-water mark of a process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


RATE = "messages/s"
TEXTS = "bodies of JSON"
NOTHING = "a source that decodes nothing"
NOISE = "bodies that Parquet can't compress and need not decompress"
BENCHMARKS = {
    "decode": Benchmark(
        "600-byte bodies to Arrow, all default columns, one core",
        {"rate": Figure(RATE, goal=800_000)},
        {"ours": decode_ours, "an object per message": decode_plain},
        setup=decode_data,
    ),
    "scan": Benchmark(
        "all columns of a log through Spark to a sink that drops them",
        {"rate": Figure(RATE, goal_ratio=0.85, what=TEXTS), "noise": Figure(RATE, what=NOISE)},
        {"ours": both(scan_ours), "parquet": both(scan_parquet), NOTHING: both(scan_undecoded)},
        setup=log_and_parquet,
    ),
    "body": Benchmark(
        "bodies only: sum(length(body))",
        {"rate": Figure(RATE, goal_ratio=0.85, what=TEXTS), "noise": Figure(RATE, what=NOISE)},
        {"ours": both(body_ours), "parquet": both(body_parquet), NOTHING: both(body_undecoded)},
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
        rounds=5,
        takes_memory=True,
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
    "memory": Benchmark(
        "Python workers that read a log of 4 GiB in partitions of 1 GiB",
        {"memory": Figure("MiB", "less", goal=512, goal_ratio=1.25)},
        {"ours": worker_memory(1 << 30), "partitions of 64 MiB": worker_memory(64 << 20)},
        setup=long_log,
        rounds=2,
        notes="bounded by the batch, not by the partition",
    ),
}
