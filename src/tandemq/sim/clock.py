"""Clocks that somebody else moves."""

from tandemq.clock import SystemClock


class ManualClock:
    """Both times advance together; nothing else moves them."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._wall_ms = float(wall_ms)
        self._monotonic = monotonic

    def wall_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._wall_ms += seconds * 1000
        self._monotonic += seconds

    def jump_wall(self, milliseconds: int) -> None:
        """An operator sets the clock: wall time moves, possibly back; monotonic time does not."""
        self._wall_ms += milliseconds


class ShiftedClock:
    """The machine's clocks, with a wall clock that somebody sets: for running brokers whose clock jumps."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.shift_ms = 0

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.shift_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()
