"""Who waits for which copies of which bytes, and when the wait is over.  Pure: watermarks and `now` in, decisions out.

Every durability question is a position on one log (design: watermarks).  A waiter names the end of its record and a
level; it is done as soon as a function of watermarks has passed that end:

    local flush       flushed
    k copies          the (k-1)-th largest `received` among the replicas that count (the master itself is one copy)
    k copies on disk  min(flushed, the (k-1)-th largest `durable`)

What each level survives:

    1 copy               a crash of the broker process
    1 copy, durable      a crash of the machine (fdatasync returned here)
    k copies             the loss of any k-1 nodes, machines and disks included
    k copies, durable    the same, and a power cut that takes all of them at once

Waiters of one level sit in one queue in offset order, so completing is popping from its left; different levels don't
hold each other up.  Deadlines within a queue are in offset order too, because they come from one timeout setting.

Nobody is told anything in here.  Whoever moves a watermark passes a list and finds a `Complete` in it for those whose
wait is over: a decision among the others, carried out in its turn, after a record that was to be saved before it and
before the Confirm of the same bytes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from tandemq.model.ack_level import AckLevel, Copies
from tandemq.replication.copies import CopyCounts
from tandemq.replication.fence import Fence
from tandemq.replication.waits import WaitHistogram

Done = Callable[["PutStatus", str], None]

_INFINITY: Final = 1 << 62

LEASE_ENDED: Final = "this master's lease ended before the acknowledgement could leave"


class PutStatus(Enum):
    """What a producer is told about the copies of its message."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but not on this node's disk before the deadline."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but the copies did not confirm before the deadline."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there are not enough replicas in sync to reach the level: told at once."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """This node is no longer allowed to acknowledge: deposed, read-only, or its log is poisoned."""


class Complete(NamedTuple):
    """Tell those whose wait is over; they no longer stand in any queue, so each is told exactly once."""

    waiters: Sequence[Done]
    status: PutStatus
    reason: str = ""


class Decided(Protocol):
    """Takes decisions in the order in which they are to be carried out: a list of them."""

    def append(self, complete: Complete, /) -> None: ...


class _LevelQueue:
    """The waiters of one (copies, durable, local flush), in offset order: (end offset, deadline, done, since)."""

    __slots__ = ("level", "local_flush", "others", "reach", "waiting", "watermark")

    def __init__(self, level: AckLevel, local_flush: bool) -> None:
        self.level = level
        self.local_flush = local_flush
        self.waiting: deque[tuple[int, float, Done, float]] = deque()
        self.watermark = 0
        self.others = 0
        """Copies wanted besides the master's own."""
        self.reach = 0
        """Records that end below this can reach the level with the current replicas; others are checked one by one."""


class AckQueue:
    """All waiters of a master, and the watermarks they wait for."""

    def __init__(
        self, *, group_size: int = 1, fall_behind_max: int = _INFINITY, now: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`now`: the clock of `since` in `add`, for `waits` alone."""
        self._now = now
        self.waits = WaitHistogram()
        self._queues: dict[tuple[Copies, bool, bool], _LevelQueue] = {}
        self.copies = CopyCounts(group_size)
        self.acknowledged = 0
        """Everything below was acknowledged with a copy on another replica, or is older."""
        self.wants_classic = False
        """Somebody asked for more copies than the register has members."""
        self._flushed = 0
        self._untold = 0
        """Waiters whose wait is over by a Complete that has not been carried out."""
        self.fall_behind_max = fall_behind_max
        """A replica whose received offset is this far behind a record can't be waited for."""
        self.fence: Fence | None = None
        """Of a master with a coordinator: until when anything may be acknowledged."""
        self.why_missing = "no slave is connected"
        """Why replicas are missing, for the producer's remark; kept current by the master's state."""

    # --- watermarks -------------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def group_size(self) -> int:
        """Nodes of the group: the configured number, or those known if they are more."""
        return self.copies.group_size

    @property
    def counts_classic(self) -> bool:
        """Whether copies of RocketMQ's slaves stand among those that may count."""
        return self.copies.has_classic

    def set_members(self, out: Decided, replicas: frozenset[str]) -> None:
        """Sets the replicas known to belong to the group, connected or not: `majority` and `all` count against them."""
        self.copies.set_known(replicas)
        self._settle(out)

    def set_size(self, out: Decided, size: int) -> None:
        """Does what `set_members` does, from the register of the group."""
        if size != self.copies.register_size:
            self.copies.set_register_size(size)
            self._settle(out)

    def flushed(self, out: Decided, offset: int) -> None:
        """Notes that this node's fdatasync covers everything below `offset`."""
        if offset > self._flushed:
            self._flushed = offset
            self._settle(out)

    def acked(self, out: Decided, replica: str, received: int, durable: int, *, classic: bool = False) -> None:
        """Notes what a replica that counts confirmed."""
        if self.copies.acked(replica, received, durable, classic=classic):
            self._settle(out)

    def lost(self, out: Decided, replica: str, reason: str) -> None:
        """Stops counting a replica: waiters that can't be satisfied without it fail now, with the reason."""
        if self.copies.drop(replica):
            self.why_missing = reason
            self._settle(out)
            self._fail_unreachable(out)

    def watermark(self, level: AckLevel, local_flush: bool = False) -> int:
        """Returns the offset at or below which every record that ends there satisfies the level."""
        mark = self._flushed if local_flush or level.durable else _INFINITY
        others = level.needed(self.copies.group_size) - 1
        if others == 0 and self.fence is not None and self.fence.wants_copies:
            others = 1
        if others > 0:
            mark = min(mark, self.copies.kth(others, level.durable))
        return mark

    @property
    def oldest_waiting(self) -> int | None:
        """Where the first record ends that somebody waits for."""
        return min((queue.waiting[0][0] for queue in self._queues.values() if queue.waiting), default=None)

    # --- waiters ----------------------------------------------------------------------------------------------------

    def add(
        self, end_offset: int, level: AckLevel, local_flush: bool, deadline: float, done: Done, since: float = 0.0
    ) -> tuple[PutStatus, str] | None:
        """Has `done` told once: when the level is reached, can't be reached, or at the deadline (`expire`).

        Returns what is known at once, for the caller to tell: then nobody waits.
        """
        key = (level.copies, level.durable, local_flush)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _LevelQueue(level, local_flush)
            self._measure(queue)
        if end_offset <= queue.watermark and not self.is_fenced:
            if queue.others:
                self.acknowledged = max(self.acknowledged, end_offset)
            return PutStatus.PUT_OK, ""
        if end_offset >= queue.reach:
            size = self.copies.register_size
            if size is not None and queue.others >= size:
                self.wants_classic = True
            missing = self._missing(end_offset, level)
            if missing:
                return PutStatus.SLAVE_NOT_AVAILABLE, missing
        queue.waiting.append((end_offset, deadline, done, since))
        return None

    def expire(self, out: Decided, now: float) -> None:
        """Fails every waiter whose deadline is not after `now`."""
        for queue in self._queues.values():
            waiting = queue.waiting
            while waiting and waiting[0][1] <= now:
                end_offset, _, done, since = waiting.popleft()
                self.waits.observe(now - since)
                self._over(out, (done,), *self._late(queue, end_offset))

    def fail_all(self, out: Decided, status: PutStatus, reason: str) -> None:
        """Fails everybody: the reign is over, or the log is poisoned."""
        for queue in self._queues.values():
            if queue.waiting:
                self._over(out, [done for _, _, done, _ in queue.waiting], status, reason)
                queue.waiting.clear()

    def restart(self, flushed: int, reason: str) -> None:
        """Begins a reign: nobody's offsets count yet, and a log that was cut is flushed no further than it goes."""
        self._flushed = self.acknowledged = flushed
        self.forget_replicas(reason)

    def forget_replicas(self, reason: str) -> None:
        """Drops every replica's offsets, when an epoch ends: an ack belongs to one epoch."""
        self.copies.clear()
        self.wants_classic = False
        self.why_missing = reason
        for queue in self._queues.values():
            self._measure(queue)

    @property
    def wants_durable(self) -> bool:
        """Whether somebody waits for copies on disk, so that slaves should flush at once."""
        for key, queue in self._queues.items():  # noqa: SIM110  # asked for every frame, a generator costs twice
            if key[1] and queue.waiting:
                return True
        return False

    @property
    def copies_wanted(self) -> int:
        """Largest number of replicas that any waiter needs; 0 when nobody waits, or only for the local flush."""
        wanted = 0
        for queue in self._queues.values():
            if queue.waiting:
                wanted = max(wanted, queue.others)
        return wanted

    @property
    def is_lone(self) -> bool:
        """A single send waits for copies."""
        lone = False
        for queue in self._queues.values():
            if queue.waiting:
                if lone or queue.others <= 0 or len(queue.waiting) > 1:
                    return False
                lone = True
        return lone and self._untold == 0

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has something to do, if nothing else happens."""
        heads = [queue.waiting[0][1] for queue in self._queues.values() if queue.waiting]
        return min(heads) if heads else None

    def __len__(self) -> int:
        """Returns how many have not been told anything."""
        count = self._untold
        for queue in self._queues.values():
            count += len(queue.waiting)
        return count

    # --- telling ----------------------------------------------------------------------------------------------------

    def tell(self, complete: Complete) -> None:
        """Carries out a Complete.

        A record may have been saved since it was decided, on a slow disk: nothing is acknowledged after the lease.
        """
        waiters, status, reason = complete
        if self.fence is not None and status is PutStatus.PUT_OK and self.fence.is_closed:
            status, reason = PutStatus.SERVICE_NOT_AVAILABLE, LEASE_ENDED
        for done in waiters:
            self._untold -= 1  # before each one: the last to be told sends all answers at once
            done(status, reason)

    def refuse(self, complete: Complete, reason: str) -> None:
        """Tells those of a Complete that can't be carried out, because something before it failed."""
        self.tell(Complete(complete.waiters, PutStatus.SERVICE_NOT_AVAILABLE, reason))

    def _over(self, out: Decided, waiters: Sequence[Done], status: PutStatus, reason: str = "") -> None:
        self._untold += len(waiters)
        out.append(Complete(waiters, status, reason))

    # --- settling ---------------------------------------------------------------------------------------------------

    def _measure(self, queue: _LevelQueue) -> None:
        level, copies = queue.level, self.copies
        queue.watermark = mark = self.watermark(level, queue.local_flush)
        queue.others = others = level.needed(copies.group_size) - 1
        if others <= 0:
            queue.reach = _INFINITY
        elif copies.count(others) < others:
            queue.reach = 0
        elif level.durable or queue.local_flush:
            queue.reach = copies.kth(others, False) + self.fall_behind_max
        else:
            queue.reach = mark + self.fall_behind_max

    @property
    def is_fenced(self) -> bool:
        """Whether nothing may be acknowledged now: the lease of this reign is over, or about to be."""
        return self.fence is not None and self.fence.is_closed

    def settle(self, out: Decided) -> None:
        """Looks again: what may be acknowledged depends on the time too, where there is a fence."""
        self._settle(out)

    def _settle(self, out: Decided) -> None:
        for queue in self._queues.values():
            self._measure(queue)
            mark, waiting = queue.watermark, queue.waiting
            if not waiting or waiting[0][0] > mark or (self.fence is not None and self.fence.is_closed):
                continue
            now, observe = self._now(), self.waits.observe
            over: list[Done] = []
            end_offset = 0
            while waiting and waiting[0][0] <= mark:
                end_offset, _, done, since = waiting.popleft()
                observe(now - since)
                over.append(done)
            if queue.others and end_offset > self.acknowledged:
                self.acknowledged = end_offset
            self._untold += len(over)
            out.append(Complete(over, PutStatus.PUT_OK))

    def _missing(self, end_offset: int, level: AckLevel) -> str:
        """Returns why `level` can't be reached for this record with the current replicas; empty if it can."""
        others = self.copies.others_needed(level)
        return self.copies.missing(end_offset, others, self.fall_behind_max, self.why_missing)

    def _fail_unreachable(self, out: Decided) -> None:
        for queue in self._queues.values():
            others = self.copies.others_needed(queue.level)
            if queue.waiting and others > self.copies.count(others):
                waiting, queue.waiting = queue.waiting, deque()
                for end_offset, _, done, _ in waiting:
                    reason = self._missing(end_offset, queue.level)
                    self._over(out, (done,), PutStatus.SLAVE_NOT_AVAILABLE, reason)

    def _late(self, queue: _LevelQueue, end_offset: int) -> tuple[PutStatus, str]:
        others = self.copies.others_needed(queue.level)
        replicated = others <= 0 or self.copies.kth(others, queue.level.durable) >= end_offset
        if not replicated:
            where = "on disk " if queue.level.durable else ""
            return PutStatus.FLUSH_SLAVE_TIMEOUT, f"{others + 1} copies {where}were not confirmed before the deadline"
        return PutStatus.FLUSH_DISK_TIMEOUT, f"flushed to {self._flushed}, the record ends at {end_offset}"
