"""The word of the in-sync members while etcd is away: none of them stands for a lease.  The master's side; pure.

The master asks on the HA sessions, with a number; an answer counts from the moment its question *left*.  It reigns on
as long as every in-sync member, and whoever may have become one by a swap whose outcome is unknown, has given its word;
a member that is silent or refuses ends that within the lease.
"""

from collections.abc import Iterable
from typing import Final

from tandemq.replication.fence import MARGIN_SHARE

ASKS: Final = 8
"""In one lease."""
OPEN_MAX: Final = 64
"""Questions whose answers may still come: of several leases."""


class Words:
    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._number = 0
        self._asked: dict[int, float] = {}
        """Number of a question -> when it left."""
        self._given: dict[str, float] = {}
        """Replica -> when the last question left that it answered with its word."""

    def ask(self, now: float) -> int | None:
        """Returns the number of a question that is due now; None if the last one is too young."""
        if now < self._asked.get(self._number, float("-inf")) + self.lease / ASKS:
            return None
        self._number += 1
        self._asked[self._number] = now
        if len(self._asked) > OPEN_MAX:
            del self._asked[next(iter(self._asked))]
        return self._number

    def given(self, replica: str, number: int) -> None:
        """Notes that a member has given its word in answer to question `number`."""
        sent_at = self._asked.get(number)
        if sent_at is not None:
            self._given[replica] = max(sent_at, self._given.get(replica, sent_at))

    def until(self, needed: Iterable[str], now: float) -> float:
        """Returns until when the reign goes on by the word of all `needed`; in the past if one of them is missing."""
        oldest = min((self._given.get(one, float("-inf")) for one in needed), default=now)
        return oldest + self.lease * (1 - MARGIN_SHARE)
