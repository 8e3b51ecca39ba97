"""Moving a group's offsets, planned before it is done: what each queue has and where it would go. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tandemq.model.topic import QueueRef

HOWS = ("earliest", "latest", "time", "offset", "shift")


@dataclass(frozen=True, slots=True)
class Step:
    """One queue of the plan."""

    queue: QueueRef
    first: int
    end: int
    before: int
    after: int

    @property
    def name(self) -> str:
        return f"{self.queue.broker_name}/{self.queue.queue_id}"

    @property
    def moved(self) -> int:
        """Messages that the group would get again (negative) or never get (positive)."""
        return self.after - self.before

    @property
    def lag_after(self) -> int:
        return max(0, self.end - self.after)


def plan(
    ranges: Mapping[QueueRef, tuple[int, int]],
    offsets: Mapping[QueueRef, int],
    how: str,
    amount: int = 0,
    at_time: Mapping[QueueRef, int] | None = None,
) -> list[Step]:
    """Returns a step for each queue, never beyond what the queue holds.

    `amount` is the offset, or how far to shift; `at_time` has the offset of the moment on each queue.
    """
    steps = []
    for queue, (first, end) in sorted(ranges.items()):
        before = offsets.get(queue, 0)
        target = {
            "earliest": first,
            "latest": end,
            "offset": amount,
            "shift": before + amount,
            "time": (at_time or {}).get(queue, end),
        }[how]
        steps.append(Step(queue, first, end, before, max(first, min(end, target))))
    return steps
