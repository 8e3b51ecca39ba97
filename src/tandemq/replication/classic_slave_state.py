"""A slave of a RocketMQ master: report, take frames, report.  Pure: bytes and `now` in, decisions out.

No identity, no history, no checks but contiguity, as upstream's slave does; only that we report at once and take any
split.
"""

from tandemq.codec import ha_classic
from tandemq.codec.ha_classic import OBSERVER_REPORT, Head, TransferReader
from tandemq.codec.ha_reasons import Reason
from tandemq.errors import CodecError
from tandemq.replication.decisions import Append, Close, Commit, Confirm, Decision, LogEnds, Note, Reset, Send
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.frame_in_progress import FrameInProgress


class ClassicSlaveState(FrameInProgress):
    """A slave in a session with a RocketMQ master."""

    def __init__(self, *, log: LogEnds, terms: SlaveTerms, now: float) -> None:
        super().__init__()
        self.log = log
        self.terms = terms
        self.is_connected = False
        self.trouble: tuple[float, Reason, str] | None = None
        self.last_heard = self.last_sent = now
        self._session = 0
        self.frames: TransferReader = TransferReader()
        self._reported = -1
        self._is_followed = False

    @property
    def frame(self) -> FrameInProgress:
        """The data frame that is arriving."""
        return self

    def begin_at(self, offset: int) -> list[Decision]:
        """Begins anew at `offset`, before the session: the master's log begins there, above the end of ours."""
        log = self.log
        if log.end == log.first:
            reset = Reset(offset, log.end, log.end, "the log is empty", "reset-empty")
            out: list[Decision] = [reset]
        else:
            why = f"{Reason.OFFSET_GONE.value}: {Reason.OFFSET_GONE.advice}"
            out = [Reset(offset, log.end, log.end, why, "reset-offset-gone")]
            out.append(Note("began-anew", f"begins anew at {offset}, its own log ended at {log.end}: {why}", loud=True))
        log.first = log.end = log.flushed = offset
        return out

    def begin_with(self, record: bytes) -> list[Decision]:
        """Begins an empty log with the first record of the master's, which begins at 0; before the session."""
        self.log.end = len(record)
        return [Append(0, record), Confirm(len(record))]

    def connected(self, session: int, now: float) -> list[Decision]:
        """Reports at once: the master sends nothing before it knows our offset."""
        self._session = session
        self.frames = TransferReader()
        self.drop_partial()
        self.is_connected = True
        self.last_heard = now
        out: list[Decision] = []
        self._report(out, now)
        return out

    def disconnected(self, now: float) -> None:
        if self.is_connected:
            self.is_connected = False
            self.trouble = self.trouble or (now, Reason.LOST, "the connection to the master was lost")
        self.drop_partial()

    def receive(self, data: bytes | memoryview, now: float) -> list[Decision]:
        """Bytes from the master, however split; ends with at most one report."""
        out: list[Decision] = []
        if not self.is_connected:
            return out
        self.last_heard = now
        try:
            for event in self.frames.feed(data):
                if isinstance(event, Head):
                    self._on_head(out, event, now)
                else:
                    self._pending += event.data
                    if event.last:
                        self._frame_complete(out)
                if not self.is_connected:
                    return out
        except CodecError as error:
            self._close(out, Reason.CORRUPT, str(error), now)
            return out
        self._report_if_moved(out, now)
        return out

    def _on_head(self, out: list[Decision], head: Head, now: float) -> None:
        if head.offset != self.log.end:
            if self.log.end != 0:
                text = f"the master sent bytes at {head.offset}, this log ends at {self.log.end}"
                self._close(out, Reason.DIVERGED, text, now)
                return
            # An empty slave that asked for the last file only begins where the master says.
            if head.offset:
                out.append(Reset(head.offset, 0, 0, "the log is empty", "reset-empty"))
                self.log.first = self.log.end = self.log.flushed = head.offset
        if not self._is_followed:
            self._is_followed = True
            self.trouble = None
            out.append(Note("following", f"follows a RocketMQ master from {self.log.end}, in its own protocol"))
        self._head = head if head.size else None

    def _frame_complete(self, out: list[Decision]) -> None:
        head = self._head
        assert head is not None
        if self._pending:
            out.append(Append(head.offset, bytes(self._pending)))
        else:
            out.append(Commit(self._direct))
        self.drop_partial()
        self.log.end += head.size
        # Upstream has no confirmed offset: a slave shows what it has.
        out.append(Confirm(self.log.end))

    def took(self, data: memoryview, now: float) -> list[Decision]:
        """Takes bytes that were received into the window, as `Receiving.took`."""
        self.last_heard = now
        out: list[Decision] = []
        self._direct += len(data)
        if self.frames.took(data):
            self._frame_complete(out)
            self._report_if_moved(out, now)
        return out

    def flushed(self, offset: int, now: float) -> list[Decision]:
        """Notes that more is on disk; a classic report speaks only of what was received."""
        self.log.flushed = max(self.log.flushed, offset)
        return []

    def refuse(self, reason: Reason, text: str, now: float) -> list[Decision]:
        """Closes, because this node can't go on; the classic protocol has no words for why."""
        out: list[Decision] = []
        if self.is_connected:
            self._close(out, reason, text, now)
        return out

    def tick(self, now: float) -> list[Decision]:
        out: list[Decision] = []
        if not self.is_connected:
            return out
        if now - self.last_heard >= self.terms.housekeeping:
            self._close(out, Reason.SILENT, f"the master was silent for {self.terms.housekeeping:g} s", now)
        elif now - self.last_sent >= self.terms.heartbeat:
            self._report(out, now)
        return out

    def next_deadline(self, now: float) -> float:
        if not self.is_connected:
            return now + self.terms.heartbeat
        return max(now, min(self.last_heard + self.terms.housekeeping, self.last_sent + self.terms.heartbeat))

    def saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        return []

    def _report_if_moved(self, out: list[Decision], now: float) -> None:
        observer = self.terms.observer
        is_due = self._is_followed and self._reported >= 0 if observer else self.log.end != self._reported
        if self.is_connected and is_due:
            self._report(out, now)

    def _report(self, out: list[Decision], now: float) -> None:
        """Reports our end; an observer does so once, because a RocketMQ master counts whatever is reported.

        Once is enough to get what follows; after that its sign of life is an end far below the log: RocketMQ 5 counts a
        slave whose last report is near the end as in sync, and would wait for it where it has no slave at all. Only
        once bytes came: of two reports that arrive together the last is taken for the place to send from.
        """
        if self.terms.observer and self._is_followed:
            self._reported = OBSERVER_REPORT
        elif not self.terms.observer or self._reported < 0:
            self._reported = self.log.end
        self.last_sent = now
        out.append(Send(self._session, ha_classic.encode_report(self._reported)))

    def _close(self, out: list[Decision], reason: Reason, text: str, now: float) -> None:
        out.append(Close(self._session, reason, text))
        told = f"session with the master ended: {text} [{reason.value}]. {reason.advice}"
        out.append(Note(f"ended-{reason.value}", told))
        self.trouble = (now, reason, text)
        self.is_connected = False
        self.drop_partial()
