"""The register of a group as it travels in HA frames and lies in `replica.json`: who reigns, belongs, is in sync.

Plain data; the rules by which it changes are in replication/register.py.
"""

from typing import Annotated, Final

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]

GROUP_HOME: Final = "group"
"""The register lives in the group itself: the reigning master writes it durably where the rules say."""


class Member(msgspec.Struct, frozen=True):
    """A replica is a store, not an address: its identity is made with the store and lost with it."""

    replica: Name
    address: Name = ""
    broker_id: Number = 0
    """For good once it is 1 or more; 0 for one that has reigned from the beginning and never needed another."""


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """Newer is the one with the higher (epoch, revision)."""

    group_id: Name
    home: Name = GROUP_HOME
    epoch: Number = 0
    epoch_id: Name = ""
    holder: Name = ""
    """The replica that reigns or last reigned."""
    revision: Number = 0
    members: tuple[Member, ...] = ()
    joining: tuple[Member, ...] = ()
    """They must be heard before anybody else opens, and are not counted yet."""
    in_sync: tuple[str, ...] = ()
    """Replicas whose copies count, the holder among them."""
    classic_from: int = -1
    """Since which offset copies of RocketMQ's slaves were counted; -1 for never."""
    source: str = ""
    paused: bool = False
    """With a coordinator: no election until an operator resumes it."""
    pinned: bool = False
    """With a coordinator: an operator chose the holder, so a preferred master does not take the reign back."""

    @property
    def version(self) -> tuple[int, int]:
        return self.epoch, self.revision

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def member_ids(self) -> frozenset[str]:
        return frozenset(member.replica for member in self.members)

    @property
    def joining_ids(self) -> frozenset[str]:
        return frozenset(member.replica for member in self.joining)

    @property
    def everybody(self) -> frozenset[str]:
        """Returns members and those who join: whoever may have to be heard."""
        return self.member_ids | self.joining_ids

    def find(self, replica: str) -> Member | None:
        return next((one for one in (*self.members, *self.joining) if one.replica == replica), None)
