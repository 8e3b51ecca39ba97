"""Work items are partitions; the function is found by name on executors."""

from collections.abc import Iterator

import pyarrow as pa

from tandemq.spark.jobs.tasks import TaskPartition, TaskReader


def doubled(item: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [item * 2]})


def test_each_item_is_a_task() -> None:
    reader = TaskReader([1, 5], f"{__name__}:doubled")
    parts = reader.partitions()
    assert [part.item for part in parts if isinstance(part, TaskPartition)] == [1, 5]
    found = [row["n"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [2, 10]


def test_a_task_without_an_item_does_nothing() -> None:
    """Spark starts one task even where there are no partitions."""
    from pyspark.sql.datasource import InputPartition

    assert list(TaskReader([], f"{__name__}:doubled").read(InputPartition(None))) == []
