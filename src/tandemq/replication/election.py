"""Who stands for election, and when, in a group with a coordinator.  Pure: what is known and `now` in, a step out.

Safety is not decided here: whoever stands must hear every in-sync replica but the holder, and its swap must find the
register as it was read (accession.py, master_state.py).  This decides that nobody stands without a reason, that the
best one goes first (newest epoch, furthest end, highest priority), and that the others give it time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandemq.codec.ha_register import Register
from tandemq.replication.epochs import place_of

STAGGER: Final = 0.4
"""Seconds that each better candidate gets before the next one stands."""
NEVER: Final = -1
"""The priority of one that is never elected."""


class Step(Enum):
    REST = "rest"
    BEGIN = "begin"
    """There is no group yet: begin one."""
    RESUME = "resume"
    """The last holder asks the others and reigns on."""
    ASK = "ask"
    """Find out how far the others have come."""
    STAND = "stand"


@dataclass(frozen=True, slots=True)
class ElectionVerdict:
    step: Step
    why: str
    again_at: float = float("inf")
    """When to decide again if nothing else happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One that may be elected: how far it has come, and what the operator thinks of it."""

    replica: str
    epoch: int
    end: int
    priority: int = 0
    is_ordered: bool = False
    """An operator, or a master that stops, wants this one to reign: it goes before all others."""

    @property
    def order(self) -> tuple[bool, int, int, int, str]:
        return self.is_ordered, self.epoch, self.end, self.priority, self.replica


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What this node knows when it decides."""

    replica: str
    register: Register | None
    """The coordinator's."""
    refusal: str = ""
    """Why this node may not take part at all."""
    hindrance: str = ""
    """Why it may not be elected, whatever the register says: its log, its disk, its priority."""
    is_master: bool = False
    """It reigns or asks to."""
    is_fresh: bool = False
    """Its store is empty and has no register: it may begin a group, or take the place of the store that was lost."""
    holder_lives: bool = True
    """The lease of the holder has not ended."""
    holder_is_dead: bool = False
    """Its session has closed and its host refuses connections: no need to wait for its lease."""
    gone_since: float = 0.0
    """Since when the holder is missed."""
    others: tuple[Candidate, ...] | None = None
    """The other candidates, as they told at `asked_at`; None: they were not asked since the holder is missed."""
    me: Candidate | None = None
    asked_at: float = 0.0
    not_before: float = float("-inf")
    """After an attempt that came to nothing."""
    lease: float = 2.0


def decide(view: View, now: float) -> ElectionVerdict:
    """Returns what this node does next."""
    register = view.register
    if view.is_master:
        return ElectionVerdict(Step.REST, "it reigns, or asks to")
    if view.refusal:
        return ElectionVerdict(Step.REST, view.refusal)
    if now < view.not_before:
        return ElectionVerdict(Step.REST, "it has just tried", view.not_before)
    if register is None:
        return (
            ElectionVerdict(Step.REST, view.hindrance)
            if view.hindrance
            else ElectionVerdict(Step.BEGIN, "there is no group yet")
        )
    if register.holder == view.replica:
        return ElectionVerdict(Step.RESUME, "it holds the last reign")
    if register.paused:
        return ElectionVerdict(Step.REST, "elections are paused: `tandemq ha resume`")
    if view.holder_lives and not view.holder_is_dead:
        return ElectionVerdict(Step.REST, f"{register.holder} reigns")
    if view.is_fresh and replaces_holder(register, view.replica):
        wait = view.gone_since + 2 * view.lease
        why = "it takes the place of the store that was lost at its address"
        return ElectionVerdict(Step.RESUME, why) if now >= wait else ElectionVerdict(Step.REST, f"later {why}", wait)
    if why := why_not(register, view.replica, view.hindrance):
        return ElectionVerdict(Step.REST, why)
    if view.others is None or view.me is None:
        return ElectionVerdict(Step.ASK, "the holder is missed")
    better = sum(1 for one in view.others if one.priority != NEVER and one.order > view.me.order)
    stands_at = view.asked_at + better * STAGGER
    if now >= stands_at:
        return ElectionVerdict(Step.STAND, "the holder is missed, and nobody better stands")
    return ElectionVerdict(Step.REST, f"{better} better candidates go first", stands_at)


def gives_way(me: Candidate, other: Candidate) -> bool:
    """Returns whether one that stands makes room for another that stands too.

    Each of them waits to be heard by the other, which a candidate is not: without this they would wait for ever.
    """
    return other.order > me.order


def why_not(register: Register, replica: str, hindrance: str = "") -> str:
    """Returns why a replica may not be elected; empty if it may."""
    if replica not in register.member_ids:
        return "joins the group" if replica in register.joining_ids else "is no member of the group"
    if replica not in register.in_sync:
        return "is not in sync"
    return hindrance


def replaces_holder(register: Register, replica: str) -> bool:
    return replica not in register.everybody and place_of(replica) == place_of(register.holder)


def hindrance_of(*, priority: int, complete: bool, unhealthy: str, observer: bool) -> str:
    """Returns why a node may not be elected whatever the register says."""
    if observer:
        return "is an observer"
    if priority == NEVER:
        return "has haPriority=-1"
    if unhealthy:
        return unhealthy
    return "" if complete else "its machine crashed since it last had everything"


def preferred(me: int, in_sync: Iterable[Candidate]) -> Candidate | None:
    """Returns the in-sync replica that an operator prefers to this reigning one, if there is any."""
    better = [one for one in in_sync if one.priority > me]
    return max(better, key=lambda one: (one.priority, one.replica), default=None)
