"""How far a stream is behind its source, from Spark's own progress reports.

Spark lets no Python source add metrics to `StreamingQueryProgress`, but it shows the offsets of each: where the last
micro-batch ended and what there is. From these come the metrics that Kafka's connector has, under its names.

    spark.streams.addListener(LagListener(print))
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener


class Lag(NamedTuple):
    """One source of a query after one micro-batch."""

    query: str
    """The query's name, or its id."""
    batch: int
    source: str
    metrics: dict[str, float]


def behind_latest(end: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, float]:
    """Returns Kafka's metrics from two offsets of ours: messages of each queue, or bytes of each log."""
    member, unit = ("log", "Bytes") if "log" in latest else ("q", "Offsets")
    read, there = end.get(member, {}), latest.get(member, {})
    behind = [max(0, stop - read.get(name, 0)) for name, stop in there.items()]
    found = {
        f"min{unit}BehindLatest": float(min(behind, default=0)),
        f"max{unit}BehindLatest": float(max(behind, default=0)),
        f"avg{unit}BehindLatest": sum(behind) / len(behind) if behind else 0.0,
    }
    if member == "log":
        found["estimatedTotalBytesBehindLatest"] = float(sum(behind))
    for group, replica in latest.get("replicas", {}).items():
        found[f"replicaBytesBehindMaster.{group}"] = float(replica["behind"])
    return found


def lags_of(progress: Mapping[str, Any]) -> list[Lag]:
    """Returns the lag of every source of ours in a progress report (`query.lastProgress`, or its JSON as a dict)."""
    found = []
    for source in progress.get("sources", ()):
        latest, end = _offset(source.get("latestOffset")), _offset(source.get("endOffset"))
        if latest is not None and end is not None and "v" in latest:
            query = progress.get("name") or str(progress.get("id"))
            found.append(Lag(query, int(progress["batchId"]), str(source["description"]), behind_latest(end, latest)))
    return found


def _offset(given: Any) -> dict[str, Any] | None:
    """Returns an offset as a mapping; Spark shows it as JSON text or as what is in it, depending on its version."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return given if isinstance(given, dict) else None


class LagListener(StreamingQueryListener):
    """Reports the lag of every source of ours after every micro-batch, and keeps the last one of each."""

    def __init__(self, report: Callable[[Lag], object] = lambda lag: None) -> None:
        self._report = report
        self.latest: dict[tuple[str, str], Lag] = {}
        """(query, source) -> its last lag."""

    def onQueryStarted(self, event: Any) -> None:
        """Does nothing: nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        for lag in lags_of(json.loads(event.progress.json)):
            self.latest[lag.query, lag.source] = lag
            self._report(lag)

    def onQueryIdle(self, event: Any) -> None:
        """Does nothing: there was nothing new to read, so the last lag stays true."""

    def onQueryTerminated(self, event: Any) -> None:
        """Keeps the last lag for whoever reads it."""
