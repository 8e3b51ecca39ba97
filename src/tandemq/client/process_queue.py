"""The messages of one queue between pull and commit. Pure; owned by the event loop.

Invariants: offsets are cached in ascending order; `commit_offset` never passes a message that was not taken out by
`remove` (concurrent) or `commit` (ordered), so a crash repeats messages but never skips one.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemq.client.message import ReceivedMessage

LOCK_LIFE_S = 30.0
"""How long a queue lock is trusted without renewal; brokers keep it for 60 s."""


@dataclass(slots=True)
class CacheBudget:
    """What the queues of one consumer hold together."""

    bytes_max: int
    used: int = 0

    @property
    def spent(self) -> bool:
        """Whether the limit is reached."""
        return self.used >= self.bytes_max


@dataclass(slots=True, eq=False)
class ProcessQueue:
    """State of one queue held by this consumer."""

    next_offset: int = 0
    """Where the next pull starts."""
    budget: CacheBudget | None = None
    """Shared with the other queues of the consumer."""
    dropped: bool = False
    """Set once, when the queue is given up: whoever still refers to it stops touching offsets."""
    paused: bool = False
    suggested_broker_id: int = 0
    locked_at: float | None = None
    """Monotonic time of the last granted lock (ordered consumers)."""
    _cached: "OrderedDict[int, ReceivedMessage]" = field(default_factory=OrderedDict)
    _taken: "OrderedDict[int, ReceivedMessage]" = field(default_factory=OrderedDict)
    _bytes: int = 0
    _end: int | None = None
    """One past the highest offset ever cached."""

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        """Caches messages that were fetched."""
        size, end = 0, self._end or 0
        for message in messages:
            stored = message.stored
            offset = stored.queue_offset
            self._cached[offset] = message
            size += stored.size
            if offset >= end:
                self._end = end = offset + 1
        self._account(size)

    def _account(self, size: int) -> None:
        self._bytes += size
        if self.budget is not None:
            self.budget.used += size

    def drop(self) -> None:
        """Ends the queue's life here and gives back what its cache holds."""
        if not self.dropped:
            self.dropped = True
            self._account(-self._bytes)
            self._cached.clear()
            self._taken.clear()

    # concurrent consumption

    def remove(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Takes finished messages out; returns what may be committed now."""
        size = 0
        for message in messages:
            stored = message.stored
            if self._cached.pop(stored.queue_offset, None) is not None:
                size += stored.size
        self._account(-size)
        return self.commit_offset

    # ordered consumption

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Returns the next messages in order; they stay here until `commit` or `put_back`."""
        taken: list[ReceivedMessage] = []
        while self._cached and len(taken) < count_max:
            offset, message = self._cached.popitem(last=False)
            self._taken[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int | None:
        """Lets the taken messages go, which are done; returns what may be committed now."""
        for message in self._taken.values():
            self._account(-message.stored.size)
        self._taken.clear()
        return self.commit_offset

    def put_back(self) -> None:
        """Puts the taken messages back in their old order, to be tried again."""
        while self._taken:
            offset, message = self._taken.popitem()
            self._cached[offset] = message
            self._cached.move_to_end(offset, last=False)

    # what is known

    @property
    def commit_offset(self) -> int | None:
        """First offset not finished: the lowest still here, or one past the highest seen; None before any message."""
        if not self._taken:
            return next(iter(self._cached)) if self._cached else self._end
        lowest_taken = next(iter(self._taken))
        return min(lowest_taken, next(iter(self._cached))) if self._cached else lowest_taken

    @property
    def count(self) -> int:
        """Messages held."""
        return len(self._cached) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of the records held, as the broker sent them."""
        return self._bytes

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest cached offset."""
        if not self._cached:
            return 0
        return next(reversed(self._cached)) - next(iter(self._cached))

    def has_room(self, count_max: int, bytes_max: int, span_max: int | None) -> bool:
        """Returns whether another pull may go: this queue and all of the consumer together are below their limits."""
        if self.count >= count_max or self._bytes >= bytes_max:
            return False
        if span_max is not None and self.span > span_max:
            return False
        return self.budget is None or not self.budget.spent or not self.count

    def locked(self, now: float) -> bool:
        """Returns whether the lock of this queue can be trusted."""
        return self.locked_at is not None and now - self.locked_at < LOCK_LIFE_S
