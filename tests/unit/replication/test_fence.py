"""Until when a master may acknowledge: by its own clock, counted from when a renewal was sent."""

from tests.unit.replication.waiters import TellingQueue

from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.fence import Fence


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fence_is_closed_until_a_lease_is_taken() -> None:
    fence = Fence(Time())
    assert fence.is_closed
    assert fence.left == 0.0


def test_it_holds_from_when_the_renewal_was_sent_less_a_margin() -> None:
    time = Time()
    fence = Fence(time)
    fence.renewed(sent_at=99.0, lease=2.0)
    assert fence.until == 99.0 + 1.8
    time.now = 100.79
    assert not fence.is_closed
    time.now = 100.81
    assert fence.is_closed


def test_an_answer_that_comes_late_does_not_shorten_a_newer_renewal() -> None:
    fence = Fence(Time())
    fence.renewed(100.0, 2.0)
    fence.renewed(99.0, 2.0)
    assert fence.until == 101.8


def waiting(time: Time) -> tuple[TellingQueue, Fence, list[PutStatus]]:
    acks, told = TellingQueue(AckQueue(now=time)), []
    fence = acks.queue.fence = Fence(time)
    fence.renewed(time.now, 2.0)
    acks.set_size(2)
    acks.acked("b", 0, 0)
    acks.add(100, AckLevel(2), False, 1000.0, lambda status, reason: told.append(status))
    return acks, fence, told


def test_an_ack_that_comes_after_a_pause_acknowledges_nothing() -> None:
    """SIGSTOP: the slave's ack lay in the socket while the lease ran out."""
    time = Time()
    acks, _, told = waiting(time)
    time.now += 5.0
    acks.acked("b", 100, 0)
    assert told == []
    acks.fail_all(PutStatus.SERVICE_NOT_AVAILABLE, "the lease is over")
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]


def test_an_ack_within_the_lease_does() -> None:
    time = Time()
    acks, _, told = waiting(time)
    time.now += 1.0
    acks.acked("b", 100, 0)
    assert told == [PutStatus.PUT_OK]


def test_what_was_decided_within_the_lease_and_told_after_it_is_refused() -> None:
    """A record was saved in between, and the disk took its time."""
    time = Time()
    acks, _, told = waiting(time)
    out: list[Complete] = []
    acks.queue.acked(out, "b", 100, 0)
    assert out[0].status is PutStatus.PUT_OK
    time.now += 5.0
    acks.queue.tell(out[0])
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]


def test_what_is_known_at_once_waits_for_the_lease_too() -> None:
    time = Time()
    acks, fence, _ = waiting(time)
    acks.acked("b", 500, 0)
    time.now += 5.0
    told: list[PutStatus] = []
    acks.add(400, AckLevel(2), False, 1000.0, lambda status, reason: told.append(status))
    assert told == []
    fence.renewed(time.now, 2.0)
    acks.settle()
    assert told == [PutStatus.PUT_OK]


def test_while_another_lease_may_live_one_copy_is_not_enough() -> None:
    time = Time()
    acks, fence, _ = waiting(time)
    fence.alone_from = time.now + 1.0
    told: list[PutStatus] = []
    acks.add(300, AckLevel(1, durable=True), True, 1000.0, lambda status, reason: told.append(status))
    acks.flushed(300)
    assert told == []
    acks.acked("b", 300, 300)
    assert told == [PutStatus.PUT_OK]


def test_when_the_other_lease_has_ended_one_copy_is_enough() -> None:
    time = Time()
    acks, fence, _ = waiting(time)
    fence.alone_from = time.now + 1.0
    told: list[PutStatus] = []
    acks.add(300, AckLevel(1, durable=True), True, 1000.0, lambda status, reason: told.append(status))
    acks.flushed(300)
    time.now += 1.1
    acks.settle()
    assert told == [PutStatus.PUT_OK]
