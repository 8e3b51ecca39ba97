"""AckQueue: a wait ends when its level's watermark passes, when it can't any more, or at its deadline."""

import pytest
from tests.unit.replication.waiters import TellingQueue

from tandemq.errors import ConfigError
from tandemq.model.ack_level import AckLevel, parse_level
from tandemq.replication.acks import AckQueue, Complete, PutStatus


class Told(list[tuple[str, PutStatus]]):
    """What the waiters were told, in order; `reasons` by name."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def waiter(self, name: str):
        def done(status: PutStatus, reason: str) -> None:
            self.append((name, status))
            self.reasons[name] = reason

        return done


OK, DISK, SLAVE, GONE = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)


def queue_with(*replicas: str, **options: int) -> TellingQueue:
    queue = TellingQueue(AckQueue(**options))
    for name in replicas:
        queue.acked(name, 0, 0)
    return queue


def test_two_copies_are_complete_when_one_replica_received_the_end_of_the_record() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2), False, 9.0, told.waiter("m"))
    queue.acked("b", 99, 0)
    assert told == []
    queue.acked("b", 100, 0)
    assert told == [("m", OK)]


def test_waiters_complete_in_offset_order() -> None:
    queue, told = queue_with("b"), Told()
    for end in (10, 20, 30):
        queue.add(end, AckLevel(2), False, 9.0, told.waiter(str(end)))
    queue.acked("b", 25, 0)
    assert [name for name, _ in told] == ["10", "20"]
    assert len(queue.queue) == 1


def test_one_replica_never_counts_as_two_copies() -> None:
    queue, told = queue_with("b", "c"), Told()
    queue.add(100, AckLevel(3), False, 9.0, told.waiter("m"))
    queue.acked("b", 100, 0)
    queue.acked("b", 200, 100)
    assert told == []
    queue.acked("c", 100, 0)
    assert told == [("m", OK)]


def test_durable_copies_need_both_disks() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2, durable=True), False, 9.0, told.waiter("m"))
    queue.acked("b", 100, 0)
    queue.flushed(100)
    assert told == []
    queue.acked("b", 100, 100)
    assert told == [("m", OK)]


def test_flush_and_copies_are_awaited_together() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2), True, 9.0, told.waiter("m"))
    queue.acked("b", 100, 0)
    assert told == []
    queue.flushed(100)
    assert told == [("m", OK)]


def test_levels_do_not_hold_each_other_up() -> None:
    queue, told = queue_with("b", "c"), Told()
    queue.add(10, AckLevel(3), False, 9.0, told.waiter("three"))
    queue.add(20, AckLevel(2), False, 9.0, told.waiter("two"))
    queue.acked("b", 20, 0)
    assert told == [("two", OK)]


def test_without_a_replica_the_waiter_is_told_at_once_and_why() -> None:
    queue, told = TellingQueue(), Told()
    queue.add(100, AckLevel(2), False, 9.0, told.waiter("m"))
    assert told == [("m", GONE)]
    assert "no slave is connected" in told.reasons["m"]


def test_losing_the_replica_fails_its_waiters_with_the_reason() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2), False, 9.0, told.waiter("m"))
    queue.lost("b", "slave b: disk full")
    assert told == [("m", GONE)]
    assert "disk full" in told.reasons["m"]


def test_losing_one_of_two_replicas_leaves_the_other_to_answer() -> None:
    queue, told = queue_with("b", "c"), Told()
    queue.add(100, AckLevel(2), False, 9.0, told.waiter("m"))
    queue.lost("b", "gone")
    assert told == []
    queue.acked("c", 100, 0)
    assert told == [("m", OK)]


def test_a_replica_far_behind_is_not_waited_for() -> None:
    queue, told = queue_with("b", fall_behind_max=50), Told()
    queue.add(49, AckLevel(2), False, 9.0, told.waiter("near"))
    queue.add(50, AckLevel(2), False, 9.0, told.waiter("far"))
    assert told == [("far", GONE)]
    assert "fell behind" in told.reasons["far"]


def test_majority_and_all_count_the_known_members_even_when_they_are_away() -> None:
    queue, told = queue_with("b"), Told()
    queue.set_members(frozenset({"b", "c"}))
    queue.add(100, AckLevel("majority"), False, 9.0, told.waiter("majority"))
    queue.add(100, AckLevel("all"), False, 9.0, told.waiter("all"))
    queue.acked("b", 100, 0)
    assert told == [("all", GONE), ("majority", OK)]


def test_the_deadline_names_what_was_missing() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2), True, 5.0, told.waiter("both"))
    queue.acked("b", 100, 0)
    queue.add(200, AckLevel(2), False, 6.0, told.waiter("slave"))
    assert queue.queue.next_deadline == 5.0
    queue.expire(4.999)
    assert told == []
    queue.expire(5.0)
    queue.expire(6.0)
    assert told == [("both", DISK), ("slave", SLAVE)]
    assert queue.queue.next_deadline is None


def test_the_end_of_a_reign_fails_everybody_and_forgets_the_acks() -> None:
    queue, told = queue_with("b"), Told()
    queue.add(100, AckLevel(2), False, 5.0, told.waiter("m"))
    queue.fail_all(PutStatus.SERVICE_NOT_AVAILABLE, "a higher epoch")
    queue.queue.forget_replicas("a higher epoch")
    queue.acked("c", 10, 10)
    queue.add(100, AckLevel(3), False, 5.0, told.waiter("n"))
    assert told == [("m", PutStatus.SERVICE_NOT_AVAILABLE), ("n", GONE)]


def test_a_new_reign_on_a_log_that_was_cut_is_flushed_no_further_than_it_goes() -> None:
    queue, told = queue_with(), Told()
    queue.flushed(1000)
    queue.add(900, AckLevel(1, True), True, 5.0, told.waiter("before"))
    queue.queue.restart(500, "no slave is in sync yet")
    queue.add(600, AckLevel(1, True), True, 5.0, told.waiter("after"))
    assert told == [("before", OK)]
    queue.flushed(600)
    assert told == [("before", OK), ("after", OK)]


def test_nobody_is_told_before_the_decision_is_carried_out() -> None:
    """All whom one ack completes are in one decision; until it is carried out they count as waiting."""
    queue, told, out = AckQueue(), Told(), list[Complete]()
    queue.acked(out, "b", 0, 0)
    for end in (10, 20, 30):
        queue.add(end, AckLevel(2), False, 9.0, told.waiter(str(end)))
    queue.acked(out, "b", 20, 0)
    assert told == []
    assert [(len(one.waiters), one.status) for one in out] == [(2, OK)]
    assert len(queue) == 3
    queue.tell(out[0])
    assert told == [("10", OK), ("20", OK)]
    assert len(queue) == 1


def test_the_last_of_a_decision_knows_that_nobody_waits_any_more() -> None:
    """A broker sends the answers of a turn together, with the last one."""
    queue, left, out = AckQueue(), list[int](), list[Complete]()
    queue.acked(out, "b", 0, 0)
    for end in (10, 20):
        queue.add(end, AckLevel(2), False, 9.0, lambda status, reason: left.append(len(queue)))
    queue.acked(out, "b", 20, 0)
    queue.tell(out[0])
    assert left == [1, 0]


def test_what_comes_after_a_failure_is_refused_not_acknowledged() -> None:
    queue, told, out = AckQueue(), Told(), list[Complete]()
    queue.acked(out, "b", 0, 0)
    queue.add(10, AckLevel(2), False, 9.0, told.waiter("m"))
    queue.acked(out, "b", 10, 0)
    queue.refuse(out[0], "the store failed")
    assert told == [("m", PutStatus.SERVICE_NOT_AVAILABLE)]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("1", AckLevel(1)),
        ("async", AckLevel(1)),
        ("sync", AckLevel(2)),
        ("3:durable", AckLevel(3, True)),
        ("majority", AckLevel("majority")),
        ("ALL:durable", AckLevel("all", True)),
    ],
)
def test_levels_are_written_as_copies_and_durability(text: str, level: AckLevel) -> None:
    assert parse_level(text) == level
    assert parse_level(str(level)) == level


@pytest.mark.parametrize("text", ["", "0", "65", "two", "2:disk", "-1"])
def test_a_wrong_level_names_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="majority or all"):
        parse_level(text)
