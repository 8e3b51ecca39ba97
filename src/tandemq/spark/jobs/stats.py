"""Traffic of topics: rates, sizes, tags, producers, born→store latency, lag per group over windows; a table and a
page.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandemq.client.blocking_cluster import BlockingCluster
from tandemq.clock import Clock, SystemClock
from tandemq.codec import bodies
from tandemq.codec.table_text import table_of
from tandemq.errors import ConfigError, TandemError
from tandemq.formats.layout import journal_path
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX
from tandemq.spark.jobs import html_report as report
from tandemq.spark.options import ConnectOptions, PullOptions, milliseconds, parse
from tandemq.spark.source.store_files import find_stores

WINDOWS_MAX = 2000
TOP = 12


@dataclass
class StatsResult:
    """All tables of the report, as plain data."""

    window_seconds: float
    topics: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)
    producers: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    group_windows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def stats(
    spark: Any,
    source: str,
    options: Mapping[str, str],
    *,
    window: str = "1m",
    say: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> StatsResult:
    """Counts the messages of `source`, rocketmq or rocketmq-commitlog with its options.

    Reads sizes of bodies, never bodies.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    window_ms = milliseconds("window", window)
    if not window_ms:
        raise ConfigError("window must be longer than 0")

    def load(*columns: str) -> Any:
        return spark.read.format(source).options(**options).option("columns", ",".join(columns)).load()

    result = StatsResult(window_ms / 1000)
    say("rates, sizes and latencies")
    _traffic(load, window_ms, result)
    say("tags and producers")
    _shares(load, result)
    committed = committed_live(options) if source == "rocketmq" else committed_stored(options["path"])
    if committed:
        say(f"lag of {len({row[0] for row in committed})} groups")
        _lags(spark, load, window_ms, committed, result)
    result.seconds = clock.monotonic() - started
    return result


def _traffic(load: Callable[..., Any], window_ms: int, result: StatsResult) -> None:
    from pyspark.sql import functions as f

    rows = load("topic", "born_timestamp", "store_timestamp", "body_size", "record_size")
    stored = f.unix_millis("store_timestamp")
    rows = rows.withColumn("window", (stored - f.pmod(stored, f.lit(window_ms))))
    rows = rows.withColumn("latency", f.greatest(f.lit(0), stored - f.unix_millis("born_timestamp")))
    measures = [
        f.count("*").alias("messages"), f.sum("record_size").alias("bytes"), f.avg("body_size").alias("body_mean"),
        f.percentile_approx("body_size", [0.5, 0.99]).alias("sizes"),
        f.percentile_approx("latency", [0.5, 0.99]).alias("latencies"), f.max("latency").alias("latency_max"),
        f.min("window").alias("from"), f.max("window").alias("to"),
    ]  # fmt: skip
    # One scan for both: per (window, topic) for the curves; topics again from it where sums suffice.
    per_window = rows.groupBy("window", "topic").agg(*measures).orderBy("window", "topic").collect()
    per_topic = rows.groupBy("topic").agg(*measures).orderBy(f.desc("messages")).collect()
    seconds = window_ms / 1000
    result.topics = [_measured(row, (row["to"] - row["from"]) / 1000 + seconds) for row in per_topic]
    result.windows = [{"window": row["window"], **_measured(row, seconds)} for row in per_window[-WINDOWS_MAX * TOP :]]


def _measured(row: Any, seconds: float) -> dict[str, Any]:
    return {
        "topic": row["topic"], "messages": row["messages"], "bytes": row["bytes"],
        "rate": row["messages"] / seconds, "byte_rate": row["bytes"] / seconds, "body_mean": row["body_mean"],
        "body_p50": row["sizes"][0], "body_p99": row["sizes"][1], "latency_p50_ms": row["latencies"][0],
        "latency_p99_ms": row["latencies"][1], "latency_max_ms": row["latency_max"],
    }  # fmt: skip


def _shares(load: Callable[..., Any], result: StatsResult) -> None:
    from pyspark.sql import functions as f

    tags = load("topic", "tags").groupBy("topic", "tags").count().orderBy(f.desc("count")).limit(TOP * 4)
    result.tags = [{"topic": r["topic"], "tag": r["tags"], "messages": r["count"]} for r in tags.collect()]
    hosts = load("topic", "born_host").withColumn("host", f.regexp_replace("born_host", ":[0-9]+$", ""))
    hosts = hosts.groupBy("host", "topic").count().orderBy(f.desc("count")).limit(TOP * 4)
    result.producers = [{"host": r["host"], "topic": r["topic"], "messages": r["count"]} for r in hosts.collect()]


Committed = list[tuple[str, str, int, int, str]]
"""(group, topic, queue, committed offset, broker)."""


def committed_stored(path: str) -> Committed:
    found: Committed = []
    for store in find_stores(path):
        file = store.root / "config" / "consumerOffset.json"
        if file.exists() and file.stat().st_size:
            journal = journal_path(file)
            found_table, _ = table_of(file.read_bytes(), journal.read_bytes() if journal.exists() else b"")
            table, _ = bodies.offset_table_of(found_table)
            found += _rows_of(table, store.label)
    return found


def committed_live(options: Mapping[str, str]) -> Committed:
    parsed: ConnectOptions = parse(PullOptions, dict(options))
    cluster = BlockingCluster(parsed.cluster_access())
    found: Committed = []
    for name, group in cluster.groups().items():
        try:
            found += _rows_of(cluster.committed_offsets(group), name)
        except TandemError:
            continue
    return found


def _rows_of(table: Mapping[str, Mapping[int, int]], broker: str) -> Committed:
    rows: Committed = []
    for key, offsets in table.items():
        topic, _, group = key.partition("@")
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or group.startswith("CID_RMQ_SYS"):
            continue
        rows += ((group, topic, int(queue), int(offset), broker) for queue, offset in offsets.items())
    return rows


def _lags(spark: Any, load: Callable[..., Any], window_ms: int, committed: Committed, result: StatsResult) -> None:
    """Returns what a group has not consumed yet, by the window in which it was stored: how much, and how old."""
    from pyspark.sql import functions as f

    ddl_ = "grp STRING, topic STRING, queue_id INT, committed BIGINT, broker STRING"
    offsets = f.broadcast(spark.createDataFrame(committed, ddl_))
    rows = load("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
    stored = f.unix_millis("store_timestamp")
    rows = rows.withColumn("window", stored - f.pmod(stored, f.lit(window_ms)))
    waiting = rows.join(offsets, ["topic", "broker", "queue_id"]).where("queue_offset >= committed")
    counted = waiting.groupBy("grp", "topic", "window").count().orderBy("grp", "topic", "window").collect()
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for group, topic, _, _, _ in committed:
        totals.setdefault((group, topic), {"group": group, "topic": topic, "lag": 0, "oldest": None})
    for row in counted:
        total = totals[row["grp"], row["topic"]]
        total["lag"] += row["count"]
        total["oldest"] = row["window"] if total["oldest"] is None else min(total["oldest"], row["window"])
        result.group_windows.append(
            {"group": row["grp"], "topic": row["topic"], "window": row["window"], "waiting": row["count"]}
        )
    result.groups = sorted(totals.values(), key=lambda row: (-row["lag"], row["group"], row["topic"]))


# the page


def write_report(result: StatsResult, path: str, title: str = "Traffic of a TandemQ log") -> None:
    """Writes a page with plots and tables; it opens without a network."""
    stamps = sorted({row["window"] for row in result.windows})[-WINDOWS_MAX:]
    step = int(result.window_seconds * 1000)
    names = [row["topic"] for row in result.topics[:8]]
    shown = set(stamps)

    def curve(measure: str, between: float | None = 0.0) -> dict[str, list[report.Point]]:
        """Returns the points of a curve; a window without messages has a rate of 0, but no latency."""
        found: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
        for row in result.windows:
            if row["topic"] in found and row["window"] in shown:
                found[row["topic"]].append((row["window"], float(row[measure])))
        return {name: report.with_gaps(sorted(points), step, between) for name, points in found.items()}

    total = sum(row["messages"] for row in result.topics)
    tags = [(f"{r['topic']} · {r['tag'] or '(none)'}", r["messages"]) for r in result.tags[:TOP]]
    producers = [(f"{r['host']} → {r['topic']}", r["messages"]) for r in result.producers[:TOP]]
    sections = [
        report.section("Messages per second", report.lines(curve("rate"), "msg/s")),
        report.section("Bytes per second", report.lines(curve("byte_rate"), "B/s")),
        report.section("Born → store, 99th percentile", report.lines(curve("latency_p99_ms", None), "ms")),
        report.section("Topics", report.table(*_topic_table(result))),
        report.section("Tags", report.bars(tags, "msg")),
        report.section("Producers", report.bars(producers, "msg")),
        report.section("Lag per group", *_lag_parts(result)),
    ]  # fmt: skip
    subtitle = f"{total:,} messages in {len(result.topics)} topics, windows of {result.window_seconds:g} s"
    if stamps:
        subtitle += f", {report.time_text(stamps[0])} to {report.time_text(stamps[-1])} UTC"
    Path(path).write_text(report.page(title, subtitle, sections))


def _topic_table(result: StatsResult) -> tuple[list[str], list[list[Any]]]:
    heads = ["Topic", "Messages", "msg/s", "Bytes", "Body mean", "Body p99", "Latency p50 ms", "p99 ms", "max ms"]
    keys = (
        "topic",
        "messages",
        "rate",
        "bytes",
        "body_mean",
        "body_p99",
        "latency_p50_ms",
        "latency_p99_ms",
        "latency_max_ms",
    )
    return heads, [[row[key] for key in keys] for row in result.topics]


def _lag_parts(result: StatsResult) -> list[str]:
    rows = [
        [f"{r['group']} · {r['topic']}", r["lag"], report.time_text(r["oldest"]) if r["oldest"] else None]
        for r in result.groups
    ]
    parts = [report.table(["Group · topic", "Lag", "Oldest waiting since"], rows)]
    step = int(result.window_seconds * 1000)
    found: dict[str, list[tuple[int, float]]] = {}
    for row in result.group_windows:
        found.setdefault(f"{row['group']} · {row['topic']}", []).append((row["window"], float(row["waiting"])))
    if found:
        series = {name: report.with_gaps(sorted(points), step, 0.0) for name, points in found.items()}
        parts.append(report.lines(series, "waiting, by when they were stored"))
    return parts
