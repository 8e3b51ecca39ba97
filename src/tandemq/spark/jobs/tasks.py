"""Runs a Python function over a list of work items as Spark tasks, one item each: the frame of the batch jobs.

`mapInArrow` over a range with one partition per item: works on local[*], a cluster and Spark Connect alike.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

Item = TypeVar("Item")


def run_tasks(spark: Any, items: Sequence[Item], work: Callable[[Item], Iterator[pa.RecordBatch]], ddl: str) -> Any:
    """A DataFrame with the schema `ddl` of all batches that `work` yields; lazy, as DataFrames are."""
    if not items:
        return spark.createDataFrame([], ddl)
    captured = list(items)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from work(captured[number])

    with warnings.catch_warnings():
        # Spark checks for pandas here, and warns of its newest version; mapInArrow itself uses none of it.
        warnings.simplefilter("ignore", FutureWarning)
        return spark.range(0, len(captured), 1, len(captured)).mapInArrow(task, ddl)


class Progress:
    """What a job says while it runs; the CLI passes its own."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.say = say
