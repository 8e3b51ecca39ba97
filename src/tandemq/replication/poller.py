"""Looking at the sockets over and over instead of sleeping, for the short while in which bytes are sure to come.

A processor that sleeps takes tens of µs to wake up, on a virtual machine more: as long as a send takes otherwise.  Both
sides of a session poll while a single send waits for its copies, and only then: with many of them the loop hardly
sleeps, and others need the processor.  The kernel shares it out as usual; sched_yield at every turn, tried first, gave
it away for whole slices and made a send a third slower.
"""

import asyncio
import os
from collections.abc import Callable

from tandemq.clock import Clock


class Poller:
    """Keeps the loop awake from `begin` for `seconds`, or until `is_wanted` says no.  On a single processor never:
    there whoever is waited for would wait for us."""

    def __init__(self, clock: Clock, seconds: float, is_wanted: Callable[[], bool]) -> None:
        self.seconds = seconds if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._clock = clock
        self._is_wanted = is_wanted
        self._until = 0.0
        self._polls = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to poll; polls for longer if it does already."""
        if not self.seconds:
            return
        self._until = self._clock.monotonic() + self.seconds
        if not self._polls:
            self._polls = True
            loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._polls = self._clock.monotonic() < self._until and self._is_wanted()
        if self._polls:
            loop.call_soon(self._turn, loop)
