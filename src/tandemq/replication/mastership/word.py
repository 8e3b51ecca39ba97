"""The word of a master's members not to stand while the coordinator is away: asked for, and counted.  Pure."""

from tandemq.codec.ha_session import Vouch, Vouched
from tandemq.replication.decisions import Decision
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import Session
from tandemq.replication.vouching import Words


class MembersWord:
    """Until when a reign goes on by the word of all whom a candidate would have to hear."""

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        self._words = Words(core.terms.lease)

    def ask(self, out: list[Decision], now: float) -> None:
        """Asks those who follow for their word not to stand, as often as is due."""
        number = self._words.ask(now)
        if number is not None and self._core.is_open:
            for session in self._followers.sessions.values():
                if session.is_streaming and session.hello is not None and session.hello.vouches:
                    self._followers.send(out, session, Vouch(self._core.number, number), now)

    def answered(self, session: Session, answer: Vouched) -> None:
        """Counts the word of a member that gives it."""
        if not answer.refused and session.is_streaming:
            self._words.given(session.replica, answer.number)

    def until(self, now: float) -> float:
        """Returns until when all whom a candidate would have to hear have given their word."""
        core = self._core
        if core.register is None or not core.is_open:
            return float("-inf")
        changed = core.proposed.in_sync if core.proposed is not None else ()  # it may have happened
        needed = {*core.register.in_sync, *changed} - {core.record.replica}
        return self._words.until(needed, now)
