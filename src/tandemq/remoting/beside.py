"""Work beside the loop, one piece at a time.

Python runs one thread at a time: twenty that compute would each take their turn before the loop has its own.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Beside:
    """Await it with a function and its arguments: what the function returns in a thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __call__(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        async with self._turn:
            return await asyncio.to_thread(work, *args, **kwargs)
