"""A clock that moves only when told."""


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
