"""Planning: where to begin, where to stop, how much, how many tasks."""

import pytest

from tandemq.errors import ConfigError
from tandemq.model.topic import QueueRef
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.source import offsets
from tandemq.spark.source.offsets import DataLost, Range, Slice

Q0, Q1, OTHER = QueueRef("t", "a", 0), QueueRef("t", "a", 1), QueueRef("t", "b", 0)
RANGES = {Q0: Range(5, 50), Q1: Range(0, 10), OTHER: Range(7, 7)}


def pull(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", **given})


T0 = 1_700_000_000_000
"""Messages are stored one per millisecond from here on."""


def at_time(times: dict[QueueRef, int]) -> dict[QueueRef, int]:
    return {queue: min(RANGES[queue].next, time - T0) for queue, time in times.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {Q0: 5, Q1: 0, OTHER: 7}),
        ({"startingOffsets": "latest"}, {Q0: 50, Q1: 10, OTHER: 7}),
        ({"startingOffsets": '{"t": {"1": 9}}'}, {Q0: 5, Q1: 9, OTHER: 7}),
        ({"startingOffsets": '{"a/t": {"0": -1, "1": -2}}'}, {Q0: 50, Q1: 0, OTHER: 7}),
        ({"startingTimestamp": str(T0 + 8)}, {Q0: 8, Q1: 8, OTHER: 7}),
        ({"startingOffsetsByTimestamp": f'{{"a/t": {{"0": {T0 + 12}}}}}'}, {Q0: 12, Q1: 0, OTHER: 7}),
    ],
)
def test_starting_offsets(given: dict[str, str], expected: dict[QueueRef, int]) -> None:
    """earliest, latest, JSON with and without broker, by time; queues not named begin at earliest."""
    assert offsets.starting(pull(**given), RANGES, at_time, "earliest") == expected


def test_a_time_after_the_last_message_is_latest_or_an_error() -> None:
    """As the strategy says."""
    late = {"startingTimestamp": str(T0 + 1000)}
    assert offsets.starting(pull(**late), RANGES, at_time, "earliest")[Q0] == 50
    with pytest.raises(ConfigError, match=f"no message stored at or after {T0 + 1000}"):
        offsets.starting(pull(**late, startingOffsetsByTimestampStrategy="error"), RANGES, at_time, "earliest")


def test_ending_offsets() -> None:
    """latest by default, JSON, or by time."""
    assert offsets.ending(pull(), RANGES, at_time) == {Q0: 50, Q1: 10, OTHER: 7}
    assert offsets.ending(pull(endingOffsets='{"a/t": {"0": 20}}'), RANGES, at_time)[Q0] == 20
    assert offsets.ending(pull(endingTimestamp=str(T0 + 9)), RANGES, at_time)[Q0] == 9
    by_queue = pull(endingOffsetsByTimestamp=f'{{"a/t": {{"0": {T0 + 11}}}}}')
    assert offsets.ending(by_queue, RANGES, at_time) == {Q0: 11, Q1: 10, OTHER: 7}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"a/t": {"0": 51}}'}, "startingOffsets: a/t/0: offset 51 is beyond .* it has 5 to 50"),
        ({"endingOffsets": '{"a/t": {"1": 11}}'}, "endingOffsets: a/t/1: offset 11 is beyond .* it has 0 to 10"),
        ({"endingOffsets": '{"a/t": {"1": -2}}'}, "endingOffsets: a/t/1: -2 .earliest. as the end would read nothing"),
        (
            {"startingOffsets": '{"a/t": {"0": 30}}', "endingOffsets": '{"a/t": {"0": 20}}'},
            "a/t/0 would end at 20 but begin at 30",
        ),
    ],
)
def test_offsets_that_a_queue_does_not_have_are_refused(given: dict[str, str], message: str) -> None:
    """By option, value and range."""
    options = pull(**given)

    def plan() -> None:
        starts = offsets.starting(options, RANGES, at_time, "earliest")
        offsets.check_order(options, starts, offsets.ending(options, RANGES, at_time))

    with pytest.raises(ConfigError, match=message):
        plan()


def test_times_that_were_stored_out_of_order_read_nothing() -> None:
    """The clock of a broker may step back: no mistake of the user."""
    options = pull(startingTimestamp=str(T0 + 9), endingTimestamp=str(T0 + 9))
    assert offsets.check_order(options, {Q0: 12}, {Q0: 9}) == {Q0: 12}


def test_partitions_of_several_groups_are_numbered_on() -> None:
    """As Kafka has it: one number per queue of a topic, in the order of the groups' names."""
    numbering = offsets.Numbering.of({("t", "b"): 4, ("t", "a"): 3, ("u", "b"): 2})
    assert [numbering.number(QueueRef("t", "a", 2)), numbering.number(QueueRef("t", "b", 0))] == [2, 3]
    assert numbering.number(QueueRef("u", "b", 1)) == 1
    assert numbering.bases_of("b") == {"t": 3}
    starts = offsets.starting(pull(startingOffsets='{"t": {"2": 7}}'), RANGES, at_time, "earliest",
                              offsets.Numbering.of({("t", "a"): 2, ("t", "b"): 1}))  # fmt: skip
    assert starts == {Q0: 5, Q1: 0, OTHER: 7}


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
