"""Topics or a whole replica to a lake: Parquet with a Delta log, exactly once, resumable."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.spark.columns import DEFAULT_COLUMNS
from tandemq.spark.lake.archive_source import NAME, ArchiveSource
from tandemq.spark.lake.table import Lake, ManifestRow, archive_columns
from tandemq.spark.runtime.query_start import started
from tandemq.spark.session import tasks_at_a_time

BYTES_PER_CORE = 1 << 30
"""Log bytes of one micro-batch, for each task that runs at a time: a few tasks one after the other, so that none waits
long for the slowest; large files; seconds to repeat after a crash."""


@dataclass(frozen=True)
class ArchivePlan:
    """What to archive, from where, to where."""

    to: str
    checkpoint: str
    source: str
    """`rocketmq` or `rocketmq-commitlog`."""
    options: Mapping[str, str]
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    follow_seconds: float = 0.0
    """0: archive what is there and end; otherwise go on, a micro-batch every so many seconds."""


@dataclass
class ArchiveResult:
    """What a run added; `repeated` counts batches that an earlier run had committed already."""

    messages: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    repeated: int = 0
    seconds: float = 0.0
    by_topic: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def archive(
    spark: Any,
    plan: ArchivePlan,
    *,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
    stop_after: Callable[[ArchiveResult], bool] = lambda result: False,
) -> ArchiveResult:
    """Runs until everything is archived (or, with `follow_seconds`, until stopped)."""
    clock = clock or SystemClock()
    started = clock.monotonic()
    columns = archive_columns(plan.columns)
    lake = Lake(plan.to, clock=clock)
    lake.create(columns)
    result = ArchiveResult()

    def commit(manifest: Any, batch: int) -> None:
        rows = [ManifestRow(*row) for row in manifest.collect()]
        if not lake.commit(_application(plan.checkpoint), batch, rows):
            result.repeated += 1
            say(f"batch {batch}: committed by an earlier run, its {len(rows)} new files were dropped")
            return
        _add(result, rows)
        result.seconds = clock.monotonic() - started
        say(f"batch {batch}: {sum(r.rows for r in rows):,} messages in {len(rows)} files; {result.messages:,} so far")

    query = _start(spark, plan, columns, commit)
    if plan.follow_seconds:
        while query.isActive and not stop_after(result):
            query.awaitTermination(1)
        query.stop()
    else:
        query.awaitTermination()
    result.seconds = clock.monotonic() - started
    return result


def _start(spark: Any, plan: ArchivePlan, columns: list[str], commit: Callable[[Any, int], None]) -> Any:
    if plan.source not in ("rocketmq", "rocketmq-commitlog"):
        raise ConfigError(f"source={plan.source!r}: rocketmq or rocketmq-commitlog expected")
    spark.dataSource.register(ArchiveSource)
    batch_bytes = BYTES_PER_CORE * tasks_at_a_time(spark)
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": str(batch_bytes), **plan.options}
    if "startingTimestamp" in options:
        options.pop("startingOffsets")
    reader = spark.readStream.format(NAME).options(**options)
    stream = reader.options(archiveTo=plan.to, archiveFrom=plan.source, archiveColumns=",".join(columns)).load()
    writer = stream.writeStream.foreachBatch(commit).option("checkpointLocation", plan.checkpoint)
    if plan.follow_seconds:
        writer = writer.trigger(processingTime=f"{plan.follow_seconds} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    return started(writer)


def _application(checkpoint: str) -> str:
    """Returns the id that Spark gave the query when its checkpoint was made: the same after every restart."""
    metadata = json.loads((Path(checkpoint.removeprefix("file://")) / "metadata").read_text())
    return f"tandemq-archive-{metadata['id']}"


def _add(result: ArchiveResult, rows: list[ManifestRow]) -> None:
    result.batches += 1
    result.files += len(rows)
    for row in rows:
        result.messages += row.rows
        result.size += row.size
        result.by_topic[row.topic] = result.by_topic.get(row.topic, 0) + row.rows
