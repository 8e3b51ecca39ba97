"""The messages of one queue between pull and commit."""

from hypothesis import given
from hypothesis import strategies as st

from tandemq.client.message import ReceivedMessage
from tandemq.client.process_queue import LOCK_LIFE_S, CacheBudget, ProcessQueue
from tandemq.model.message import StoredMessage


def message(offset: int, size: int = 10) -> ReceivedMessage:
    stored = StoredMessage(
        topic="T",
        queue_id=0,
        queue_offset=offset,
        physical_offset=0,
        size=size,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp=0,
        born_host=bytes(8),
        store_timestamp=0,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=bytes(size),
        properties={},
    )
    return ReceivedMessage(stored, "a")


def test_nothing_is_committed_before_the_first_message() -> None:
    assert ProcessQueue().commit_offset is None


def test_the_offset_waits_for_the_oldest_message() -> None:
    queue = ProcessQueue()
    messages = [message(i) for i in range(5, 8)]
    queue.add(messages)
    assert queue.remove([messages[2]]) == 5
    assert queue.remove([messages[0]]) == 6
    assert queue.remove([messages[1]]) == 8
    assert (queue.count, queue.size) == (0, 0)


def test_taken_messages_hold_the_offset_until_committed() -> None:
    queue = ProcessQueue()
    queue.add([message(i) for i in range(4)])
    assert [m.queue_offset for m in queue.take(2)] == [0, 1]
    assert queue.commit_offset == 0
    queue.put_back()
    assert [m.queue_offset for m in queue.take(3)] == [0, 1, 2]
    assert queue.commit() == 3
    assert queue.count == 1


def test_messages_bytes_and_span_are_limited() -> None:
    queue = ProcessQueue()
    assert queue.has_room(2, 100, 10)
    queue.add([message(0), message(20)])
    assert not queue.has_room(2, 100, 30)
    assert not queue.has_room(5, 20, 30)
    assert not queue.has_room(5, 100, 10)
    assert queue.has_room(5, 100, None)


def test_a_lock_is_trusted_for_a_while_only() -> None:
    queue = ProcessQueue()
    assert not queue.locked(0.0)
    queue.locked_at = 100.0
    assert queue.locked(100.0 + LOCK_LIFE_S - 1)
    assert not queue.locked(100.0 + LOCK_LIFE_S)


@given(st.lists(st.integers(0, 30), unique=True).map(sorted), st.randoms(use_true_random=False))
def test_the_offset_never_passes_an_unfinished_message(offsets: list[int], random: object) -> None:
    queue = ProcessQueue()
    waiting = [message(offset) for offset in offsets]
    queue.add(waiting)
    random.shuffle(waiting)  # type: ignore[attr-defined]
    while waiting:
        done = waiting.pop()
        committed = queue.remove([done])
        assert committed == min((m.queue_offset for m in waiting), default=max(offsets) + 1)


def test_queues_share_a_budget_and_one_that_has_nothing_may_always_pull() -> None:
    budget = CacheBudget(100)
    one, other, empty = (ProcessQueue(budget=budget) for _ in range(3))
    one.add([message(0, 70)])
    other.add([message(0, 20)])
    assert other.has_room(1000, 1000, None)
    other.add([message(1, 20)])
    assert not other.has_room(1000, 1000, None)
    assert empty.has_room(1000, 1000, None)
    one.drop()
    assert budget.used == 40
    assert other.has_room(1000, 1000, None)
    other.remove([message(0, 20)])
    assert budget.used == 20


def test_a_dropped_queue_gives_everything_back_once() -> None:
    budget = CacheBudget(100)
    queue = ProcessQueue(budget=budget)
    queue.add([message(0, 30), message(1, 30)])
    queue.take(1)
    queue.drop()
    queue.drop()
    queue.commit()
    queue.put_back()
    assert (budget.used, queue.count, queue.size) == (0, 0, 0)
