"""Locks of ordered queues."""

from tandemq.broker.tables.locks import QueueLocks
from tandemq.model.topic import QueueRef

Q0, Q1 = QueueRef("T", "b", 0), QueueRef("T", "b", 1)


def test_a_lock_belongs_to_one_client_of_a_group() -> None:
    locks = QueueLocks(60.0)
    assert locks.lock("g", "a", [Q0, Q1], 0.0) == [Q0, Q1]
    assert locks.lock("g", "b", [Q0], 1.0) == []
    assert locks.lock("other", "b", [Q0], 1.0) == [Q0]
    assert locks.holder("g", Q0, 1.0) == "a"


def test_a_renewed_lock_lives_on_and_a_forgotten_one_expires() -> None:
    locks = QueueLocks(60.0)
    locks.lock("g", "a", [Q0, Q1], 0.0)
    locks.lock("g", "a", [Q0], 50.0)
    assert locks.lock("g", "b", [Q0, Q1], 70.0) == [Q1]
    assert locks.holder("g", Q0, 111.0) is None


def test_only_its_owner_unlocks() -> None:
    locks = QueueLocks(60.0)
    locks.lock("g", "a", [Q0], 0.0)
    locks.unlock("g", "b", [Q0])
    assert locks.holder("g", Q0, 1.0) == "a"
    locks.unlock("g", "a", [Q0, Q1])
    assert locks.lock("g", "b", [Q0], 1.0) == [Q0]


def test_the_table_is_bounded_and_expiry_makes_room() -> None:
    locks = QueueLocks(60.0, locks_max=1)
    assert locks.lock("g", "a", [Q0, Q1], 0.0) == [Q0]
    locks.expire(61.0)
    assert len(locks) == 0
    assert locks.lock("g", "a", [Q1], 61.0) == [Q1]


def test_a_group_with_a_live_lock_consumes_in_order() -> None:
    locks = QueueLocks(60.0)
    assert not locks.has_any("g", 0.0)
    locks.lock("g", "a", [Q0], 0.0)
    assert locks.has_any("g", 60.0)
    assert not locks.has_any("g", 60.1)
