"""How daemons log: one line per event, `time level logger message key=value ...`, quiet, and bounded under floods.

Modules use `logging.getLogger("tandemq.<room>")` and never configure anything; a daemon's main calls `setup` once.
A message (by its format text, not its arguments) that repeats faster than `BURST` per `WINDOW_SECONDS` is dropped until
the window ends; the next one that passes says how many were left out.
"""

import logging
import sys
from collections.abc import Callable
from typing import TextIO

from tandemq.clock import SystemClock

BURST = 20
WINDOW_SECONDS = 10.0
DISTINCT_MAX = 1024
"""Message texts tracked at a time; beyond it the table starts afresh."""


class RateLimit(logging.Filter):
    """Lets `burst` records of one text pass per window. Errors are limited too: a flood of errors is still a flood."""

    def __init__(
        self, burst: int = BURST, window: float = WINDOW_SECONDS, now: Callable[[], float] | None = None
    ) -> None:
        super().__init__()
        self._burst = burst
        self._window = window
        self._now = now or SystemClock().monotonic
        self._seen: dict[tuple[str, str], list[float]] = {}
        """(logger, text) -> [end of the window, passed in it, dropped in it]"""

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        key = (record.name, str(record.msg))
        state = self._seen.get(key)
        if state is None or now >= state[0]:
            dropped = int(state[2]) if state is not None else 0
            if len(self._seen) >= DISTINCT_MAX:
                self._seen.clear()
            self._seen[key] = [now + self._window, 1, 0]
            if dropped:
                record.msg = f"{record.msg} (and {dropped} more like it left out)"
            return True
        if state[1] < self._burst:
            state[1] += 1
            return True
        state[2] += 1
        return False


class LineFormatter(logging.Formatter):
    """One line per record; tracebacks are folded into it so that a log stays greppable."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", " | ")


def setup(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Logs of all our rooms to `stream` (stderr). Called once, by a daemon's main."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RateLimit())
    root = logging.getLogger("tandemq")
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
