"""An internal format: a lake's files as partitions, one each, in the order of their paths. Used by the replay job.

Spark's own Parquet reader splits and packs files by size and cores; here the n-th task reads the n-th file of a fixed
table version, so that a replay that is run again makes the same messages in the same order.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tandemq.spark.columns import arrow_schema, ddl
from tandemq.spark.lake.table import Lake, read_part

NAME = "tandemq-lake"
_ROWS = 10_000


class PartPartition(InputPartition):
    def __init__(self, path: str, topic: str) -> None:
        super().__init__(path)
        self.path, self.topic = path, topic


class LakeReader(DataSourceReader):
    """Options: path, version, topics (comma-separated), fromMs, toMs."""

    def __init__(self, options: dict[str, str], columns: pa.Schema) -> None:
        self._root = options["path"]
        self._version = int(options["version"])
        self._topics = {topic for topic in options.get("topics", "").split(",") if topic}
        self._from, self._to = options.get("fromms", ""), options.get("toms", "")
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        _, files = Lake(self._root).files(self._version)
        return [
            PartPartition(file["path"], file["partition.topic"])
            for file in files
            if not self._topics or file["partition.topic"] in self._topics
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PartPartition):
            return  # InputPartition(None): Spark starts one task even where there are no partitions
        names = list(dict.fromkeys([*self._columns.names, "store_timestamp"]))
        for batch in read_part(self._root, partition.path, partition.topic, names, _ROWS):
            kept = self._in_time(batch)
            if kept.num_rows:
                arrays = [kept.column(f.name).cast(f.type) for f in self._columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _in_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        stamps = batch.column("store_timestamp").cast(pa.int64())
        if self._from:
            keep = pc.greater_equal(stamps, int(self._from) * 1000)
            batch, stamps = batch.filter(keep), stamps.filter(keep)
        if self._to:
            batch = batch.filter(pc.less(stamps, int(self._to) * 1000))
        return batch


class LakeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(tuple(self.options["columns"].split(",")))

    def reader(self, schema: StructType) -> DataSourceReader:
        given: dict[str, Any] = {key.lower(): value for key, value in dict(self.options).items()}
        return LakeReader(given, arrow_schema(schema, may_be_damaged=True))
