"""How long sends waited for their acknowledgement: counts by bucket, cheap enough for every send that waits."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

BOUNDS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
"""Seconds; a last bucket takes what is longer."""


class WaitHistogram:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Returns (upper bound, sends that waited at most so long), as Prometheus has it."""
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total
