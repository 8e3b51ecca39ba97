"""From files to a valid store: where the log ends, which views can be trusted, what must be dispatched again.

1. Start. Our checkpoint names an offset below which log and views are durable: start there. Without it (the store was
   last written by RocketMQ, or the file is gone) the timestamps tell, as upstream does it: the newest segment whose
   first record is not younger than the checkpoint; after a clean exit, the end of the newest queue entry; else the
   first segment.
2. End. Walk and check records from the start; the first that is not whole and right ends the log.
3. Views. Queues keep entries below the start whose last one the log confirms; the index likewise. If a queue file is
   damaged or the entries do not add up, all views are built anew from the whole log.
4. What lies past the end is zeroed, durably, before anything is appended: a stale record must not line up again.

After kill -9 (same boot of the machine) the page cache still has every write, and a record's head is written last:
sizes alone are enough, checksums are compared for the last records only. A slave's log may end in the middle of a
record, whose head came first, so the last one must also have its text to the end. After a machine crash every checksum
is compared, and a record whose text has a sector of zeros, or whose head lacks what every broker writes, is not whole.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from tandemq.errors import CorruptLog, StoreError
from tandemq.formats.checkpoint import Checkpoint, ViewsPoint
from tandemq.formats.crc import crc32
from tandemq.formats.layout import REPLICA
from tandemq.formats.queue_starts import QueueStarts
from tandemq.formats.record import (
    CRC_MASK,
    FIXED_SIZE_V4,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MAGIC,
    WHOLE_HEADS,
    check_record,
    head_struct,
    store_timestamp,
    tail_bounds,
)
from tandemq.model.message import BORN_HOST_V6, STORE_HOST_V6
from tandemq.store.commit_log import CommitLog
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.dispatch import LogDispatcher
from tandemq.store.integrity import index_problem, queues_problem
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable
from tandemq.store.truncation import Truncation

SECTOR = 512
DISPATCH_SIZE = 1 << 26
"""Log dispatched between two writes of queue entries: bounds the memory of a rebuild."""
SEARCH_SIZE = 1 << 20
LAST_RECORDS = 256
"""After kill -9: how many records at the end have their checksum compared all the same."""
_SCAN_HEAD = head_struct("size", "magic", "crc", "physical_offset", "sys_flag", "body_size")
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
"""What the magics of both versions begin with."""
_INT = Struct(">I")
_SHORT = Struct(">H")


class ViewsDamaged(StoreError):
    """A hole where there can be none: the views must be built anew."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening found."""

    clean: bool
    scanned_from: int
    end: int
    durable: int
    """Known to be on disk without another sync."""
    dispatched_from: int
    rebuilt: bool
    same_boot: bool
    saved_to: int = 0
    """Whole records followed a damaged one: [end, saved_to) was cut off and kept under cut/. 0 if there were none."""
    behind: int = 0
    """Likewise, opened for reading: nothing was cut off, whole records lie up to here."""
    deleted_topics: tuple[str, ...] = ()
    """Topics of which the log that was dispatched again says that they were deleted."""
    problem: str = ""
    """Why the views were built anew from the whole log, if they were."""
    scan_seconds: float = 0.0
    dispatch_seconds: float = 0.0

    @property
    def after_machine_crash(self) -> bool:
        """What was not on disk may be gone: the page cache did not outlive the last process."""
        return not (self.clean or self.same_boot)


@dataclass(slots=True)
class Recovery:
    """The parts, as loaded from disk, and what is known about how the last process ended."""

    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    checkpoint: Checkpoint
    aborted: bool
    truncation: Truncation | None
    boot_id: bytes
    check_crc: bool
    read_only: bool
    monotonic: Callable[[], float]
    dispatch_limit: int | None = None
    """Where readers have to stop: the confirmed offset of a replica."""
    indexed_to: int = 0
    """Records below are known to be in the index."""
    distrust: Callable[[], None] = lambda: None
    """Removes the checkpoint before the views it vouches for go."""
    save: Callable[[int, int], None] | None = None
    """Keeps log bytes [start, stop) before they are cut off."""
    progress: Callable[[int, int], None] | None = None
    """Told (done, total) bytes while dispatching: a rebuild takes a while."""
    marked_boot: bool = False
    """The marker of the process that did not stop in order says that the machine has not been started since."""
    has_checkpoint: bool = True
    """Whether there is a checkpoint file at all; RocketMQ writes one too."""
    starts: QueueStarts | None = None
    """The queues at the log's first offset, if the store knows."""
    confirmed: int = 0
    """What a replica says was confirmed: a log there was."""
    problem: str = ""
    """Why the views had to be built anew."""

    def run(self, dispatcher: LogDispatcher) -> Recovered:
        log = self.log
        deleted: list[str] = []
        dispatcher.on_topic_deleted = deleted.append
        if not self.read_only:
            self.queues.settle_deleted(self._vouched)
        damaged = self.queues.load()
        index_whole = self.index is None or self.index.load()
        if not log.chain.bases:
            return self._empty(dispatcher)
        if self.dispatch_limit is not None:
            self.dispatch_limit = max(self.dispatch_limit, self._shown_before())
        same_boot = self.checkpoint.views is not None and self.checkpoint.views.boot_id == self.boot_id
        start, exact = self._start()
        began = self.monotonic()
        end = self._end(start, same_boot)
        scanned = self.monotonic()
        log.set_end(end)
        saved_to = behind = 0
        # Also after an orderly stop, if no checkpoint says where the log ends: then it ends at the first damage.
        is_doubtful = self.aborted or not exact
        if is_doubtful and self.read_only:
            behind = self._readable_behind(end)
        elif is_doubtful:
            saved_to = self._save_behind(end)
            log.cut(end, thorough=True)
        if damaged:
            where = f"consumequeue/{damaged[0].topic}/{damaged[0].queue_id}"
            self.problem = f"{where}: a file is missing or has a wrong size"
        elif not self.has_checkpoint and not self.read_only:
            self.problem = "the checkpoint is missing, so nothing vouches for them"
        elif not index_whole:
            self.problem = "index: a file has another size than the settings say"
        elif self._are_older_than_log:
            self.problem = (
                f"the log begins at {log.first_offset} since files expired, the checkpoint vouches for them up to "
                f"{self._vouched} only"
            )
        trusted = not self.problem and self._keep_views(start, exact, same_boot)
        ready = self.monotonic()
        dispatched_from = self._dispatch(dispatcher, start, end, trusted)
        return Recovered(
            clean=not self.aborted,
            scanned_from=start,
            end=end,
            durable=end if not self.aborted else min(start, end),
            dispatched_from=dispatched_from,
            rebuilt=dispatched_from == log.first_offset < start,
            same_boot=same_boot or self.marked_boot,
            saved_to=saved_to,
            behind=behind,
            scan_seconds=scanned - began,
            dispatch_seconds=self.monotonic() - ready,
            deleted_topics=tuple(deleted),
            problem=self.problem,
        )

    @property
    def _foreign(self) -> bool:
        """Returns whether RocketMQ wrote the store last: then only timestamps tell."""
        return self.checkpoint.views is None or not (self.checkpoint.certain or self.aborted)

    @property
    def _vouched(self) -> int:
        """Returns how far a checkpoint vouches for the views; beyond everything if RocketMQ used them since."""
        views = self.checkpoint.views
        return views.offset if views is not None and (self.checkpoint.certain or self.aborted) else 1 << 62

    @property
    def _are_older_than_log(self) -> bool:
        """Whether part of the log expired that would have to be dispatched again.

        What it told of queues, numbers and deleted topics, was saved before it went: that and the rest of the log give
        the views, which are not complete themselves.
        """
        if self._foreign or self.starts is None:
            return False
        return self._vouched < self.log.first_offset <= self.starts.offset

    def _empty(self, dispatcher: LogDispatcher) -> Recovered:
        if not self.read_only and (evidence := self._evidence()):
            raise CorruptLog(
                f"{self.log.chain.directory} holds no log, but {evidence}: is the directory mounted? Bring the files "
                "back, or give the broker an empty store directory if these messages may be lost"
            )
        if not self.read_only:
            self.queues.destroy()
            if self.index is not None:
                self.index.destroy()
        self.queues.clear()
        dispatcher.position = dispatcher.index_from = 0
        self.log.set_end(0)
        # Nothing can be gone: the first file of a log has a durable name before a byte in it counts.
        return Recovered(not self.aborted, 0, 0, 0, 0, rebuilt=False, same_boot=True)

    def _evidence(self) -> str:
        """Returns what shows that there was a log once; nothing for a store that never had a message."""
        with_messages = [queue for queue in self.queues.table.values() if queue.count]
        if with_messages:
            queue = with_messages[0]
            return f"queue {queue.queue_id} of topic {queue.topic} has {queue.count} messages"
        if self.checkpoint.views is not None:
            if self.checkpoint.views.offset:
                return f"the checkpoint says that it reached offset {self.checkpoint.views.offset}"
        elif self.checkpoint.log_timestamp:
            return "the checkpoint names the time of a message"
        return f"{REPLICA} says that it was confirmed up to offset {self.confirmed}" if self.confirmed else ""

    # -- 1. start

    def _start(self) -> tuple[int, bool]:
        """Returns (where to scan from: a record boundary, whether the checkpoint's counts were taken exactly there)."""
        chain, views = self.log.chain, self.checkpoint.views
        limit = self.truncation.offset if self.truncation is not None else None
        if views is not None and not self.checkpoint.certain:
            return self._uncertain_start(views.offset), False
        if views is not None and views.offset >= chain.first_offset:
            if limit is not None and limit < views.offset:
                return self._boundary_below(limit), False
            if views.offset > chain.end and self.read_only:
                return chain.first_offset, False
            if views.offset > chain.end:
                raise CorruptLog(
                    f"{chain.path(chain.end)} is missing: the checkpoint says the log was durable up to "
                    f"{views.offset}, the files end at {chain.end}; bring the file back, or delete the checkpoint file "
                    "if these messages may be lost"
                )
            return views.offset, True
        if not self.aborted and limit is None:
            return max(chain.first_offset, self._queues_end()), False
        return self._by_time(), False

    def _uncertain_start(self, lower_bound: int) -> int:
        """Returns where trust ends.

        A RocketMQ broker used the store since our last checkpoint, or its write was torn.
        """
        if not self.aborted and self.truncation is None:
            return max(self.log.first_offset, self._queues_end())
        limit = min(lower_bound, self._by_time())
        if self.truncation is not None:
            limit = min(limit, self.truncation.offset)
        return self._boundary_below(limit)

    def _boundary_below(self, offset: int) -> int:
        """Returns the first record of the segment that holds `offset`."""
        chain = self.log.chain
        return min(max(offset - offset % chain.segment_size, chain.first_offset), chain.bases[-1])

    def _shown_before(self) -> int:
        """Returns how far readers were shown the log: only what was confirmed ever got into a checkpoint or a queue.

        Nor did anything else become old enough to be deleted, which is what `queue-starts` is saved for. A replica's
        record is saved when something changes in its group, so it may be much older than that.
        """
        expired = self.starts.offset if self.starts is not None else 0
        if self.truncation is not None:  # the log was being cut: what lies above the cut was shown to nobody
            return expired if expired <= self.truncation.offset else 0
        return max(expired, self._queues_end(), 0 if self._foreign else self._vouched)

    def _queues_end(self) -> int:
        """Returns the end of the newest record that any queue points to."""
        end = 0
        for queue in self.queues.table.values():
            if queue.count > queue.first:
                physical_offset, size, _ = queue.last_entry
                if physical_offset + size <= self.log.chain.end:
                    end = max(end, physical_offset + size)
        return end

    def _by_time(self) -> int:
        chain, limit = self.log.chain, self.checkpoint.time_limit
        for base in reversed(chain.bases):
            view = chain.segment(base).view
            if check_record(view, 0, len(view), crc=False) is None:
                stored_at = store_timestamp(view, 0)
                if 0 < stored_at <= limit:
                    return base
        return chain.first_offset

    # -- 2. end

    def _end(self, start: int, same_boot: bool) -> int:
        """Returns the first offset at or after `start` that is no whole, right record."""
        chain = self.log.chain
        crc = self.check_crc and self.aborted and not same_boot
        last: deque[int] = deque(maxlen=LAST_RECORDS)
        position = start
        while position < chain.end:
            base = chain.base_of(position)
            view = chain.segment(base).view
            stopped = scan_segment(view, base, position - base, crc, last)
            position = base + stopped
            if stopped < chain.segment_size:
                break
        if self.aborted and not crc:
            for offset in last:
                base = chain.base_of(offset)
                view = chain.segment(base).view
                if check_record(view, offset - base, len(view)) is not None:
                    return offset
                if offset == last[-1] and has_lost_its_end(view, offset - base):
                    return offset
        return position

    def _save_behind(self, end: int) -> int:
        """Keeps what is cut off if whole records are in it. Returns where the kept part ends, 0 if nothing was kept."""
        last = self._last_behind(end)
        if last > end and self.save is not None and self.truncation is None:
            self.save(end, last)
            return last
        return 0

    def _readable_behind(self, end: int) -> int:
        """Returns, for tools, how far whole records follow the damage at `end`; 0 if there are none."""
        chain = self.log.chain
        last = self._last_behind(end)
        if last <= end:
            return 0
        base = chain.base_of(end)
        view = chain.segment(base).view
        # A broker that has the store open goes on writing: then what was the end is a record by now, and no damage.
        return 0 if check_record(view, end - base, len(view)) is None else last

    def _last_behind(self, end: int) -> int:
        """Returns where the last whole record after `end` ends, `end` if there is none."""
        chain = self.log.chain
        last = end
        for base in chain.bases_set():
            if base + chain.segment_size <= end:
                continue
            segment = chain.segment(base)
            for start, stop in segment.data_ranges(max(0, end - base), chain.segment_size):
                last = max(last, last_record_end(segment.view, base, start, stop))
        return last

    # -- 3. views

    def _keep_views(self, start: int, exact: bool, same_boot: bool) -> bool:
        """Takes back what is not known to be durable. Returns False if the rest does not add up."""
        views = self.checkpoint.views
        for key, queue in list(self.queues.table.items()):
            before = queue.count
            queue.keep_below(start, self._confirmed)
            if before > queue.count == queue.first:  # it began after the checkpoint, which does not count it
                queue.destroy()
                del self.queues.table[key]
            elif before > queue.count and not self.read_only:
                queue.clear_range(queue.count, before)
        if self.starts is not None:
            fileless = self.starts.fileless.items()
            self.queues.start_idle({key: number for key, number in fileless if key not in self.queues.table})
        if exact and views is not None and (found := self.queues.entries()) != views.queue_entries:
            self.problem = f"the queues have {found} entries, the checkpoint says {views.queue_entries}"
            return False
        if problem := queues_problem(self.queues, None if self._foreign else self.starts):
            self.problem = problem
            return False
        if self.starts is not None and start == self.starts.offset:
            # Files went of which no checkpoint had told yet: what the queues had before is known all the same.
            self.queues.start_idle(self.starts.idle)
        if self.index is None or self.read_only:
            return True
        if not self._keep_index(start, exact, same_boot):
            self.problem = "the index does not end as the checkpoint says"
            return False
        # A killed process leaves keys above the start too; what they are taken for must be there as well.
        stop = self.log.appended if self.indexed_to > start else start
        if not self._foreign and (problem := index_problem(self.index, self.log, stop)):
            self.problem = problem
        return not self.problem

    def _confirmed(self, physical_offset: int, size: int, queue_offset: int) -> bool:
        """Returns whether the log has, at this place, a record of this size and queue offset (or had it.

        Deleted history).
        """
        chain = self.log.chain
        if physical_offset < chain.first_offset:
            return True
        if physical_offset + size > chain.end:
            return False
        base = chain.base_of(physical_offset)
        view = chain.segment(base).view
        at = physical_offset - base
        if at + size > len(view) or size < FIXED_SIZE_V4:
            return False
        head = HEAD.unpack_from(view, at)
        return (head[0], head[5], head[6]) == (size, queue_offset, physical_offset)

    def _keep_index(self, start: int, exact: bool, same_boot: bool) -> bool:
        index, views = self.index, self.checkpoint.views
        assert index is not None
        if views is None or self._foreign:
            if self.aborted:
                for name in reversed(index.names.copy()):
                    if index.file(name).end_timestamp > self.checkpoint.index_timestamp:
                        index.drop_from(name)
                # The keys of one message may be spread over two files: the last one of those kept is indexed again.
                index.cut(index.end_physical)
            return True
        if views.index_name and views.index_name not in index.names:
            return False
        if self.aborted and not same_boot:
            deeper = self.truncation is not None or not self.checkpoint.certain
            index.rebuild_from(views.index_name, views.index_count, start, deeper=deeper)
        elif self.aborted and exact:
            return self._keep_index_of_killed(index, views, start)
        if self.aborted or self.truncation is not None:
            index.cut(start)
        newest = index.newest
        return not exact or newest is None or (newest.path.name, newest.count) == (views.index_name, views.index_count)

    def _keep_index_of_killed(self, index: KeyIndex, views: ViewsPoint, start: int) -> bool:
        """Keeps the index that kill -9 left: only the last message may lack some of its keys, and is indexed again."""
        index.cut(self.log.appended)
        if index.end_physical >= start:
            index.cut(index.end_physical)
        self.indexed_to = max(start, index.end_physical + 1)
        return not views.index_name or (
            views.index_name in index.names and index.file(views.index_name).count >= views.index_count
        )

    # -- 4. dispatch again

    def _dispatch(self, dispatcher: LogDispatcher, start: int, end: int, trusted: bool) -> int:
        first = self.log.first_offset
        if trusted:
            begin = start
            if self.index is not None and self._foreign and not self.read_only:
                begin = min(start, max(first, self._index_end()))
            try:
                return self._dispatch_from(dispatcher, begin, start, end, restarts=not self.queues.table)
            except ViewsDamaged as error:
                self.problem = str(error)
        self.queues.clear()
        self.indexed_to = 0
        if not self.read_only:
            self.distrust()
            self.queues.destroy()
            if self.index is not None:
                self.index.destroy()
        return self._dispatch_all(dispatcher, first, end)

    def _dispatch_all(self, dispatcher: LogDispatcher, first: int, end: int) -> int:
        """Builds the views from the whole log, and from what is known of queues that have no message in it."""
        starts = self.starts
        if starts is not None:
            if first < starts.offset <= end:  # a crash came before the segments went that were to be deleted
                self._dispatch_from(dispatcher, first, first, starts.offset, restarts=True)
                self.queues.start_idle(starts.idle)
                self._dispatch_from(dispatcher, starts.offset, first, end, restarts=True)
                return first
            self.queues.start_idle(starts.idle)
        return self._dispatch_from(dispatcher, first, first, end, restarts=True)

    def _index_end(self) -> int:
        """Returns the offset after the last message that the index has, for stores without a checkpoint of ours."""
        return self.index.end_physical + 1 if self.index is not None and self.index.names else 0

    def _dispatch_from(self, dispatcher: LogDispatcher, begin: int, start: int, end: int, *, restarts: bool) -> int:
        first = self.log.first_offset
        if self.dispatch_limit is not None:
            end = min(end, self.dispatch_limit)

        def on_gap(queue: ConsumeQueue, queue_offset: int) -> None:
            if start > first:
                raise ViewsDamaged(f"{queue.topic}-{queue.queue_id} has {queue.count} entries, expected {queue_offset}")

        dispatcher.index_from = max(begin, self.indexed_to)
        dispatcher.position = self._boundary_at_or_below(begin)
        dispatcher.on_gap = on_gap
        dispatcher.restarts = restarts
        try:
            while dispatcher.position < end:
                before = dispatcher.position
                touched = dispatcher.run(end, DISPATCH_SIZE)
                if self.progress is not None:
                    self.progress(dispatcher.position - begin, end - begin)
                if not self.read_only:
                    self.queues.write_tails(touched)
                    dispatcher.pending_size = 0
                if dispatcher.position == before:
                    break
        finally:
            dispatcher.on_gap = None
            dispatcher.restarts = False
        return begin

    def _boundary_at_or_below(self, offset: int) -> int:
        """Returns a record boundary: `offset` itself if the log says so there, else the start of its segment."""
        chain = self.log.chain
        if offset >= self.log.appended:
            return self.log.appended
        base = chain.base_of(offset)
        view = chain.segment(base).view
        at = offset - base
        if at + FIXED_SIZE_V4 <= len(view) and HEAD.unpack_from(view, at)[6] == offset:
            return offset
        return base


def scan_segment(view: memoryview, base: int, at: int, crc: bool, last: deque[int]) -> int:
    """Walks whole records from `at`. Returns where it stopped: after a blank, the segment's size.

    Flat on purpose: this loop is what opening a store after a crash takes its time from.
    """
    head_of, head_size, short_of = _SCAN_HEAD.unpack_from, _SCAN_HEAD.size, _SHORT.unpack_from
    size_of_segment = len(view)
    last_at = size_of_segment - FIXED_SIZE_V4
    remember = last.append
    while at <= last_at:
        size, magic, stored_crc, physical_offset, sys_flag, body_size = head_of(view, at)
        end = at + size
        if physical_offset != base + at or end > size_of_segment or size < FIXED_SIZE_V4:
            break
        body_at = at + head_size
        if sys_flag & _V6:
            body_at = at + WHOLE_HEADS[(sys_flag >> 4) & 3].size
            if body_at > end:
                return at
            body_size = _INT.unpack_from(view, body_at - 4)[0]
        topic_at = body_at + body_size
        if magic == MAGIC_V1:
            if topic_at >= end:
                return at
            properties_at = topic_at + 3 + view[topic_at]
            zeros = 0
        elif magic == MAGIC_V2:
            if topic_at + 2 > end:
                return at
            topic_size = short_of(view, topic_at)[0]
            properties_at = topic_at + 4 + topic_size
            zeros = topic_size < 256
        else:
            break
        if properties_at > end:
            return at
        properties_size = short_of(view, properties_at - 2)[0]
        if properties_at + properties_size != end:
            return at
        if crc:
            if topic_at > body_at and crc32(view[body_at:topic_at]) & CRC_MASK != stored_crc:
                return at
            if at // SECTOR != (body_at - 1) // SECTOR and has_torn_head(view, at):
                return at
            # Text without zeros but those of its lengths lost nothing: nearly always.
            is_doubtful = view[topic_at:end].tobytes().count(0) != zeros + (properties_size < 256)
            if is_doubtful and has_lost_sector(view, topic_at, properties_at, end):
                return at
        remember(base + at)
        at = end
    if at + 8 <= size_of_segment:
        size, magic = SIZE_MAGIC.unpack_from(view, at)
        if magic == MAGIC_BLANK and at + size == size_of_segment:
            return size_of_segment
    return at


def last_record_end(view: memoryview, base: int, start: int, stop: int) -> int:
    """Returns where the last whole record in [start, stop) ends, found by its magic; 0 if there is none."""
    found = 0
    zeros = bytes(SEARCH_SIZE + 4)
    for at in range(start, stop, SEARCH_SIZE):
        piece = view[at : min(stop, at + SEARCH_SIZE + 4)].tobytes()
        if zeros.startswith(piece):  # reserved and never written, as almost always
            continue
        hit = piece.find(_MAGIC_START)
        while hit >= 0:
            position = at + hit - 4
            if position >= start and check_record(view, position, len(view)) is None:
                size, _, _, _, _, _, physical_offset, _ = HEAD.unpack_from(view, position)
                if physical_offset == base + position:
                    found = max(found, base + position + size)
            hit = piece.find(_MAGIC_START, hit + 1)
    return found


def has_torn_head(view: memoryview, at: int) -> bool:
    """Returns whether a head that spans two sectors has zeros where a broker never writes any.

    Its clock and its port.

    The second sector reached the disk and the last bytes of the first did not. No checksum covers a head, so this
    finds what can be known; the other replicas have the rest.
    """
    head = WHOLE_HEADS[(HEAD.unpack_from(view, at)[7] >> 4) & 3].unpack_from(view, at)
    stored_at: int = head[10]
    store_host: bytes = head[11]
    return stored_at == 0 or store_host.endswith(bytes(4))


def has_lost_its_end(view: memoryview, at: int) -> bool:
    """Returns whether a record came only in part: behind its body, which has a checksum, zeros follow.

    No topic has any, and properties do not end in one.
    """
    topic_start, topic_stop, properties_start, stop = tail_bounds(view, at)
    if b"\0" in view[topic_start:topic_stop].tobytes():
        return True
    return stop > properties_start and view[stop - 1] == 0


def has_lost_sector(view: memoryview, topic_at: int, properties_at: int, end: int) -> bool:
    """Returns whether topic and properties, which no checksum covers, look as if a sector never reached the disk.

    Never-written sectors are zeros. A topic has no zeros; properties may (a user's value), but they do not end in one
    and have no sector full of them.
    """
    text = view[topic_at:end].tobytes()
    size_of_length = 1 if text[0] == properties_at - topic_at - 3 else 2  # of record version 1, or 2
    if text.find(b"\0", size_of_length, properties_at - topic_at - 2) >= 0:
        return True
    if end == properties_at or b"\0" not in text[properties_at - topic_at :]:
        return False
    if text[-1] == 0:
        return True
    start = properties_at
    while start < end:
        stop = min(end, start + SECTOR - start % SECTOR)
        if not view[start:stop].tobytes().strip(b"\0"):
            return True
        start = stop
    return False
