"""Messages that wait for an exact time, by that time, and the record that says how far deliveries have come. Pure."""

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """What a progress record says; `timers.py` defines it."""

    read_ms: int = 0
    settled_below: int = 0
    seen_below: int = 0

    def encode(self) -> bytes:
        return f"{self.read_ms} {self.settled_below} {self.seen_below}".encode()

    @classmethod
    def decode(cls, body: bytes) -> "TimerProgress":
        """Returns what a record says; raises ValueError if it is none."""
        read_ms, settled_below, seen_below = map(int, body.split())
        return cls(read_ms, settled_below, seen_below)

    def is_settled(self, queue_offset: int, due_ms: int) -> bool:
        return queue_offset < self.settled_below or (queue_offset < self.seen_below and due_ms <= self.read_ms)


class TimerHeap:
    """What waits, by time, and the lowest queue offset among it."""

    def __init__(self) -> None:
        self._by_time: list[tuple[int, int]] = []
        self._by_offset: list[int] = []
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, queue_offset: int) -> None:
        heapq.heappush(self._by_time, (due_ms, queue_offset))
        heapq.heappush(self._by_offset, queue_offset)
        self._waiting.add(queue_offset)

    def next_due(self) -> int | None:
        head = self.peek()
        return None if head is None else head[0]

    def peek(self) -> tuple[int, int] | None:
        """Returns (time, queue offset) of the earliest."""
        while self._by_time and self._by_time[0][1] not in self._waiting:
            heapq.heappop(self._by_time)
        return self._by_time[0] if self._by_time else None

    def settle(self) -> None:
        """Removes the earliest, which is done with."""
        _, offset = heapq.heappop(self._by_time)
        self._waiting.discard(offset)

    def discard(self, queue_offset: int) -> None:
        """Removes a message, wherever it stands."""
        self._waiting.discard(queue_offset)

    def lowest_offset(self, otherwise: int) -> int:
        """Returns the lowest queue offset that waits, `otherwise` when nothing does."""
        while self._by_offset and self._by_offset[0] not in self._waiting:
            heapq.heappop(self._by_offset)
        return self._by_offset[0] if self._by_offset else otherwise
