"""Parquet parts and the Delta log: what is committed, once; what is left over."""

from pathlib import Path

import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.lake.table import Lake, ManifestRow, PartWriter, archive_columns, read_part

COLUMNS = archive_columns()


def small_batch(topic: str, count: int, day: int = 0) -> pa.RecordBatch:
    schema = default_arrow_schema(COLUMNS)
    stamp = 1_700_000_000_000_000 + day * 86_400_000_000
    values = {
        "topic": [topic] * count, "physical_offset": list(range(count)), "queue_offset": list(range(count)),
        "store_timestamp": [stamp + n for n in range(count)], "body": [b"b%d" % n for n in range(count)],
    }  # fmt: skip
    arrays = [pa.array(values.get(f.name, [None] * count), type=f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(lake: Path, *found: pa.RecordBatch) -> list[ManifestRow]:
    writer = PartWriter(str(lake), default_arrow_schema(COLUMNS))
    for batch in found:
        writer.add(batch)
    return [ManifestRow(*row.values()) for row in writer.finish().to_pylist()]


def test_parts_by_topic_and_day_commit_once(tmp_path: Path) -> None:
    """A repeated version changes nothing and leaves no file of its own behind."""
    lake = Lake(str(tmp_path / "lake"))
    lake.create(COLUMNS)
    rows = write(
        tmp_path / "lake", small_batch("orders", 10), small_batch("%RETRY%g", 5), small_batch("orders", 3, day=1)
    )
    assert sorted((row.topic, row.rows) for row in rows) == [("%RETRY%g", 5), ("orders", 3), ("orders", 10)]
    assert lake.commit("app", 0, rows)
    again = write(tmp_path / "lake", small_batch("orders", 10))
    assert not lake.commit("app", 0, again)
    assert not (tmp_path / "lake" / again[0].path).exists()
    assert lake.commit("app", 1, write(tmp_path / "lake", small_batch("orders", 7)))
    assert lake.status().rows == 25
    version, files = lake.files()
    assert version == 2
    found = {(f["partition.topic"], f["num_records"]) for f in files}
    assert found == {("%RETRY%g", 5), ("orders", 3), ("orders", 10), ("orders", 7)}


def test_the_table_reads_back_with_its_topics(tmp_path: Path) -> None:
    """Through the Delta log, file by file, in order."""
    lake = Lake(str(tmp_path))
    lake.create(COLUMNS)
    lake.commit("app", 0, write(tmp_path, small_batch("%DLQ%x", 6)))
    _, (file,) = lake.files()
    rows = [
        row
        for batch in read_part(str(tmp_path), file["path"], file["partition.topic"], ["topic", "body"], 4)
        for row in batch.to_pylist()
    ]
    assert rows == [{"topic": "%DLQ%x", "body": b"b%d" % n} for n in range(6)]


def test_vacuum_removes_only_what_nobody_lists(tmp_path: Path) -> None:
    """Orphans of killed workers go, the table stays whole."""
    lake = Lake(str(tmp_path))
    lake.create(COLUMNS)
    lake.commit("app", 0, write(tmp_path, small_batch("t", 4)))
    orphan = write(tmp_path, small_batch("t", 9))[0]
    lake.vacuum(0)
    assert not (tmp_path / orphan.path).exists()
    assert lake.status().rows == 4
    _, files = lake.files()
    assert all((tmp_path / f["path"]).exists() for f in files)


def test_another_tables_columns_are_refused(tmp_path: Path) -> None:
    """Mixing layouts would lose columns silently."""
    Lake(str(tmp_path)).create(archive_columns(["body"]))
    with pytest.raises(ConfigError, match="is a table with columns"):
        Lake(str(tmp_path)).create(COLUMNS)
    with pytest.raises(ConfigError, match="is no Delta table"):
        Lake(str(tmp_path / "nothing")).files()


def test_a_discarded_part_leaves_no_file(tmp_path: Path) -> None:
    """A failed task cleans up as far as it can."""
    writer = PartWriter(str(tmp_path), default_arrow_schema(COLUMNS))
    writer.add(small_batch("t", 5))
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))
