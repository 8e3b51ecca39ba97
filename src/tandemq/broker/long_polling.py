"""Pulls that found nothing and wait for a message or for their deadline. Pure: `now` is monotonic seconds.

A parked pull is under its queue; an arrival there takes it out and it is run again by whoever parked it. When its
filter lets nothing through it goes back, with the offset advanced past what was examined, so that nothing is looked at
twice. Deadlines are a heap with lazy deletion, rebuilt when more than half of it is dead, so it stays within twice the
number of parked pulls.
"""

import heapq
from collections.abc import Iterable
from typing import Generic, TypeVar

Queue = tuple[str, int]
T = TypeVar("T")

EXPIRED_IN_TURN = 128
"""Pulls that are answered in one turn of the loop because they waited long enough: a few milliseconds of writing."""
SIZE_MAX = 1 << 19
"""Characters of the expressions that parked pulls wait with, each counted once: some 50 MiB of compiled filters."""


class ParkedPull(Generic[T]):
    """One waiting request; `request` is whatever its owner needs to run it again."""

    __slots__ = ("deadline", "holds", "is_parked", "is_timed", "owner", "queue", "request", "size")

    def __init__(
        self, queue: Queue, owner: object, deadline: float, request: T, holds: object = None, size: int = 0
    ) -> None:
        self.queue = queue
        self.owner = owner
        """The connection it came from: when that closes, the pull goes."""
        self.deadline = deadline
        self.request = request
        self.holds, self.size = holds, size
        """What it keeps alive that it may share with others, its filter, and how much that is."""
        self.is_parked = False
        self.is_timed = False
        """It is in the heap of deadlines, perhaps as a dead entry: one that is parked again is not pushed twice."""

    def __lt__(self, other: "ParkedPull[T]") -> bool:
        return self.deadline < other.deadline


class ParkedPulls(Generic[T]):
    """Every waiting pull of a broker, by queue, by connection and by deadline."""

    def __init__(self, parked_max: int, size_max: int = SIZE_MAX) -> None:
        self.parked_max = parked_max
        self.size_max = size_max
        self.size = 0
        """Of everything that the parked pulls keep alive."""
        self._holders: dict[int, int] = {}
        """Identity of such a thing -> parked pulls that have it."""
        self._by_queue: dict[Queue, dict[ParkedPull[T], None]] = {}
        """In order of arrival; of thousands that wait for one queue any one leaves without a search."""
        self._by_owner: dict[object, set[ParkedPull[T]]] = {}
        self._deadlines: list[ParkedPull[T]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, pull: ParkedPull[T]) -> bool:
        """Returns False when there is no room: answer it now."""
        if self._count >= self.parked_max or not self._take_hold(pull):
            return False
        pull.is_parked = True
        self._count += 1
        self._by_queue.setdefault(pull.queue, {})[pull] = None
        self._by_owner.setdefault(pull.owner, set()).add(pull)
        if not pull.is_timed:
            pull.is_timed = True
            heapq.heappush(self._deadlines, pull)
            if len(self._deadlines) > 2 * self._count + 64:
                self._rebuild_deadlines()
        return True

    def _take_hold(self, pull: ParkedPull[T]) -> bool:
        if not pull.size:
            return True
        holders = self._holders.get(id(pull.holds), 0)
        if not holders:
            if self.size + pull.size > self.size_max:
                return False
            self.size += pull.size
        self._holders[id(pull.holds)] = holders + 1
        return True

    def _let_go(self, pull: ParkedPull[T]) -> None:
        if pull.size:
            holders = self._holders.pop(id(pull.holds)) - 1
            if holders:
                self._holders[id(pull.holds)] = holders
            else:
                self.size -= pull.size

    def take(self, queues: Iterable[Queue]) -> list[ParkedPull[T]]:
        """Takes out the pulls of queues that got messages, oldest first within a queue."""
        taken: list[ParkedPull[T]] = []
        for queue in queues:
            waiting = self._by_queue.pop(queue, None)
            if waiting is not None:
                for pull in waiting:
                    self._leave(pull)
                taken += waiting
        return taken

    def take_all(self) -> list[ParkedPull[T]]:
        """Takes out everything: the broker stops, or its role changed."""
        return self.take(list(self._by_queue))

    def expire(self, now: float, count_max: int = EXPIRED_IN_TURN) -> list[ParkedPull[T]]:
        """Takes out the pulls whose deadline is not after `now`, so many at most; `next_deadline` tells of the rest."""
        due: list[ParkedPull[T]] = []
        while (
            len(due) < count_max
            and self._deadlines
            and (not self._deadlines[0].is_parked or self._deadlines[0].deadline <= now)
        ):
            pull = self._pop_deadline()
            if pull.is_parked:
                self._remove(pull)
                due.append(pull)
        return due

    def drop_owner(self, owner: object) -> int:
        """Drops the pulls of a connection that closed, without an answer. Returns how many."""
        pulls = list(self._by_owner.get(owner, ()))
        for pull in pulls:
            self._remove(pull)
        return len(pulls)

    @property
    def next_deadline(self) -> float | None:
        while self._deadlines and not self._deadlines[0].is_parked:
            self._pop_deadline()
        return self._deadlines[0].deadline if self._deadlines else None

    def _pop_deadline(self) -> ParkedPull[T]:
        pull = heapq.heappop(self._deadlines)
        pull.is_timed = False
        return pull

    def _rebuild_deadlines(self) -> None:
        for pull in self._deadlines:
            pull.is_timed = pull.is_parked
        self._deadlines = [pull for pull in self._deadlines if pull.is_timed]
        heapq.heapify(self._deadlines)

    def _remove(self, pull: ParkedPull[T]) -> None:
        waiting = self._by_queue[pull.queue]
        del waiting[pull]
        if not waiting:
            del self._by_queue[pull.queue]
        self._leave(pull)

    def _leave(self, pull: ParkedPull[T]) -> None:
        pull.is_parked = False
        self._count -= 1
        self._let_go(pull)
        pulls = self._by_owner[pull.owner]
        pulls.discard(pull)
        if not pulls:
            del self._by_owner[pull.owner]
