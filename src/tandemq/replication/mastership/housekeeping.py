"""What time does to a master's sessions: heartbeats, silence, retention, and when to look again.  Pure."""

from typing import Final

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import Decision
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.membership import Membership
from tandemq.replication.mastership.streaming import Streaming
from tandemq.replication.mastership.welcoming import Welcoming
from tandemq.replication.session import Session, SessionState

HELLO_WAIT: Final = 5.0
"""Seconds a slave may take to answer our challenge."""
PROOF_WAIT: Final = 5.0
"""Seconds after it connected in which a peer has to prove the key, where there is one: two round trips, TLS, and the
slave's disk."""


class Housekeeping:
    """Keeps the sessions that live alive, and ends those that don't."""

    def __init__(
        self,
        core: MasterCore,
        followers: Followers,
        membership: Membership,
        streaming: Streaming,
        welcoming: Welcoming,
        *,
        serves_classic: bool,
    ) -> None:
        self._core, self._followers, self._membership = core, followers, membership
        self._streaming, self._welcoming = streaming, welcoming
        housekeeping = core.terms.housekeeping
        # A RocketMQ slave may take 5 s for its first word.
        self._proof_wait = housekeeping if serves_classic else min(PROOF_WAIT, housekeeping)

    def tick(self, out: list[Decision], now: float) -> None:
        """Looks at every session, and at the replicas that stay away."""
        for session in list(self._followers.sessions.values()):
            self._tick_session(out, session, now)
        self._membership.drop_absent(out, now)

    def _tick_session(self, out: list[Decision], session: Session, now: float) -> None:
        close, terms = self._followers.close, self._core.terms
        if not session.proven and now - session.connected_at >= self._proof_wait:
            text = f"{session.peer} did not prove within {self._proof_wait:g} s that it belongs here"
            close(out, session, Reason.SILENT, text, now)
            return
        # A RocketMQ slave sends its first report up to 5 s after it connected, so silence at first says nothing.
        challenged = session.state is SessionState.CHALLENGED
        patience = min(HELLO_WAIT, terms.housekeeping) if challenged else terms.housekeeping
        if now - session.last_heard >= patience:
            close(out, session, Reason.SILENT, f"nothing heard from {session.peer} for {patience:g} s", now)
            return
        if session.is_streaming and now - session.last_sent >= terms.heartbeat:
            self._streaming.heartbeat(out, session, now)
        elif session.state is SessionState.WAITING and now - session.last_sent >= terms.heartbeat:
            self._welcoming.put_off(out, session, now)
        if session.state is SessionState.IN_SYNC and self._core.log.end - session.received >= terms.gap_max:
            self._membership.fell_behind(out, session, now)

    def next_deadline(self, now: float) -> float:
        """Returns when `tick` has something to do if nothing else happens."""
        terms, sessions = self._core.terms, self._followers.sessions.values()
        times = [now + terms.heartbeat]
        times += [session.last_sent + terms.heartbeat for session in sessions]
        times += [session.last_heard + terms.housekeeping for session in sessions]
        times += [session.connected_at + self._proof_wait for session in sessions if not session.proven]
        gone_at = (since + terms.away_max for since, _ in self._membership.away.values())
        times += [at for at in gone_at if at > now]  # every heartbeat checks one that may not leave yet
        return min(times)

    def retained(self, out: list[Decision], first: int, now: float) -> None:
        """Follows the deletion of old segments.

        A slave that still needs them comes back and begins at the log's new start.
        """
        self._core.log.first = first
        for session in list(self._followers.sessions.values()):
            if session.sent < first and session.is_streaming:
                text = f"bytes from {session.sent} are needed, the log now begins at {first}"
                self._followers.close(out, session, Reason.OFFSET_GONE, text, now)
