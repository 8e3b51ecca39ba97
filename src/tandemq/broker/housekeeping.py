"""Work that comes again and again while a broker runs; what goes wrong in one round is told and ends nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None] | None]


class Housekeeping:
    """Owns the tasks of a broker's repeated work, from `every` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: Callable[[], float], work: Work) -> None:
        """Does `work` again and again, the first time after `seconds`, which are asked for before each round."""
        self._tasks.append(self._loop.create_task(_repeat(seconds, work), name=work.__name__))

    async def stop(self) -> None:
        """Ends all of it, in the middle of a round where one is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(seconds: Callable[[], float], work: Work) -> None:
    while True:
        await asyncio.sleep(seconds())
        try:
            if (going_on := work()) is not None:
                await going_on
        except Exception as error:
            log.error("housekeeping %s failed", work.__name__, exc_info=error)
