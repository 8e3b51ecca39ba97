"""Copying from the furthest replica what this one lacks, before it opens (rule 3).  Pure."""

from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import Take
from tandemq.replication.decisions import Append, Confirm, Decision, Note, Prepare, Reset, Truncate
from tandemq.replication.epochs import common_point, rank
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import Session, SessionState


class Taking:
    """The log that a candidate takes from a donor; nothing if nobody has more than it."""

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        self._donor: int | None = None
        self._stop = 0
        self._taken = bytearray()

    def begin(self, out: list[Decision], register: Register | None, now: float) -> None:
        """Takes the furthest log first and then makes it durable: everybody needed was heard.

        `register`: says whose logs count; None in a group that has none yet.
        """
        furthest = self._furthest(register)
        if furthest is None:
            self._core.enter(Phase.PREPARING)
            out.append(Prepare())
        else:
            self._take(out, furthest, now)

    def _furthest(self, register: Register | None) -> Session | None:
        """Returns the replica whose log is newer than ours."""
        core = self._core
        heard, end, record = self._followers.heard(), core.log.end, core.record
        if register is not None:
            heard = [session for session in heard if session.replica in register.everybody]
        blind = register is not None and record.register is None and record.blind_from >= 0
        if blind or any(holds_other_reign(core, session) for session in heard):
            end = min(end, record.blind_from)
        best, mark = None, rank(record.history, end, record.alone_from)
        for session in heard:
            assert session.hello is not None
            theirs = rank(session.history, session.hello.end, session.hello.alone_from)
            if theirs > mark:
                best, mark = session, theirs
        return best

    def _take(self, out: list[Decision], donor: Session, now: float) -> None:
        core, log, hello = self._core, self._core.log, donor.hello
        assert hello is not None
        agreed = common_point(core.record.history, log.end, donor.history, hello.end)
        if agreed is None or agreed < max(hello.first, log.first):
            save_from = log.first if agreed is None else max(agreed, log.first)
            why = f"starts over from what replica {donor.replica} has"
            out.append(Reset(hello.first, save_from, log.end, why, "reset-other-history"))
            log.first = log.end = hello.first
        elif agreed < log.end:
            out.append(Truncate(agreed, log.end, f"replica {donor.replica} has the newer history"))
            log.end = agreed
        log.flushed = min(log.flushed, log.end)
        core.confirmed = min(core.confirmed, log.end)
        out.append(Confirm(core.confirmed))
        core.save(out, history=donor.history, blind_from=-1, alone_from=-1)
        core.enter(Phase.TAKING)
        self._donor, self._stop = donor.id, hello.end
        donor.enter(SessionState.DONATING)
        self._taken.clear()
        out.append(Note("taking-back", f"takes {hello.end - log.end} bytes from {log.end} back from {donor.replica}"))
        self._followers.send(out, donor, Take(core.number, log.end, hello.end), now)
        if log.end == hello.end:
            self._taken_all(out)

    def received(self, out: list[Decision], session: Session, event: Head | Chunk, now: float) -> None:
        """Takes log bytes of the donor."""
        log = self._core.log
        if isinstance(event, Head):
            if event.size and event.offset != log.end + len(self._taken):
                text = f"donor sent bytes at {event.offset}, wanted at {log.end}"
                self._followers.close(out, session, Reason.CORRUPT, text, now)
            return
        self._taken += event.data
        if not event.last:
            return
        data, self._taken = bytes(self._taken), bytearray()
        if not session.frames.sound or log.end + len(data) > self._stop:
            self._followers.close(out, session, Reason.CORRUPT, f"donated bytes at {log.end} are damaged", now)
            return
        out.append(Append(log.end, data))
        log.end += len(data)
        if log.end == self._stop:
            self._taken_all(out)

    def _taken_all(self, out: list[Decision]) -> None:
        assert self._donor is not None
        self._followers.sessions[self._donor].enter(SessionState.WAITING)
        self._donor = None
        self._core.enter(Phase.PREPARING)
        out.append(Prepare())

    def left(self, session: Session) -> None:
        """Asks all again if the session that ended was the donor's."""
        if session.id == self._donor:
            self._donor = None
            self._core.enter(Phase.ASKING)


def holds_other_reign(core: MasterCore, session: Session) -> bool:
    """Returns whether a replica has bytes of an unknown reign, which ours, opened without asking, may not overrule."""
    blind_from = core.record.blind_from
    if blind_from < 0 or session.hello is None:
        return False
    known, settled = set(core.record.history.epochs), core.record.history.number_before(blind_from)
    end = session.hello.end
    return any(e.start < end and e.number > settled and e not in known for e in session.history.epochs)
