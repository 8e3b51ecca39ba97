"""Reading a partition writes it to the lake and yields the manifest."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from tests.golden import unpack

from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.lake.archive_source import (
    ArchiveSource,
    ArchivingLog,
    ArchivingLogBatch,
    ArchivingQueues,
    ArchivingQueuesBatch,
)
from tandemq.spark.lake.table import MANIFEST, archive_columns
from tandemq.spark.options import FileOptions, parse


@pytest.fixture
def store(tmp_path: Path) -> Path:
    unpack("5.3.3", tmp_path / "golden")
    return tmp_path / "golden" / "slave-clean"


def test_what_would_have_been_rows_is_files(store: Path, tmp_path: Path) -> None:
    columns = default_arrow_schema(archive_columns())
    reader = ArchivingLogBatch(str(tmp_path / "lake"), parse(FileOptions, {"path": str(store)}), columns)
    manifests = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.schema == MANIFEST for batch in manifests)
    rows = [row for batch in manifests for row in batch.to_pylist()]
    assert sum(row["rows"] for row in rows) > 1000
    assert all((tmp_path / "lake" / row["path"]).stat().st_size == row["size"] for row in rows)


def test_a_task_that_fails_leaves_no_file(store: Path, tmp_path: Path) -> None:
    columns = default_arrow_schema(archive_columns())
    reader = ArchivingLogBatch(str(tmp_path / "lake"), parse(FileOptions, {"path": str(store)}), columns)
    (part, *_) = reader.partitions()
    segment = Path(part.piece.segment.path)  # type: ignore[attr-defined]
    data = bytearray(segment.read_bytes())
    data[:8] = b"\xff" * 8
    segment.write_bytes(data)
    with pytest.raises(Exception, match="no message"):
        list(reader.read(part))
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_the_reader_is_that_of_the_source_it_wraps(store: Path) -> None:
    shared = {"archiveTo": "/lake", "archiveColumns": "body,topic"}
    files = {**shared, "archiveFrom": "rocketmq-commitlog", "path": str(store)}
    live = {**shared, "archiveFrom": "rocketmq", "nameserver": "n:1", "subscribe": "t"}
    empty = StructType([])
    for given, batch, stream in (
        (files, ArchivingLogBatch, ArchivingLog),
        ({**files, "order": "queue"}, ArchivingQueuesBatch, ArchivingQueues),
        (live, ArchivingQueuesBatch, ArchivingQueues),
    ):
        assert isinstance(ArchiveSource(given).reader(empty), batch)
        assert isinstance(ArchiveSource(given).streamReader(empty), stream)
