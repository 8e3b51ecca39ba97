"""What a slave is told when it has been heard, and from where it follows.  Pure."""

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Start, Welcome
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.epochs import common_point, to_items
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.membership import Membership
from tandemq.replication.session import Session


class Welcoming:
    """From the WELCOME of a slave to its first byte of log."""

    def __init__(self, core: MasterCore, followers: Followers, membership: Membership) -> None:
        self._core, self._followers, self._membership = core, followers, membership

    def put_off(self, out: list[Decision], session: Session, now: float) -> None:
        """Lets a replica that was heard wait while this master is not open, and tells it so again and again."""
        self._followers.send(out, session, self._frame(session, is_open=False), now)

    def welcome(self, out: list[Decision], session: Session, now: float) -> None:
        """Tells the slave of an open master the history.

        It cuts its log to the common point and says from where it follows.
        """
        hello, core = session.hello, self._core
        assert hello is not None
        agreed = common_point(core.record.history, core.log.end, session.history, hello.end)
        frame = self._frame(session, is_open=True)
        session.told_register = frame.register.revision if frame.register is not None else -1
        session.welcomed(frame.start_empty_at, 0 if agreed is None else agreed)
        self._followers.send(out, session, frame, now)

    def _frame(self, session: Session, is_open: bool) -> Welcome:
        core = self._core
        record, promise = core.record, core.record.promise
        return Welcome(
            replica=record.replica,
            open=is_open,
            number=promise.number,
            id=promise.id,
            first=core.log.first,
            end=core.log.end,
            start_empty_at=self.start_of_empty(session.hello is not None and session.hello.last_file_only),
            history=to_items(record.history),
            members=sorted(record.members),
            in_sync=sorted(record.in_sync),
            register=core.register if is_open else None,
        )

    def start_of_empty(self, last_file_only: bool = False) -> int:
        """Returns where a slave without a log begins."""
        log = self._core.log
        if last_file_only or self._core.terms.last_file_only:
            return max(log.first, log.end - log.end % log.segment_size)
        return log.first

    def started(self, out: list[Decision], session: Session, start: Start, now: float) -> None:
        """Checks from where a slave says that it follows, before any of its acks may count (rule 2)."""
        core = self._core
        if start.number != core.number:
            return  # for an epoch we no longer ask for
        fresh = start.offset == session.sent  # where a slave with nothing in common begins
        if start.offset > session.start_max and not fresh:
            text = f"START at {start.offset}, the logs agree up to {session.start_max}"
            self._followers.close(out, session, Reason.DIVERGED, text, now)
            return
        if start.offset < core.log.first:
            text = f"bytes from {start.offset} are asked for, the log begins at {core.log.first}"
            self._followers.close(out, session, Reason.OFFSET_GONE, text, now)
            return
        session.follows_from(start.offset, start.offset, start.durable, now)
        out.append(Note("session", f"replica {session.replica} ({session.peer}) follows from {start.offset}"))
        if core.register is None:
            self._membership.tell_members(out, session, now)
        self._membership.tell_register(out, now)
        self._membership.progress(out, session, now)
