"""What was done through this console: who, what, before, after, outcome. Bounded, and gone with the process."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

ACTS_MAX = 500


@dataclass(slots=True)
class Act:
    """One act, done or refused."""

    number: int
    at_ms: int
    who: str
    source: str
    """Address that it was asked from."""
    what: str
    target: str
    before: str = ""
    after: str = ""
    outcome: str = ""
    ok: bool = True
    details: list[dict[str, Any]] = field(default_factory=list)
    """One line for each part of an act on many things."""


class Journal:
    """The last acts, by number."""

    def __init__(self) -> None:
        self._acts: OrderedDict[int, Act] = OrderedDict()
        self._number = 0

    def open(self, at_ms: int, who: str, source: str, what: str, target: str) -> Act:
        self._number += 1
        act = Act(self._number, at_ms, who, source, what, target)
        self._acts[act.number] = act
        if len(self._acts) > ACTS_MAX:
            self._acts.popitem(last=False)
        return act

    def find(self, number: int) -> Act | None:
        return self._acts.get(number)

    def newest(self) -> list[Act]:
        return list(reversed(self._acts.values()))
