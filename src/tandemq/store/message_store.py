"""The small face the broker sees: one log and its views.

No network, no asyncio. Everything is called from one owner thread; only fdatasync happens elsewhere (store/flush.py).

Watermarks, all physical offsets that only move forward unless the log is cut:
    first_offset <= dispatched <= readable_limit <= appended,   flushed <= appended
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tandemq.clock import Clock, SystemClock
from tandemq.errors import DiskFull, MessageTooLarge, NoDescriptors, StoreError
from tandemq.formats import layout
from tandemq.formats.batch import MessageBatch, Shared
from tandemq.formats.log_mark import LOG_MARK_TOPIC, LogMark, encode_mark
from tandemq.formats.record import (
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_MAX,
    TOPIC_V1_MAX,
    host_flags,
)
from tandemq.model.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    StoredMessage,
)
from tandemq.store import online_rebuild, truncation
from tandemq.store.cleaner import AppendMark, Cleaner
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.confirmed_mark import ConfirmedMark
from tandemq.store.disk import Disk, FileDisk, Lock
from tandemq.store.flush import Done, Flusher, Post
from tandemq.store.foreign import refuse_foreign
from tandemq.store.log_changes import LogChanges
from tandemq.store.numbering import QueueNumbering
from tandemq.store.online_rebuild import OnlineRebuild
from tandemq.store.reader import Reader
from tandemq.store.recovery import Recovered, Recovery
from tandemq.store.results import Appended as Appended
from tandemq.store.results import AppendedBatch as AppendedBatch
from tandemq.store.results import GetResult as GetResult
from tandemq.store.results import GetStatus as GetStatus
from tandemq.store.results import Health as Health
from tandemq.store.results import StoreStatus as StoreStatus
from tandemq.store.search_ahead import SearchAhead
from tandemq.store.segments import SegmentChain
from tandemq.store.views import Views
from tandemq.store.write_gate import WriteGate

DISPATCH_SIZE = 4 * 1024 * 1024
"""How much log one call of `dispatch` takes: some milliseconds, so that the owner's loop stays responsive."""
LOCAL_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


class MessageStore:
    """Use `MessageStore.open`."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        clock: Clock,
        disk: Disk,
        store_host: bytes,
        read_only: bool,
        post: Post | None,
    ) -> None:
        self.root = root
        self.config = config
        self._clock = clock
        self._wall_ms = clock.wall_ms
        self._disk = disk
        self._read_only = read_only
        self._store_host = store_host
        self._store_host_flag = STORE_HOST_V6 if len(store_host) == 20 else 0
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._topics: dict[str, tuple[bytes, int]] = {}
        self._lock: Lock | None = None
        self._gate = WriteGate(root, read_only)
        self.recovered: Recovered | None = None
        self.log = CommitLog(
            SegmentChain(
                disk,
                root / layout.COMMIT_LOG,
                config.commit_log_segment_size,
                mapped_max=config.mapped_segments_max,
                writable=not read_only,
                on_full=self._gate.note_full,
            )
        )
        self._flusher = Flusher(self.log, disk, config, clock, 0, post, self._gate.poison)
        self._views = Views(
            disk, root, config, clock, self.log, self._flusher, read_only=read_only, on_full=self._gate.note_full
        )
        self._numbering = QueueNumbering(self._views.queue_table)
        self._confirmed = ConfirmedMark(disk, root)
        self._changes = LogChanges(
            disk, root, self.log, self._views, self._flusher, self._numbering, self._confirmed.lower
        )
        self._cleaner = Cleaner(
            disk,
            root,
            lambda: self.config,
            clock,
            self.log,
            self._views,
            self._flusher,
            self._gate,
            self._numbering.number_of,
        )
        # Looked up for every message.
        self._dispatcher = self._views.dispatcher
        self._queues = self._views.queue_table.table
        self._numbers = self._numbering.cells
        self.reader = Reader(
            self.log,
            self._views.queue_table,
            self._views.index,
            config.query_count_max,
            lambda: self.readable_limit,
        )

    # -- opening and closing

    @classmethod
    def open(
        cls,
        root: Path,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        store_host: bytes = LOCAL_HOST,
        read_only: bool = False,
        post: Post | None = None,
        confirmed: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> "MessageStore":
        """Opens or creates the store under `root`. Read-only opening takes no lock, changes nothing, always works.

        `confirmed` is what a replica last knew to be confirmed: recovery dispatches no further.

        `post` runs a callable on the owner's thread (loop.call_soon_threadsafe): waiters are then answered there.
        """
        disk = disk if disk is not None else FileDisk(config.open_files_max)
        clock = clock if clock is not None else SystemClock()
        store = cls(root, config, clock, disk, store_host, read_only, post)
        store.set_confirmed(confirmed)
        try:
            store._open(progress)
        except BaseException:
            store._release()
            raise
        return store

    def _open(self, progress: Callable[[int, int], None] | None) -> None:
        disk, root, views, flusher = self._disk, self.root, self._views, self._flusher
        if not self._read_only:
            disk.make_directory(root)
            self._lock = disk.lock(root / layout.LOCK)
            refuse_foreign(disk, root)
            self._cleaner.measure()
            online_rebuild.settle(disk, root)
        aborted = disk.file_size(root / layout.ABORT) is not None
        known = views.read_checkpoint()
        intent = truncation.pending(disk, root)
        if intent is not None and not self._read_only:
            self._changes.roll_forward(intent)
        self.log.chain.load()
        self.log.appended = self.log.written = self.log.first_offset
        if views.confirmed is not None and known.views is not None and known.certain and intent is None:
            # Nothing is dispatched before it is confirmed, so what the views have was: readers lose nothing by a crash.
            views.confirmed = max(views.confirmed, known.views.offset)
        if views.confirmed is not None and intent is None:
            views.confirmed = max(views.confirmed, self._confirmed.read())
        starts = views.read_starts()
        recovery = Recovery(
            log=self.log,
            queues=views.queue_table,
            index=views.index,
            checkpoint=known,
            aborted=aborted or intent is not None,
            truncation=intent,
            boot_id=disk.boot_id(),
            check_crc=self.config.check_crc_on_recover,
            read_only=self._read_only,
            monotonic=self._clock.monotonic,
            dispatch_limit=self._views.confirmed,
            progress=progress,
            distrust=views.distrust,
            save=self._changes.save_damaged,
            marked_boot=aborted and disk.boot_id().hex().encode() in disk.read_file(root / layout.ABORT),
            has_checkpoint=disk.file_size(root / layout.CHECKPOINT) is not None,
            starts=starts,
            confirmed=self._views.confirmed or 0,
        )
        self.recovered = recovery.run(self._dispatcher)
        if views.confirmed is not None:
            views.confirmed = max(views.confirmed, self.dispatched)
        views.know_starts_at(self.first_offset)
        self._dispatcher.on_topic_deleted = None
        if self.dispatched < self.appended:
            self.number_undispatched()
        flusher.flushed = self.recovered.durable
        flusher.on_idle = views.hand_over_if_due
        if self._read_only:
            if self.recovered.behind:
                self.log.set_end(self.recovered.behind)  # tools show what they can, and say what is missing
            flusher.flushed = self.log.appended
            return
        if self._sync_flush and flusher.flushed < self.log.appended:
            flusher.flush_once()
        views.dirty.update(dict.fromkeys(self._queues))
        self._mark_running(aborted)
        self._confirmed.begin(min(views.confirmed or 0, self.appended))
        if intent is not None:
            with flusher.paused():
                views.sync_after_cut()
            truncation.finish(disk, root)

    def _mark_running(self, already: bool) -> None:
        """Makes the abort marker durable before the first append. One that is there already costs no sync to keep."""
        path = self.root / layout.ABORT
        pid = b"%-10d %s" % (os.getpid(), self._disk.boot_id().hex().encode())
        if already:
            self._disk.write_at(path, 0, pid.ljust(self._disk.file_size(path) or 0))
        else:
            self._disk.replace_file(path, pid)

    def start(self) -> None:
        """Starts the flush thread."""
        if not self._read_only:
            self._flusher.start()

    def close(self) -> None:
        """Makes everything durable, writes the checkpoint and removes the abort marker.

        The next open has nothing to repair.
        """
        if self._gate.is_closed:
            return
        self._gate.close()
        self._views.is_open = False
        self._views.cancel_rebuild("the store was closed")
        try:
            self._flusher.stop()
            if not self._read_only and self._flusher.poison is None:
                self._close_clean()
            self._flusher.fail_waiters(StoreError("the store was closed"))
        finally:
            self._release()

    def _close_clean(self) -> None:
        self._changes.drop_unfinished()  # a clean log ends where its last file ends in zeros: nobody looks again
        try:
            self._flusher.flush_once()
        except NoDescriptors:
            return  # the marker stays: the next open finds out what reached the disk
        self.log.chain.drop_spare()
        online_rebuild.discard(self._disk, self.root)
        try:
            while self.dispatch():
                pass
            self._views.sync(clean=self.dispatched == self.log.appended)
        except (DiskFull, NoDescriptors):
            return  # views can't be written: the marker stays, the next open dispatches again
        if self.dispatched == self.log.appended and self._flusher.views_problem is None:
            self._disk.remove(self.root / layout.ABORT)
            self._disk.sync_directory(self.root)

    def abandon(self) -> None:
        """Lets go of everything without flushing or saying goodbye: what a crash does. For tests and fatal errors."""
        self._gate.close()
        self._views.is_open = False
        self._flusher.stop()
        self._release()

    def _release(self) -> None:
        self._flusher.close()
        self.log.close()
        self._views.close()
        self._confirmed.close()
        self._disk.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- watermarks

    @property
    def first_offset(self) -> int:
        return self.log.first_offset

    @property
    def appended(self) -> int:
        return self.log.appended

    @property
    def segment_size(self) -> int:
        """Returns the size of one commit-log file."""
        return self.log.segment_size

    @property
    def flushed(self) -> int:
        return self._flusher.flushed

    @property
    def dispatched(self) -> int:
        return self._dispatcher.position

    @property
    def readable_limit(self) -> int:
        """Returns where readers and dispatch stop: the flushed (SYNC_FLUSH) or appended end, or what is confirmed."""
        limit = self._flusher.flushed if self._sync_flush else self.log.appended
        confirmed = self._views.confirmed
        return confirmed if confirmed is not None and confirmed < limit else limit

    def set_confirmed(self, offset: int | None) -> None:
        """Takes from replication what can't vanish any more; None when it can't tell."""
        self._views.confirmed = offset
        self._confirmed.set(offset or 0)

    @property
    def health(self) -> Health:
        """Whether appends are accepted, and why not."""
        return self._gate.health

    # -- appending

    def append(
        self,
        topic: str,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | bytearray | memoryview,
        properties: bytes,
        store_host: bytes | None = None,
        is_copy: bool = False,
    ) -> Appended:
        """Writes one message at the end of the log and gives it its queue offset. Durable when `flushed` has passed
        it.

        `is_copy`: of a message that the log took before, so that the limit for clients, which may have been lowered
        since, does not hold for it.
        """
        if self._gate.is_shut:
            self._gate.refuse()
        if (len(body) > self.config.message_size_max and not is_copy) or len(properties) > PROPERTIES_MAX:
            self._too_large(len(body), len(properties))
        if len(born_host) == 8:
            sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        else:
            sys_flag = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_flags(born_host, self._store_host)
        if store_host is None:
            store_host = self._store_host
            sys_flag |= self._store_host_flag
        elif len(store_host) == 20:
            sys_flag |= STORE_HOST_V6
        else:
            sys_flag &= ~STORE_HOST_V6
        topic_part, magic = self._topics.get(topic) or self._topic_part(topic)
        number = self._numbers.get((topic, queue_id)) or self._numbering.cell(topic, queue_id)
        # Prepared and rolled-back records (both have this bit) are in no queue and take no offset.
        queue_offset = 0 if sys_flag & TRANSACTION_PREPARED else number[0]
        now = self._wall_ms()
        log = self.log
        size = log.append(
            topic_part, magic, queue_id, queue_offset, flag, sys_flag, born_timestamp, born_host, now, store_host,
            reconsume_times, prepared_transaction_offset, body, properties,
        )  # fmt: skip
        if not sys_flag & TRANSACTION_PREPARED:
            number[0] = queue_offset + 1
        if self._flusher._asleep:
            self._flusher.note_append()
        return Appended(log.appended - size, size, queue_offset, now)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        batch: MessageBatch,
        store_host: bytes | None = None,
    ) -> AppendedBatch:
        """Writes several messages of one queue, contiguous and in one segment: all of them or none."""
        if self._gate.is_shut:
            self._gate.refuse()
        store_host = store_host if store_host is not None else self._store_host
        sys_flag = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_flags(born_host, store_host)
        topic_part, magic = self._topics.get(topic) or self._topic_part(topic)
        now = self._wall_ms()
        shared = Shared(
            topic_part, magic, queue_id, sys_flag, born_timestamp, born_host, now, store_host, reconsume_times
        )
        total = shared.fixed_size * len(batch) + batch.content_size
        if batch.properties_size_max > PROPERTIES_MAX:
            self._too_large(batch.content_size, batch.properties_size_max)
        if total > self.config.record_size_max:
            self._too_large(total, 0)
        number = self._numbers.get((topic, queue_id)) or self._numbering.cell(topic, queue_id)
        queue_offset = number[0]
        offsets = self.log.append_batch(total, shared, queue_offset, batch)
        number[0] = queue_offset + len(offsets)
        self._flusher.note_append()
        return AppendedBatch(offsets, self.log.appended, queue_offset, now)

    def append_mark(self, mark: LogMark) -> Appended:
        """Appends a mark; the numbers of the next messages follow it at once, the queues when it is dispatched."""
        now = self._wall_ms()
        done = self.append(LOG_MARK_TOPIC, 0, 0, 0, now, self._store_host, 0, 0, encode_mark(mark), b"")
        self._numbering.apply(mark)
        return done

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Appends bytes of the master's log, cut anywhere, exactly at the end of ours. Returns the new end."""
        if self._gate.is_shut:
            self._gate.refuse()
        end = self.log.append_raw(physical_offset, data)
        self._flusher.note_append()
        return end

    def raw_window(self, physical_offset: int, size_max: int) -> memoryview:
        """Returns room at the end of the log for recv_into, never across a segment; then call `commit_raw(n)`."""
        if self._gate.is_shut:
            self._gate.refuse()
        return self.log.raw_window(physical_offset, size_max)

    def write_raw(self, past_end: int, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes `past_end` bytes past the end of the log, within one segment; then call `commit_raw(n)`."""
        if self._gate.is_shut:
            self._gate.refuse()
        self.log.write_raw(past_end, data)

    def splice_raw(self, past_end: int, size: int, move: Callable[[int, int, int], int]) -> int:
        """Has the kernel put bytes there by `move(fd, position, size)`: they never pass through this process.

        Returns how many came, 0 at the end of where they come from; then call `commit_raw(n)`.
        """
        if self._gate.is_shut:
            self._gate.refuse()
        fd, position = self.log.raw_place(past_end, size)
        return move(fd, position, size)

    def commit_raw(self, size: int) -> int:
        end = self.log.commit_raw(size)
        self._flusher.note_append()
        return end

    def _too_large(self, body_size: int, properties_size: int) -> None:
        raise MessageTooLarge(
            f"a message with a body of {body_size} bytes (limit maxMessageSize={self.config.message_size_max}) and "
            f"properties of {properties_size} bytes (limit {PROPERTIES_MAX}) is too large"
        )

    def _topic_part(self, topic: str) -> tuple[bytes, int]:
        name = topic.encode()
        if not name or len(name) > PROPERTIES_MAX:
            raise StoreError(f"a topic of {len(name)} bytes can't be stored")
        if len(name) > TOPIC_V1_MAX and not self.config.auto_message_version:
            raise StoreError(
                f"a topic of {len(name)} bytes needs a v2 record, which autoMessageVersionOnTopicLen=false forbids: "
                f"use a name of at most {TOPIC_V1_MAX} bytes"
            )
        if len(name) <= TOPIC_V1_MAX:
            part = (bytes((len(name),)) + name, MAGIC_V1)
        else:
            part = (len(name).to_bytes(2, "big") + name, MAGIC_V2)
        if len(self._topics) > 100_000:
            self._topics.clear()
        self._topics[topic] = part
        return part

    # -- dispatch

    def dispatch(self, limit_bytes: int = DISPATCH_SIZE) -> set[tuple[str, int]]:
        """Brings the views up to the readable limit, by at most `limit_bytes`. Returns the queues that got messages."""
        limit = self.readable_limit
        if self._dispatcher.position >= limit or self._read_only:
            return set()
        touched = self._dispatcher.run(limit, limit_bytes)
        if touched:
            self._views.note_dispatched(touched)
        return set(touched)

    @property
    def on_topic_deleted(self) -> Callable[[str], None] | None:
        """Told when the log says that a topic was deleted, once its queues are gone."""
        return self._dispatcher.on_topic_deleted

    @on_topic_deleted.setter
    def on_topic_deleted(self, callback: Callable[[str], None] | None) -> None:
        self._dispatcher.on_topic_deleted = callback

    # -- building the views anew

    @property
    def is_open(self) -> bool:
        return not self._gate.is_closed

    def rebuild_views(self, step_size: int = online_rebuild.STEP_SIZE) -> OnlineRebuild:
        """Begins to build queues and index anew from the log, beside the live ones; see `OnlineRebuild.steps`.

        Appends, reads and dispatch go on meanwhile. One at a time; a cut of the log ends it.
        """
        self._gate.check_history()
        return self._views.rebuild(step_size)

    # -- flushing

    def flush_once(self) -> int:
        """Makes the log durable up to its end, and views when their interval has passed. Returns the new `flushed`."""
        flushed = self._flusher.flush_once()
        if self._views.are_due:
            self._views.hand_over()
        return flushed

    def prepare(self) -> None:
        """Makes the next file of the log ahead of its use. The flush thread does that by itself."""
        self._flusher.prepare()

    def flush_all(self) -> None:
        """Makes log, views and checkpoint durable before it returns."""
        self._flusher.flush_once()
        self._views.sync()

    def when_flushed(self, offset: int, callback: Done) -> None:
        """Calls back once everything below `offset` is durable (None) or can't be any more (the error), in order."""
        self._flusher.when_flushed(offset, callback)

    @property
    def on_flushed(self) -> Callable[[], None] | None:
        """Told after `flushed` moved: on the owner's thread with `post`, else on the flush thread."""
        return self._flusher.on_flushed

    @on_flushed.setter
    def on_flushed(self, callback: Callable[[], None] | None) -> None:
        self._flusher.on_flushed = callback

    # -- searching

    def search_ahead(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> SearchAhead | None:
        """Returns what a thread may call before `reader.search_by_time` with the same arguments; None without files."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.has_files:
            return None
        return SearchAhead(
            self._disk,
            queue.directory,
            queue.file_entries,
            self.log.chain.directory,
            self.segment_size,
            queue.min_offset(self.first_offset),
            queue.written,
            timestamp_ms + upper,
        )

    # -- the bytes of the log

    def slice(self, physical_offset: int, size: int) -> memoryview:
        """Returns log bytes without a copy; within one segment."""
        return self.log.slice(physical_offset, size)

    def file_range(self, physical_offset: int, size_max: int) -> tuple[int, int, int]:
        """Returns (fd, position, size) for os.sendfile, size 0 at the end. Use it at once: the file may be closed."""
        return self.log.file_range(physical_offset, size_max)

    # -- changing history

    def truncate(self, offset: int, save_to: Path | None = None) -> int:
        """Cuts the log (and its views) at `offset`. Returns how many bytes went. Crash-safe: all or nothing.

        `save_to` is a directory: the bytes are kept there, in a file named after the offset.
        """
        self._gate.check_history()
        return self._changes.truncate(offset, save_to)

    def drop_unfinished(self) -> int:
        """Drops, durably, what was received past the end of the log and never committed. Returns how many bytes.

        They are records of whoever sent them. The next opening would take them for log, whoever reigns by then: so
        they go before anybody names the log's end to somebody else, or writes there.
        """
        self._gate.check_history()
        return self._changes.drop_unfinished()

    def undispatched(self) -> Iterator[StoredMessage]:
        """Yields the messages that readers may not see yet, in log order; for a node that begins to write."""
        return self.log.messages(max(self.dispatched, self.first_offset), self.appended)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Returns the number that the next message of a queue gets, whether or not readers may see those before it.

        True while this node writes, and after opening, cutting or `number_undispatched`; copies of another node's log
        are counted when they are dispatched.
        """
        cell, queue = self._numbers.get((topic, queue_id)), self._queues.get((topic, queue_id))
        return max(cell[0] if cell is not None else 0, queue.count if queue is not None else 0)

    def number_undispatched(self) -> None:
        """Keeps the queue offsets of records that readers may not see yet, before the first append of a new master."""
        self._changes.number_undispatched()

    def reset(self, first_offset: int) -> None:
        """Drops everything and starts an empty log at an offset: a slave whose history the master no longer has."""
        self._gate.check_history()
        self._changes.reset(first_offset)

    # -- retention

    def retain(
        self,
        now_ms: int | None = None,
        manual: bool = False,
        append_mark: AppendMark | None = None,
        keep_from: int | None = None,
    ) -> int:
        """Deletes expired segments and what points to them, and learns how full the disk is.

        Returns how many segments went. `append_mark` is given by a node that writes: it is called for each mark that
        must be in the log before they go. Nothing at or above `keep_from` goes, however old it is.
        """
        return self._cleaner.run(self._wall_ms() if now_ms is None else now_ms, manual, append_mark, keep_from)

    def mention_idle_queues(self, append_mark: AppendMark) -> None:
        """Has marks appended that tell the numbers of queues of which the log tells nothing else.

        For a node that begins to write: whoever copies its log from the first offset then gets all numbers.
        """
        self._cleaner.mention(self.first_offset, append_mark)

    def status(self) -> StoreStatus:
        health = self.health
        return StoreStatus(
            root=str(self.root),
            first_offset=self.first_offset,
            dispatched=self.dispatched,
            readable_limit=self.readable_limit,
            flushed=self.flushed,
            appended=self.appended,
            segments=len(self.log.chain.bases),
            queues=len(self._queues),
            index_files=len(self._views.index.names) if self._views.index is not None else 0,
            disk_used_ratio=self._cleaner.disk_used,
            writable=health.writable,
            reason=health.reason or self._dispatcher.problem or self._flusher.views_problem or "",
            recovered=self.recovered,
            skipped_records=self._dispatcher.skipped,
        )
