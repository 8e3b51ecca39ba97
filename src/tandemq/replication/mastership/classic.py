"""RocketMQ's slaves: they report an offset and nothing else.  Pure.

Such a slave has no identity, no history and no disk it could tell of.  It counts as a copy only from where it was seen
to receive, only for levels that ask more copies than the register has members, and only when the register says since
where (`classic_from`), because nobody can ask it after a crash.
"""

from collections.abc import Callable

from tandemq.codec.ha_reasons import Reason
from tandemq.replication import register as registers
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import Session, SessionState


class ClassicCounting:
    """When the copies of RocketMQ's slaves count."""

    def __init__(self, core: MasterCore) -> None:
        self._core = core

    def join(self, session: Session) -> None:
        """Counts a RocketMQ slave only from where it was seen to receive: nobody may wait for what lies before."""
        oldest = self._core.acks.oldest_waiting
        if oldest is None or oldest > session.start_max:
            session.enter(SessionState.IN_SYNC)

    def counts(self, out: list[Decision], session: Session) -> bool:
        """Returns whether its copies may count.

        Only when the register says on disk since where, and somebody needs them.
        """
        core = self._core
        register = core.register
        if register is None or core.saved_classic:
            return True
        wanted = core.terms.level.needed(core.acks.group_size) > register.size or core.acks.wants_classic
        if wanted and register.classic_from < 0:
            core.swap(out, registers.with_classic_from(register, session.start_max))
        return False


class ClassicFollowers:
    """The sessions of RocketMQ's slaves."""

    def __init__(
        self,
        core: MasterCore,
        followers: Followers,
        start_of_empty: Callable[[], int],
        progress: Callable[[list[Decision], Session, float], None],
    ) -> None:
        """`start_of_empty`: where a slave without a log begins.  `progress` is told when a slave's offset has moved."""
        self._core, self._followers = core, followers
        self._start_of_empty, self._progress = start_of_empty, progress
        terms = core.terms
        self.are_served = not terms.shared_key if terms.classic_peers is None else terms.classic_peers

    def receive(self, out: list[Decision], session: Session, data: bytes | memoryview, now: float) -> None:
        """Takes reports, however split."""
        for report in session.reports.feed(data):
            self._on_report(out, session, report, now)
            if session.id not in self._followers.sessions:
                return

    def _on_report(self, out: list[Decision], session: Session, report: int, now: float) -> None:
        if session.state is SessionState.CONNECTED:
            self._on_first_report(out, session, report, now)
        elif session.received <= report <= session.sent:
            session.acked(report, session.durable, report)
            self._progress(out, session, now)
        else:
            text = f"report of {report}, but it was sent up to {session.sent} and had {session.received}"
            self._followers.close(out, session, Reason.BAD_ACK, text, now)

    def _on_first_report(self, out: list[Decision], session: Session, report: int, now: float) -> None:
        core, close = self._core, self._followers.close
        session.replica = session.address = f"classic@{session.host}"
        if not core.is_open:
            close(out, session, Reason.NOT_MASTER, f"this master is not open but {core.phase.value}", now)
        elif not self.are_served:
            text = "it speaks RocketMQ's own HA protocol, in which no peer can prove anything"
            close(out, session, Reason.CLASSIC_REFUSED, text, now)
        elif report < 0:
            close(out, session, Reason.CORRUPT, f"first report {report}: no HA slave speaks here", now)
        elif report > core.log.end:
            text = f"RocketMQ slave has {report}, ahead of this master's {core.log.end}; empty its store directory"
            close(out, session, Reason.DIVERGED, text, now)
        elif 0 < report < core.log.first:
            text = f"RocketMQ slave asks for {report}, the log begins at {core.log.first}; empty its store directory"
            close(out, session, Reason.OFFSET_GONE, text, now)
        elif self._followers.give_slot(out, session, "", now):
            start = report or self._start_of_empty()
            session.start_max = start
            session.follows_from(start, report, 0, now)
            out.append(Note("session", f"RocketMQ slave {session.peer} follows from {start}"))
            self._progress(out, session, now)
