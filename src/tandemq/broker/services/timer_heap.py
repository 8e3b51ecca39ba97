"""Messages that wait for an exact time, by that time, and the record that says how far deliveries have come. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

OFFSET_BITS = 48
"""Of a queue offset: more messages than a queue gets in a century."""
OFFSET_MASK = (1 << OFFSET_BITS) - 1


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
    """What waits, by time, and the lowest queue offset among it. A million of them fit in 60 MB.

    Messages are added in the order of their queue offsets.
    """

    def __init__(self) -> None:
        self._by_time: list[int] = []
        """(time << OFFSET_BITS) + queue offset: one number takes half the room of a pair, and half the time."""
        self._is_done = bytearray()
        """For each queue offset from `_base` on, whether nothing waits there any more."""
        self._base = 0
        self._lowest = 0
        """Index in `_is_done` below which nothing waits."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, queue_offset: int) -> None:
        self.add_many([(due_ms << OFFSET_BITS) + queue_offset])

    def add_many(self, packed: Sequence[int]) -> None:
        """Adds messages, each as (time << OFFSET_BITS) + queue offset."""
        if not packed:
            return
        by_time, is_done = self._by_time, self._is_done
        if not is_done:
            self._base = packed[0] & OFFSET_MASK
        for one in packed:
            heappush(by_time, one)
        # Offsets that are left out wait for nothing.
        before = len(is_done)
        is_done += b"\1" * ((packed[-1] & OFFSET_MASK) - self._base + 1 - before)
        if len(is_done) - before == len(packed):
            is_done[before:] = bytes(len(packed))
        else:
            for one in packed:
                is_done[(one & OFFSET_MASK) - self._base] = 0
        self._count += len(packed)

    def next_due(self) -> int | None:
        head = self.peek()
        return None if head is None else head[0]

    def peek(self) -> tuple[int, int] | None:
        """Returns (time, queue offset) of the earliest."""
        by_time = self._by_time
        while by_time and not self._waits(by_time[0] & OFFSET_MASK):
            heappop(by_time)
        return (by_time[0] >> OFFSET_BITS, by_time[0] & OFFSET_MASK) if by_time else None

    def _waits(self, queue_offset: int) -> bool:
        index = queue_offset - self._base
        return 0 <= index < len(self._is_done) and not self._is_done[index]

    def settle(self) -> None:
        """Removes the earliest, which is done with."""
        if (head := self.peek()) is not None:
            heappop(self._by_time)
            self.discard(head[1])

    def discard(self, queue_offset: int) -> None:
        """Removes a message, wherever it stands."""
        if self._waits(queue_offset):
            self._is_done[queue_offset - self._base] = 1
            self._count -= 1

    def in_order(self) -> list[tuple[int, int]]:
        """Returns (queue offset, time) of all that wait, by offset."""
        waiting = (one for one in self._by_time if self._waits(one & OFFSET_MASK))
        return sorted((one & OFFSET_MASK, one >> OFFSET_BITS) for one in waiting)

    def lowest_offset(self, otherwise: int) -> int:
        """Returns the lowest queue offset that waits, `otherwise` when nothing does."""
        lowest = self._is_done.find(0, self._lowest)
        self._lowest = len(self._is_done) if lowest < 0 else lowest
        if self._lowest > len(self._is_done) // 2:
            del self._is_done[: self._lowest]
            self._base += self._lowest
            self._lowest = 0
        return otherwise if lowest < 0 else self._base + self._lowest
