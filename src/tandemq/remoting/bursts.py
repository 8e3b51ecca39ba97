"""Requests of thousands of connections that come at the same instant.

The loop takes what came on up to a thousand sockets in one turn, and a turn of a thousand short requests is a long
one: whoever comes in between waits for all of them. After BURST_SECONDS the next ones wait for another turn.
"""

import asyncio
from typing import Final

BURST_SECONDS: Final = 0.005
PAUSE_SECONDS: Final = 0.0003
"""So long from the beginning of one read to that of the next, and the loop may have slept in between."""


class Burst:
    """Shared by the connections of a server."""

    __slots__ = ("_began", "_is_ending", "_loop", "_seen", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began = self._seen = loop.time()
        self._is_ending = False
        self.turn = 0
        """The number of this turn. A connection that was read in it is not read again before the next."""

    def reads(self, now: float, turn: int) -> bool:
        """Takes a read of a connection that was read last in `turn`. Returns whether it may be served now."""
        if turn == self.turn or now - self._seen > PAUSE_SECONDS:
            self.turn += 1
            self._began = now
        self._seen = now
        return self.goes_on(now)

    def goes_on(self, now: float) -> bool:
        """Returns whether there is time left in this turn; else the next one begins when the loop gets there."""
        if now - self._began < BURST_SECONDS:
            return True
        if not self._is_ending:
            self._is_ending = True
            self._loop.call_soon(self._end)
        return False

    def _end(self) -> None:
        self._is_ending = False
        self.turn += 1
        self._began = self._seen = self._loop.time()
