"""What readers of a master may see: what can't vanish any more (rule 6).  Pure."""

from tandemq.replication.decisions import Confirm, Decision, FlushSoon
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers


class Confirming:
    """The confirmed offset of a master: it only grows while it reigns."""

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        level = core.terms.level
        self._append_confirms = level.needed(1) == 1 and not (level.durable or core.terms.sync_flush)
        """Whether readers may see a message as soon as it is appended; else a flush or an ack makes it visible."""

    def appended(self, out: list[Decision], end: int) -> None:
        """Notes that the log grew to `end` by writes of this master."""
        core = self._core
        core.log.end = end
        alone = self._is_left_alone()
        if alone or self._append_confirms:
            self.confirm(out)
        if alone and core.confirmed < end:
            out.append(FlushSoon())

    def flushed(self, out: list[Decision], offset: int) -> None:
        """Notes that fdatasync returned for everything below `offset`."""
        core = self._core
        core.log.flushed = max(core.log.flushed, offset)
        if core.is_open:
            core.acks.flushed(out, offset)
            self.confirm(out)

    def confirm(self, out: list[Decision]) -> None:
        """Shows readers what may be shown by now."""
        core = self._core
        if core.acks.is_fenced:
            return
        offset = self._confirmable()
        if offset > core.confirmed:
            core.confirmed = offset
            out.append(Confirm(offset))

    def _confirmable(self) -> int:
        """Returns what readers may see: what has the copies of the broker's default level."""
        core, terms, log = self._core, self._core.terms, self._core.log
        if not core.is_open:
            return 0
        if core.acks.fence is not None and core.acks.fence.wants_copies:
            return min(core.acks.watermark(terms.level, terms.sync_flush), log.end)
        if self._is_left_alone():
            # What is on this node's own disk survives all that can still happen to it; a master that never had a
            # slave shows what it has, as RocketMQ does.
            alone_for_ever = not core.record.members and not terms.sync_flush
            return log.end if alone_for_ever else min(log.flushed, log.end)
        return min(core.acks.watermark(terms.level, terms.sync_flush), log.end)

    def _is_left_alone(self) -> bool:
        """Returns whether too few replicas are left for the default level, and readers are not to wait for them."""
        core = self._core
        others = core.terms.level.needed(core.acks.copies.group_size) - 1
        if others <= 0 or core.terms.readers_wait:
            return False
        if core.provisional:
            return True
        if others <= len(core.record.in_sync):  # asked for every append and ack
            return False
        return self._followers.countable() < others
