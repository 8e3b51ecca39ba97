"""Log bytes from the master: from a frame to what is appended, confirmed and acknowledged.  Pure."""

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Packed
from tandemq.replication.decisions import Append, Commit, Decision, Discard, FlushSoon, Send
from tandemq.replication.following.core import SlaveCore, SlavePhase
from tandemq.replication.frame_in_progress import FrameInProgress


class Receiving(FrameInProgress):
    """The frame that is arriving, and what was acknowledged of those before it."""

    def __init__(self, core: SlaveCore) -> None:
        super().__init__()
        self._core = core
        self.frames: ha.SessionReader = ha.SessionReader()
        self._complete_at = 0
        """Where the master's log ended when the session began."""
        self._acked = (-1, -1)

    # --- session ----------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Begins to read a new connection."""
        self.frames = ha.SessionReader()
        self._acked = (-1, -1)
        self.drop_partial()

    def begin(self, start: int, master_end: int) -> int:
        """Follows from `start` on. Returns how much of it is on disk, which START tells the master."""
        self._complete_at = master_end
        self._acked = start, min(self._core.log.flushed, start)
        return self._acked[1]

    # --- frames -----------------------------------------------------------------------------------------------------

    def on_head(self, out: list[Decision], head: Head, now: float) -> None:
        """Begins a frame, which must continue this log, in an epoch that is not newer than the reign."""
        core = self._core
        if core.phase is not SlavePhase.FOLLOWING or head.offset != core.log.end or head.epoch > core.number:
            text = f"bytes at {head.offset} of epoch {head.epoch}, this log ends at {core.log.end}"
            core.close(out, Reason.CORRUPT, text, now)
            return
        if head.size:
            self._head = head
        else:
            self.is_lone = False
            core.confirm(out, head.confirmed)

    def on_chunk(self, out: list[Decision], chunk: Chunk, now: float) -> None:
        """Takes bytes of the frame that came in a buffer."""
        if chunk.last and not self._pending and not self._direct:
            self._frame_complete(out, now, chunk.data)
            return
        self._pending += chunk.data
        if chunk.last:
            self._frame_complete(out, now)

    def on_packed(self, out: list[Decision], packed: Packed, now: float) -> None:
        """Takes a frame whose bytes came packed, all at once."""
        self.on_head(out, packed.head, now)
        if self._head is not None:
            self.on_chunk(out, Chunk(memoryview(packed.data), True), now)

    @property
    def is_catching_up(self) -> bool:
        return self._core.log.end < self._complete_at

    @property
    def unsummed(self) -> int:
        return self.frames.unsummed if self.window else 0

    def passed(self, size: int, now: float) -> None:
        """Notes that bytes went into the window which the frame's checksum leaves out."""
        self._core.last_heard = now
        self._direct += size
        self.frames.passed(size)

    def took(self, data: memoryview, now: float) -> list[Decision]:
        """Takes bytes that were received into the window: `data` is that part of it."""
        self._core.last_heard = now
        out: list[Decision] = []
        self._direct += len(data)
        if self.frames.took(data):
            self._frame_complete(out, now)
            self.ack_if_moved(out, now)
        return out

    def _frame_complete(self, out: list[Decision], now: float, whole: memoryview | None = None) -> None:
        """Appends or commits a frame that has arrived; `whole`: all of its log bytes, when they came together."""
        core, head = self._core, self._head
        assert head is not None
        if not self.frames.sound:
            if self._direct:
                out.append(Discard(self._direct))
            core.close(out, Reason.CORRUPT, f"log bytes at {head.offset} have a wrong checksum", now)
            self.drop_partial()
            return
        if whole is not None:
            out.append(Append(head.offset, whole))
        elif self._pending:
            out.append(Append(head.offset, bytes(self._pending)))
        else:
            out.append(Commit(self._direct))
        self.drop_partial()
        core.log.end += head.size
        if not core.record.complete and not self.is_catching_up:
            core.save(out, complete=True)
        self.is_lone = head.lone
        if head.flush:
            out.append(FlushSoon())
        core.confirm(out, head.confirmed)

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def ack_if_moved(self, out: list[Decision], now: float) -> None:
        """Acknowledges once what has come or was synced since the last time."""
        core, (received, durable) = self._core, self._acked
        if core.phase is SlavePhase.FOLLOWING and (core.log.end != received or core.durable != durable):
            self.ack(out, now)

    def ack(self, out: list[Decision], now: float) -> None:
        """Tells the master what this log has, and what of it is on disk (rule 7)."""
        core = self._core
        received, durable = core.log.end, core.durable
        assert durable <= received, f"{durable} <= {received}"
        self._acked = (received, durable)
        core.last_sent = now
        out.append(Send(core.session, ha.encode_ack(core.number, received, durable, core.applied), core.seal))
