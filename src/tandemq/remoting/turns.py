"""How long the event loop's longest turn was lately, and what ran in it: whatever takes long makes everybody wait.

Requests are timed one by one. Other work is seen by a timer that should come four times a second: as much as it is
late, something else ran. A turn is shown for one to two minutes.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from tandemq.clock import SystemClock
from tandemq.codec.codes import code_name

WINDOW_SECONDS: Final = 60.0
TICK_SECONDS: Final = 0.25
OTHER_WORK: Final = "other work"


class Turn(NamedTuple):
    """So long did something run."""

    seconds: float
    what: str


NOTHING: Final = Turn(0.0, "")


class LoopTurns:
    """The longest turn of this window and of the one before."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.clock = now or SystemClock().monotonic
        """Reads seconds that never jump."""
        self._now = self._before = NOTHING
        self._window_ends = 0.0
        self._slowest_request = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ran(self, code: int, seconds: float) -> None:
        """Notes that a request was handled, or the part of it that let nobody else run."""
        if seconds > self._slowest_request:
            self._slowest_request = seconds
            self._note(Turn(seconds, code_name(code)))

    def was_late(self, seconds: float) -> None:
        """Notes that the timer came late. What a request explains is not counted twice."""
        if seconds > self._slowest_request:
            self._note(Turn(seconds, OTHER_WORK))
        self._slowest_request = 0.0

    def longest(self) -> Turn:
        """Returns the longest turn of the last one to two windows."""
        self._turn_over()
        return max(self._now, self._before)

    def _note(self, turn: Turn) -> None:
        self._turn_over()
        self._now = max(self._now, turn)

    def _turn_over(self) -> None:
        now = self.clock()
        if now >= self._window_ends:
            kept = now < self._window_ends + WINDOW_SECONDS
            self._before, self._now = (self._now if kept else NOTHING), NOTHING
            self._window_ends = now + WINDOW_SECONDS

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to watch a loop, until `stop`."""
        if self._timer is None:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + TICK_SECONDS

        def tick() -> None:
            self.was_late(loop.time() - due)
            self._arm(loop)

        self._timer = loop.call_at(due, tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
