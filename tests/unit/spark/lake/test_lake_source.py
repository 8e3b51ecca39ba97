"""The files of a lake as partitions; rows by time."""

from pathlib import Path

import pyarrow as pa
from tests.unit.spark.lake.test_table import COLUMNS, small_batch, write

from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.lake.lake_source import LakeReader, PartPartition
from tandemq.spark.lake.table import Lake

MILLISECOND = 1_700_000_000_000


def lake_of(root: Path, *found: pa.RecordBatch) -> Lake:
    lake = Lake(str(root))
    lake.create(COLUMNS)
    lake.commit("app", 0, write(root, *found))
    return lake


def rows(reader: LakeReader) -> list[dict[str, object]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_file_is_a_partition_in_a_fixed_order(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", small_batch("a", 4), small_batch("b", 2))
    options = {"path": lake.root, "version": "1"}
    reader = LakeReader(options, default_arrow_schema(["topic", "body"]))
    parts = [part for part in reader.partitions() if isinstance(part, PartPartition)]
    assert [part.path for part in parts] == sorted(part.path for part in parts)
    assert sorted({row["topic"] for row in rows(reader)}) == ["a", "b"]
    only = LakeReader({**options, "topics": "b"}, default_arrow_schema(["body"]))
    assert [row["body"] for row in rows(only)] == [b"b0", b"b1"]


def test_times_cut_rows_out(tmp_path: Path) -> None:
    """The stamps of the rows are microseconds apart: a millisecond holds a thousand."""
    lake = lake_of(tmp_path / "lake", small_batch("a", 3000))
    options = {"path": lake.root, "version": "1", "fromms": str(MILLISECOND + 1), "toms": str(MILLISECOND + 2)}
    found = rows(LakeReader(options, default_arrow_schema(["queue_offset"])))
    assert [row["queue_offset"] for row in found] == list(range(1000, 2000))
