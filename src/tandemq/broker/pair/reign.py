"""Who may write: what a broker that was configured or promoted to be master does about the others of its group.  Pure.

A conf file says what a node was meant to be when it was written; who reigns is what the group says now.  So before a
master opens, and from then on with every registration, it asks every member it can find, and this module decides from
the answers.  Facts in, verdict out; asking is pair.py's work.

    a register  somebody knows a newer one, held by another                follow its holder
                another writes by an older one                         tell it
                else                                                   reign, as far as those who are heard allow it

Before the group has a register, and towards brokers that have none:

    not open    another is open, at least as new as our last reign    follow it
                a slave follows a newer reign than ours                follow too: its master lives, though not for us
                another asks to open, with a newer claim               follow it
                a name server names another as id 0, which is silent   wait, until it speaks or is forgotten
                no name server, and members on record are silent       wait, at most haRejoinWait
                else                                                   reign
    open        another is open, or followed, in a newer epoch         step down
                another is open in an older one                        tell it
                else                                                   reign
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

Claim = tuple[int, str]
"""Number and id of an epoch: ordered, see Promise.allows."""
NO_CLAIM: Claim = (0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Another member of the group, and what it said; an address that did not answer says nothing."""

    address: str
    answered: bool = True
    is_master: bool = False
    """It is one of ours in a master's role."""
    is_open: bool = False
    claim: Claim = NO_CLAIM
    """A master's epoch, open or asked for; of a slave the reign it follows."""
    follows: str = ""
    """A slave's master, while it has a session with it."""
    group_id: str = ""
    """Of the newest register it knows; empty if it knows none."""
    register: tuple[int, int] = (0, 0)
    """Epoch and revision of that register."""
    holder: str = ""
    """The replica that holds that epoch, and where its broker is."""
    holder_address: str = ""
    end: int = 0
    """Of its log, where it tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """This node."""

    address: str
    is_open: bool = False
    reign: Claim = NO_CLAIM
    """The last epoch that opened, as far as this node's log knows."""
    claim: Claim = NO_CLAIM
    """The epoch it reigns in, or last promised or asked for."""
    replica: str = ""
    group_id: str = ""
    register: tuple[int, int] = (0, 0)
    is_new: bool = False
    """Its store is empty and has no history: whoever is silent may belong to the group that it would begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One look around."""

    seen: Sequence[Seen] = ()
    holder: str = ""
    """Who holds id 0 according to the name servers, if it is somebody else."""
    servers_answered: bool = True
    """At least one name server told who is there; False also when none is configured."""

    @property
    def silent(self) -> tuple[str, ...]:
        return tuple(one.address for one in self.seen if not one.answered)


class Step(Enum):
    REIGN = "reign"
    WAIT = "wait"
    FOLLOW = "follow"
    """Be a slave; for an open master: step down."""
    TELL = "tell"
    """Go on, and tell an outdated master that it is one."""


@dataclass(frozen=True, slots=True)
class RoleVerdict:
    step: Step
    why: str = ""
    address: str = ""
    """Whom to follow or to tell."""


REIGN = RoleVerdict(Step.REIGN)


def decide(own: Own, view: View, *, waited: bool, allowed: bool) -> RoleVerdict:
    """Returns what this node does next.

    `waited`: it has been looking for haRejoinWait.  `allowed`: the operator lets it go on without those that are
    silent; nobody may allow it to write beside a master that is open.
    """
    if own.group_id:
        return _by_register(own, view)
    return _open(own, view) if own.is_open else _not_open(own, view, waited or allowed, allowed)


def _by_register(own: Own, view: View) -> RoleVerdict:
    ours = [one for one in view.seen if one.group_id == own.group_id]
    newest = max(ours, key=lambda one: (one.register[0], one.holder), default=None)
    # Two of a pair may open with one number, neither having heard the other; neither then has a second copy of what it
    # acknowledged, so it does not matter which of them yields, as long as only one does.
    is_other = newest is not None and newest.holder != own.replica
    if newest is not None and is_other and (newest.register[0], newest.holder) > (own.register[0], own.replica):
        why = f"{newest.holder} holds epoch {newest.register[0]} of the group, this broker knew of {own.register[0]}"
        return RoleVerdict(Step.FOLLOW, why, newest.holder_address)
    for one in ours:
        if own.is_open and one.is_open and one.register[0] < own.register[0]:
            why = f"{one.address} still writes in epoch {one.register[0]}, this broker reigns in {own.register[0]}"
            return RoleVerdict(Step.TELL, why, one.address)
    return REIGN


def _open(own: Own, view: View) -> RoleVerdict:
    newest = max((one for one in view.seen if one.is_open), key=lambda one: one.claim, default=None)
    if newest is not None and newest.claim > own.claim:
        return RoleVerdict(Step.FOLLOW, f"{newest.address} reigns in epoch {newest.claim[0]}", newest.address)
    for one in _followers(own, view):
        if one.claim > own.claim:
            return RoleVerdict(Step.FOLLOW, f"{one.address} follows {one.follows} in epoch {one.claim[0]}", one.follows)
    if newest is not None:
        why = f"{newest.address} still writes in epoch {newest.claim[0]}, this broker reigns in {own.claim[0]}"
        return RoleVerdict(Step.TELL, why, newest.address)
    return REIGN


def _not_open(own: Own, view: View, waited: bool, allowed: bool) -> RoleVerdict:
    newest = max((one for one in view.seen if one.is_open), key=lambda one: one.claim, default=None)
    if newest is not None and newest.claim >= own.reign:
        why = f"{newest.address} reigns in epoch {newest.claim[0]}, this broker's last was {own.reign[0]}"
        return RoleVerdict(Step.FOLLOW, why, newest.address)
    for one in _followers(own, view):
        if one.claim > own.reign:
            why = f"{one.address} follows {one.follows} in epoch {one.claim[0]}, this broker's last was {own.reign[0]}"
            return RoleVerdict(Step.FOLLOW, why, one.follows)
    for one in view.seen:
        if one.is_master and not one.is_open and one.claim > own.claim:
            why = (
                f"{one.address} is about to open epoch {one.claim[0]}, this broker has asked for {own.claim[0]} at most"
            )
            return RoleVerdict(Step.FOLLOW, why, one.address)
    if view.holder in view.silent and not allowed:
        return RoleVerdict(Step.WAIT, f"{view.holder} is registered as master and does not answer", view.holder)
    if own.is_new and view.silent and not allowed:
        why = (
            f"this store is new, and {', '.join(view.silent)} of the same name did not answer whether there is a group"
        )
        return RoleVerdict(Step.WAIT, why, view.silent[0])
    if view.silent and not view.servers_answered and not waited:
        return RoleVerdict(Step.WAIT, f"no name server answers, nor do {', '.join(view.silent)}", view.silent[0])
    return REIGN


def _followers(own: Own, view: View) -> list[Seen]:
    return [one for one in view.seen if one.follows and one.follows != own.address]
