"""What Spark's Python data source API punishes without a word: each rule here cost somebody rows or an afternoon."""

import inspect
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tandemq.spark.archive_source import ArchiveSource
from tandemq.spark.columns import arrow_schema
from tandemq.spark.log_reader import LogBatchReader, LogStreamReader
from tandemq.spark.queue_reader import QueueBatchReader, QueueStreamReader
from tandemq.spark.session import _SOCKET_PATH_MAX, _socket_directory
from tandemq.spark.source import CommitLogSource, RocketMQSource
from tandemq.spark.writer import TopicStreamWriter, TopicWriter

STREAMS = [QueueStreamReader, LogStreamReader]


@pytest.mark.parametrize("reader", [QueueBatchReader, LogBatchReader])
def test_no_reader_takes_part_in_filter_push_down(reader: type[DataSourceReader]) -> None:
    """Spark keeps the filters of one query for all later ones of the same load(): rows vanish."""
    assert reader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("reader", STREAMS)
def test_nothing_waits_for_a_stop_that_never_comes(reader: type[DataSourceStreamReader]) -> None:
    """Spark kills the process of a streaming source: a stop() of ours would be a promise that nobody keeps."""
    assert reader.stop is DataSourceStreamReader.stop


@pytest.mark.parametrize("reader", STREAMS)
def test_streams_take_limits_and_available_now(reader: type[DataSourceStreamReader]) -> None:
    """Without parameters of latestOffset there is no admission control; without the mixin availableNow is one batch."""
    assert list(inspect.signature(reader.latestOffset).parameters) == ["self", "start", "limit"]
    assert issubclass(reader, SupportsTriggerAvailableNow)


def test_parameters_have_the_names_that_spark_passes() -> None:
    for source in (RocketMQSource, CommitLogSource, ArchiveSource):
        for method in ("reader", "streamReader"):
            assert list(inspect.signature(getattr(source, method)).parameters) == ["self", "schema"]
    for method in ("writer", "streamWriter"):
        assert list(inspect.signature(getattr(RocketMQSource, method)).parameters) == ["self", "schema", "overwrite"]
    assert list(inspect.signature(TopicStreamWriter.commit).parameters) == ["self", "messages", "batchId"]


def test_sinks_take_arrow_batches() -> None:
    """Row by row is a dozen times slower."""
    assert issubclass(TopicWriter, DataSourceArrowWriter)
    assert issubclass(TopicStreamWriter, DataSourceStreamArrowWriter)


def test_an_abort_after_failed_tasks_gets_nothing_for_them() -> None:
    """Spark passes None for a task that failed."""
    writer = TopicWriter.__new__(TopicWriter)
    writer.transactional = True
    writer.abort([None, None])
    writer.commit([None])


def test_batches_have_exactly_the_schema_that_spark_expects() -> None:
    """int32 for int64, string for large_string: the first batch would be refused."""
    schema = StructType(
        [
            StructField("queue_id", IntegerType()), StructField("queue_offset", LongType()),
            StructField("store_timestamp", TimestampType()), StructField("keys", StringType()),
            StructField("properties", MapType(StringType(), StringType())), StructField("body", BinaryType()),
        ]
    )  # fmt: skip
    assert arrow_schema(schema, may_be_damaged=True).equals(to_arrow_schema(schema, timezone="UTC"))
    as_text = StructType([StructField("body", StringType())])
    assert arrow_schema(as_text, may_be_damaged=True).equals(to_arrow_schema(as_text, timezone="UTC"))


def test_sockets_of_killed_drivers_have_a_short_place_of_their_own(tmp_path: Path) -> None:
    """A Unix socket's path has 108 bytes; Spark never removes those of a driver that was killed."""
    deep = tmp_path / ("d" * 80)
    assert len(str(_socket_directory(deep))) <= _SOCKET_PATH_MAX
    assert _socket_directory(deep) == _socket_directory(deep) != _socket_directory(tmp_path / ("e" * 80))
