"""The formats that Spark sees. Options are checked in `schema()`, where an error reaches the user unmasked.

    spark.read.format("rocketmq-commitlog").load("/data/broker-a/store")
    spark.readStream.format("rocketmq").option("nameserver", "ns:9876").option("subscribe", "orders").load()
    df.write.format("rocketmq").option("nameserver", "ns:9876").option("topic", "orders").mode("append").save()

Parameters are passed by keyword, so their names are Spark's. No reader implements `pushFilters`: in Spark 4 it makes
later queries of the same DataFrame return wrong rows; filters are options.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tandemq.errors import ConfigError, TandemError
from tandemq.spark.columns import arrow_schema, spark_schema
from tandemq.spark.options import FileOptions, Mode, Order, PullOptions, SelectOptions, SinkOptions, parse


class Refused(DataSourceStreamReader):
    """Says what is wrong when it is first used: Spark hides an exception raised by `streamReader()` behind its own."""

    def __init__(self, error: TandemError) -> None:
        self._error = str(error)

    def initialOffset(self) -> dict[str, Any]:
        raise ConfigError(self._error)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        raise ConfigError(self._error)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        raise ConfigError(self._error)

    def read(self, partition: Any) -> Any:
        raise ConfigError(self._error)


class RocketMQSource(DataSource):
    """`rocketmq`: topics of a live cluster, ours or upstream's; source and sink."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def _options(self) -> PullOptions:
        return parse(PullOptions, dict(self.options))

    def schema(self) -> StructType:
        return _schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        from tandemq.spark.broker_access import BrokerAccess
        from tandemq.spark.queue_reader import QueueBatchReader

        options = self._options()
        return QueueBatchReader(options, BrokerAccess(options), _arrow_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tandemq.spark.broker_access import BrokerAccess
        from tandemq.spark.queue_reader import QueueStreamReader

        try:
            options = self._options()
            columns = _arrow_schema(schema, options)
        except TandemError as error:
            return Refused(error)
        group = options.group_id if options.commit_group_offsets else ""
        return QueueStreamReader(options, BrokerAccess(options), columns, group=group)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tandemq.spark.writer import TopicWriter

        return TopicWriter(*self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tandemq.spark.writer import TopicStreamWriter

        return TopicStreamWriter(*self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> tuple[SinkOptions, Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        options = parse(SinkOptions, dict(self.options))
        if overwrite:
            raise ConfigError("mode=overwrite: a topic can't be overwritten, only appended to; use mode('append')")
        return options, to_arrow_schema(schema, timezone="UTC")


class CommitLogSource(DataSource):
    """`rocketmq-commitlog`: store directories, with or without a running broker."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def _options(self) -> FileOptions:
        return parse(FileOptions, dict(self.options))

    def schema(self) -> StructType:
        return _schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        from tandemq.spark.file_access import FileAccess
        from tandemq.spark.log_reader import LogBatchReader
        from tandemq.spark.queue_reader import QueueBatchReader

        options = self._options()
        columns = _arrow_schema(schema, options)
        if options.order is Order.QUEUE:
            return QueueBatchReader(options, FileAccess(options), columns)
        return LogBatchReader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tandemq.spark.file_access import FileAccess
        from tandemq.spark.log_reader import LogStreamReader
        from tandemq.spark.queue_reader import QueueStreamReader

        try:
            options = self._options()
            columns = _arrow_schema(schema, options)
        except TandemError as error:
            return Refused(error)
        if options.order is Order.QUEUE:
            return QueueStreamReader(options, FileAccess(options), columns)
        return LogStreamReader(options, columns)


def _schema(options: SelectOptions) -> StructType:
    return spark_schema(options.wanted_columns, may_be_damaged=options.mode is Mode.PERMISSIVE)


def _arrow_schema(schema: StructType, options: SelectOptions) -> pa.Schema:
    return arrow_schema(schema, may_be_damaged=options.mode is Mode.PERMISSIVE)


def register(spark: Any) -> None:
    """Makes both formats known to a session that can't discover them: code shipped with --py-files, Spark Connect."""
    spark.dataSource.register(RocketMQSource)
    spark.dataSource.register(CommitLogSource)
