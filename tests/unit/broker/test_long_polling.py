"""Parked pulls: by queue, by connection, by deadline; never more than allowed, never forgotten."""

from random import Random

import pytest

from tandemq.broker.long_polling import ParkedPull, ParkedPulls

Q0, Q1 = ("T", 0), ("T", 1)


def pull(
    queue: tuple[str, int] = Q0, owner: object = "link", deadline: float = 10.0, name: str = ""
) -> ParkedPull[str]:
    return ParkedPull(queue, owner, deadline, name)


def test_an_arrival_takes_the_pulls_of_its_queue_in_order() -> None:
    parked: ParkedPulls[str] = ParkedPulls(10)
    for one in (pull(name="a"), pull(Q1, name="b"), pull(name="c")):
        assert parked.park(one)
    assert [one.request for one in parked.take([Q0])] == ["a", "c"]
    assert len(parked) == 1
    assert parked.take([Q0]) == []


def test_deadlines_come_in_their_order() -> None:
    parked: ParkedPulls[str] = ParkedPulls(10)
    for deadline in (30.0, 10.0, 20.0):
        parked.park(pull(deadline=deadline, name=str(deadline)))
    assert parked.next_deadline == 10.0
    assert [one.request for one in parked.expire(20.0)] == ["10.0", "20.0"]
    assert parked.next_deadline == 30.0
    assert parked.expire(29.9) == []


def test_many_that_waited_long_enough_are_taken_out_in_parts() -> None:
    parked: ParkedPulls[str] = ParkedPulls(10)
    for number in range(5):
        parked.park(pull(deadline=10.0, name=str(number)))
    assert len(parked.expire(20.0, 3)) == 3
    assert parked.next_deadline == 10.0, "the rest is due"
    assert len(parked.expire(20.0, 3)) == 2
    assert parked.next_deadline is None


def test_there_is_room_for_so_many() -> None:
    parked: ParkedPulls[str] = ParkedPulls(1)
    assert parked.park(pull())
    assert not parked.park(pull())


def test_a_lost_connection_takes_its_pulls() -> None:
    parked: ParkedPulls[str] = ParkedPulls(10)
    parked.park(pull(owner="a"))
    parked.park(pull(owner="b"))
    assert parked.drop_owner("a") == 1
    assert parked.drop_owner("a") == 0
    assert [one.owner for one in parked.take_all()] == ["b"]
    assert parked.next_deadline is None


def test_a_pull_that_goes_back_keeps_one_place_in_the_heap() -> None:
    """A filter that lets nothing through parks the same pull again and again."""
    parked: ParkedPulls[str] = ParkedPulls(10)
    one = pull()
    parked.park(one)
    for _ in range(1000):
        assert parked.take([Q0]) == [one]
        parked.park(one)
    assert len(parked._deadlines) == 1
    assert parked.expire(10.0) == [one]
    assert parked.expire(10.0) == []


@pytest.mark.parametrize("seed", range(20))
def test_against_a_plain_list(seed: int) -> None:
    """Random parks, arrivals, losses and time agree with the simplest possible table; the heap stays bounded."""
    random = Random(seed)
    parked: ParkedPulls[int] = ParkedPulls(50)
    model: list[ParkedPull[int]] = []
    now = 0.0
    for step in range(2000):
        action = random.random()
        if action < 0.6:
            one = ParkedPull(("T", random.randrange(5)), random.randrange(8), now + random.randrange(1, 50), step)
            assert parked.park(one) == (len(model) < 50)
            if len(model) < 50:
                model.append(one)
            continue
        if action < 0.8:
            queue = ("T", random.randrange(5))
            expected = [one for one in model if one.queue == queue]
            got = parked.take([queue])
        elif action < 0.9:
            owner = random.randrange(8)
            expected = [one for one in model if one.owner == owner]
            assert parked.drop_owner(owner) == len(expected)
            got = expected
        else:
            now += random.randrange(10)
            expected = [one for one in model if one.deadline <= now]
            got = parked.expire(now)
        assert {one.request for one in got} == {one.request for one in expected}, f"seed {seed} step {step}"
        model = [one for one in model if one not in expected]
        assert len(parked) == len(model)
        assert len(parked._deadlines) <= 2 * 50 + 64
        assert parked.next_deadline == min((one.deadline for one in model), default=None)


def test_any_one_of_thousands_that_wait_for_a_queue_leaves_without_a_search() -> None:
    """Connections that close newest first: no pull is compared with another on the way out."""
    compared = 0

    class Counted(ParkedPull[str]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = object.__hash__

    parked: ParkedPulls[str] = ParkedPulls(10_000)
    waiting = [Counted(Q0, number, 10.0, "") for number in range(3000)]
    for one in waiting:
        parked.park(one)
    for one in reversed(waiting):
        assert parked.drop_owner(one.owner) == 1
    assert compared < 100
