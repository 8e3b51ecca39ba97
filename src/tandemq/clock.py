"""The only reader of the real clock.

Two times, never mixed: `wall_ms` goes into messages and is compared across machines; `monotonic` measures timeouts.
Pure code takes `now` as an argument; shells and composition roots hold a `Clock`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as RocketMQ stores them."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
