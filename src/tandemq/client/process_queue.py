"""The messages of one assigned queue between pull and commit. Pure; owned by the event loop.

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
class ProcessQueue:
    """State of one queue held by this consumer."""

    next_offset: int = 0
    """Where the next pull starts."""
    dropped: bool = False
    """Set once, when the queue is lost: whoever holds a reference stops touching offsets."""
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
        for message in messages:
            offset = message.queue_offset
            self._cached[offset] = message
            self._bytes += len(message.body)
            self._end = offset + 1 if self._end is None else max(self._end, offset + 1)

    # concurrent consumption

    def remove(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Takes finished messages out; what may be committed now."""
        for message in messages:
            if self._cached.pop(message.queue_offset, None) is not None:
                self._bytes -= len(message.body)
        return self.commit_offset

    # ordered consumption

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages in order; they stay ours until `commit` or `put_back`."""
        taken: list[ReceivedMessage] = []
        while self._cached and len(taken) < count_max:
            offset, message = self._cached.popitem(last=False)
            self._taken[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int | None:
        """The taken messages are done; what may be committed now."""
        self._bytes -= sum(len(message.body) for message in self._taken.values())
        self._taken.clear()
        return self.commit_offset

    def put_back(self) -> None:
        """The taken messages are to be tried again, in their old order."""
        while self._taken:
            offset, message = self._taken.popitem()
            self._cached[offset] = message
            self._cached.move_to_end(offset, last=False)

    # what is known

    @property
    def commit_offset(self) -> int | None:
        """First offset not finished: the lowest still here, or one past the highest seen; None before any message."""
        lowest = [next(iter(part)) for part in (self._taken, self._cached) if part]
        return min(lowest) if lowest else self._end

    @property
    def count(self) -> int:
        return len(self._cached) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of the bodies held."""
        return self._bytes

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest cached offset."""
        if not self._cached:
            return 0
        return next(reversed(self._cached)) - next(iter(self._cached))

    def full(self, count_max: int, bytes_max: int, span_max: int | None) -> str | None:
        """Why pulling must wait, or None."""
        if self.count >= count_max:
            return f"{self.count} messages are cached, the limit is {count_max}"
        if self._bytes >= bytes_max:
            return f"{self._bytes} bytes are cached, the limit is {bytes_max}"
        if span_max is not None and self.span > span_max:
            return f"the cached offsets span {self.span}, the limit is {span_max}"
        return None

    def locked(self, now: float) -> bool:
        return self.locked_at is not None and now - self.locked_at < LOCK_LIFE_S
