"""Who waits for which copies of which bytes, and when the wait is over.  Pure: watermarks and `now` in, callbacks out.

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
`done` is called synchronously, also from inside `add` when the outcome is known at once.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandemq.model.ack_level import AckLevel, Copies
from tandemq.replication.fence import Fence
from tandemq.replication.waits import WaitHistogram

Done = Callable[["PutStatus", str], None]

_INFINITY: Final = 1 << 62


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


@dataclass(slots=True)
class _Copy:
    """The acknowledged offsets of one replica that counts.  Invariant: 0 <= durable <= received."""

    received: int
    durable: int


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
        """`now`: the time that `since` of `add` speaks in, for `waits` alone."""
        self._now = now
        self.waits = WaitHistogram()
        self._queues: dict[tuple[Copies, bool, bool], _LevelQueue] = {}
        self._copies: dict[str, _Copy] = {}
        self._classic: dict[str, _Copy] = {}
        """Copies of RocketMQ's slaves: for levels that ask more copies than the register has members."""
        self._size: int | None = None
        """Members of the register; None while there is none."""
        self.acknowledged = 0
        """Everything below was acknowledged with a copy on another replica, or is older."""
        self.wants_classic = False
        """Somebody asked for more copies than the register has members."""
        self._flushed = 0
        self._group_size_min = max(1, group_size)
        self._members: frozenset[str] = frozenset()
        self.group_size = self._group_size_min
        """Nodes of the group: the configured number, or those known if they are more."""
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

    def _count_group(self) -> None:
        if self._size is not None:
            self.group_size = max(self._group_size_min, self._size)
            return
        self.group_size = max(self._group_size_min, 1 + len(self._members | self._copies.keys() | self._classic.keys()))

    def set_members(self, replicas: frozenset[str]) -> None:
        """Sets the replicas known to belong to the group, connected or not: `majority` and `all` count against them."""
        self._members = replicas
        self._size = None
        self._count_group()
        self._settle()

    def set_size(self, size: int) -> None:
        """Does what `set_members` does, from the register of the group."""
        if size != self._size:
            self._size = size
            self._count_group()
            self._settle()

    def flushed(self, offset: int) -> None:
        """Notes that this node's fdatasync covers everything below `offset`."""
        if offset > self._flushed:
            self._flushed = offset
            self._settle()

    def acked(self, replica: str, received: int, durable: int, *, classic: bool = False) -> None:
        """Notes what a replica that counts confirmed; offsets never go back within one session of it."""
        copies = self._classic if classic else self._copies
        copy = copies.get(replica)
        if copy is None:
            copies[replica] = _Copy(received, min(durable, received))
            self._count_group()
        elif received > copy.received or durable > copy.durable:
            copy.received = max(copy.received, received)
            copy.durable = max(copy.durable, min(durable, copy.received))
        else:
            return
        self._settle()

    def lost(self, replica: str, reason: str) -> None:
        """Stops counting a replica: waiters that can't be satisfied without it fail now, with the reason."""
        if self._copies.pop(replica, None) is not None or self._classic.pop(replica, None) is not None:
            self._count_group()
            self.why_missing = reason
            self._settle()
            self._fail_unreachable()

    def watermark(self, level: AckLevel, local_flush: bool = False) -> int:
        """Returns the offset at or below which every record that ends there satisfies the level."""
        mark = self._flushed if local_flush or level.durable else _INFINITY
        others = level.needed(self.group_size) - 1
        if others == 0 and self.fence is not None and self.fence.wants_copies:
            others = 1
        if others > 0:
            mark = min(mark, self._kth(others, level.durable))
        return mark

    def _counted(self, others: int) -> list[_Copy]:
        """Returns the copies that count for a level that asks for so many besides the master's."""
        copies = list(self._copies.values())
        if self._classic and (self._size is None or others + 1 > self._size):
            copies += self._classic.values()
        return copies

    @property
    def counts_classic(self) -> bool:
        """Whether copies of RocketMQ's slaves stand among those that may count."""
        return bool(self._classic)

    @property
    def oldest_waiting(self) -> int | None:
        """Where the first record ends that somebody waits for."""
        return min((queue.waiting[0][0] for queue in self._queues.values() if queue.waiting), default=None)

    def _kth(self, k: int, durable: bool) -> int:
        copies = self._copies.values() if not self._classic else self._counted(k)
        offsets = [copy.durable if durable else copy.received for copy in copies]
        if len(offsets) < k:
            return 0
        if len(offsets) == 1:
            return offsets[0]
        offsets.sort(reverse=True)
        return offsets[k - 1]

    # --- waiters ----------------------------------------------------------------------------------------------------

    def add(
        self, end_offset: int, level: AckLevel, local_flush: bool, deadline: float, done: Done, since: float = 0.0
    ) -> None:
        """Calls `done` once: when the level is reached, can't be reached, or at the deadline (`expire`)."""
        key = (level.copies, level.durable, local_flush)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _LevelQueue(level, local_flush)
            self._measure(queue)
        if end_offset <= queue.watermark and not self.is_fenced:
            if queue.others:
                self.acknowledged = max(self.acknowledged, end_offset)
            done(PutStatus.PUT_OK, "")
            return
        if end_offset >= queue.reach:
            if self._size is not None and queue.others >= self._size:
                self.wants_classic = True
            missing = self._missing(end_offset, level)
            if missing:
                done(PutStatus.SLAVE_NOT_AVAILABLE, missing)
                return
        queue.waiting.append((end_offset, deadline, done, since))

    def expire(self, now: float) -> None:
        """Fails every waiter whose deadline is not after `now`."""
        for queue in list(self._queues.values()):
            waiting = queue.waiting
            while waiting and waiting[0][1] <= now:
                end_offset, _, done, since = waiting.popleft()
                self.waits.observe(now - since)
                done(*self._late(queue, end_offset))

    def fail_all(self, status: PutStatus, reason: str) -> None:
        """The reign is over, or the log is poisoned: nobody will get an acknowledgement any more."""
        for queue in list(self._queues.values()):
            waiting, queue.waiting = queue.waiting, deque()
            for _, _, done, _ in waiting:
                done(status, reason)

    def restart(self, flushed: int, reason: str) -> None:
        """Begins a reign: nobody's offsets count yet, and a log that was cut is flushed no further than it goes."""
        self._flushed = self.acknowledged = flushed
        self.forget_replicas(reason)

    def forget_replicas(self, reason: str) -> None:
        """Drops every replica's offsets, when an epoch ends: an ack belongs to one epoch."""
        self._copies.clear()
        self._classic.clear()
        self.wants_classic = False
        self._count_group()
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
        """Replicas that those who wait need at most; 0 when nobody does, or only for the local flush."""
        wanted = 0
        for queue in self._queues.values():
            if queue.waiting:
                wanted = max(wanted, queue.level.needed(self.group_size) - 1)
        return wanted

    @property
    def is_lone(self) -> bool:
        """A single send waits for copies."""
        return len(self) == 1 and self.copies_wanted > 0

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has something to do, if nothing else happens."""
        heads = [queue.waiting[0][1] for queue in self._queues.values() if queue.waiting]
        return min(heads) if heads else None

    def __len__(self) -> int:
        count = 0
        for queue in self._queues.values():
            count += len(queue.waiting)
        return count

    # --- settling ---------------------------------------------------------------------------------------------------

    def _measure(self, queue: _LevelQueue) -> None:
        queue.watermark = self.watermark(queue.level, queue.local_flush)
        queue.others = others = queue.level.needed(self.group_size) - 1
        if others <= 0:
            queue.reach = _INFINITY
        else:
            enough = len(self._counted(others)) >= others
            queue.reach = self._kth(others, False) + self.fall_behind_max if enough else 0

    @property
    def is_fenced(self) -> bool:
        """Whether nothing may be acknowledged now: the lease of this reign is over, or about to be."""
        return self.fence is not None and self.fence.is_closed

    def settle(self) -> None:
        """Looks again: what may be acknowledged depends on the time too, where there is a fence."""
        self._settle()

    def _settle(self) -> None:
        for queue in tuple(self._queues.values()):
            self._measure(queue)
            mark, waiting = queue.watermark, queue.waiting
            if not waiting or waiting[0][0] > mark or self.is_fenced:
                continue
            now, observe = self._now(), self.waits.observe
            while waiting and waiting[0][0] <= mark:
                end_offset, _, done, since = waiting.popleft()
                if queue.others and end_offset > self.acknowledged:
                    self.acknowledged = end_offset
                observe(now - since)
                done(PutStatus.PUT_OK, "")

    def _missing(self, end_offset: int, level: AckLevel) -> str:
        """Returns why `level` can't be reached for this record with the current replicas; empty if it can."""
        others = level.needed(self.group_size) - 1
        if others <= 0:
            return ""
        behind_max = self.fall_behind_max
        near = 0
        copies = self._counted(others)
        for copy in copies:
            if end_offset - copy.received < behind_max:
                near += 1
        if near >= others:
            return ""
        if len(copies) >= others:
            why = f"fell behind by {behind_max} bytes or more (haMaxGapNotInSync)"
        elif copies and others >= self.group_size:
            why = f"the group has {self.group_size} nodes"
        else:
            why = self.why_missing
        return f"{others + 1} copies are required, {near + 1} can be had: {why}"

    def _fail_unreachable(self) -> None:
        for queue in list(self._queues.values()):
            others = queue.level.needed(self.group_size) - 1
            if queue.waiting and others > len(self._counted(others)):
                waiting, queue.waiting = queue.waiting, deque()
                for end_offset, _, done, _ in waiting:
                    done(PutStatus.SLAVE_NOT_AVAILABLE, self._missing(end_offset, queue.level))

    def _late(self, queue: _LevelQueue, end_offset: int) -> tuple[PutStatus, str]:
        copies = queue.level.needed(self.group_size)
        replicated = copies <= 1 or self._kth(copies - 1, queue.level.durable) >= end_offset
        if not replicated:
            where = "on disk " if queue.level.durable else ""
            return PutStatus.FLUSH_SLAVE_TIMEOUT, f"{copies} copies {where}were not confirmed before the deadline"
        return PutStatus.FLUSH_DISK_TIMEOUT, f"flushed to {self._flushed}, the record ends at {end_offset}"
