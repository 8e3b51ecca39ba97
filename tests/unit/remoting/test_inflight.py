"""Requests in flight, without a clock or a socket."""

import pytest

from tandemq.errors import RemotingError
from tandemq.remoting.inflight import Inflight


def test_an_answer_finds_its_waiter_once() -> None:
    inflight: Inflight[str] = Inflight(10)
    first, second = inflight.add("a", 1.0), inflight.add("b", 2.0)
    assert first != second
    assert inflight.take(second) == "b"
    assert inflight.take(second) is None
    assert inflight.take(99) is None
    assert len(inflight) == 1


def test_expiry_takes_those_whose_deadline_came_in_order() -> None:
    inflight: Inflight[str] = Inflight(10)
    late, early, answered = inflight.add("late", 3.0), inflight.add("early", 1.0), inflight.add("answered", 0.5)
    inflight.take(answered)
    assert inflight.next_deadline == 1.0
    assert inflight.expire(0.9) == []
    assert inflight.expire(3.0) == ["early", "late"]
    assert inflight.next_deadline is None
    assert inflight.take(late) is None
    assert inflight.take(early) is None


def test_bounded() -> None:
    inflight: Inflight[int] = Inflight(2)
    inflight.add(1, 1.0)
    inflight.add(2, 1.0)
    with pytest.raises(RemotingError, match="2 requests"):
        inflight.add(3, 1.0)


def test_answered_requests_leave_no_trace() -> None:
    """A million answered requests with far deadlines must not fill the heap."""
    inflight: Inflight[int] = Inflight(10)
    for number in range(10_000):
        assert inflight.take(inflight.add(number, 1000.0 + number)) == number
    assert len(inflight._deadlines) < 200


def test_opaques_wrap_and_skip_those_in_use() -> None:
    inflight: Inflight[str] = Inflight(10)
    assert inflight.add("old", 9.0) == 0
    inflight._next_opaque = 2**31 - 1
    assert inflight.add("last", 9.0) == 2**31 - 1
    assert inflight.add("next", 9.0) == 1


def test_a_lost_connection_ends_all() -> None:
    inflight: Inflight[str] = Inflight(10)
    inflight.add("a", 1.0)
    inflight.add("b", 2.0)
    assert inflight.take_all() == ["a", "b"]
    assert len(inflight) == 0
    assert inflight.next_deadline is None
