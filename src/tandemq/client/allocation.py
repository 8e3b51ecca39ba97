"""Which queues of a topic belong to which member of a group: pure, the same answer on every member.

No member talks to another: each sorts the same queues and the same member ids and takes its own share, so a strategy
must be a function of these two lists alone. The formulas are RocketMQ's, because members in other languages sit in the
same group (AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle, AllocateMessageQueueConsistentHash).
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandemq.client.config import Allocation
from tandemq.model.topic import QueueRef

VIRTUAL_NODES = 10
"""Points per member on the hash ring, as upstream's default."""


def allocate(strategy: Allocation, me: str, members: Iterable[str], queues: Iterable[QueueRef]) -> list[QueueRef]:
    """Returns this client's share; nothing while the broker does not list it: somebody else may hold the queues."""
    ids = sorted(set(members))
    ordered = sorted(queues)
    if me not in ids or not ordered:
        return []
    return _STRATEGIES[strategy](ids.index(me), ids, ordered)


def _average(index: int, ids: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Contiguous blocks; the first `len(queues) % len(ids)` members get one more."""
    size, more = divmod(len(queues), len(ids))
    start = index * size + min(index, more)
    return list(queues[start : start + size + (index < more)])


def _by_circle(index: int, ids: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    return list(queues[index :: len(ids)])


def _consistent_hash(index: int, ids: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    ring = sorted((_ring_hash(f"{member}-{i}"), member) for member in ids for i in range(VIRTUAL_NODES))
    points = [point for point, _ in ring]
    me = ids[index]
    return [q for q in queues if ring[bisect_left(points, _ring_hash(_queue_text(q))) % len(ring)][1] == me]


def _ring_hash(text: str) -> int:
    """Returns the first four bytes of MD5, as upstream's ring does: all members must agree; nothing is secret."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _queue_text(queue: QueueRef) -> str:
    """Returns Java's MessageQueue.toString, which the upstream ring hashes."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


_STRATEGIES = {
    Allocation.AVG: _average,
    Allocation.AVG_BY_CIRCLE: _by_circle,
    Allocation.CONSISTENT_HASH: _consistent_hash,
}


@dataclass(frozen=True, slots=True)
class Change:
    """What a new share means for the queues held so far."""

    won: tuple[QueueRef, ...]
    lost: tuple[QueueRef, ...]


def change(held: Iterable[QueueRef], share: Iterable[QueueRef]) -> Change:
    before, after = set(held), set(share)
    return Change(won=tuple(sorted(after - before)), lost=tuple(sorted(before - after)))
