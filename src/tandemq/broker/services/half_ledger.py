"""Which half messages are decided, and up to where half and op queues are used up. Pure bookkeeping.

A half is *decided* once an op record names it, and *settled* once a check round has passed it: decided, appended again
or discarded. A half that was appended again is known under all its offsets, so that a late answer about the first one
settles the last one and nothing is delivered twice. Every step takes constant time on average, whatever number of
halves is open.
"""

from collections import deque
from collections.abc import Iterable

DISCARDED_MAX = 65_536
"""Each was asked about many times for nothing: more of them mean that a producer is gone for good."""


class HalfLedger:
    """The progress of transaction checks. All offsets are queue offsets; those of settled work only move forward."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0) -> None:
        self._begun_at = half_offset
        self.half_offset = half_offset
        """Every half below is settled."""
        self.op_offset = op_offset
        """Every op record below names only settled halves."""
        self.op_next = op_offset
        """The next op record to read."""
        self._decided: dict[int, int] = {}
        """half -> the op record that names it, for halves not settled yet"""
        self._open: dict[int, set[int]] = {}
        """op record -> its halves that are not settled yet"""
        self._open_order: deque[int] = deque()
        """The keys of `_open` in ascending order, with those already closed among them"""
        self._renewed: dict[int, int] = {}
        """half -> the offset under which it was appended again"""
        self._before: dict[int, int] = {}
        """The same, backwards."""
        self._discarded: dict[int, None] = {}
        """The newest DISCARDED_MAX halves that were given up."""
        self._answered: set[int] = set()
        """Halves, under their newest offset, whose producer has answered and whose op record was not read yet."""

    def __len__(self) -> int:
        return len(self._decided)

    def newest(self, half: int) -> int:
        """Returns the offset under which this half lies now."""
        while (renewed := self._renewed.get(half)) is not None:
            half = renewed
        return half

    def is_decided(self, half: int) -> bool:
        """Returns whether an op record read so far names the half, under any of its offsets."""
        return self.newest(half) in self._decided

    def answered(self, half: int) -> None:
        """Notes that its producer has answered, under any of its offsets: a second answer must deliver nothing."""
        self._answered.add(self.newest(half))

    def take_back(self, half: int) -> None:
        """Asks about a half again, because its answer could not be written down."""
        self._answered.discard(self.newest(half))

    def is_answered(self, half: int) -> bool:
        """Returns whether the half is decided, will be once its op record is read, or was and is settled.

        One that was discarded is not: a late answer about it counts. What was settled before the start is not known.
        """
        newest = self.newest(half)
        if newest in self._decided or newest in self._answered:
            return True
        return self._begun_at <= newest < self.half_offset and newest not in self._discarded

    def op_read(self, op_offset: int, halves: Iterable[int]) -> None:
        """Takes the op record at `op_offset`, which decides these halves. Call it in the order of op offsets."""
        self.op_next = op_offset + 1
        waiting = set()
        for half in map(self.newest, halves):
            self._answered.discard(half)
            if half >= self.half_offset and half not in self._decided:
                self._decided[half] = op_offset
                waiting.add(half)
        if waiting:
            self._open[op_offset] = waiting
            self._open_order.append(op_offset)
        self._advance_ops()

    def skip_ops(self, op_offset: int) -> None:
        """Passes op records below `op_offset`, which are gone from the log."""
        self.op_next = max(self.op_next, op_offset)
        self._advance_ops()

    def settle(self, half: int) -> None:
        """Passes the half at `half_offset`, which is done with."""
        self.half_offset = half + 1
        op = self._decided.pop(half, None)
        if op is not None:
            waiting = self._open[op]
            waiting.discard(half)
            if not waiting:
                del self._open[op]
                self._advance_ops()
        self._forget_before(half)

    def discard(self, half: int) -> None:
        """Passes the half at `half_offset`, which was asked about often enough."""
        self._discarded[half] = None
        if len(self._discarded) > DISCARDED_MAX:
            del self._discarded[next(iter(self._discarded))]
        self.settle(half)

    def renew(self, half: int, renewed: int) -> None:
        """Passes the half at `half_offset`, which was appended again and goes on under another offset."""
        self.half_offset = half + 1
        self._link(half, renewed)

    def seen_renewed(self, origin: int, half: int) -> None:
        """Learns after a restart that `half` is what became of `origin`. Call it in the order of offsets."""
        newest = self.newest(origin)
        if newest < half:
            self._link(newest, half)

    def pass_superseded(self) -> bool:
        """Steps over the half at `half_offset` if a newer copy of it lies further on; returns whether it did."""
        if self.half_offset not in self._renewed:
            return False
        self.half_offset += 1
        return True

    def skip_to(self, half: int) -> None:
        """Passes halves below `half`, which are gone from the log."""
        skipped = range(self.half_offset, half)
        for gone in skipped if len(skipped) < len(self._decided) else sorted(self._decided):
            if gone < half and gone in self._decided:
                self.settle(gone)
        self.half_offset = max(self.half_offset, half)

    def _advance_ops(self) -> None:
        order = self._open_order
        while order and order[0] not in self._open:
            order.popleft()
        self.op_offset = order[0] if order else self.op_next

    def _link(self, half: int, renewed: int) -> None:
        if half in self._answered:  # its op record could not be read yet: slaves are behind
            self._answered.remove(half)
            self._answered.add(renewed)
        self._renewed[half] = renewed
        self._before[renewed] = half

    def _forget_before(self, half: int) -> None:
        """Drops the earlier offsets of a settled half."""
        while (before := self._before.pop(half, None)) is not None:
            del self._renewed[before]
            half = before
