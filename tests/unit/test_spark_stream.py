"""The stream reader's decisions against a fake cluster, in the order in which Spark calls it. No JVM."""

import pickle
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tandemq.model.topic import QueueRef
from tandemq.spark.offsets import DataLost, Offsets, Range, Ranges
from tandemq.spark.options import Prefetch, PullOptions, parse
from tandemq.spark.prefetch import IdleProcessors, handed_over, prefetched
from tandemq.spark.queue_reader import QueuePartition, QueueStreamReader
from tandemq.testing.clock import ManualClock

A, B = QueueRef("t", "b", 0), QueueRef("t", "b", 1)


class FakeAccess:
    """Queues that a test moves by hand."""

    def __init__(self, **ends: int) -> None:
        self.bounds: dict[QueueRef, Range] = {}
        self.committed: list[tuple[str, Offsets]] = []
        self.grow(**ends)

    def grow(self, **ends: int) -> None:
        for name, end in ends.items():
            queue = {"a": A, "b": B}[name]
            self.bounds[queue] = Range(self.bounds[queue].first if queue in self.bounds else 0, end)

    def ranges(self) -> Ranges:
        return dict(self.bounds)

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


def test_partitions_survive_pickling() -> None:
    """They travel to executors as bytes."""
    access = FakeAccess(a=10)
    stream = reader(access, startingOffsets="earliest")
    start = stream.initialOffset()
    found = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    copy = pickle.loads(pickle.dumps(found))
    assert isinstance(copy[0], QueuePartition)
    assert slices(copy) == slices(found)


@pytest.mark.parametrize(("idle", "ahead"), [(0.9, True), (0.2, False)])
def test_batches_are_prepared_ahead_only_while_a_processor_is_idle(idle: float, ahead: bool) -> None:
    """A task that shares a busy machine decodes in its own thread."""
    clock = ManualClock()
    made: list[int] = []

    def numbers() -> Any:
        for number in range(6):
            made.append(threading.get_ident())
            yield number

    stream = handed_over(numbers(), Prefetch.AUTO, IdleProcessors(clock, lambda: idle * clock.monotonic()))
    assert next(stream) == 0
    clock.advance(1.0)
    assert list(stream) == [1, 2, 3, 4, 5]
    assert made[0] == threading.get_ident()
    assert (made[-1] != threading.get_ident()) is ahead


def test_prefetching_keeps_order_errors_and_ends_with_its_reader() -> None:
    """A thread ahead by one item; closing early stops it."""

    def numbers() -> Any:
        yield from range(5)
        raise ValueError("the sixth")

    stream = prefetched(numbers())
    assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the sixth"):
        next(stream)
    endless = prefetched(iter(range(10**9)))
    assert next(endless) == 0
    endless.close()  # type: ignore[attr-defined]
