"""What one look at the cluster found, and the last minutes of its figures."""

from collections import deque
from dataclasses import dataclass, field

from tandemq.console.picture import Group, Report

HISTORY = 900
"""Points of a chart: 15 minutes of seconds."""


@dataclass(frozen=True, slots=True)
class NameServerView:
    address: str
    answers: bool
    error: str = ""
    brokers: int = 0
    since_ms: int = 0
    """When it last answered."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something this console saw happen, or that a broker told of."""

    at_ms: int
    group: str
    what: str
    text: str
    tone: str = ""
    told_by: str = "console"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment."""

    at_ms: int
    groups: tuple[Group, ...] = ()
    reports: tuple[Report, ...] = ()
    name_servers: tuple[NameServerView, ...] = ()
    problem: str = ""
    """Why nothing can be said at all."""
    refusal: str = ""
    """What the cluster answered to somebody without an account, or whose account is not told."""
    number: int = 0
    clusters: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        return bool(self.refusal)

    @property
    def in_tps(self) -> float:
        return sum(m.in_tps or 0 for group in self.groups for m in group.members)

    @property
    def out_tps(self) -> float:
        return sum(m.out_tps or 0 for group in self.groups for m in group.members)


@dataclass(slots=True)
class Series:
    """The last minutes of some figures, a point for each look."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))
    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, at_ms: int, value: float | None) -> None:
        self.times.append(at_ms)
        self.values.append(value)

    def thinned(self, points: int = 60) -> list[float | None]:
        """Returns at most so many values, the largest of each stretch: a peak is not left out."""
        found = list(self.values)
        step = max(1, -(-len(found) // points))
        return [
            max((v for v in found[i : i + step] if v is not None), default=None) for i in range(0, len(found), step)
        ]

    @property
    def peak(self) -> float | None:
        return max((value for value in self.values if value is not None), default=None)
