"""Physical order: where logs begin and end, what is left out by time, what is told when a log is not as it was."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from tests.golden import unpack

from tandemq.errors import ConfigError
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.options import FileOptions, parse
from tandemq.spark.source.offsets import DataLost
from tandemq.spark.source.physical_order import LogBatchReader, LogPartition, LogStreamReader

SCHEMA = default_arrow_schema(["physical_offset"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    unpack("5.3.3", tmp_path / "golden")
    shutil.copytree(tmp_path / "golden" / "slave-clean", tmp_path / "s")
    return tmp_path / "s"


def batch(store: Path, **given: str) -> LogBatchReader:
    return LogBatchReader(parse(FileOptions, {"path": str(store), **given}), SCHEMA)


def stream(store: Path, **given: str) -> LogStreamReader:
    options = {"path": str(store), "startingOffsets": "earliest", **given}
    return LogStreamReader(parse(FileOptions, options), SCHEMA)


def offsets(reader: LogBatchReader | LogStreamReader, parts: object) -> list[int]:
    return [row["physical_offset"] for p in parts for b in reader.read(p) for row in b.to_pylist()]  # type: ignore[attr-defined]


def ends(store: Path) -> int:
    return int(stream(store).reportLatestOffset()["log"]["s"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"startingOffsets": '{"s": 99999999}'},
            "startingOffsets: 's': offset 99999999 is beyond the end of the log, from 0",
        ),
        ({"endingOffsets": '{"s": 99999999}'}, "endingOffsets: 's': offset 99999999 is beyond"),
        ({"startingOffsets": '{"x": 0}'}, "startingOffsets: there is no store 'x'; there are s"),
        ({"endingOffsets": '{"s": {"0": 5}}'}, "physical order needs JSON like"),
    ],
)
def test_offsets_that_a_log_does_not_have_are_refused(store: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batch(store, **given).partitions()


def test_a_start_after_the_end_is_refused(store: Path) -> None:
    first = offsets(batch(store), batch(store).partitions())
    with pytest.raises(ConfigError, match=f"would end at {first[1]} but begin at {first[2]}"):
        batch(store, startingOffsets=f'{{"s": {first[2]}}}', endingOffsets=f'{{"s": {first[1]}}}').partitions()
    some = batch(store, startingOffsets=f'{{"s": {first[1]}}}', endingOffsets=f'{{"s": {first[3]}}}')
    assert offsets(some, some.partitions()) == first[1:3]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_segment_that_vanishes_after_planning_is_told(
    store: Path, fail: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = batch(store, failOnDataLoss=fail)
    parts = reader.partitions()
    assert len(parts) > 1
    part = parts[1]
    assert isinstance(part, LogPartition)
    Path(part.piece.segment.path).unlink()
    text = f"s: the log from {part.piece.start} to {part.piece.stop} was deleted before it was read"
    if fail == "true":
        with pytest.raises(DataLost, match=text):
            offsets(reader, parts)
    else:
        assert len(offsets(reader, parts)) > 0
        assert text in capsys.readouterr().err


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_copy_that_was_cut_is_told(store: Path, fail: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last file of a copy ends in the middle of a message."""
    last = sorted((store / "commitlog").iterdir())[-1]
    end = ends(store)
    with open(last, "r+b") as file:
        file.truncate(end - int(last.name) - 3)
    reader = batch(store, failOnDataLoss=fail)
    if fail == "true":
        with pytest.raises(DataLost, match="the file was cut"):
            reader.partitions()
    else:
        assert max(offsets(reader, reader.partitions())) < end
        assert "the file was cut" in capsys.readouterr().err


def test_a_stream_in_limited_batches_reads_everything_once(store: Path) -> None:
    reader = stream(store)
    at, found = reader.initialOffset(), list[int]()
    while (following := reader.latestOffset(at, ReadMaxBytes(100_000))) != at:
        found += offsets(reader, reader.partitions(at, following))
        at = following
    assert found == offsets(batch(store), batch(store).partitions())
    assert reader.partitions(at, at) == []


def test_a_log_that_lost_its_end_is_told_and_read_on_from_there(store: Path) -> None:
    """Another log under the same path, or a copy that is shorter than what was read."""
    reader = stream(store)
    read = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    last = sorted((store / "commitlog").iterdir())[-1]
    last.unlink()
    with pytest.raises(DataLost, match=r"was read up to .* but its log ends at"):
        stream(store).latestOffset(read, ReadAllAvailable())
    moved = stream(store, failOnDataLoss="false").latestOffset(read, ReadAllAvailable())
    assert moved["log"]["s"] == ends(store) == moved["from"]["s"]


def test_a_checkpoint_of_queue_order_is_refused(store: Path) -> None:
    with pytest.raises(ConfigError, match="is not one of physical order"):
        stream(store).latestOffset({"v": 1, "q": {}}, ReadAllAvailable())
