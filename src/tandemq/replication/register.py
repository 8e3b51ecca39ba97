"""How the register of a group changes.  Pure: a register in, a register out; see docs/replication.md.

Every change is a swap on (epoch, revision), one revision up.  `RegisterKeeper` is the group's own home for it: the
reigning master writes it, tells its replicas, and knows from their answers which changes count.

    change                  allowed when                                           counts when durable on
    leaves in_sync          all acknowledged is on another that stays              the master
    enters in_sync          it holds all that is confirmed                         the master
    joins (`joining`)       at any time                                            every member, and itself
    joining -> member       it counts as joining and has caught up                 every member
    takes a lost store's    as above, in one swap                                  every member but the lost one
    place
    is forgotten            as "leaves", over members                              every member that can be reached
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from tandemq.codec.ha_register import GROUP_HOME, Member, Register
from tandemq.replication.epochs import place_of

Watch = Callable[[Register], None]


class RegisterHome(Protocol):
    """Where a register lives: the group itself, or a coordinator."""

    def read(self) -> Register | None:
        """Returns the newest one known."""
        ...

    def swap(self, expected: Register | None, new: Register) -> bool:
        """Replaces `expected`; False if it is no longer the newest, and nothing has changed."""
        ...

    def watch(self, tell: Watch) -> None:
        """Calls `tell` after every swap."""
        ...


def is_newer(one: Register | None, other: Register | None) -> bool:
    """Returns whether `one` is newer than `other`: by epoch first, then by revision."""
    if one is None:
        return False
    return other is None or one.version > other.version


def newest(registers: Iterable[Register | None]) -> Register | None:
    found: Register | None = None
    for register in registers:
        if is_newer(register, found):
            found = register
    return found


def minted(group_id: str, holder: Member, others: Iterable[Member] = (), home: str = GROUP_HOME) -> Register:
    """Returns the first register of a group."""
    register = Register(
        group_id=group_id, home=home, holder=holder.replica, members=(holder,), in_sync=(holder.replica,)
    )
    for other in others:
        register = _with_member(register, other)
    return register


def of_new_epoch(
    register: Register,
    number: int,
    id: str,
    holder: Member,
    in_sync: frozenset[str],
    replaces: str = "",
    *,
    pinned: bool = False,
) -> Register:
    """Returns the register with which a new reign begins.

    `replaces` is the lost store whose place the holder takes.

    `pinned`: an operator chose this holder.
    """
    known = register.find(holder.replica) or register.find(replaces)
    here = Member(holder.replica, holder.address, known.broker_id if known is not None else holder.broker_id)
    others = [one for one in register.members if one.replica not in (replaces, holder.replica)]
    begun = msgspec.structs.replace(
        register, members=(here, *(one for one in others if one.broker_id)), joining=register.joining
    )
    for one in others:
        if not one.broker_id:  # it reigned from the beginning, and needs an id of its own now
            begun = _with_member(begun, one)
    return msgspec.structs.replace(
        begun,
        members=tuple(sorted(begun.members, key=lambda one: one.broker_id)),
        joining=tuple(one for one in register.joining if one.replica != holder.replica),
        epoch=number,
        epoch_id=id,
        holder=holder.replica,
        in_sync=tuple(sorted({holder.replica} | (in_sync & (register.member_ids - {replaces})))),
        # Another member has the whole log: whatever copies of RocketMQ's slaves were counted for can be heard there.
        classic_from=-1 if in_sync & register.member_ids - {replaces, holder.replica} else register.classic_from,
        revision=register.revision + 1,
        pinned=pinned,
    )


def with_in_sync(register: Register, in_sync: Iterable[str]) -> Register:
    return _next(register, in_sync=tuple(sorted(set(in_sync) & register.member_ids)))


def without_classic(register: Register) -> Register:
    """Returns the same revision without `classic_from`, for a swap by which one comes in sync that holds everything."""
    return msgspec.structs.replace(register, classic_from=-1)


def with_joining(register: Register, newcomer: Member) -> Register:
    """Returns the register with a newcomer; an id that is missing or taken becomes the lowest free one."""
    newcomer = Member(newcomer.replica, newcomer.address, _free_id(register, newcomer))
    return _next(register, joining=(*register.joining, newcomer))


def with_joined(register: Register, replica: str) -> Register:
    """Returns the register with a caught-up newcomer as member and in sync.

    The lost store at its place goes in the same swap.
    """
    newcomer = register.find(replica)
    assert newcomer is not None
    lost = replaced_by(register, replica)
    if lost is not None:
        newcomer = Member(replica, newcomer.address, lost.broker_id)
    members = tuple(one for one in register.members if one != lost)
    in_sync = {one for one in register.in_sync if lost is None or one != lost.replica} | {replica}
    return _next(
        register,
        members=tuple(sorted((*members, newcomer), key=lambda one: one.broker_id)),
        joining=tuple(one for one in register.joining if one.replica != replica),
        in_sync=tuple(sorted(in_sync)),
    )


def without(register: Register, replica: str) -> Register:
    """Returns the register without a replica that never comes back."""
    return _next(
        register,
        members=tuple(one for one in register.members if one.replica != replica),
        joining=tuple(one for one in register.joining if one.replica != replica),
        in_sync=tuple(one for one in register.in_sync if one != replica),
    )


def with_classic_from(register: Register, offset: int) -> Register:
    return _next(register, classic_from=offset)


def with_paused(register: Register, paused: bool) -> Register:
    """Returns the register with or without elections, as an operator says."""
    return _next(register, paused=paused)


def replaced_by(register: Register, replica: str) -> Member | None:
    """Returns the member whose store was lost where this newcomer is now."""
    place = place_of(replica)
    return next((one for one in register.members if one.replica != replica and place_of(one.replica) == place), None)


def _next(register: Register, **changes: object) -> Register:
    return msgspec.structs.replace(register, revision=register.revision + 1, **changes)


def _with_member(register: Register, member: Member) -> Register:
    member = Member(member.replica, member.address, _free_id(register, member))
    return msgspec.structs.replace(
        register, members=tuple(sorted((*register.members, member), key=lambda one: one.broker_id))
    )


def _free_id(register: Register, newcomer: Member) -> int:
    lost = replaced_by(register, newcomer.replica)
    if lost is not None:
        return lost.broker_id
    taken = {one.broker_id for one in (*register.members, *register.joining)}
    if newcomer.broker_id > 0 and newcomer.broker_id not in taken:
        return newcomer.broker_id
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


class RegisterKeeper:
    """The group's own home of the register, on the reigning master: what it is, and which changes count.

    `stored` says which revision of this epoch each replica has on its disk; this node's own disk is written before
    `swap` returns to whoever asked for it, because the decision to save comes before all that follows from it.
    """

    def __init__(self, me: str, register: Register | None) -> None:
        self._me = me
        self._register = register
        self._stored: dict[str, int] = {}
        self._joined_at: dict[str, int] = {}
        self._member_at: dict[str, int] = {}
        self._forgotten: dict[str, int] = {}
        self._watches: list[Watch] = []

    # --- the interface ----------------------------------------------------------------------------------------------

    def read(self) -> Register | None:
        return self._register

    def swap(self, expected: Register | None, new: Register) -> bool:
        current = self._register
        if (expected is None) != (current is None):
            return False
        if current is not None and expected is not None and current.version != expected.version:
            return False
        self._register = new
        self._note(current, new)
        for tell in self._watches:
            tell(new)
        return True

    def watch(self, tell: Watch) -> None:
        self._watches.append(tell)

    # --- a reign ----------------------------------------------------------------------------------------------------

    def begin(self, register: Register) -> None:
        """Begins an epoch: nobody has stored anything of it yet, and all who join must be told again."""
        self._register = register
        self._stored.clear()
        self._member_at.clear()
        self._forgotten.clear()
        self._joined_at = dict.fromkeys(register.joining_ids, register.revision)
        for tell in self._watches:
            tell(register)

    def stored(self, replica: str, epoch: int, revision: int) -> bool:
        """Notes that a replica has it on disk. Returns whether that is news."""
        register = self._register
        if register is None or epoch != register.epoch or revision > register.revision:
            return False
        if revision <= self._stored.get(replica, -1):
            return False
        self._stored[replica] = revision
        return True

    def has_stored(self, replica: str) -> bool:
        """Returns whether a replica has the newest revision on its disk."""
        register = self._register
        return register is not None and self._stored.get(replica, -1) >= register.revision

    def _note(self, before: Register | None, new: Register) -> None:
        known_members = before.member_ids if before is not None else frozenset()
        known_joining = before.joining_ids if before is not None else frozenset()
        for replica in new.joining_ids - known_joining:
            self._joined_at[replica] = new.revision
        for replica in new.member_ids - known_members:
            if before is not None and replica != self._me:
                self._member_at[replica] = new.revision
        for replica in known_members - new.member_ids:
            self._forgotten[replica] = new.revision
        for replica in (known_members | known_joining) - new.everybody:
            self._joined_at.pop(replica, None)
            self._member_at.pop(replica, None)

    def waits_of_joining(self, replica: str) -> frozenset[str]:
        """Returns those who must still store that `replica` joins before it may become a member."""
        register = self._register
        if register is None or replica not in register.joining_ids:
            return frozenset()
        lost = replaced_by(register, replica)
        needed = (register.member_ids | {replica}) - {self._me, lost.replica if lost is not None else ""}
        return self._late(needed, self._joined_at.get(replica, register.revision))

    @property
    def counted_members(self) -> frozenset[str]:
        """Members whose membership counts: known to every member, so that nobody opens without having heard them."""
        register = self._register
        if register is None:
            return frozenset()
        return frozenset(one for one in register.member_ids if self._counts(register, one))

    def _counts(self, register: Register, replica: str) -> bool:
        since = self._member_at.get(replica)
        return since is None or not self._late(register.member_ids - {self._me}, since)

    def size(self, reachable: frozenset[str]) -> int:
        """Returns what `majority` and `all` count against.

        One forgotten counts until all who can be reached know it.
        """
        register = self._register
        if register is None:
            return 1
        for replica, since in list(self._forgotten.items()):
            if not self._late((register.member_ids - {self._me}) & reachable, since):
                del self._forgotten[replica]
        return register.size + len(self._forgotten)

    def _late(self, replicas: frozenset[str], revision: int) -> frozenset[str]:
        return frozenset(one for one in replicas if self._stored.get(one, -1) < revision)


class CoordinatedKeeper(RegisterKeeper):
    """What this node knows of a register that lives with a coordinator: whatever is written there counts at once."""

    def waits_of_joining(self, replica: str) -> frozenset[str]:
        return frozenset()

    @property
    def counted_members(self) -> frozenset[str]:
        register = self._register
        return register.member_ids if register is not None else frozenset()

    def size(self, reachable: frozenset[str]) -> int:
        return self._register.size if self._register is not None else 1
