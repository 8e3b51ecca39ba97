"""A lake or a log back into a topic: a time range, filters, a rate limit; exactly once, also when it is run again.

What is replayed is pinned before the first message is sent: `STATE/plan.json` holds the lake's version or the log's
range, how many tasks there are and the name of the replay. A second run with the same state makes the same messages
with the same keys, and the broker stores only those it does not have.

The order of a queue is kept: a task gets whole queues, sorted, and all messages of a queue go to one queue.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.spark.lake.lake_source import NAME as LAKE_FORMAT
from tandemq.spark.lake.lake_source import LakeSource
from tandemq.spark.lake.table import Lake
from tandemq.spark.session import tasks_at_a_time
from tandemq.spark.source.store_files import find_stores, log_end

COLUMNS = ("topic", "keys", "tags", "flag", "properties", "body")
"""What a replayed message has of the old one."""
ORDER = ("broker", "queue_id", "queue_offset")
"""What its order is kept by."""


@dataclass(frozen=True)
class ReplayPlan:
    """What to replay, from where, to where. Exactly one of `lake` and `store` is given."""

    name: str
    state: str
    sink: Mapping[str, str]
    """Options of the sink: nameserver, topic, delivery, …"""
    lake: str = ""
    store: str = ""
    topics: tuple[str, ...] = ()
    from_ms: int = -1
    to_ms: int = -1
    where: str = ""
    """SQL over the columns topic, keys, tags, flag, properties, body, queue_id, queue_offset, store_timestamp."""
    rate: int = 0
    keep_queues: bool = False


@dataclass
class ReplayResult:
    messages: int = 0
    pinned: str = ""
    resumed: bool = False
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(
    spark: Any, plan: ReplayPlan, *, say: Callable[[str], None] = lambda text: None, clock: Clock | None = None
) -> ReplayResult:
    """Ends when every message was acknowledged. `messages` counts what was sent or found to be there already."""
    from pyspark.sql import Observation, functions

    clock = clock or SystemClock()
    started = clock.monotonic()
    pinned, resumed = _pinned(plan, tasks_at_a_time(spark))
    rows = _lake_rows(spark, plan, pinned) if plan.lake else _log_rows(spark, plan, pinned)
    if plan.where:
        rows = rows.where(plan.where)
    queue = ("topic", "broker", "queue_id")
    rows = rows.repartition(pinned["tasks"], *queue).sortWithinPartitions(*queue, "queue_offset")
    rows = rows.withColumn("order_key", functions.concat_ws("/", *queue))
    columns = [*COLUMNS, "queue_id" if plan.keep_queues else "order_key"]
    if plan.sink.get("topic"):
        columns.remove("topic")
    rows = rows.select(*columns)
    options = {"delivery": "exactly_once", "sinkId": f"replay:{plan.name}", **plan.sink}
    if plan.rate:
        options["maxRate"] = str(max(1, plan.rate // min(pinned["tasks"], tasks_at_a_time(spark))))
    result = ReplayResult(pinned=json.dumps(pinned), resumed=resumed)
    say(f"replaying {json.dumps(pinned)}" + (" (again: what is stored already is not repeated)" if resumed else ""))
    counted = Observation("replayed")
    rows = rows.observe(counted, functions.count(functions.lit(1)).alias("messages"))
    rows.write.format("rocketmq").options(**options).mode("append").save()
    result.messages = counted.get["messages"]
    result.seconds = clock.monotonic() - started
    return result


def _pinned(plan: ReplayPlan, tasks: int) -> tuple[dict[str, Any], bool]:
    """Returns what the first run decided, which later runs of the same replay take over, and whether it did before."""
    if bool(plan.lake) == bool(plan.store):
        raise ConfigError("give either a lake or a store to replay from")
    asked = {
        "name": plan.name, "lake": plan.lake, "store": plan.store, "topics": list(plan.topics), "from_ms": plan.from_ms,
        "to_ms": plan.to_ms, "where": plan.where, "to": dict(sorted(plan.sink.items())),
        "keep_queues": plan.keep_queues,
    }  # fmt: skip
    path = Path(plan.state) / "plan.json"
    if path.exists():
        known = json.loads(path.read_text())
        if known["asked"] != asked:
            changed = [key for key in asked if asked[key] != known["asked"].get(key)]
            raise ConfigError(f"{path} belongs to another replay ({', '.join(changed)} differ): use another --state")
        return known["pinned"], True
    pinned = {**(_pin_lake(plan) if plan.lake else _pin_log(plan)), "tasks": tasks}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with open(temporary, "w") as file:
        json.dump({"asked": asked, "pinned": pinned}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return pinned, False


def _pin_lake(plan: ReplayPlan) -> dict[str, Any]:
    lake = Lake(plan.lake)
    version = lake.files()[0]
    lacking = sorted({*COLUMNS, *ORDER} - lake.columns())
    if lacking:
        raise ConfigError(f"{plan.lake} lacks the columns {', '.join(lacking)}: archive them to be able to replay")
    return {"version": version}


def _pin_log(plan: ReplayPlan) -> dict[str, Any]:
    ranges = {}
    for store in find_stores(plan.store):
        segments = store.segments()
        ranges[store.label] = [segments[0].start, log_end(segments, store.confirmed())]
    return {"log": ranges}


def _lake_rows(spark: Any, plan: ReplayPlan, pinned: Mapping[str, Any]) -> Any:
    spark.dataSource.register(LakeSource)
    columns = (*COLUMNS, *ORDER, "store_timestamp")
    reader = spark.read.format(LAKE_FORMAT).option("version", pinned["version"]).option("columns", ",".join(columns))
    reader = reader.option("topics", ",".join(plan.topics))
    if plan.from_ms >= 0:
        reader = reader.option("fromMs", str(plan.from_ms))
    if plan.to_ms >= 0:
        reader = reader.option("toMs", str(plan.to_ms))
    return reader.load(plan.lake)


def _log_rows(spark: Any, plan: ReplayPlan, pinned: Mapping[str, Any]) -> Any:
    starts = {label: bounds[0] for label, bounds in pinned["log"].items()}
    stops = {label: bounds[1] for label, bounds in pinned["log"].items()}
    columns = (*COLUMNS, *ORDER, "store_timestamp")
    reader = spark.read.format("rocketmq-commitlog").option("columns", ",".join(columns))
    # Time is a filter here, not a start: the ranges of tasks must not depend on what retention has deleted since.
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(stops))
    if plan.topics:
        reader = reader.option("subscribe", ",".join(plan.topics))
    rows = reader.load(plan.store)
    if plan.from_ms >= 0:
        rows = rows.where(f"store_timestamp >= timestamp_millis({plan.from_ms})")
    if plan.to_ms >= 0:
        rows = rows.where(f"store_timestamp < timestamp_millis({plan.to_ms})")
    return rows
