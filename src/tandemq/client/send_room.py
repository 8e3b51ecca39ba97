"""Room for sends in flight: bounded by count and by bytes; whoever finds none waits in line.

Without it a program that starts 100,000 sends at once holds all of them in memory, and most meet their deadline before
they reach the broker. To start that many takes seconds of one turn of the event loop, so all but the first of a turn go
on in the next one: their time begins when they can be sent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tandemq.errors import ClientClosed


class SendRoom:
    """Counts what is in flight. A send larger than the whole room is let in when nothing else is there."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()
        """Those who wait, in order: nobody overtakes, so a large send is not starved by small ones."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._entered_this_turn = False
        self._closed = ""

    @property
    def count(self) -> int:
        """Sends in flight."""
        return self._count

    @property
    def waiting(self) -> int:
        """Sends that wait for room."""
        return len(self._line)

    def try_enter(self, size: int) -> bool:
        """Takes room if there is some and nobody waits for it; returns whether it did."""
        if self._line or not self._fits(size) or self._closed:
            return False
        self._take(size)
        return True

    async def enter(self, size: int) -> None:
        """Returns when there is room, which is then taken; raises ClientClosed once the room is closed."""
        if self.try_enter(size):
            await self._turn_if_crowded(size)
            return
        if self._closed:
            raise ClientClosed(self._closed)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(size)  # the room was given in the same moment
            else:
                self._line = deque(entry for entry in self._line if entry[0] is not turn)
                self._let_in()
            raise

    async def _turn_if_crowded(self, size: int) -> None:
        if not self._entered_this_turn:
            self._entered_this_turn = True
            asyncio.get_running_loop().call_soon(self._turn_ended)
            return
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.leave(size)
            raise

    def _turn_ended(self) -> None:
        self._entered_this_turn = False

    def leave(self, size: int) -> None:
        """Gives room back that was taken for a send of this size."""
        self._count -= 1
        self._bytes -= size
        if not self._count:
            self._empty.set()
        if self._line:
            self._let_in()

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[None]:
        """Holds room for the time of a `with` block."""
        await self.enter(size)
        try:
            yield
        finally:
            self.leave(size)

    async def empty(self) -> None:
        """Returns when nothing is in flight."""
        await self._empty.wait()

    def close(self, reason: str) -> None:
        """Lets nobody in any more; those who wait get ClientClosed with the reason, those inside go on."""
        self._closed = reason
        for turn, _ in self._line:
            if not turn.done():
                turn.set_exception(ClientClosed(reason))
        self._line.clear()

    def _fits(self, size: int) -> bool:
        return not self._count or (self._count < self._count_max and self._bytes + size <= self._bytes_max)

    def _take(self, size: int) -> None:
        self._count += 1
        self._bytes += size
        self._empty.clear()

    def _let_in(self) -> None:
        while self._line and self._fits(self._line[0][1]):
            turn, size = self._line.popleft()
            if not turn.done():
                self._take(size)
                turn.set_result(None)
