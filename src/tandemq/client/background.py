"""Background work of a client: loops that outlive their errors.

A loop that dies in silence leaves a client that looks alive and does nothing. So a failure is logged with its traceback
and the loop is started again after a moment; loops keep their state in their owner, not in local variables.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

log = logging.getLogger("tandemq.client")

RESTART_S = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """The background tasks of one client, started by name and stopped together."""

    def __init__(self, owner: str, *, restart_s: float = RESTART_S) -> None:
        self._owner = owner
        self._restart_s = restart_s
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Work) -> None:
        """Runs `work()` until it returns or `stop` is called; after an exception it runs again."""
        task = asyncio.get_running_loop().create_task(self._run(name, work), name=f"tandemq-{self._owner}-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancels every task and returns when all have ended."""
        await cancelled(self._tasks)

    async def _run(self, name: str, work: Work) -> None:
        while True:
            try:
                await work()
                return
            except Exception:
                log.exception("%s: %s failed and is started again in %g s", self._owner, name, self._restart_s)
            await asyncio.sleep(self._restart_s)


async def cancelled(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancels tasks and returns when they have ended; the calling task is left out."""
    ending = [task for task in tasks if task is not asyncio.current_task()]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
