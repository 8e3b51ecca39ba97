"""Until when a master with a coordinator may acknowledge, by its own monotonic clock.  Pure.

A reign is a lease in time and a fence in data.  Promises make acknowledgements at two or more copies safe whatever
clocks do; those at one copy, what readers are shown, and the services of a master rest on the lease: they end at
`renewed_at + lease - margin`.  It is asked when an acknowledgement leaves, so a process that was paused does not send
one from before the pause.
"""

from collections.abc import Callable
from typing import Final

MARGIN_SHARE: Final = 0.1
"""Of the lease: clocks of two machines may run apart by this much, and an answer takes a moment to leave."""


class Fence:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.until = float("-inf")
        """Nothing is acknowledged from then on."""
        self.alone_from = float("-inf")
        """Before that another one's lease may still live: what has one copy only is not acknowledged."""

    @property
    def is_closed(self) -> bool:
        return self._now() >= self.until

    @property
    def wants_copies(self) -> bool:
        """Whether an acknowledgement needs a second copy, whatever its level says."""
        return self._now() < self.alone_from

    @property
    def left(self) -> float:
        """Seconds, 0 when it is closed."""
        return max(0.0, self.until - self._now())

    def renewed(self, sent_at: float, lease: float) -> None:
        """Notes that the lease was renewed by a request that left at `sent_at`."""
        self.until = max(self.until, sent_at + lease * (1 - MARGIN_SHARE))

    def close(self) -> None:
        self.until = float("-inf")
