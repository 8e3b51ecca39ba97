"""Giving back to a master that asks what it lost of its own epoch.  Pure."""

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import log_sum
from tandemq.codec.ha_session import Take
from tandemq.replication.decisions import Batch, Decision, Note
from tandemq.replication.following.core import SlaveCore, SlavePhase


class Donating:
    """The range of the log that the master asked back, and how much of it is on its way."""

    def __init__(self, core: SlaveCore) -> None:
        self._core = core
        self._from = self._stop = 0

    def asked(self, out: list[Decision], take: Take, now: float) -> None:
        """Begins to give back, if it is asked by the master it has promised to and for what this log holds."""
        core, log = self._core, self._core.log
        if take.number != core.record.promise.number or not log.first <= take.start <= take.stop <= log.end:
            text = f"[{take.start}, {take.stop}) is asked back, this log holds [{log.first}, {log.end})"
            core.close(out, Reason.OFFSET_GONE, text, now)
            return
        out.append(Note("donating", f"gives [{take.start}, {take.stop}) back to the master that lost it", loud=True))
        core.enter(SlavePhase.DONATING)
        self._from, self._stop = take.start, take.stop

    def next_batch(self) -> Batch | None:
        """Returns what to give back next."""
        core = self._core
        if core.phase is not SlavePhase.DONATING or self._from >= self._stop:
            return None
        stop = core.record.history.stop_of(self._from, self._stop)
        return Batch(self._from, min(stop - self._from, core.terms.batch))

    def frame_header(self, data: memoryview | bytes) -> bytes:
        """Returns what goes before the bytes of a batch."""
        core = self._core
        number = core.record.history.number_at(self._from)
        if core.seal is None:
            return ha.encode_data_header(number, self._from, 0, data)
        digest = log_sum(data, None)
        return ha.encode_sealed_data_header(
            core.seal, number, self._from, 0, len(data), digest, flush=False, lone=False
        )

    def sent(self, stop: int, now: float) -> None:
        """Notes that bytes up to `stop` were given back."""
        assert self._from < stop <= self._stop, f"{self._from} < {stop} <= {self._stop}"
        self._from = stop
        self._core.last_sent = now
