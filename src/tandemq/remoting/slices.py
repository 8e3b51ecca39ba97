"""Long work on the loop in slices, so that requests are served in between."""

import asyncio

from tandemq.clock import Clock

SLICE_SECONDS = 0.001


class Slices:
    """Call `breathe` between small steps: it gives the loop to others once a slice of time is used up."""

    __slots__ = ("_end", "_now", "_seconds")

    def __init__(self, clock: Clock, seconds: float = SLICE_SECONDS) -> None:
        self._now = clock.monotonic
        self._seconds = seconds
        self._end = self._now() + seconds

    async def breathe(self) -> None:
        """Returns at once, or after everybody who waited for the loop had a turn."""
        if self._now() >= self._end:
            await asyncio.sleep(0)
            self._end = self._now() + self._seconds
