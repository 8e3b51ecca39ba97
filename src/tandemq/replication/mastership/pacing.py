"""When new bytes leave for whom.  Pure.

A frame and an ack for every message cost more than the message, and of many slaves only the furthest decide when a send
is answered.  So new bytes leave at once for those who are waited for, or with the ack of the frame before them; for
others they are gathered for a moment.  Spares, whom no send waits for, have more time still, but for the next in line,
which takes over if one of those before it stalls.  While no send waits for any copy, the first bytes after a pause
leave at once and others a little later: a slave that wakes for every message takes the processor from those who send
them.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import SessionState

GATHER_DELAY: Final = 0.001
UNAWAITED_DELAY: Final = 0.005
SPARE_DELAY: Final = 0.01
GATHER_SIZE: Final = 64 << 10
"""New bytes are gathered for such a time, or until there are so many."""


class Turn(Enum):
    """When the bytes that a session lacks leave."""

    NOW = "now"
    GATHER = "gathered"
    """Together with what comes next: see `Pacing.gather`."""
    NONE = "none"
    """There are none, or a timer for them runs already."""


class Pacing:
    """Which sessions get what the log has more of, and which of them later.

    The shell keeps the two timers: it asks for one after `gather` and `appended`, and tells when it has run out.
    """

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        self._spares: Sequence[int] = ()
        """Sessions that no send waited for when the log last grew; the first is next in line."""
        self._gathers = self._spares_wait = False
        self._gathered_at = float("-inf")

    def appended(self) -> float | None:
        """Notes that the log grew. Returns after how long `all_due` shall be told, if nobody was asked to yet."""
        self._spares = self.spares()
        if len(self._spares) <= 1 or self._spares_wait:
            return None
        self._spares_wait = True
        return SPARE_DELAY

    def spares(self) -> Sequence[int]:
        """Returns sessions that no send waits for, because others are further and enough for the copies wanted.

        The furthest comes first, which takes over if one of those stalls.
        """
        sessions = self._followers.sessions
        if len(sessions) <= 1 or not 0 < (wanted := self._core.acks.copies_wanted) < len(sessions):
            return ()
        places = [(s.received, -s.id) for s in sessions.values() if s.state is SessionState.IN_SYNC]
        places.sort(reverse=True)
        return [-number for _, number in places[wanted:]]

    def turn(self, session_id: int) -> Turn:
        """Returns when what a session lacks leaves."""
        session = self._followers.sessions.get(session_id)
        if session is None or (fresh := self._core.log.end - session.sent) == 0:
            return Turn.NONE
        spares = self._spares
        if spares and session_id in spares[1:]:
            return Turn.NONE
        if fresh >= GATHER_SIZE or session.state is not SessionState.IN_SYNC:
            return Turn.NOW
        if session.received == session.sent and session_id not in spares and self._core.acks.copies_wanted:
            return Turn.NOW
        return Turn.NONE if self._gathers else Turn.GATHER

    def gather(self, now: float) -> float:
        """Begins to gather. Returns after how long `gathered` shall be told, 0 for at once."""
        delay = GATHER_DELAY
        if not self._core.acks.copies_wanted:
            delay = max(0.0, self._gathered_at + UNAWAITED_DELAY - now)
        self._gathers = True
        return delay

    def gathered(self, now: float) -> list[int]:
        """Returns the sessions that get now what was gathered."""
        self._gathers, self._gathered_at = False, now
        return [session for session in self._followers.sessions if session not in self._spares[1:]]

    def all_due(self) -> None:
        """Notes that the spares get now what they lack, as everybody."""
        self._spares_wait = False
