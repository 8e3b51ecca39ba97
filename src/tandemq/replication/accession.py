"""Who may open for writes: the cases of the register of a group, and no other way.  Pure.

    1  the last holder restarts          heard all of its newest in_sync and, in a group of two or more, another member;
       never opened under its register   every member and newcomer but one, itself counted
       hears too few                     provisionally: alone, at one copy, until those it needs are heard
    2  another member is promoted        heard every member and newcomer but the last holder
    3  the holder's disk is lost         as 2, for the empty store at the holder's address
    4  nobody has a register             not decided here: see MasterState

A replica is *heard* when it has promised this candidate's epoch and then told its log and its register.  One whose
machine crashed counts as silent in 2, 3 and for a promotion cut short: its unsynced tail may be gone.

RocketMQ's slaves can't be heard at all.  Where the register says that their copies were counted (`classic_from`), they
are silent in 2, 3 and for a promotion cut short, unless the last holder is heard, whose log has what they have.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandemq.codec.ha_register import Register
from tandemq.replication.epochs import place_of
from tandemq.replication.register import is_newer, newest

CLASSIC: Final = "RocketMQ slaves whose copies were counted"
"""Stands among the silent ones for all peers that can't be heard."""


class Case(Enum):
    """The rule by which somebody opens; the value is shown to operators."""

    HOLDER = "the last holder restarts"
    CUT_SHORT = "a promotion was cut short"
    PROMOTED = "another member is promoted"
    LOST_DISK = "the holder's disk is lost"
    NOT_NAMED = "the register does not name this replica"
    ELECTED = "elected with the coordinator's register"


@dataclass(frozen=True, slots=True)
class Heard:
    """What a candidate knows of itself, or of a replica that promised its epoch."""

    replica: str
    register: Register | None
    clean: bool = True
    """Its machine has not crashed since it last had everything."""


@dataclass(frozen=True, slots=True)
class Judgement:
    case: Case
    register: Register
    """The newest among those heard: it says who the members are and who reigned last."""
    missing: frozenset[str] = frozenset()
    """Who must still be heard."""
    crashed: frozenset[str] = frozenset()
    """Of these: heard, but their machine crashed, so that they count as silent."""
    replaces: str = ""
    """Case 3: the lost store whose place this one takes."""
    yields: bool = False
    """Somebody else holds a newer reign: one that was not promoted follows it."""

    @property
    def may_open(self) -> bool:
        return not self.missing and self.case is not Case.NOT_NAMED

    @property
    def may_open_provisionally(self) -> bool:
        """The last holder only, and only if it has reigned under its newest register."""
        return self.case is Case.HOLDER

    @property
    def was_alone(self) -> bool:
        """Nobody else was in sync with the last holder: nobody else can hold what it acknowledged at two copies."""
        return self.register.in_sync == (self.register.holder,)


def is_named(register: Register | None, replica: str, theirs: Register | None) -> bool:
    """Returns whether a replica with this register promises to, follows, or answers that other one with `theirs`.

    Case 3: the empty store at the last holder's address is answered though its identity is new; so is one that has
    opened since, when an operator accepted to lose what this replica may hold.  Then this replica may know another last
    holder, be it itself, of a promotion cut short: the newer epoch's word that the store at that place was lost counts.
    """
    if register is None or replica in register.member_ids:
        return True
    place = place_of(replica)
    if theirs is None:
        return place == place_of(register.holder)
    if not is_newer(theirs, register) or (theirs.epoch == register.epoch and place != place_of(register.holder)):
        return False
    lost = [one for one in register.member_ids if place_of(one) == place]
    return bool(lost) and not theirs.everybody.intersection(lost)


def judge(me: Heard, opened: bool, heard: Iterable[Heard]) -> Judgement | None:
    """Returns whether this candidate may open; None means that nobody has a register.

    `opened`: its own log knows the epoch of its own register, so it has reigned under it.
    """
    own = me.register
    counted = [one for one in heard if own is None or one.replica in own.everybody]
    register = newest((own, *(one.register for one in counted)))
    if register is None:
        return None
    present = {me.replica, *(one.replica for one in counted)}
    clean = {one.replica for one in (me, *counted) if one.clean}
    everybody, holder = register.everybody, register.holder
    crashed = frozenset(everybody & (present - clean))
    classic = _classic(register, clean)
    if holder == me.replica:
        if not (opened and own is not None and own.epoch == register.epoch):
            silent = everybody - clean
            if silent and register.classic_from >= 0:
                silent |= {CLASSIC}
            missing = frozenset() if len(silent) <= 1 else frozenset(silent)
            return Judgement(Case.CUT_SHORT, register, missing, crashed & missing)
        return Judgement(Case.HOLDER, register, _missing_of_holder(register, present))
    if me.replica in register.member_ids:
        missing = frozenset((everybody - {holder} - clean) | classic)
        return Judgement(Case.PROMOTED, register, missing, crashed & missing, yields=True)
    if own is None and place_of(me.replica) == place_of(holder):
        missing = frozenset((everybody - {holder, me.replica} - clean) | classic)
        return Judgement(Case.LOST_DISK, register, missing, crashed & missing, replaces=holder)
    return Judgement(Case.NOT_NAMED, register, yields=True)


def judge_elected(me: Heard, register: Register, heard: Iterable[Heard]) -> Judgement:
    """Returns whether this candidate may open by a coordinator's register, where the newest one is always known.

    An in-sync replica: when it has heard every other one but the last holder.  The last holder, and a member that is
    not in sync: when it has heard everybody in sync.  The empty store at the holder's address: every other member.
    """
    present = {me.replica, *(one.replica for one in heard)}
    clean = {one.replica for one in (me, *heard) if one.clean}
    in_sync, holder = frozenset(register.in_sync), register.holder
    if me.replica == holder:
        return Judgement(Case.ELECTED, register, in_sync - present)
    if me.replica in register.member_ids:
        needed = in_sync - {holder} if me.replica in in_sync else in_sync
        missing = (needed - clean) | _classic(register, clean)
        return Judgement(Case.ELECTED, register, missing, missing & present)
    if me.register is None and place_of(me.replica) == place_of(holder):
        missing = (register.member_ids - {holder, me.replica} - clean) | _classic(register, clean)
        return Judgement(Case.LOST_DISK, register, missing, missing & present, replaces=holder)
    return Judgement(Case.NOT_NAMED, register, yields=True)


def _classic(register: Register, clean: set[str]) -> frozenset[str]:
    """Stands for RocketMQ's slaves that were counted, unless the last holder is heard, whose log has what they have."""
    return frozenset({CLASSIC}) if register.classic_from >= 0 and register.holder not in clean else frozenset()


def _missing_of_holder(register: Register, present: set[str]) -> frozenset[str]:
    missing = frozenset(register.in_sync) - present
    others = register.member_ids - {register.holder}
    if not missing and others and not others & present:
        return others
    return missing
