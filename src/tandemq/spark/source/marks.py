"""Whether queues still hold what a stream has read of them: a topic may be deleted and made anew under its feet.

Offsets alone do not tell: the new topic may soon be longer than the old one was. So the stream remembers one message
per queue, its *mark*, in the checkpoint. Marks are compared when a stream starts, and again every few seconds for
queues that have something new; they are renewed now and then, so that retention does not delete them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tandemq.clock import Clock
from tandemq.model.topic import QueueRef
from tandemq.spark.source.offsets import Mark, Marks, Offsets, Ranges, marks_from_json

CHECK_SECONDS = 10.0
"""A queue that is read is compared with its mark this often."""
RENEW_SECONDS = 600.0
RENEWED_MAX = 256
"""Marks taken for one micro-batch at most: each costs a pull."""


class MarkedQueues(Protocol):
    """What marks need of a source's queues."""

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        """Returns what the member that has most of each queue says of it."""
        ...

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        """Returns the message at an offset of each queue; queues that have none there are left out."""
        ...


class QueueMarks:
    """The marks of one stream."""

    def __init__(self, queues: MarkedQueues, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._marks: Marks | None = None
        self._checked_at: dict[QueueRef, float] = {}
        self._taken_at: dict[QueueRef, float] = {}

    @property
    def known(self) -> Marks:
        return dict(self._marks or {})

    def load(self, stored: Mapping[str, Any]) -> None:
        """Takes over the marks of a checkpoint; only the first call counts."""
        if self._marks is None:
            self._marks = marks_from_json(stored)

    def made_anew(
        self, starts: Offsets, ranges: Ranges, has_news: Callable[[QueueRef], bool]
    ) -> dict[QueueRef, Mark | None]:
        """Returns the queues that no longer hold what was read of them.

        With its mark if that message is still there: then the queue is the same, but its end was lost.
        """
        marks = self._marks or {}
        short = self._short(starts, ranges)
        asked = {
            queue: mark.offset
            for queue, mark in marks.items()
            if queue in ranges and ranges[queue].first <= mark.offset < ranges[queue].next
            if queue in short or (queue in starts and self._is_due(queue) and has_news(queue))
        }
        found = self._queues.marks_at(asked) if asked else {}
        anew: dict[QueueRef, Mark | None] = dict.fromkeys(short)
        for queue in asked:
            self._checked_at[queue] = self._clock.monotonic()
            if queue not in found:
                continue  # the member that was asked does not have it at the moment
            if found[queue] != marks[queue]:
                anew[queue] = None
            elif queue in short:
                anew[queue] = marks[queue]
        for queue in anew:
            if anew[queue] is None and self._marks is not None:
                self._marks.pop(queue, None)
        return anew

    def _short(self, starts: Offsets, ranges: Ranges) -> list[QueueRef]:
        """Returns the queues that end before what was read of them, also where they are longest."""
        short = [queue for queue, start in starts.items() if queue in ranges and start > ranges[queue].next]
        if not short:
            return []
        farthest = self._queues.farthest(short)
        return [queue for queue in short if queue in farthest and starts[queue] > farthest[queue].next]

    def _is_due(self, queue: QueueRef) -> bool:
        checked = self._checked_at.get(queue)
        return checked is None or self._clock.monotonic() - checked >= CHECK_SECONDS

    def renew(self, starts: Offsets, stops: Offsets, ranges: Ranges) -> None:
        """Takes marks for queues that are read up to `stops` now and have none, or an old one."""
        marks = self._marks = self._marks if self._marks is not None else {}
        now = self._clock.monotonic()
        wanted: Offsets = {}
        for queue, stop in stops.items():
            if stop <= starts.get(queue, stop) or queue not in ranges or len(wanted) >= RENEWED_MAX:
                continue
            mark = marks.get(queue)
            taken = self._taken_at.setdefault(queue, now) if mark is not None else -RENEW_SECONDS
            if mark is None or mark.offset < ranges[queue].first or now - taken >= RENEW_SECONDS:
                wanted[queue] = stop - 1
        for queue, mark in (self._queues.marks_at(wanted) if wanted else {}).items():
            marks[queue] = mark
            self._taken_at[queue] = self._checked_at[queue] = now
