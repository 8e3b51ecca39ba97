"""A Spark source that decodes nothing: the same Arrow batches from memory, again and again.

What a source costs in Spark that has no work of its own: the ceiling for any source that is written in Python.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

NAME = "undecoded"
SAMPLE_BATCHES = 24
"""Batches of a sample: about 100 MiB, so that no processor's cache holds them."""


class Undecoded(DataSource):
    """Options: `path` of a sample, `rows` in all, `tasks`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: Any) -> DataSourceReader:
        return UndecodedReader(dict(self.options))


class UndecodedReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._path = options["path"]
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = partition.value
        with pa.memory_map(self._path) as file:
            sample = pa.ipc.open_file(file)
            batches = [sample.get_batch(number) for number in range(sample.num_record_batches)]
            while left > 0:
                for batch in batches:
                    if left > 0:
                        yield batch.slice(0, left)
                        left -= batch.num_rows


def write_sample(path: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Keeps the first batches of a source in a file."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch, _ in zip(batches, range(SAMPLE_BATCHES), strict=False):
            writer.write_batch(batch)


def register(spark: Any) -> None:
    """Makes the source known to a session, with its code: workers need not find this module."""
    from pyspark import cloudpickle

    import bench.undecoded as this

    cloudpickle.register_pickle_by_value(this)
    spark.dataSource.register(Undecoded)
