"""Which consumer of a group holds which queue, for ordered consumption. Pure: `now` (monotonic seconds) is an argument.

A lock is granted when free, held by the same client, or not renewed for `age_max`; clients renew every 20 s and trust
theirs for 30 s. The table is bounded: a request that finds no room is simply not granted, which clients treat as "held
by somebody else"; `expire` makes room.
"""

from collections.abc import Iterable

from tandemq.model.topic import QueueRef

SIZE_MAX = 64 << 20
"""Bytes of all locks: 200,000 with names of usual length."""
LOCK_SIZE = 250
"""Bytes of a lock besides its names."""


class QueueLocks:
    """(group, queue) -> (client id, last renewal)."""

    def __init__(self, age_max: float, locks_max: int = 200_000, size_max: int = SIZE_MAX) -> None:
        self._age_max = age_max
        self._locks_max = locks_max
        self._size_max = size_max
        self.size = 0
        """Bytes of all locks, about."""
        self._by_group: dict[str, dict[QueueRef, tuple[str, float]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[QueueRef], now: float) -> list[QueueRef]:
        """Locks the queues of a request; returns those that the client holds now."""
        held = self._by_group.setdefault(group, {})
        granted = [queue for queue in queues if self._lock_one(held, queue, client_id, now)]
        if not held:
            self._by_group.pop(group, None)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueRef]) -> None:
        """Frees those that the client holds; others' stay."""
        held = self._by_group.get(group)
        if held is None:
            return
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                self._free(held, queue)
        if not held:
            del self._by_group[group]

    def holder(self, group: str, queue: QueueRef, now: float) -> str | None:
        """Returns who holds a queue, or None if nobody does any more."""
        owner = self._by_group.get(group, {}).get(queue)
        return owner[0] if owner is not None and now - owner[1] <= self._age_max else None

    def has_any(self, group: str, now: float) -> bool:
        """Returns whether the group consumes in order at the moment."""
        held = self._by_group.get(group)
        return held is not None and any(now - renewed <= self._age_max for _, renewed in held.values())

    def expire(self, now: float) -> None:
        """Drops locks nobody renewed."""
        for group, held in list(self._by_group.items()):
            for queue in [queue for queue, (_, renewed) in held.items() if now - renewed > self._age_max]:
                self._free(held, queue)
            if not held:
                del self._by_group[group]

    def _free(self, held: dict[QueueRef, tuple[str, float]], queue: QueueRef) -> None:
        owner, _ = held.pop(queue)
        self._count -= 1
        self.size -= _size(queue, owner)

    def _lock_one(self, held: dict[QueueRef, tuple[str, float]], queue: QueueRef, client_id: str, now: float) -> bool:
        owner = held.get(queue)
        if owner is not None and owner[0] != client_id and now - owner[1] <= self._age_max:
            return False
        size = self.size + _size(queue, client_id) - (_size(queue, owner[0]) if owner is not None else 0)
        if size > self._size_max or (owner is None and self._count >= self._locks_max):
            return False
        self.size = size
        self._count += owner is None
        held[queue] = (client_id, now)
        return True


def _size(queue: QueueRef, client_id: str) -> int:
    return LOCK_SIZE + len(queue.topic) + len(queue.broker_name) + len(client_id)
