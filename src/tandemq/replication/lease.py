"""The lease of a reign in time: what each answer of etcd, each word of a member and each look at the clock mean; pure.

The fence follows the lease: from the moment a renewal was *sent*, for the lease less a margin, by this node's own
clock.  A guard ends the reign's writes at that time whether or not etcd answers, and lets them go on when the lease is
back.  After a takeover from one that may still believe in its lease, what rests on one copy waits until that has ended.
"""

from dataclasses import dataclass
from typing import Final

from tandemq.replication.fence import MARGIN_SHARE, Fence

GUARD_SECONDS: Final = 0.05
"""How often the guard looks while there is time; the last look is when the fence closes."""
RENEWALS: Final = 4
"""In one lease: three may be lost."""
REVOKE_LEASES: Final = 10
"""An old lease that can't be revoked for so long has ended by itself."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The reign may not go on: the master is read-only."""

    why: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The lease is back and nobody else was elected."""


class Lease:
    def __init__(self, fence: Fence, seconds: float) -> None:
        self.fence = fence
        self.seconds = seconds
        self.id = 0
        """Of the lease in etcd; 0: none."""
        self.has_lapsed = False
        self.is_vouched = False
        """The reign goes on by the word of its in-sync members: etcd does not answer."""

    @property
    def renew_pause(self) -> float:
        return self.seconds / RENEWALS

    def granted(self, lease: int) -> None:
        self.id = lease

    def renewed(self, sent_at: float) -> None:
        """Notes that etcd has granted or renewed the lease, and that the register names this node or nobody."""
        self.is_vouched = False
        self.fence.renewed(sent_at, self.seconds)

    def ended(self) -> int:
        """Ends the reign, if there was one. Returns the lease that was held, to be revoked or left to end."""
        lease, self.id = self.id, 0
        self.fence.close()
        self.has_lapsed = self.is_vouched = False
        return lease

    # --- without etcd -----------------------------------------------------------------------------------------------

    def wants_word(self, is_away: bool) -> bool:
        """Returns whether the in-sync members are to be asked: etcd is away, well before the lease runs out."""
        return is_away and self.fence.left <= self.seconds * 0.75

    def vouched(self, until: float) -> bool:
        """Takes the word of all in-sync members until then. Returns whether the reign goes on by it from now."""
        if until <= self.fence.until:
            return False
        begins, self.is_vouched = not self.is_vouched, True
        self.fence.until = until
        return begins

    # --- the guard --------------------------------------------------------------------------------------------------

    @property
    def guard_pause(self) -> float:
        return min(max(self.fence.left, 0.005), GUARD_SECONDS)

    def guard(self, *, reigns: bool, is_away: bool) -> Lapsed | Resumed | None:
        """Reads the clock and returns whether the reign goes on."""
        if not reigns or self.fence.is_closed == self.has_lapsed:
            return None
        self.has_lapsed = self.fence.is_closed
        if not self.has_lapsed:
            return Resumed()
        self.is_vouched = False
        why = "etcd does not answer" if is_away else "the lease was not renewed in time"
        return Lapsed(f"{why}, and not all in-sync members vouch for this master: it is read-only until then")

    # --- another one's lease ----------------------------------------------------------------------------------------

    def opens_over(self, old_lease: int, *, was_here: bool, was_handed: bool) -> bool:
        """Returns whether another one may still believe in the lease it had, when a swap has made this node the holder.

        `was_here`: the old one was this node's own.  `was_handed`: who had it has said that it stopped.
        """
        lives = bool(old_lease) and old_lease != self.id and not was_here and not was_handed
        self.fence.alone_from = float("inf") if lives else float("-inf")
        return lives

    def revoking(self, now: float) -> None:
        self.fence.alone_from = now + REVOKE_LEASES * self.seconds

    def revoked(self, now: float) -> None:
        """Notes that the old lease can't be renewed any more; what was renewed just before ends a lease from now."""
        self.fence.alone_from = now + self.seconds * (1 + MARGIN_SHARE)
