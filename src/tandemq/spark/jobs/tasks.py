"""Runs a Python function over a list of work items as Spark tasks, one item each: the frame of the batch jobs.

An internal format whose partitions are the items and whose rows are what the function yields. It works on local[*], on
a cluster and with Spark Connect alike, and needs no pandas, as `mapInArrow` does.
"""

import base64
import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

Item = TypeVar("Item")

NAME = "tandemq-tasks"


class TaskPartition(InputPartition):
    """One work item."""

    def __init__(self, item: Any) -> None:
        super().__init__(repr(item)[:100])
        self.item = item


class TaskReader(DataSourceReader):
    """Calls a function, given as `module:name`, with each item."""

    def __init__(self, items: list[Any], work: str) -> None:
        self._items = items
        self._work = work

    def partitions(self) -> Sequence[InputPartition]:
        return [TaskPartition(item) for item in self._items]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TaskPartition):
            return  # InputPartition(None): Spark starts one task even where there are no partitions
        module, _, name = self._work.partition(":")
        yield from getattr(import_module(module), name)(partition.item)


class TaskSource(DataSource):
    """Options: `work` (module:function) and `items` (pickled, base64)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return TaskReader(pickle.loads(base64.b64decode(self.options["items"])), self.options["work"])


def run_tasks(spark: Any, items: Sequence[Item], work: Callable[[Item], Iterator[pa.RecordBatch]], ddl: str) -> Any:
    """Returns a DataFrame with the schema `ddl` of all batches that `work` yields; lazy, as DataFrames are.

    `work` is a function of a module, and items can be pickled: both are found again on executors.
    """
    spark.dataSource.register(TaskSource)
    packed = base64.b64encode(pickle.dumps(list(items))).decode()
    reader = spark.read.format(NAME).schema(ddl).option("work", f"{work.__module__}:{work.__qualname__}")
    return reader.option("items", packed).load()
