"""The only reader of the real clock.

Two times, never mixed: `wall_ms` goes into messages and is compared across machines; `monotonic` measures timeouts.
Pure code takes `now` as an argument; shells and composition roots hold a `Clock`.
"""

import os
import time
from pathlib import Path
from typing import Final, Protocol

SHIFT_FILE: Final = "TANDEMQ_TEST_CLOCK_SHIFT_FILE"
"""For tests only. The variable names a file whose number of milliseconds is added to a broker's wall clock: whoever
writes another number there makes the clock of that broker jump, and of no other process on the machine."""
SHIFT_READ_S: Final = 0.02
"""How often the file is read."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Returns milliseconds since 1970, as RocketMQ stores them."""
        ...

    def monotonic(self) -> float:
        """Returns seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class FileShiftedClock(SystemClock):
    """The machine's clocks, with a wall clock that jumps when a number in a file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shift_ms = 0
        self._read_at = float("-inf")

    def wall_ms(self) -> int:
        now = self.monotonic()
        if now - self._read_at >= SHIFT_READ_S:
            self._read_at = now
            self._shift_ms = self._read()
        return super().wall_ms() + self._shift_ms

    def _read(self) -> int:
        """Reads the shift; a file that is missing or half written changes nothing."""
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return self._shift_ms


def process_clock() -> Clock:
    """Returns the clock of a broker's process: the machine's, unless a test says otherwise."""
    path = os.environ.get(SHIFT_FILE)
    return SystemClock() if not path else FileShiftedClock(Path(path))
