"""An internal format: reading a partition *writes* it to the lake and yields the manifest. Used by the archive job.

Registered by the job, not discovered: it is not meant to be read by users. Options are those of the source it
wraps, and
`archiveTo`, `archiveFrom` (rocketmq or rocketmq-commitlog), `archiveColumns`.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.lake.table import MANIFEST_DDL, PartWriter
from tandemq.spark.options import FileOptions, Order, PullOptions, parse
from tandemq.spark.source.broker_queues import BrokerAccess
from tandemq.spark.source.file_queues import FileAccess
from tandemq.spark.source.physical_order import LogBatchReader, LogStreamReader
from tandemq.spark.source.queue_order import QueueBatchReader, QueueStreamReader

NAME = "tandemq-archive"


class _Archiving:
    """Mixed in before a reader: what it would have yielded goes to the lake."""

    lake: str
    arrow_schema: pa.Schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        writer = PartWriter(self.lake, self.arrow_schema)
        try:
            for batch in super().read(partition):  # type: ignore[misc]
                if batch.num_rows:
                    writer.add(batch)
            manifest = writer.finish()
        except BaseException:
            writer.discard()
            raise
        yield manifest


class ArchivingLog(_Archiving, LogStreamReader):
    def __init__(self, lake: str, options: FileOptions, columns: pa.Schema) -> None:
        super().__init__(options, columns)
        self.lake = lake

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "lake": self.lake}


class ArchivingLogBatch(_Archiving, LogBatchReader):
    def __init__(self, lake: str, options: FileOptions, columns: pa.Schema) -> None:
        super().__init__(options, columns)
        self.lake = lake


class ArchivingQueues(_Archiving, QueueStreamReader):
    def __init__(self, lake: str, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lake = lake


class ArchivingQueuesBatch(_Archiving, QueueBatchReader):
    def __init__(self, lake: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lake = lake


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        self._parts()
        return MANIFEST_DDL

    def _parts(self) -> tuple[str, FileOptions | PullOptions, pa.Schema]:
        given = {key.lower(): value for key, value in dict(self.options).items()}
        lake, columns = given.pop("archiveto"), given.pop("archivecolumns").split(",")
        kind = given.pop("archivefrom")
        options = parse(FileOptions, given) if kind == "rocketmq-commitlog" else parse(PullOptions, given)
        return lake, options, default_arrow_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        lake, options, columns = self._parts()
        if isinstance(options, PullOptions):
            return ArchivingQueuesBatch(lake, options, BrokerAccess(options), columns)
        if options.order is Order.QUEUE:
            return ArchivingQueuesBatch(lake, options, FileAccess(options), columns)
        return ArchivingLogBatch(lake, options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        lake, options, columns = self._parts()
        if isinstance(options, PullOptions):
            group = options.group_id if options.commit_group_offsets else ""
            return ArchivingQueues(lake, options, BrokerAccess(options), columns, group=group)
        if options.order is Order.QUEUE:
            return ArchivingQueues(lake, options, FileAccess(options), columns)
        return ArchivingLog(lake, options, columns)
