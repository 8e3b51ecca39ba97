"""Planning: where to begin, where to stop, how much, how many tasks."""

import pytest

from tandemq.errors import ConfigError
from tandemq.model.topic import QueueRef
from tandemq.spark import offsets
from tandemq.spark.offsets import DataLost, Range, Slice
from tandemq.spark.options import FileOptions, PullOptions, SinkOptions, described, milliseconds, parse

Q0, Q1, OTHER = QueueRef("t", "a", 0), QueueRef("t", "a", 1), QueueRef("t", "b", 0)
RANGES = {Q0: Range(5, 50), Q1: Range(0, 10), OTHER: Range(7, 7)}


def pull(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", **given})


def at_time(times: dict[QueueRef, int]) -> dict[QueueRef, int]:
    return {queue: min(RANGES[queue].next, time) for queue, time in times.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {Q0: 5, Q1: 0, OTHER: 7}),
        ({"startingOffsets": "latest"}, {Q0: 50, Q1: 10, OTHER: 7}),
        ({"startingOffsets": '{"t": {"0": 9}}'}, {Q0: 9, Q1: 0, OTHER: 9}),
        ({"startingOffsets": '{"a/t": {"0": -1, "1": -2}}'}, {Q0: 50, Q1: 0, OTHER: 7}),
        ({"startingTimestamp": "8"}, {Q0: 8, Q1: 8, OTHER: 7}),
        ({"startingOffsetsByTimestamp": '{"a/t": {"0": 12}}'}, {Q0: 12, Q1: 0, OTHER: 7}),
    ],
)
def test_starting_offsets(given: dict[str, str], expected: dict[QueueRef, int]) -> None:
    """earliest, latest, JSON with and without broker, by time; queues not named begin at earliest."""
    assert offsets.starting(pull(**given), RANGES, at_time, "earliest") == expected


def test_a_time_after_the_last_message_is_latest_or_an_error() -> None:
    """As the strategy says."""
    late = {"startingTimestamp": "1000"}
    assert offsets.starting(pull(**late), RANGES, at_time, "earliest")[Q0] == 50
    with pytest.raises(ConfigError, match="no message stored at or after 1000"):
        offsets.starting(pull(**late, startingOffsetsByTimestampStrategy="error"), RANGES, at_time, "earliest")


def test_ending_offsets() -> None:
    """latest by default, JSON, or by time."""
    assert offsets.ending(pull(), RANGES, at_time) == {Q0: 50, Q1: 10, OTHER: 7}
    assert offsets.ending(pull(endingOffsets='{"a/t": {"0": 20}}'), RANGES, at_time)[Q0] == 20
    assert offsets.ending(pull(endingTimestamp="9"), RANGES, at_time)[Q0] == 9


def test_json_for_a_queue_that_is_not_there_is_an_error() -> None:
    """The message names those there are."""
    with pytest.raises(ConfigError, match="no queue 7 of 't'; there are a/t/0, a/t/1, b/t/0"):
        offsets.starting(pull(startingOffsets='{"t": {"7": 1}}'), RANGES, at_time, "earliest")


def test_offsets_survive_json() -> None:
    """Also with a slash in the broker's name."""
    value = {QueueRef("t", "rack/1", 3): 9, Q0: 1}
    assert offsets.from_json(offsets.to_json(value)) == value
    with pytest.raises(ConfigError, match="version 9"):
        offsets.from_json({"v": 9})


def test_deleted_messages_fail_or_are_told() -> None:
    """failOnDataLoss decides."""
    with pytest.raises(DataLost, match="a/t/0: offsets 2 to 4 were deleted"):
        offsets.checked_starts({Q0: 2, Q1: 3}, RANGES, fail=True)
    starts, lost = offsets.checked_starts({Q0: 2, Q1: 3}, RANGES, fail=False)
    assert starts == {Q0: 5, Q1: 3}
    assert len(lost) == 1


def test_a_limit_is_shared_in_proportion_and_starves_nobody() -> None:
    """The sum is exact; the small queue gets its message."""
    starts, stops = {Q0: 0, Q1: 0, OTHER: 0}, {Q0: 10_000, Q1: 3, OTHER: 0}
    ends = offsets.limited(starts, stops, 100)
    assert sum(ends.values()) == 100
    assert ends[Q1] == 1
    assert offsets.limited(starts, stops, 20_000) == stops
    assert sum(offsets.limited(starts, stops, 1).values()) == 1


def test_repeated_limits_reach_the_end() -> None:
    """No backlog is left for ever, whatever the limit."""
    at, stops = {Q0: 0, Q1: 0}, {Q0: 17, Q1: 5}
    rounds = 0
    while at != stops:
        at = offsets.limited(at, stops, 2)
        rounds += 1
    assert rounds == 11


def test_a_byte_limit_uses_the_mean_size() -> None:
    """About that many bytes, never nothing."""
    ends = offsets.limited_bytes({Q0: 0, Q1: 0}, {Q0: 100, Q1: 100}, 1000, {Q0: 10.0, Q1: 90.0})
    assert 15 <= sum(ends.values()) <= 25
    assert sum(offsets.limited_bytes({Q0: 0}, {Q0: 5}, 1, {Q0: 100.0}).values()) == 1


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, [[100], [6], [4]]),
        ({"count_max": 40}, [[33], [33], [34], [6], [4]]),
        ({"tasks_min": 4}, [[25], [25], [25], [25], [6], [4]]),
        ({"count_min": 10}, [[100], [6, 4]]),
        ({"count_min": 1000}, [[100, 6, 4]]),
        ({"count_min": 1000, "tasks_min": 2}, [[50], [50], [6, 4]]),
    ],
)
def test_tasks(options: dict[str, int], counts: list[list[int]]) -> None:
    """Large slices are split evenly, small ones share a task; together they are what was asked for."""
    slices = [Slice(Q0, 0, 100), Slice(Q1, 5, 11), Slice(OTHER, 0, 4)]
    tasks = offsets.tasks_of(slices, **options)
    assert [[piece.length for piece in task] for task in tasks] == counts
    covered = [(p.queue, n) for task in tasks for p in task for n in range(p.start, p.stop)]
    assert covered == [(p.queue, n) for p in slices for n in range(p.start, p.stop)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "nameserver: missing"),
        ({"nameserver": "n:1"}, "one of subscribe, subscribePattern or assign"),
        ({"nameserver": "n:1", "subscribe": "t", "assign": '{"t":[0]}'}, "only one may be given"),
        ({"nameserver": "n:1", "subscribe": "a b"}, "subscribe: the topic name 'a b' has characters"),
        ({"nameserver": "n:1", "subscribePattern": "("}, "subscribePattern='\\('"),
        ({"nameserver": "n:1", "assign": '{"t": 1}'}, "assign: 't' needs a list"),
        ({"nameserver": "n:1", "assign": "nonsense"}, "assign='nonsense': not JSON"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffsets": "soon"}, "startingOffsets='soon'"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "offset -3"),
        ({"nameserver": "n:1", "subscribe": "t", "startingTimestamp": "1", "startingOffsets": "latest"}, "only one"),
        ({"nameserver": "n:1", "subscribe": "t", "endingOffsets": "earliest"}, "nothing could be read"),
        ({"nameserver": "n:1", "subscribe": "t", "maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"nameserver": "n:1", "subscribe": "t", "minPartitions": "-1"}, "minPartitions=-1: must be at least 0"),
        ({"nameserver": "n:1", "subscribe": "t", "readFrom": "both"}, "must be one of slave, master, any"),
        ({"nameserver": "n:1", "subscribe": "t", "commitGroupOffsets": "true"}, "needs groupId"),
        (
            {"nameserver": "n:1", "subscribe": "t", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger=6 must not be above",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], message: str) -> None:
    """Never a silent default."""
    with pytest.raises(ConfigError, match=message):
        parse(PullOptions, given)


def test_file_and_sink_options_are_checked_too() -> None:
    """What only makes sense for queues is refused in physical order; copies and topic are looked at."""
    with pytest.raises(ConfigError, match="path: missing"):
        parse(FileOptions, {})
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger counts queue offsets"):
        parse(FileOptions, {"path": "/s", "maxOffsetsPerTrigger": "5"})
    assert (
        parse(FileOptions, {"path": "/s", "ORDER": "queue", "maxOffsetsPerTrigger": "5"}).max_offsets_per_trigger == 5
    )
    with pytest.raises(ConfigError, match="copies='most'"):
        parse(SinkOptions, {"nameserver": "n:1", "copies": "most"})
    assert parse(SinkOptions, {"nameserver": "n:1", "copies": "majority:durable"}).copies == "majority:durable"


def test_every_option_is_described() -> None:
    """Name, default and a sentence, for the documents."""
    for kind in (PullOptions, FileOptions, SinkOptions):
        assert all(name and meaning.endswith((".", "}.", "h")) for name, _, meaning in described(kind))
    assert milliseconds("x", "2m") == 120_000
