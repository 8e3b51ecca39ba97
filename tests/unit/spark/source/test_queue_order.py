"""The stream reader's decisions against a fake cluster, in the order in which Spark calls it. No JVM."""

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tandemq.model.topic import QueueRef
from tandemq.sim.clock import ManualClock
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.source.offsets import PLAIN, DataLost, Mark, Marks, Offsets, Range, Ranges
from tandemq.spark.source.queue_order import QueuePartition, QueueStreamReader

A, B = QueueRef("t", "b", 0), QueueRef("t", "b", 1)


class FakeAccess:
    """Queues that a test moves by hand."""

    def __init__(self, **ends: int) -> None:
        self.bounds: dict[QueueRef, Range] = {}
        self.committed: list[tuple[str, Offsets]] = []
        self.longest: dict[QueueRef, Range] = {}
        self.marks_asked = 0
        self.grow(**ends)

    def grow(self, **ends: int) -> None:
        for name, end in ends.items():
            queue = {"a": A, "b": B}[name]
            self.bounds[queue] = Range(self.bounds[queue].first if queue in self.bounds else 0, end)

    numbering = PLAIN
    born = 0
    """Which life of the topic this is: its messages lie elsewhere in the log."""

    def ranges(self, *, complete: bool = False) -> Ranges:
        return dict(self.bounds)

    replicas: dict[str, dict[str, Any]] = {}

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        return {queue: self.longest.get(queue, self.bounds[queue]) for queue in queues}

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        self.marks_asked += len(offsets)
        return {queue: Mark(offset, self.born + offset * 100, self.born) for queue, offset in offsets.items()}

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        return dict(times)

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        return 100.0

    def read(self, *_: Any) -> Any:
        raise AssertionError("not read here")

    def commit_group(self, group: str, done: Offsets) -> None:
        self.committed.append((group, done))


def reader(access: FakeAccess, *, group: str = "", clock: ManualClock | None = None, **given: str) -> QueueStreamReader:
    options = parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", **given})
    return QueueStreamReader(options, access, pa.schema([]), group=group, clock=clock)


def slices(found: Any) -> dict[QueueRef, tuple[int, int]]:
    return {s.queue: (s.start, s.stop) for partition in found for s in partition.slices}


def test_latest_neither_drifts_nor_loses_messages_when_batch_0_is_replayed() -> None:
    """initialOffset is asked twice, and again after a crash; the end offset carries where batch 0 began."""
    access = FakeAccess(a=100, b=50)
    first = reader(access)
    start = first.initialOffset()
    access.grow(a=110)
    end = first.latestOffset(start, ReadAllAvailable())
    access.grow(a=200)
    assert first.initialOffset() == start
    assert slices(first.partitions(start, end)) == {A: (100, 110)}
    # The process dies before batch 0 is committed; a new one computes another "latest" but gets the stored end.
    second = reader(access)
    drifted = second.initialOffset()
    assert drifted["q"] != start["q"]
    assert slices(second.partitions(drifted, end)) == {A: (100, 110)}


def test_an_unchanged_cluster_gives_the_same_offset_so_no_batch_runs() -> None:
    """The very same dict: Spark compares JSON."""
    access = FakeAccess(a=10)
    stream = reader(access, startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert "initial" not in end
    assert stream.latestOffset(end, ReadAllAvailable()) is end
    assert stream.partitions(end, end) == []


def test_a_new_queue_is_read_from_its_beginning_also_when_the_batch_is_replayed() -> None:
    """Where it began is in the end offset: retention may delete messages between plan and replay."""
    access = FakeAccess(a=10)
    stream = reader(access, startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    access.bounds[B] = Range(3, 7)
    later = stream.latestOffset(end, ReadAllAvailable())
    assert slices(stream.partitions(end, later)) == {B: (3, 7)}
    again = reader(access, startingOffsets="earliest")
    access.bounds[B] = Range(5, 9)
    with pytest.raises(DataLost, match="b/t/1: offsets 3 to 4"):
        again.partitions(end, later)


def test_a_removed_queue_keeps_its_place_and_goes_on_when_it_returns() -> None:
    """While stopped or while running."""
    access = FakeAccess(a=10, b=10)
    stream = reader(access, startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    del access.bounds[B]
    access.grow(a=12)
    without = stream.latestOffset(end, ReadAllAvailable())
    assert slices(stream.partitions(end, without)) == {A: (10, 12)}
    access.bounds[B] = Range(0, 15)
    back = stream.latestOffset(without, ReadAllAvailable())
    assert slices(stream.partitions(without, back)) == {B: (10, 15)}


def restarted(access: FakeAccess, **given: str) -> tuple[QueueStreamReader, dict[str, Any]]:
    """A stream that has read a topic of 1,000 messages, and its last offset, as a new process gets it."""
    first = reader(access, startingOffsets="earliest", **given)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    return reader(access, startingOffsets="earliest", **given), end


@pytest.mark.parametrize("length", [300, 1000, 2300])
def test_a_topic_that_was_made_anew_is_not_read_on_from_the_old_offset(length: int) -> None:
    """Shorter, as long, or longer than the old one was: the mark in the checkpoint tells."""
    access = FakeAccess(a=1000)
    again, end = restarted(access)
    access.born, access.bounds[A] = 7_000_000, Range(0, length)
    if length == 1000:
        assert again.latestOffset(end, ReadAllAvailable()) is end
        access.grow(a=1001)
    with pytest.raises(DataLost, match=r"b/t/0 was deleted and made anew: it was read up to 1000"):
        again.latestOffset(end, ReadAllAvailable())


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_if_loss_is_accepted() -> None:
    """Also when the batch is replayed: where it begins is in its end offset."""
    access = FakeAccess(a=1000)
    again, end = restarted(access, failOnDataLoss="false")
    access.born, access.bounds[A] = 7_000_000, Range(0, 2300)
    later = again.latestOffset(end, ReadAllAvailable())
    assert slices(again.partitions(end, later)) == {A: (0, 2300)}
    assert slices(reader(access, failOnDataLoss="false").partitions(end, later)) == {A: (0, 2300)}


def test_a_topic_that_is_made_anew_while_the_stream_runs_is_noticed() -> None:
    """Marks are compared every few seconds, not in every trigger."""
    clock, access = ManualClock(), FakeAccess(a=1000)
    stream = reader(access, startingOffsets="earliest", clock=clock)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    asked = access.marks_asked
    for more in range(1001, 1011):
        access.grow(a=more)
        end = stream.latestOffset(end, ReadAllAvailable())
    assert access.marks_asked == asked
    clock.advance(60)
    access.born = 7_000_000
    access.grow(a=2000)
    with pytest.raises(DataLost, match="made anew"):
        stream.latestOffset(end, ReadAllAvailable())


def test_a_slave_that_lags_is_not_taken_for_a_new_topic() -> None:
    """Another member has what was read: the stream waits."""
    access = FakeAccess(a=1000)
    again, end = restarted(access)
    access.bounds[A], access.longest[A] = Range(0, 900), Range(0, 1000)
    assert again.latestOffset(end, ReadAllAvailable()) is end


def test_an_end_that_a_failover_lost_is_told_and_read_on_from_there() -> None:
    """The topic is the same, but messages that were read are gone and their offsets will be used again."""
    access = FakeAccess(a=1000)
    stream = reader(access, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    access.grow(a=1500)
    end = stream.latestOffset(end, ReadAllAvailable())
    access.bounds[A] = Range(0, 1200)
    with pytest.raises(DataLost, match="was read up to 1500 and now ends at 1200"):
        reader(access).latestOffset(end, ReadAllAvailable())
    again = reader(access, failOnDataLoss="false")
    moved = again.latestOffset(end, ReadAllAvailable())
    access.grow(a=1300)
    later = again.latestOffset(moved, ReadAllAvailable())
    assert slices(again.partitions(moved, later)) == {A: (1200, 1300)}


def test_a_replayed_batch_of_a_topic_that_was_made_anew_is_refused() -> None:
    """It would read other messages than the first time."""
    access = FakeAccess(a=1000)
    _, end = restarted(access)
    access.grow(a=1100)
    stream = reader(access)
    later = stream.latestOffset(end, ReadAllAvailable())
    access.born, access.bounds[A] = 7_000_000, Range(0, 5000)
    with pytest.raises(DataLost, match="made anew"):
        reader(access).partitions(end, later)


def test_available_now_stops_at_the_target_whatever_arrives() -> None:
    """Limited batches, then the same offset for good; queues that appear later wait for the next run."""
    access = FakeAccess(a=10, b=6)
    stream = reader(access, startingOffsets="earliest", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="4")
    stream.prepareForTriggerAvailableNow()
    access.grow(a=1000)
    at, seen = stream.initialOffset(), 0
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        count = sum(stop - start for start, stop in slices(stream.partitions(at, end)).values())
        assert count <= 5
        seen += count
        at = end
    assert seen == 16
    assert at["q"] == {"b/t/0": 10, "b/t/1": 6}


def test_limits_come_from_the_options_and_once_ignores_them() -> None:
    """ReadAllAvailable is what Trigger.Once passes."""
    access = FakeAccess(a=100, b=100)
    assert isinstance(reader(access).getDefaultReadLimit(), ReadAllAvailable)
    assert isinstance(reader(access, maxBytesPerTrigger="10").getDefaultReadLimit(), ReadMaxBytes)
    assert isinstance(reader(access, minOffsetsPerTrigger="10").getDefaultReadLimit(), ReadMinRows)
    stream = reader(access, startingOffsets="earliest", maxOffsetsPerTrigger="50", maxBytesPerTrigger="1000")
    start = stream.initialOffset()
    limited = stream.latestOffset(start, ReadMaxRows(50))
    assert sum(limited["q"].values()) == 10  # 1000 bytes of 100 each: both limits hold
    assert sum(stream.latestOffset(start, ReadAllAvailable())["q"].values()) == 200


def test_a_minimum_waits_until_it_is_reached_or_the_delay_is_over() -> None:
    """minOffsetsPerTrigger with maxTriggerDelay, by the clock it is given."""
    access, clock = FakeAccess(a=0), ManualClock()
    stream = reader(access, clock=clock, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    at = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    access.grow(a=4)
    assert stream.latestOffset(at, ReadMinRows(10)) is at
    clock.advance(31)
    late = stream.latestOffset(at, ReadMinRows(10))
    assert late["q"]["b/t/0"] == 4
    access.grow(a=14)
    assert stream.latestOffset(late, ReadMinRows(10))["q"]["b/t/0"] == 14


def test_deleted_messages_fail_the_query_or_are_skipped() -> None:
    """failOnDataLoss; what is gone does not use up the limit."""
    access = FakeAccess(a=100)
    stream = reader(access, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    at = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    access.bounds[A] = Range(50, 100)
    end = stream.latestOffset(at, stream.getDefaultReadLimit())
    with pytest.raises(DataLost, match="offsets 10 to 49 were deleted"):
        stream.partitions(at, end)
    lenient = reader(access, startingOffsets="earliest", maxOffsetsPerTrigger="10", failOnDataLoss="false")
    assert slices(lenient.partitions(at, end)) == {A: (50, 60)}


def test_group_offsets_are_those_of_completed_batches() -> None:
    """Committed from the start of latestOffset, once each; Spark's own commit() misses the last batch."""
    access = FakeAccess(a=10)
    stream = reader(access, group="g", startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert access.committed == []
    stream.latestOffset(end, ReadAllAvailable())
    stream.latestOffset(end, ReadAllAvailable())
    assert access.committed == [("g", {A: 10})]


def test_lag_is_reported_beside_the_limit() -> None:
    """reportLatestOffset shows the end of the queues."""
    access = FakeAccess(a=100)
    assert reader(access).reportLatestOffset() == {"v": 1, "q": {"b/t/0": 100}}
    access.replicas = {"b": {"address": "h:1", "behind": 7}}
    assert reader(access).reportLatestOffset() == {"v": 1, "q": {"b/t/0": 100}, "replicas": access.replicas}


def test_partitions_survive_pickling() -> None:
    """They travel to executors as bytes."""
    access = FakeAccess(a=10)
    stream = reader(access, startingOffsets="earliest")
    start = stream.initialOffset()
    found = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    copy = pickle.loads(pickle.dumps(found))
    assert isinstance(copy[0], QueuePartition)
    assert slices(copy) == slices(found)
