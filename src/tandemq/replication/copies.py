"""The copies that count for a master: which replicas have acknowledged how much, and how many a level asks for.  Pure.

Copies are counted by identity, so a replica that connects twice is still one copy (rule 2).
"""

from collections.abc import Collection
from dataclasses import dataclass

from tandemq.model.ack_level import AckLevel


@dataclass(slots=True)
class _Copy:
    """The acknowledged offsets of one replica that counts.  Invariant: 0 <= durable <= received."""

    received: int
    durable: int


class CopyCounts:
    """Acknowledged offsets of the replicas that count, and the size of the group that levels are counted against."""

    def __init__(self, group_size: int = 1) -> None:
        """`group_size`: the configured number of nodes; the group may be larger, never smaller."""
        self._of_members: dict[str, _Copy] = {}
        self._classic: dict[str, _Copy] = {}
        """Copies of RocketMQ's slaves: for levels that ask more copies than the register has members."""
        self._group_size_min = max(1, group_size)
        self._known: frozenset[str] = frozenset()
        self.register_size: int | None = None
        """Members of the register; None while there is none."""
        self.group_size = self._group_size_min
        """Nodes of the group: the configured number, or those known if they are more."""

    # --- the group --------------------------------------------------------------------------------------------------

    def set_known(self, replicas: frozenset[str]) -> None:
        """Sets the replicas that belong to a group without a register, connected or not."""
        self._known = replicas
        self.register_size = None
        self._count_group()

    def set_register_size(self, size: int) -> None:
        """Sets the number of members that the register names."""
        self.register_size = size
        self._count_group()

    def _count_group(self) -> None:
        if self.register_size is not None:
            self.group_size = max(self._group_size_min, self.register_size)
            return
        known = self._known | self._of_members.keys() | self._classic.keys()
        self.group_size = max(self._group_size_min, 1 + len(known))

    def others_needed(self, level: AckLevel) -> int:
        """Returns how many copies a level asks for besides the master's own."""
        return level.needed(self.group_size) - 1

    # --- acknowledged offsets ---------------------------------------------------------------------------------------

    def acked(self, replica: str, received: int, durable: int, *, classic: bool) -> bool:
        """Takes what a replica acknowledged. Returns whether that is more than before.

        Offsets never go back within one session of a replica.
        """
        copies = self._classic if classic else self._of_members
        copy = copies.get(replica)
        if copy is None:
            copies[replica] = _Copy(received, min(durable, received))
            self._count_group()
            return True
        if received <= copy.received and durable <= copy.durable:
            return False
        copy.received = max(copy.received, received)
        copy.durable = max(copy.durable, min(durable, copy.received))
        return True

    def drop(self, replica: str) -> bool:
        """Stops counting a replica. Returns whether it counted."""
        counted = self._of_members.pop(replica, None) is not None or self._classic.pop(replica, None) is not None
        if counted:
            self._count_group()
        return counted

    def clear(self) -> None:
        """Forgets every replica's offsets, because an acknowledgement belongs to one epoch."""
        self._of_members.clear()
        self._classic.clear()
        self._count_group()

    # --- what counts for a level ------------------------------------------------------------------------------------

    @property
    def has_classic(self) -> bool:
        """Whether copies of RocketMQ's slaves stand among those that may count."""
        return bool(self._classic)

    def counted(self, others: int) -> list[_Copy]:
        """Returns the copies that count for a level that asks for so many besides the master's own."""
        copies = list(self._of_members.values())
        if self._classic and (self.register_size is None or others + 1 > self.register_size):
            copies += self._classic.values()
        return copies

    def count(self, others: int) -> int:
        """Returns how many copies `counted` has."""
        count = len(self._of_members)
        if self._classic and (self.register_size is None or others + 1 > self.register_size):
            count += len(self._classic)
        return count

    def kth(self, k: int, durable: bool) -> int:
        """Returns the k-th largest acknowledged offset; 0 if fewer replicas count."""
        if self._classic:
            copies: Collection[_Copy] = self.counted(k)
        else:
            copies = self._of_members.values()
        if len(copies) < k:
            return 0
        if len(copies) == 1:  # a pair, asked for every ack
            for copy in copies:
                return copy.durable if durable else copy.received
        offsets = [copy.durable if durable else copy.received for copy in copies]
        offsets.sort(reverse=True)
        return offsets[k - 1]

    def missing(self, end_offset: int, others: int, fall_behind_max: int, absent: str) -> str:
        """Returns why so many copies can't be had for a record; empty if they can.

        `absent`: why replicas are missing at all.
        """
        if others <= 0:
            return ""
        copies = self.counted(others)
        near = _near(copies, end_offset, fall_behind_max)
        if near >= others:
            return ""
        if len(copies) >= others:
            why = f"fell behind by {fall_behind_max} bytes or more (haMaxGapNotInSync)"
        elif copies and others >= self.group_size:
            why = f"the group has {self.group_size} nodes"
        else:
            why = absent
        return f"{others + 1} copies are required, {near + 1} can be had: {why}"


def _near(copies: list[_Copy], end_offset: int, fall_behind_max: int) -> int:
    near = 0
    for copy in copies:  # asked for sends that can't wait: a generator costs twice
        if end_offset - copy.received < fall_behind_max:
            near += 1
    return near
