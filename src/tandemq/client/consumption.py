"""Calling the user's listener: sync in a thread, async on the loop, with the time limit and what its answer means."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from tandemq.client.message import ReceivedMessage

log = logging.getLogger("tandemq.client")


class Action(Enum):
    """What a listener answers. None counts as SUCCESS, an exception as LATER."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    """Deliver again: after a delay that grows (concurrent), or after a pause with the queue held up (ordered)."""


Answer = Action | None
Listener = Callable[[Sequence[ReceivedMessage]], Answer | Awaitable[Answer]]


class ListenerCaller:
    """Runs a listener, never more than `concurrency` at a time for sync ones (the caller bounds async ones)."""

    def __init__(self, listener: Listener, concurrency: int, timeout_s: float) -> None:
        self._listener = listener
        self._timeout_s = timeout_s
        self._async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004  an object with `async def __call__`
        )
        self._threads = None if self._async else ThreadPoolExecutor(concurrency, thread_name_prefix="tandemq-listener")

    async def call(self, messages: Sequence[ReceivedMessage]) -> Action:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer(messages)
        except TimeoutError:
            log.error("the listener took more than %.0f s for %s: delivered again later", self._timeout_s, messages[0])
            return Action.LATER
        except Exception:
            log.exception("the listener failed for %s: delivered again later", messages[0])
            return Action.LATER
        return Action.SUCCESS if answer is None else answer

    async def _answer(self, messages: Sequence[ReceivedMessage]) -> Answer:
        if self._threads is not None:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._listener, messages)
        else:
            answer = self._listener(messages)
        return await answer if inspect.isawaitable(answer) else answer

    def close(self) -> None:
        """Doesn't wait: a listener that never ends must not keep the consumer from closing."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
