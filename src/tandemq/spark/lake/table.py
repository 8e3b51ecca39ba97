"""The lake: Parquet files written by the Python workers, listed in a Delta log by the driver.

Bodies never pass through the JVM: a worker decodes, writes files named at random and hands one manifest row per file to
the driver, which commits all files of a micro-batch in one Delta transaction with (checkpoint id, batch number).
A batch that is replayed after a crash finds its number taken and its new files are dropped; files nobody lists are left
over from killed workers, and `vacuum` removes them.

    LAKE/_delta_log/…                          the table
    LAKE/topic=orders/date=2026-11-16/part-….zstd.parquet
"""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.spark.columns import CORRUPT, DEFAULT_COLUMNS, default_arrow_schema
from tandemq.spark.runtime.pause import pause

PARTITION_COLUMNS = ["topic", "date"]
MANIFEST = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("topic", pa.string()), ("date", pa.string()),
     ("stats", pa.string())]
)  # fmt: skip
MANIFEST_DDL = "path STRING, size BIGINT, rows BIGINT, topic STRING, date STRING, stats STRING"
_BUFFERED_MAX = 64 << 20
"""Bytes a worker holds before the fullest partition becomes a row group."""
_ROW_GROUP = 16 << 20
_DICTIONARY = ["tags", "broker", "born_host", "store_host", "properties.key_value.key"]
"""Columns that repeat themselves; dictionaries elsewhere only cost time."""
_DAY_US = 86_400_000_000
_VISIBLE_SECONDS_MAX = 5.0
"""How long a file that a worker wrote may take to be seen by the driver."""


class ManifestRow(NamedTuple):
    """One file that a worker wrote."""

    path: str
    size: int
    rows: int
    topic: str
    date: str
    stats: str


def archive_columns(names: Iterable[str] = DEFAULT_COLUMNS) -> list[str]:
    """Returns the columns of an archive; those it is partitioned by, and the physical offset, are always there."""
    wanted = [name for name in names if name != CORRUPT]
    for needed in ("topic", "store_timestamp", "physical_offset"):
        if needed not in wanted:
            wanted.append(needed)
    return wanted


class PartWriter:
    """Writes batches of one task into one file per topic and day."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        self._root = Path(root)
        self._file_schema = pa.schema([f for f in schema if f.name not in PARTITION_COLUMNS])
        self._parts: dict[tuple[str, str], _Part] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        days = np.asarray(batch.column("store_timestamp").cast(pa.int64())) // _DAY_US
        topics = batch.column("topic").dictionary_encode()
        groups = np.asarray(topics.indices).astype(np.int64) << 32 | days
        for group in np.unique(groups).tolist():
            rows = batch if groups[0] == group and (groups == group).all() else batch.filter(pa.array(groups == group))
            topic = topics.dictionary[group >> 32].as_py()
            date = str(np.datetime64(group & 0xFFFFFFFF, "D"))
            self._part(topic, date).add(rows.select(self._file_schema.names))
        while sum(part.buffered for part in self._parts.values()) > _BUFFERED_MAX:
            max(self._parts.values(), key=lambda part: part.buffered).flush()

    def _part(self, topic: str, date: str) -> "_Part":
        if (topic, date) not in self._parts:
            folder = f"topic={_safe(topic)}/date={date}"
            self._parts[topic, date] = _Part(self._root, folder, self._file_schema)
        return self._parts[topic, date]

    def finish(self) -> pa.RecordBatch:
        """Closes all files, makes them durable, and gives the manifest."""
        rows = [part.finish()._replace(topic=topic, date=date) for (topic, date), part in self._parts.items()]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in MANIFEST.names]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, type=f.type) for column, f in zip(columns, MANIFEST, strict=True)], schema=MANIFEST
        )

    def discard(self) -> None:
        """Removes, as far as possible, what a failed task leaves, which is nobody's."""
        for part in self._parts.values():
            part.discard()


class _Part:
    """One file in the making."""

    def __init__(self, root: Path, folder: str, schema: pa.Schema) -> None:
        self.path = f"{folder}/part-{uuid.uuid4().hex}.zstd.parquet"
        self._file = root / self.path
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self.buffered = 0
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._bounds: dict[str, list[Any]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.buffered += batch.nbytes
        self._rows += batch.num_rows
        for name in ("physical_offset", "queue_offset", "store_timestamp"):
            if name in self._schema.names:
                found = pc.min_max(batch.column(name))
                self._bounds.setdefault(name, []).extend((found["min"].as_py(), found["max"].as_py()))
        if self.buffered >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if not self._batches:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression="zstd", compression_level=1, use_dictionary=_DICTIONARY,
                write_statistics=["physical_offset", "queue_offset", "store_timestamp"],
            )  # fmt: skip
        self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), row_group_size=1 << 30)
        self._batches, self.buffered = [], 0

    def finish(self) -> ManifestRow:
        self.flush()
        assert self._writer is not None
        self._writer.close()
        # The Delta log must never name a file whose bytes, or whose name, can vanish.
        with open(self._file, "rb") as file:
            os.fsync(file.fileno())
        for folder in (self._file.parent, self._file.parent.parent):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        stats: dict[str, Any] = {"numRecords": self._rows, "minValues": {}, "maxValues": {}}
        for name, values in self._bounds.items():
            known = [value for value in values if value is not None]
            if known:
                stats["minValues"][name], stats["maxValues"][name] = _stat(min(known)), _stat(max(known))
        return ManifestRow(self.path, self._file.stat().st_size, self._rows, "", "", json.dumps(stats))

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.unlink(missing_ok=True)


def _stat(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if hasattr(value, "strftime") else value


def _safe(topic: str) -> str:
    """Returns a directory name for a topic: %RETRY% and the like would be escaped twice otherwise."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", topic):
        return topic
    return re.sub(r"[^A-Za-z0-9_-]", "_", topic) + "-" + hashlib.sha256(topic.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """What a lake holds."""

    version: int
    files: int
    rows: int
    size: int


class Lake:
    """The Delta table, on the driver."""

    def __init__(self, root: str, *, clock: Clock | None = None) -> None:
        self.root = root
        self._clock = clock or SystemClock()

    def _open(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.root)
        except TableNotFoundError:
            return None

    def create(self, names: list[str]) -> None:
        """Makes the table if there is none; a table with other columns is refused."""
        from deltalake import DeltaTable, Schema

        schema = self._delta_schema(names)
        table = self._open()
        if table is None:
            DeltaTable.create(self.root, Schema.from_arrow(schema), mode="ignore", partition_by=PARTITION_COLUMNS)
            table = self._open()
        known = {field.name for field in table.schema().fields}
        if known != set(schema.names):
            raise ConfigError(
                f"{self.root} is a table with columns {sorted(known)}, the archive has {sorted(schema.names)}: "
                "choose the same columns or another directory"
            )

    @staticmethod
    def _delta_schema(names: list[str]) -> pa.Schema:
        return default_arrow_schema(names).append(pa.field("date", pa.string()))

    def commit(self, application: str, version: int, rows: list[ManifestRow]) -> bool:
        """Adds the files of one micro-batch, once: False if this version was committed before (its files are dropped).

        delta-rs does not refuse a repeated app transaction by itself, so the table is asked first.
        """
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        table = self._open()
        done = table.transaction_version(application)
        if done is not None and done >= version:
            for row in rows:
                (Path(self.root) / row.path).unlink(missing_ok=True)
            return False
        self._check_visible(rows)
        actions = [
            AddAction(
                path=row.path, size=row.size, partition_values={"topic": row.topic, "date": row.date},
                modification_time=self._clock.wall_ms(), data_change=True, stats=row.stats,
            )
            for row in rows
        ]  # fmt: skip
        table.create_write_transaction(
            actions, "append", table.schema(), PARTITION_COLUMNS,
            commit_properties=CommitProperties(app_transactions=[Transaction(application, version)]),
        )  # fmt: skip
        return True

    def _check_visible(self, rows: list[ManifestRow]) -> None:
        """Raises ConfigError if the driver does not see what the workers wrote: all nodes must share the lake."""
        missing = [row for row in rows if not self._is_whole(row)]
        deadline = self._clock.monotonic() + _VISIBLE_SECONDS_MAX
        while missing and self._clock.monotonic() < deadline:
            pause(0.1)  # a network file system may show new files a moment later
            missing = [row for row in missing if not self._is_whole(row)]
        if missing:
            raise ConfigError(
                f"{self.root}: {len(missing)} of {len(rows)} files that workers wrote can't be seen here, the first is "
                f"{missing[0].path} ({missing[0].size:,} bytes, {missing[0].rows:,} messages). The lake must be a "
                "directory that all nodes share; nothing was committed"
            )

    def _is_whole(self, row: ManifestRow) -> bool:
        try:
            return (Path(self.root) / row.path).stat().st_size == row.size
        except OSError:
            return False

    def files(self, version: int | None = None) -> tuple[int, list[dict[str, Any]]]:
        """Returns the table's version and its files with topic, date, rows and statistics, sorted by path."""
        from deltalake import DeltaTable

        table = DeltaTable(self.root, version=version) if version is not None else self._open()
        if table is None:
            raise ConfigError(
                f"{self.root} is no Delta table: give the directory that `tandemq spark archive` wrote to"
            )
        found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return table.version(), sorted(found, key=lambda action: str(action["path"]))

    def columns(self) -> set[str]:
        """Returns the names of the table's columns."""
        table = self._open()
        return set() if table is None else {field.name for field in table.schema().fields}

    def status(self) -> LakeStatus:
        version, files = self.files()
        return LakeStatus(
            version, len(files), sum(f["num_records"] or 0 for f in files), sum(f["size_bytes"] for f in files)
        )

    def vacuum(self, retention_hours: int) -> list[str]:
        """Removes files that no version lists and that are older than the retention: what killed workers left."""
        table = self._open()
        removed: list[str] = table.vacuum(
            retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        return removed


def read_part(root: str, path: str, topic: str, columns: list[str], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yields one file of a lake as batches with the topic added back."""
    stored = [name for name in columns if name != "topic"]
    file = pq.ParquetFile(Path(root) / path)
    for batch in file.iter_batches(batch_size=rows_max, columns=stored):
        arrays = [pa.array([topic] * len(batch)) if n == "topic" else batch.column(n) for n in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)
