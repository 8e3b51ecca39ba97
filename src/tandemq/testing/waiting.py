"""Waiting for a condition with a deadline: the only place in the tests that pauses.

A test never sleeps to be safe. It says what must come true and how long that may take at most; when it does not, the
failure says what was waited for and what was there instead.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tandemq.clock import SystemClock

T = TypeVar("T")
Told = str | Callable[[], str]
"""What is waited for, or a function that says at the end what was there instead."""

SECONDS = 60.0
_TURNS = 20
"""Checks that follow each other without a pause: most conditions of one process come true within a few turns."""
_PAUSE_MAX = 0.05


async def until(
    condition: Callable[[], Any],
    told: Told = "the condition",
    *,
    seconds: float = SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
) -> Any:
    """Checks `condition`, a function or a coroutine function, until it is true; returns what it returned.

    An exception of a kind in `ignoring` means "not yet". Any other exception ends the wait, so a condition may assert
    what must never be seen on the way. Raises AssertionError after `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    turn = 0
    while True:
        trouble: Exception | None = None
        try:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
        except ignoring as error:
            trouble = error
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(_story(told, seconds, trouble))
        await asyncio.sleep(_pause(turn))
        turn += 1


def wait_until(
    condition: Callable[[], T],
    told: Told = "the condition",
    *,
    seconds: float = SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """Waits in the same way in a test without an event loop."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + seconds
    turn = 0
    while True:
        trouble: Exception | None = None
        try:
            if found := condition():
                return found
        except ignoring as error:
            trouble = error
        if clock.monotonic() > deadline:
            raise AssertionError(_story(told, seconds, trouble))
        never.wait(_pause(turn))
        turn += 1


def _pause(turn: int) -> float:
    """Returns 0 at first, then a millisecond and more; the exponent is bounded, as waits of minutes take thousands."""
    return 0.0 if turn < _TURNS else min(_PAUSE_MAX, 0.001 * 2 ** min((turn - _TURNS) // 4, 10))


def _story(told: Told, seconds: float, trouble: Exception | None) -> str:
    text = told if isinstance(told, str) else told()
    return f"waited {seconds:g} s for: {text}" + (f"; the last trouble was {trouble!r}" if trouble is not None else "")
