"""Packs log bytes for slaves at the end of thin links, beside the loop: no send waits until such a frame is packed.

One piece at a time for each session. A session's frames are in log order, so a piece that is ready is the next one.
"""

import asyncio
from collections.abc import Callable

from tandemq.codec import ha_session as ha

PACK_BESIDE_MIN = 16 << 10
"""Less is packed at once: it takes less time than a thread takes to be woken."""


class Packing:
    """What is being packed, and what is ready."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, int]] = {}
        """Session -> (offset, size) of the piece that is being packed for it."""
        self._ready: dict[int, tuple[int, int, bytes]] = {}

    def take(self, session: int, offset: int, size_max: int) -> tuple[int, bytes] | None:
        """Returns size and packed text of a session's next log bytes, None if they are not packed yet."""
        begin, size, text = self._ready.pop(session, (-1, 0, b""))
        return (size, text) if begin == offset and size <= size_max else None

    def begin(
        self, loop: asyncio.AbstractEventLoop, session: int, offset: int, data: memoryview, then: Callable[[], None]
    ) -> None:
        """Packs a copy of some bytes and calls `then` when `take` has them; once, however often it is asked."""
        place = (offset, len(data))
        if session in self._asked and self._asked[session][0] == offset:
            return  # the log may have grown since: what is new goes with the next piece
        self._asked[session] = place

        def done(task: "asyncio.Future[bytes]") -> None:
            if self._asked.get(session) == place and not task.cancelled():
                del self._asked[session]
                self._ready[session] = (*place, task.result())
                then()

        loop.run_in_executor(None, ha.packed, bytes(data)).add_done_callback(done)

    def forget(self, session: int) -> None:
        """Forgets a session that is over."""
        self._asked.pop(session, None)
        self._ready.pop(session, None)
