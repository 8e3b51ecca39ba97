"""When and where a send tries again."""

import pytest

from tandemq.client.send_policy import (
    FaultTable,
    QueueChooser,
    Step,
    after_failure,
    may_be_stored,
    pause_ms,
    same_broker_pause,
)
from tandemq.errors import ConnectFailed, ConnectionLost, NoRoute, ReplyError, RequestTimeout
from tandemq.model.topic import QueueRef

QUEUES = [QueueRef("T", name, i) for name in ("a", "b") for i in range(2)]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("error", [ConnectFailed("x"), NoRoute("x"), ReplyError(14, "I am a slave")], ids=str)
def test_a_broker_that_moves_is_waited_for_until_the_deadline(error: Exception, fixed: bool) -> None:
    """Nothing was stored, so a fixed queue is no reason to give up, and no try is used up."""
    assert after_failure(error, fixed=fixed) == Step(again=True, refresh=True, counted=False)


@pytest.mark.parametrize("error", [ConnectionLost("x"), RequestTimeout("x")], ids=str)
def test_a_message_that_may_be_stored_is_not_repeated_in_a_fixed_queue(error: Exception) -> None:
    assert after_failure(error, fixed=False) == Step(again=True, refresh=True)
    assert not after_failure(error, fixed=True).again


def test_only_a_clear_no_means_that_nothing_is_stored() -> None:
    open_ones = [ConnectionLost("x"), RequestTimeout("x"), ReplyError(1, "deposed"), ReplyError(14, "deposed")]
    assert all(map(may_be_stored, open_ones))
    assert may_be_stored(ReplyError(12, "no copy in time"))
    assert not any(map(may_be_stored, [ConnectFailed("x"), NoRoute("x"), ReplyError(2, "busy"), ReplyError(13, "bad")]))


def test_an_unknown_topic_asks_for_the_route() -> None:
    assert after_failure(ReplyError(17, "no topic"), fixed=False) == Step(again=True, refresh=True)
    assert after_failure(ReplyError(2, "busy"), fixed=False) == Step(again=True, refresh=False)
    assert not after_failure(ReplyError(2, "busy"), fixed=True).again


def test_the_pause_before_the_only_broker_grows_to_a_limit() -> None:
    assert [same_broker_pause(n) for n in (1, 2, 3, 4, 5, 500)] == [0.05, 0.1, 0.2, 0.4, 0.4, 0.4]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionLost("x"), True),
        (RequestTimeout("x"), True),
        (ReplyError(2, "busy"), True),
        (ReplyError(14, "disk full"), True),
        (ReplyError(17, "no topic"), True),
        (ReplyError(13, "too large"), False),
        (ReplyError(29, "bad queue"), False),
    ],
)
def test_only_what_may_end_otherwise_is_tried_again(error: Exception, again: bool) -> None:
    assert after_failure(error, fixed=False).again is again


def test_queues_take_turns() -> None:
    chooser = QueueChooser(3)
    assert [chooser.choose(QUEUES, None) for _ in range(5)] == [*QUEUES, QUEUES[0]]


def test_the_broker_that_failed_is_avoided_if_there_is_another() -> None:
    chooser = QueueChooser(0)
    assert {chooser.choose(QUEUES, "a").broker_name for _ in range(6)} == {"b"}
    assert chooser.choose(QUEUES[:2], "a").broker_name == "a"


def test_slow_brokers_are_avoided_for_a_while() -> None:
    faults = FaultTable()
    faults.record("a", 600, now=100.0)
    assert not faults.available("a", 101.9)
    assert faults.available("a", 102.0)
    faults.record("a", 20, now=101.0)
    assert faults.available("a", 101.0)


def test_a_failed_broker_is_avoided_longer_than_a_slow_one() -> None:
    faults = FaultTable()
    faults.record("a", 1, now=0.0, failed=True)
    assert not faults.available("a", 9.9)
    assert faults.available("a", 10.0)


@pytest.mark.parametrize(
    ("latency", "pause"), [(0, 0), (99, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (99999, 30000)]
)
def test_pauses_follow_the_latency_bands(latency: int, pause: int) -> None:
    assert pause_ms(latency) == pause


def test_the_unavailable_are_chosen_when_nobody_else_is_left() -> None:
    chooser = QueueChooser(0)
    assert chooser.choose(QUEUES, "a", lambda _: False).broker_name == "b"
