"""How daemons log: one line per event, `time level logger message key=value ...`, quiet, and bounded under floods.

Modules use `logging.getLogger("tandemq.<room>")` and never configure anything; a daemon's main calls `setup` once.
A message (by its format text, not its arguments) that repeats faster than `BURST` per `WINDOW_SECONDS` is dropped until
the window ends; the next one that passes says how many were left out.
"""

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import TextIO

from tandemq.clock import SystemClock
from tandemq.printable import printable

BURST = 20
WINDOW_SECONDS = 10.0
AUDIT = "tandemq.audit"
"""Logger of what administrators did (`remoting.access.audit`)."""
DISTINCT_MAX = 1024
"""Message texts tracked at a time; beyond it the table starts afresh."""


class RateLimit(logging.Filter):
    """Lets `burst` records of one text pass per window. Errors are limited too: a flood of errors is still a flood."""

    def __init__(
        self,
        burst: int = BURST,
        window: float = WINDOW_SECONDS,
        now: Callable[[], float] | None = None,
        *,
        unlimited: str = "",
    ) -> None:
        super().__init__()
        self._unlimited = unlimited
        """Name of a logger whose records always pass: what proven accounts did. Others can't make it write."""
        self._burst = burst
        self._window = window
        self._now = now or SystemClock().monotonic
        self._seen: dict[tuple[str, str], list[float]] = {}
        """(logger, text) -> [end of the window, passed in it, dropped in it]"""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == self._unlimited:
            return True
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
    """One line per record: tracebacks are folded into it so that a log stays greppable, and nothing in it can steer the
    terminal that shows it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record).replace("\n", " | "))


class _PrivateFile(logging.FileHandler):
    """A file that only its owner may read."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding=self.encoding, write_through=True)


def setup(level: str = "INFO", stream: TextIO | None = None, *, audit_path: str = "") -> None:
    """Logs of all our rooms to `stream` (stderr). Called once, by a daemon's main."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RateLimit(unlimited=AUDIT))
    root = logging.getLogger("tandemq")
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
    audit = logging.getLogger(AUDIT)
    for old in list(audit.handlers):
        audit.removeHandler(old)
        old.close()
    audit.propagate = not audit_path
    audit.setLevel(logging.INFO)
    if audit_path:
        file = _PrivateFile(audit_path, encoding="utf-8")
        file.setFormatter(LineFormatter())
        file.addFilter(RateLimit(unlimited=AUDIT))
        audit.addHandler(file)
