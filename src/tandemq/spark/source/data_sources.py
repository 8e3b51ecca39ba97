"""The formats that Spark sees. Options are checked in `schema()`, where an error reaches the user unmasked.

    spark.read.format("rocketmq-commitlog").load("/data/broker-a/store")
    spark.readStream.format("rocketmq").option("nameserver", "ns:9876").option("subscribe", "orders").load()
    df.write.format("rocketmq").option("nameserver", "ns:9876").option("topic", "orders").mode("append").save()
    CREATE TABLE orders USING rocketmq OPTIONS (nameserver 'ns:9876', subscribe 'orders')

Parameters are passed by keyword, so their names are Spark's. No reader implements `pushFilters`: in Spark 4 it makes
later queries of the same DataFrame return wrong rows, and a plain session refuses a reader that has it. Filters are
options, or come from `planning.push_down`.
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
from tandemq.spark.columns import COLUMNS, KAFKA_COLUMNS, arrow_schema, spark_schema
from tandemq.spark.options import (
    FileOptions,
    Mode,
    Order,
    PullOptions,
    SchemaKind,
    SelectOptions,
    SinkOptions,
    parse,
)
from tandemq.spark.planning.registered import prepare, prepare_active_session
from tandemq.spark.runtime.stderr_filter import quiet_stderr
from tandemq.spark.source import table_options
from tandemq.spark.source.asked import Asked, taken_from

quiet_stderr()  # of a process that plans: Spark ends those that were idle for a minute, and pyspark prints a traceback


class RefusedStream(DataSourceStreamReader):
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
        prepare_active_session()  # Spark asks for it when a session registers the class
        return "rocketmq"

    def schema(self) -> StructType:
        given = dict(self.options)
        table = table_options.of_created_table(given)
        if table is None:
            return _schema(parse(PullOptions, given))
        schema = _schema(parse(PullOptions, table_options.for_reading(table)))
        return table_options.with_options(table_options.made_for_writing(schema, table), table)

    def _options(self, schema: StructType) -> tuple[PullOptions, Asked]:
        given, asked = taken_from(self.options)
        given = table_options.merged(schema, given, "nameserver")
        return parse(PullOptions, table_options.for_reading(given)), asked

    def reader(self, schema: StructType) -> DataSourceReader:
        from tandemq.spark.source.broker_queues import BrokerAccess
        from tandemq.spark.source.queue_order import QueueBatchReader

        options, asked = self._options(schema)
        options = asked.narrowed(options)
        return QueueBatchReader(options, BrokerAccess(options), _arrow_schema(schema, options), asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tandemq.spark.source.broker_queues import BrokerAccess
        from tandemq.spark.source.queue_order import QueueStreamReader

        try:
            options, _ = self._options(schema)
            options.check_stream()
            columns = _arrow_schema(schema, options)
        except TandemError as error:
            return RefusedStream(error)
        group = options.group_id if options.commit_group_offsets else ""
        return QueueStreamReader(options, BrokerAccess(options), columns, group=group)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tandemq.spark.sink.writer import TopicWriter

        return TopicWriter(*self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tandemq.spark.sink.writer import TopicStreamWriter

        return TopicStreamWriter(*self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> tuple[SinkOptions, Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        options = parse(SinkOptions, table_options.for_writing(schema, self.options))
        if overwrite:
            raise ConfigError("mode=overwrite: a topic can't be overwritten, only appended to; use mode('append')")
        return options, to_arrow_schema(schema, timezone="UTC")


class CommitLogSource(DataSource):
    """`rocketmq-commitlog`: store directories, with or without a running broker."""

    @classmethod
    def name(cls) -> str:
        prepare_active_session()
        return "rocketmq-commitlog"

    def schema(self) -> StructType:
        given = dict(self.options)
        table = table_options.of_created_table(given)
        if table is None:
            return _schema(parse(FileOptions, given))
        return table_options.with_options(_schema(parse(FileOptions, table)), table)

    def _options(self, schema: StructType) -> tuple[FileOptions, Asked]:
        given, asked = taken_from(self.options)
        return parse(FileOptions, table_options.merged(schema, given, "path")), asked

    def reader(self, schema: StructType) -> DataSourceReader:
        from tandemq.spark.source.file_queues import FileAccess
        from tandemq.spark.source.physical_order import LogBatchReader
        from tandemq.spark.source.queue_order import QueueBatchReader

        options, asked = self._options(schema)
        options = asked.narrowed(options)
        columns = _arrow_schema(schema, options)
        if options.order is Order.QUEUE:
            return QueueBatchReader(options, FileAccess(options), columns, asked)
        return LogBatchReader(options, columns, asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tandemq.spark.source.file_queues import FileAccess
        from tandemq.spark.source.physical_order import LogStreamReader
        from tandemq.spark.source.queue_order import QueueStreamReader

        try:
            options, _ = self._options(schema)
            options.check_stream()
            columns = _arrow_schema(schema, options)
        except TandemError as error:
            return RefusedStream(error)
        if options.order is Order.QUEUE:
            return QueueStreamReader(options, FileAccess(options), columns)
        return LogStreamReader(options, columns)


class CommitLogTable(CommitLogSource):
    """`rocketmq_commitlog`: the same under a name that SQL can spell without quotes."""

    @classmethod
    def name(cls) -> str:
        prepare_active_session()
        return "rocketmq_commitlog"


def _columns(options: SelectOptions) -> Any:
    return KAFKA_COLUMNS if options.schema is SchemaKind.KAFKA else COLUMNS


def _schema(options: SelectOptions) -> StructType:
    damaged = options.mode is Mode.PERMISSIVE
    return spark_schema(options.wanted_columns, _columns(options), may_be_damaged=damaged)


def _arrow_schema(schema: StructType, options: SelectOptions) -> pa.Schema:
    return arrow_schema(schema, _columns(options), may_be_damaged=options.mode is Mode.PERMISSIVE)


def register(spark: Any) -> None:
    """Makes all formats known to a session, and lets its queries tell them which columns and rows they need.

    Also for sessions that can't discover them: code shipped with --py-files, Spark Connect.
    """
    prepare(spark)
    for source in (RocketMQSource, CommitLogSource, CommitLogTable):
        spark.dataSource.register(source)
