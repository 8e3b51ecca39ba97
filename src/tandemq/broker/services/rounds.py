"""How the services of a master pass their time: a bounded piece of work, then a pause until there is more."""

import asyncio
from collections.abc import Callable


async def in_rounds(wake: asyncio.Event, work: Callable[[], float | None]) -> None:
    """Calls `work` for ever. It returns the seconds until there is more to do, None when nothing is known to wait.

    `wake` ends a pause; set during a round, it is not lost, because it is cleared before the round begins. A pause of 0
    lets the loop do something else once.
    """
    while True:
        wake.clear()
        pause = work()
        if pause == 0:
            await asyncio.sleep(0)
            continue
        try:
            async with asyncio.timeout(pause):
                await wake.wait()
        except TimeoutError:
            pass
