"""When a master that lives gives its reign away, and to whom.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tandemq.codec.ha_register import Register
from tandemq.replication.election import NEVER, Candidate, preferred

AGAIN_LEASES: Final = 5
"""A preferred master that did not take the reign is not asked again for so many leases."""
LOOKS: Final = 2
"""In one lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reigning:
    """What a master knows when it considers to hand over."""

    register: Register | None
    has_lapsed: bool
    wants_copies: bool
    """Another one's lease may still live: it has only just begun."""
    unwritable: str
    """Why its log can't be written; empty if it can."""
    priority: int


def successors(found: Iterable[Candidate]) -> list[Candidate]:
    """Returns those who may take over, the best one first: newest epoch, furthest end, highest priority."""
    return sorted((one for one in found if one.priority != NEVER), key=lambda one: one.order, reverse=True)


class HandOver:
    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._looked_at = self._offered_at = float("-inf")

    def wants_candidates(self, node: Reigning, now: float) -> bool:
        """Returns whether there may be a reason to hand over, so that the others are to be asked."""
        register = node.register
        if now < self._looked_at + self._lease / LOOKS:
            return False
        self._looked_at = now
        if register is None or register.paused or node.has_lapsed or len(register.in_sync) < 2:
            return False
        return bool(node.unwritable) or not (register.pinned or node.wants_copies)

    def decide(self, node: Reigning, found: Iterable[Candidate], now: float) -> tuple[list[Candidate], str]:
        """Returns whom to hand over to, in this order, and why; nobody where there is no reason."""
        if node.unwritable:
            return successors(found), f"the log can't be written ({node.unwritable})"
        better = preferred(node.priority, found)
        if better is None or now < self._offered_at + AGAIN_LEASES * self._lease:
            return [], ""
        self._offered_at = now
        return [better], f"{better.replica} has the higher haPriority {better.priority}"
