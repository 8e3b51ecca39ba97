"""Replicas of a broker group against each other: equal up to the confirmed offset, or exactly where they differ.

Their logs are compared byte for byte, and their consume queues entry by entry.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.formats import layout
from tandemq.spark.jobs.compare import DIFFERENCE_DDL, CompareRange, Replica, compare
from tandemq.spark.jobs.compare_queues import CompareQueues, compare_queues, queues_of
from tandemq.spark.jobs.tasks import run_tasks
from tandemq.spark.source.store_files import StoreFiles, find_stores, log_end

RANGE_BYTES = 128 << 20
_QUEUES_PER_TASK = 64


@dataclass
class AuditResult:
    """What was found: `equal`, or `differences`, of which at most `listed_max` are listed."""

    equal: bool = True
    start: int = 0
    stop: int = 0
    confirmed: int | None = None
    queues: int = 0
    """Consume queues that were compared."""
    replicas: dict[str, dict[str, Any]] = field(default_factory=dict)
    count: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    by_topic: dict[str, int] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges that differ, neighbouring messages joined."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def audit(
    spark: Any,
    paths: str,
    *,
    listed_max: int = 1000,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> AuditResult:
    """Compares the stores under `paths` (comma-separated, globs allowed)."""
    clock = clock or SystemClock()
    started = clock.monotonic()
    stores = find_stores(paths)
    if len(stores) < 2:
        raise ConfigError(f"path={paths!r} names {len(stores)} store: an audit needs at least two replicas")
    result, replicas = _bounds(stores)
    say(f"comparing {len(replicas)} replicas from {result.start:,} to {result.stop:,}")
    items = [
        CompareRange(start, min(start + RANGE_BYTES, result.stop), tuple(replicas))
        for start in range(result.start, result.stop, RANGE_BYTES)
    ]
    found = run_tasks(spark, items, compare, DIFFERENCE_DDL)
    rows = [row.asDict() for row in found.orderBy("physical_offset", "replica").collect()]
    unique = list({(row["physical_offset"], row["replica"]): row for row in rows}.values())
    unique += _queue_differences(spark, tuple(replicas), result, say)
    _summarise(result, unique, listed_max)
    result.seconds = clock.monotonic() - started
    return result


def _queue_differences(
    spark: Any, replicas: tuple[Replica, ...], result: AuditResult, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Returns how the consume queues differ; nothing, with a note, where a replica has none."""
    without = [r.label for r in replicas if not (Path(r.root) / layout.CONSUME_QUEUE).is_dir()]
    if without:
        result.notes.append(f"consume queues were not compared: {', '.join(without)} has none")
        return []
    queues = queues_of(replicas)
    result.queues = len(queues)
    say(f"comparing {len(queues):,} consume queues")
    items = [
        CompareQueues(tuple(queues[start : start + _QUEUES_PER_TASK]), replicas, result.start, result.stop)
        for start in range(0, len(queues), _QUEUES_PER_TASK)
    ]
    found = run_tasks(spark, items, compare_queues, DIFFERENCE_DDL)
    return [row.asDict() for row in found.orderBy("topic", "queue_id", "queue_offset", "replica").collect()]


def _bounds(stores: list[StoreFiles]) -> tuple[AuditResult, list[Replica]]:
    result = AuditResult()
    replicas = []
    firsts, ends, confirmed = [], [], []
    for store in stores:
        segments = store.segments()
        first, end, known = segments[0].start, log_end(segments, None), store.confirmed()
        firsts.append(first)
        ends.append(end)
        if known is not None:
            confirmed.append(known)
        replicas.append(Replica(store.label, str(store.root), end))
        result.replicas[store.label] = {"path": str(store.root), "first": first, "end": end, "confirmed": known}
    result.start = max(firsts)
    result.confirmed = max(confirmed) if confirmed else None
    result.stop = max(ends) if result.confirmed is None else min(max(ends), result.confirmed)
    for replica, first in zip(replicas, firsts, strict=True):
        if first < result.start:
            result.notes.append(f"{replica.label} keeps {result.start - first:,} older bytes that others have deleted")
        if result.confirmed is not None and replica.end > result.confirmed:
            result.notes.append(
                f"{replica.label} is {replica.end - result.confirmed:,} bytes ahead of the confirmed offset"
            )
    return result, replicas


def _summarise(result: AuditResult, rows: list[dict[str, Any]], listed_max: int) -> None:
    result.equal = not rows
    result.count = len(rows)
    for row in rows:
        result.by_kind[row["kind"]] = result.by_kind.get(row["kind"], 0) + 1
        topic = row["topic"] or "?"
        result.by_topic[topic] = result.by_topic.get(topic, 0) + 1
        if row["kind"] == "queue":
            continue
        start, stop = row["physical_offset"], row["physical_offset"] + row["size"]
        if result.ranges and start <= result.ranges[-1][1]:
            result.ranges[-1] = (result.ranges[-1][0], max(stop, result.ranges[-1][1]))
        else:
            result.ranges.append((start, stop))
    result.differences = rows[:listed_max]
