"""A debug switch (`turnLogMillis`): logs what holds the event loop longer than a limit, with the functions it is in.

A thread asks the loop for a sign of life. If none comes within the limit, something runs in one go for that long: the
thread looks at the loop's stack and logs the functions, innermost first, once for each such turn.
"""

import asyncio
import logging
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

log = logging.getLogger("tandemq.remoting")

FUNCTIONS_MAX: Final = 6


class TurnLog:
    """Watches one loop from a thread of its own, from `start` to `stop`; both are called on the loop."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._alive = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.logged = 0
        """How many turns were longer than the limit."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = threading.Thread(
            target=self._watch, args=(loop, threading.get_ident()), name="tandemq-turns", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._alive.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, loop: asyncio.AbstractEventLoop, owner: int) -> None:
        while not self._stopped.wait(self._limit):
            self._alive.clear()
            try:
                loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:  # the loop is closed
                return
            if not self._alive.wait(self._limit) and not self._stopped.is_set():
                functions = running_functions(sys._current_frames().get(owner))
                self.logged += 1
                log.warning("the loop is held for more than %.0f ms by %s", self._limit * 1000, functions)
                self._alive.wait()


def running_functions(frame: FrameType | None) -> str:
    """Returns the functions of a stack with file and line, innermost first."""
    found: list[str] = []
    while frame is not None and len(found) < FUNCTIONS_MAX:
        code = frame.f_code
        found.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(found) or "nobody knows"
