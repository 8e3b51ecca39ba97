"""The log as a line: which stretch of it a picture shows, and where on it a place lies. Pure.

The right edge is the furthest end that anybody has; the left is a window that holds the one that is furthest behind.
The window grows at once and shrinks only when half of it was not needed for a while, so that pictures do not breathe.
"""

from collections.abc import Iterable

SHRINK_SECONDS = 30.0
_KIB = 1024
_FIRST_STEPS = (64 * _KIB, 1024 * _KIB, 16 * 1024 * _KIB, 256 * 1024 * _KIB, 1024 * 1024 * _KIB)


def step_for(distance: int) -> int:
    """Returns the smallest window that holds a distance: 64 KiB, 1, 16, 256 MiB, then powers of two of a GiB."""
    for step in _FIRST_STEPS:
        if distance <= step:
            return step
    step = _FIRST_STEPS[-1]
    while step < distance:
        step *= 2
    return step


class Window:
    """The window of one group's picture, as time passes."""

    def __init__(self) -> None:
        self.size = _FIRST_STEPS[0]
        self._small_since: float | None = None

    def show(self, distance: int, now: float) -> int:
        """Returns the window to use for a picture whose worst member is this far behind."""
        wanted = step_for(distance)
        if wanted >= self.size:
            self.size, self._small_since = wanted, None
        elif distance * 2 >= self.size:
            self._small_since = None
        elif self._small_since is None:
            self._small_since = now
        elif now - self._small_since >= SHRINK_SECONDS:
            self.size, self._small_since = wanted, None
        return self.size


def percent(place: int | None, end: int, window: int) -> float:
    """Returns where a place lies between the edges, 0 to 100; what lies before the window is at its left edge."""
    if place is None:
        return 0.0
    return round(max(0.0, min(100.0, 100.0 * (1 - (end - place) / window))), 2)


def path(values: Iterable[float | None], width: int = 300, height: int = 96) -> str:
    """Returns the `d` of a line through the values, oldest first; a value that is not known breaks the line."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    if len(known) < 2:
        return ""
    top = max(known) or 1.0
    step = width / max(1, len(listed) - 1)
    parts, pen = [], "M"
    for number, value in enumerate(listed):
        if value is None:
            pen = "M"
            continue
        parts.append(f"{pen}{number * step:.0f} {height - 4 - value / top * (height - 8):.0f}")
        pen = "L"
    return "".join(parts)
