"""Looking at the sockets over and over instead of sleeping, for the short while in which bytes are sure to come.

A processor that sleeps takes tens of µs to wake up, on a virtual machine more: as long as a send takes otherwise.  Both
sides of a session poll while a single send waits for its copies, and only then: with many of them the loop hardly
sleeps, and others need the processor.  The kernel shares it out as usual; sched_yield at every turn, tried first, gave
it away for whole slices and made a send a third slower.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from tandemq.clock import Clock

LONGER: Final = 3
"""Polls for so many times what it takes of late."""
LIMIT_MIN: Final = 0.0001
"""Seconds; what is over sooner is not worth less."""
SMOOTHED_OVER: Final = 16
"""So many times count towards what it takes of late."""
IN_VAIN: Final = 1.1
"""It is taken to take so much longer when it did not come in time: some twenty of those, and all time is used again."""


class Poller:
    """Keeps the loop awake from `begin` until what it waits for has come: `is_wanted` says no, or it begins again.

    At most for `seconds`, and for LONGER times what it takes of late: where more programs than processors want to run,
    whoever is waited for may wait for us, and that was a millisecond for one send in ten. On a single processor never.
    """

    def __init__(self, clock: Clock, seconds: float, is_wanted: Callable[[], bool]) -> None:
        self.seconds = seconds if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._clock = clock
        self._is_wanted = is_wanted
        self._typical = self.seconds / LONGER
        self._began = self._until = 0.0
        self._polls = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to poll; if it does already, the next of what it waits for has come."""
        if not self.seconds:
            return
        now = self._clock.monotonic()
        if self._polls:
            self._came(now)
        else:
            self._polls = True
            loop.call_soon(self._turn, loop)
        self._began = now
        self._until = now + self.limit

    @property
    def limit(self) -> float:
        """For how many seconds it polls now."""
        return min(self.seconds, max(LIMIT_MIN, LONGER * self._typical))

    def _came(self, now: float) -> None:
        self._typical += (now - self._began - self._typical) / SMOOTHED_OVER

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock.monotonic()
        if not self._is_wanted():
            self._came(now)
            self._polls = False
        elif now >= self._until:
            self._typical = min(self._typical * IN_VAIN, self.seconds)  # else it would never learn of a longer way
            self._polls = False
        else:
            loop.call_soon(self._turn, loop)
