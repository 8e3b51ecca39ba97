"""Sharing out queues: same lists, same answer, on every member."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.client.allocation import allocate, change
from tandemq.client.config import Allocation
from tandemq.model.topic import QueueRef

QUEUES = [QueueRef("T", "broker-a", i) for i in range(8)]


def ids(strategy: Allocation, me: str, members: list[str], queues: list[QueueRef] = QUEUES) -> list[int]:
    return [queue.queue_id for queue in allocate(strategy, me, members, queues)]


def test_average_gives_contiguous_blocks_the_first_ones_larger() -> None:
    members = ["c", "a", "b"]
    assert [ids(Allocation.AVG, me, members) for me in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_by_circle_deals_like_cards() -> None:
    members = ["a", "b", "c"]
    assert [ids(Allocation.AVG_BY_CIRCLE, me, members) for me in "abc"] == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_more_members_than_queues_leaves_some_without() -> None:
    members = [f"m{i}" for i in range(10)]
    assert [len(ids(Allocation.AVG, me, members)) for me in members] == [1] * 8 + [0] * 2


def test_a_member_the_broker_does_not_list_gets_nothing() -> None:
    assert ids(Allocation.AVG, "x", ["a", "b"]) == []


def test_the_hash_ring_is_upstreams() -> None:
    """MD5's first four bytes over `member-i` and over Java's text of the queue."""

    def point(text: str) -> int:
        return int.from_bytes(hashlib.md5(text.encode()).digest()[:4], "big")

    members = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]
    ring = sorted((point(f"{m}-{i}"), m) for m in members for i in range(10))
    for queue in QUEUES:
        text = f"MessageQueue [topic=T, brokerName=broker-a, queueId={queue.queue_id}]"
        owner = next((m for p, m in ring if p >= point(text)), ring[0][1])
        assert queue in allocate(Allocation.CONSISTENT_HASH, owner, members, QUEUES)


@pytest.mark.parametrize("strategy", list(Allocation))
@given(
    members=st.lists(st.text("abcdefgh@#123", min_size=1, max_size=6), min_size=1, max_size=9, unique=True),
    queues=st.integers(0, 40),
)
def test_every_queue_has_exactly_one_owner(strategy: Allocation, members: list[str], queues: int) -> None:
    every = [QueueRef("T", f"b{i % 3}", i) for i in range(queues)]
    shares = [queue for me in members for queue in allocate(strategy, me, members, reversed(every))]
    assert sorted(shares) == sorted(every)


def test_a_change_is_what_was_won_and_lost() -> None:
    due = change(QUEUES[:3], QUEUES[2:5])
    assert due.won == tuple(QUEUES[3:5])
    assert due.lost == tuple(QUEUES[:2])
