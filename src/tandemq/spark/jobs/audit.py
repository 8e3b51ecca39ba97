"""Replicas of a broker group against each other: equal up to the confirmed offset, or exactly where they differ."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.spark.compare import DIFFERENCE_DDL, CompareRange, Replica, compare
from tandemq.spark.jobs.tasks import run_tasks
from tandemq.spark.store_files import StoreFiles, find_stores, log_end

RANGE_BYTES = 128 << 20


@dataclass
class AuditResult:
    """`equal` says it all; `differences` lists at most `listed_max` messages."""

    equal: bool = True
    start: int = 0
    stop: int = 0
    confirmed: int | None = None
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
    _summarise(result, unique, listed_max)
    result.seconds = clock.monotonic() - started
    return result


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
        start, stop = row["physical_offset"], row["physical_offset"] + row["size"]
        if result.ranges and start <= result.ranges[-1][1]:
            result.ranges[-1] = (result.ranges[-1][0], max(stop, result.ranges[-1][1]))
        else:
            result.ranges.append((start, stop))
    result.differences = rows[:listed_max]
