"""Who is connected to a master, and how a session ends.  Pure.

One object per slave (session.py) has its offsets, its state and its transitions; here is what concerns several of them.
"""

from collections.abc import Callable
from typing import Final

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import Close, Decision
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.served import Claim, ServedSessions
from tandemq.replication.session import Departure, Session, SessionState, departure_of

DEPARTURES_MAX: Final = 64
"""As many as there may be sessions: whoever connects without being a member must not fill the memory."""

Left = Callable[[list[Decision], Session, str, float], None]


class Followers(ServedSessions):
    """All sessions of a master."""

    def __init__(self, core: MasterCore, left: Left) -> None:
        """`left` is told of every session that has ended, after it is gone from here."""
        super().__init__(
            group=core.terms.group,
            shared_key=core.terms.shared_key,
            claim=lambda: Claim(core.record.promise, core.record.replica, core.register),
            new_id=core.new_id,
            guest="slave",
            host="master",
        )
        self._core = core
        self._left = left
        self.departures: dict[str, Departure] = {}
        """Identity or host -> how its last session ended; bounded."""

    # --- who is there -----------------------------------------------------------------------------------------------

    def heard(self) -> list[Session]:
        """Returns those that have promised this master's epoch and told what they have."""
        return [session for session in self.sessions.values() if session.state is SessionState.WAITING]

    def reachable(self) -> frozenset[str]:
        return frozenset(s.replica for s in self.sessions.values() if s.is_streaming and not s.classic)

    def durable_of(self, replica: str) -> int:
        """Returns what a replica that counts has on its disk; -1 if it does not count."""
        counting = (s for s in self.sessions.values() if s.replica == replica and s.state is SessionState.IN_SYNC)
        return max((session.durable for session in counting), default=-1)

    def counts_elsewhere(self, session: Session) -> bool:
        """Returns whether another session of the same identity counts: two RocketMQ slaves on one host share one."""
        return any(
            other.replica == session.replica and other.state is SessionState.IN_SYNC for other in self.sessions.values()
        )

    def countable(self) -> int:
        """Returns replicas on record as in sync, or classic ones that are: those whose acks readers wait for."""
        classic = {s.replica for s in self.sessions.values() if s.classic and s.state is SessionState.IN_SYNC}
        return len(self._core.record.in_sync | classic)

    # --- how a session begins and ends ------------------------------------------------------------------------------

    def give_slot(self, out: list[Decision], session: Session, replica: str, now: float) -> bool:
        """Gives one that has proven itself a slot; closes it if there is none left."""
        sessions_max = self._core.terms.sessions_max
        if self.is_full(replica, sessions_max):
            self.close(out, session, Reason.TOO_MANY, f"there are {sessions_max} sessions already", now)
            return False
        session.proven = True
        return True

    def replace(self, out: list[Decision], session: Session, replica: str, now: float) -> None:
        """Keeps one session per identity: the newest."""
        for other in list(self.sessions.values()):
            if other is not session and other.replica == replica and not other.classic:
                text = f"replica {replica} connected again from {session.peer}"
                self.close(out, other, Reason.REPLACED, text, now)

    def lost(self, out: list[Decision], session_id: int, reason: Reason, text: str, now: float) -> None:
        """Forgets a session whose connection broke, or which the shell closed."""
        session = self.sessions.get(session_id)
        if session is not None:
            text = text or f"connection of {session.replica or session.peer} was lost"
            self.forget(out, session, reason, text, now)

    def bid_farewell(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        """Forgets a session that the other side has ended, and notes why."""
        self.forget(out, session, reason, text, now)
        out.append(Close(session.id, reason, text))

    def close_classic(self, out: list[Decision], text: str, now: float) -> None:
        """Closes the sessions of RocketMQ's slaves, which can't be told in any other way that a reign is over."""
        for session in list(self.sessions.values()):
            if session.classic:
                self.close(out, session, Reason.NOT_MASTER, text, now)

    def close_all(self, out: list[Decision], reason: Reason, text: str, now: float) -> None:
        for session in list(self.sessions.values()):
            self.close(out, session, reason, text, now)

    def forget(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        super().forget(out, session, reason, text, now)
        name = session.replica or session.host
        before = self.departures.pop(name, None)
        self.departures[name] = departure_of(session, before, reason, text, now)
        while len(self.departures) > DEPARTURES_MAX:
            del self.departures[next(iter(self.departures))]
        self._left(out, session, text, now)
