"""When and where a send tries again."""

import pytest

from tandemq.client.retry import FaultTable, QueueChooser, pause_ms, worth_retrying
from tandemq.errors import ConnectionLost, ReplyError, RequestTimeout
from tandemq.model.topic import QueueRef

QUEUES = [QueueRef("T", name, i) for name in ("a", "b") for i in range(2)]


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
    assert worth_retrying(error) is again


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
