"""What Spark's Python data source API punishes without a word: each rule here cost somebody rows or an afternoon."""

import inspect
import subprocess
import sys

import pytest
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructField, StructType

from tandemq.errors import ConfigError
from tandemq.spark.lake.archive_source import ArchiveSource
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.writer import TopicStreamWriter, TopicWriter
from tandemq.spark.source.data_sources import CommitLogSource, CommitLogTable, RefusedStream, RocketMQSource
from tandemq.spark.source.physical_order import LogBatchReader, LogStreamReader
from tandemq.spark.source.queue_order import QueueBatchReader, QueueStreamReader

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
    writer.options = parse(SinkOptions, {"nameserver": "n:1", "topic": "t", "delivery": "exactly_once"})
    writer.transactional = True
    writer.abort([None, None])
    writer.commit([None])


def test_names_are_those_that_people_write() -> None:
    """SQL can't spell a minus without quotes."""
    assert [source.name() for source in (RocketMQSource, CommitLogSource, CommitLogTable)] == [
        "rocketmq", "rocketmq-commitlog", "rocketmq_commitlog",
    ]  # fmt: skip


def test_a_stream_that_can_not_be_says_why_when_it_is_first_used() -> None:
    """Spark masks what `streamReader` itself raises."""
    source = RocketMQSource({"nameserver": "n:1", "subscribe": "t", "endingOffsets": "latest"})
    stream = source.streamReader(StructType([StructField("body", BinaryType(), False)]))
    assert isinstance(stream, RefusedStream)
    for use in (stream.initialOffset, lambda: stream.latestOffset({}, None), lambda: stream.partitions({}, {})):
        with pytest.raises(ConfigError, match="a stream has no end"):
            use()


def test_a_sink_that_cannot_write_says_why() -> None:
    with pytest.raises(ConfigError, match="nameserver: missing"):
        RocketMQSource({}).writer(StructType([]), overwrite=False)
    with pytest.raises(ConfigError, match="can't be overwritten"):
        RocketMQSource({"nameserver": "n:1", "topic": "t"}).writer(StructType([]), overwrite=True)


@pytest.mark.parametrize(("main", "kind"), [("pyspark.daemon", "QuietStream"), ("my.job", "TextIOWrapper")])
def test_processes_that_plan_are_silent_about_their_end(main: str, kind: str) -> None:
    """Spark ends those that were idle for a minute, and pyspark's daemon prints a traceback for each."""
    program = (
        "import sys, types\n"
        f"sys.modules['__main__'].__spec__ = types.SimpleNamespace(name={main!r})\n"
        "import pyspark_tandemq\n"
        "print(type(sys.stderr).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kind
