"""Requests that wait for their answer: opaque -> waiter, with a deadline each. Pure: time is an argument.

Opaques are chosen here, unique among those in flight. Deadlines sit in a heap; entries of answered requests stay in it
until they surface or outnumber the living, so an answer costs no search.
"""

import heapq
from typing import Generic, TypeVar

from tandemq.errors import RemotingError

Waiter = TypeVar("Waiter")

_OPAQUE_MAX = 2**31 - 1


class Inflight(Generic[Waiter]):
    """At most `size_max` requests; every one of them ends by `take`, `expire` or `take_all`."""

    __slots__ = ("_deadlines", "_next_opaque", "_waiters", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._waiters: dict[int, tuple[float, Waiter]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._next_opaque = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter, deadline: float) -> int:
        """Returns the opaque to send the request with. Raises RemotingError when too many wait already."""
        if len(self._waiters) >= self.size_max:
            raise RemotingError(f"{self.size_max} requests wait for an answer on this connection: slow down")
        opaque = self._next_opaque
        while opaque in self._waiters:  # only after 2^31 requests, beside one that waits since then
            opaque = (opaque + 1) & _OPAQUE_MAX
        self._next_opaque = (opaque + 1) & _OPAQUE_MAX
        self._waiters[opaque] = (deadline, waiter)
        heapq.heappush(self._deadlines, (deadline, opaque))
        if len(self._deadlines) > 2 * len(self._waiters) + 64:
            self._deadlines = sorted((due, waiting) for waiting, (due, _) in self._waiters.items())
        return opaque

    def take(self, opaque: int) -> Waiter | None:
        """Returns the waiter of this answer; None for an unknown, late or repeated one."""
        found = self._waiters.pop(opaque, None)
        return None if found is None else found[1]

    def expire(self, now: float) -> list[Waiter]:
        """Removes and returns those whose deadline has come, in order of their deadlines."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, opaque = heapq.heappop(self._deadlines)
            found = self._waiters.get(opaque)
            if found is not None and found[0] == deadline:
                del self._waiters[opaque]
                expired.append(found[1])
        return expired

    @property
    def next_deadline(self) -> float | None:
        """Returns when `expire` has something to do at the earliest; None when nobody waits."""
        if not self._waiters:
            return None
        while True:
            deadline, opaque = self._deadlines[0]
            found = self._waiters.get(opaque)
            if found is not None and found[0] == deadline:
                return deadline
            heapq.heappop(self._deadlines)

    def take_all(self) -> list[Waiter]:
        """Removes and returns all waiters, because the connection is gone."""
        waiters = [waiter for _, waiter in self._waiters.values()]
        self._waiters.clear()
        self._deadlines.clear()
        return waiters
