"""From a master's WELCOME to START: our log is cut to what both agree on, then the master's history is adopted.  Pure.

The log is cut before the history is adopted, so a crash in between never labels our bytes with the master's epochs; the
history is adopted before the first byte of it is appended.
"""

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Registered, Start, Welcome
from tandemq.replication.decisions import Confirm, Decision, Note, Reset, Truncate
from tandemq.replication.epochs import Promise, common_point, from_items
from tandemq.replication.first_copy import NEVER_COMPARED, lacking
from tandemq.replication.following.core import SlaveCore, SlavePhase
from tandemq.replication.following.receiving import Receiving
from tandemq.replication.register import is_newer


class Aligning:
    """Where this log agrees with the master's, and what becomes of the rest of it."""

    def __init__(self, core: SlaveCore, receiving: Receiving) -> None:
        self._core, self._receiving = core, receiving

    def welcomed(self, out: list[Decision], welcome: Welcome, now: float) -> None:
        """Follows the master from the common point on, if it is open; else waits until it is."""
        core = self._core
        if Promise(welcome.number, welcome.id) != core.record.promise:
            core.close(out, Reason.PROMISED, f"welcome to epoch {welcome.number}, which was not promised", now)
            return
        core.master = welcome.replica
        if not welcome.open:
            if core.phase is SlavePhase.TOLD:
                core.enter(SlavePhase.WAITING)
            return
        core.number = welcome.number
        register = welcome.register
        start = self._align(out, welcome)
        core.save(
            out,
            history=from_items(welcome.history),
            members=frozenset(welcome.members),
            in_sync=frozenset(welcome.in_sync),
            reigning=False,
            follows=welcome.replica,
            complete=start >= welcome.end or (core.record.complete and register is not None),
            blind_from=-1,
            alone_from=-1,
            register=register if is_newer(register, core.record.register) else core.record.register,
            lacks=lacking(core.log.first, welcome.first, core.record.lacks, last_file_only=core.terms.last_file_only),
            copying_to=NEVER_COMPARED,
        )
        core.enter(SlavePhase.FOLLOWING)
        core.trouble = None
        durable = self._receiving.begin(start, welcome.end)
        out.append(Note("following", f"follows master {welcome.replica} in epoch {welcome.number} from {start}"))
        core.send(out, Start(welcome.number, start, durable), now)
        if register is not None:
            core.send(out, Registered(register.epoch, register.revision), now)

    def _align(self, out: list[Decision], welcome: Welcome) -> int:
        """Cuts our log to where it agrees with the master's. Returns where to go on."""
        core, log = self._core, self._core.log
        agreed = common_point(core.record.history, log.end, from_items(welcome.history), welcome.end)
        empty = log.end == log.first
        if empty or agreed is None or agreed < max(welcome.first, log.first):
            if empty and log.first == welcome.start_empty_at:
                return log.end
            self._begin_anew(out, welcome.start_empty_at, agreed)
        elif agreed < log.end:
            why = f"the master's epoch {welcome.number} has another history from {agreed} on"
            out.append(Truncate(agreed, log.end, why))
            log.end = agreed
            log.flushed = min(log.flushed, agreed)
        core.confirmed = min(core.confirmed, log.end)
        out.append(Confirm(core.confirmed))
        core.check()
        return log.end

    def _begin_anew(self, out: list[Decision], start: int, agreed: int | None) -> None:
        """Drops the whole log, of which nothing, or nothing that the master still has, is the same there."""
        log = self._core.log
        empty = log.end == log.first
        save_from = log.first if agreed is None else max(agreed, log.first)
        reason = Reason.DIVERGED if agreed is None else Reason.OFFSET_GONE
        why = "the log is empty" if empty else f"{reason.value}: {reason.advice}"
        event = "reset-empty" if empty else f"reset-{reason.value}"
        out.append(Reset(start, save_from, log.end, why, event))
        if not empty:
            text = f"begins anew at {start}, its own log ended at {log.end}: {why}"
            out.append(Note("began-anew", text, loud=True))
        log.first = log.end = log.flushed = start
