"""The small face the broker sees: one log and its views.

No network, no asyncio. Everything is called from one owner thread; only fdatasync happens elsewhere (store/flush.py).

Watermarks, all physical offsets that only move forward unless the log is cut:
    first_offset <= dispatched <= readable_limit <= appended,   flushed <= appended
"""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from tandemq.clock import Clock, SystemClock
from tandemq.codec.envelope import parse_delay_levels
from tandemq.codec.record import (
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_MAX,
    TOPIC_V1_MAX,
    WHOLE_HEADS,
    host_flags,
    parse_record,
    store_timestamp,
)
from tandemq.errors import CorruptRecord, DiskFull, OffsetOutOfRange, StoreError
from tandemq.model.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    StoredMessage,
)
from tandemq.store import checkpoint, layout, online_rebuild, truncation
from tandemq.store.checkpoint import Checkpoint, CheckpointFile, ViewsPoint
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk, FileDisk, Lock
from tandemq.store.dispatch import Dispatcher
from tandemq.store.flush import Done, Flusher, Post, ViewsWork
from tandemq.store.key_index import KeyIndex
from tandemq.store.online_rebuild import OnlineRebuild, SyncedPoint
from tandemq.store.queues import QueueTable
from tandemq.store.reader import Reader
from tandemq.store.recovery import Recovered, Recovery
from tandemq.store.results import Appended as Appended
from tandemq.store.results import GetResult as GetResult
from tandemq.store.results import GetStatus as GetStatus
from tandemq.store.results import Health as Health
from tandemq.store.results import StoreStatus as StoreStatus
from tandemq.store.retention import SegmentAge, Verdict, decide
from tandemq.store.segments import SegmentChain
from tandemq.store.truncation import Truncation

DISPATCH_SIZE = 4 * 1024 * 1024
"""How much log one call of `dispatch` takes: some milliseconds, so that the owner's loop stays responsive."""
LOCAL_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
_MANUAL_ROUNDS = 20


class MessageStore:
    """Use `MessageStore.open`."""

    def __init__(
        self, root: Path, config: StoreConfig, clock: Clock, disk: Disk, store_host: bytes, read_only: bool
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
        self._confirmed: int | None = None
        self._topics: dict[str, tuple[bytes, int]] = {}
        self._lock: Lock | None = None
        self._closed = False
        self._disk_full: str = ""
        self._dirty_queues: set[tuple[str, int]] = set()
        self._last_views = clock.monotonic()
        self._views_offset = -1
        """Where the last checkpoint vouches up to."""
        self._disk_used = 0.0
        self._rebuild: OnlineRebuild | None = None
        self.recovered: Recovered | None = None
        self._build()

    def _build(self) -> None:
        config, disk, writable = self.config, self._disk, not self._read_only
        chain = SegmentChain(
            disk,
            self.root / layout.COMMIT_LOG,
            config.commit_log_segment_size,
            mapped_max=config.mapped_segments_max,
            writable=writable,
        )
        self.log = CommitLog(chain)
        self._queue_table = QueueTable(disk, self.root, config.consume_queue_file_size, writable)
        self._index = self._new_index(self.root) if config.index_enable else None
        self._delays = parse_delay_levels(config.message_delay_level)
        index = self._index if writable else None  # read-only: queues grow in memory, index files stay as they are
        self._dispatcher = Dispatcher(self.log, self._queue_table, index, self._delays, 0)
        self._queues = self._queue_table.table
        reader = Reader(
            self.log, self._queue_table, self._index, config.query_count_max, self.read, lambda: self.readable_limit
        )
        # The face is one object; what a call costs is one call.
        self.queues = reader.queues
        self.queue_range = reader.queue_range
        self.get = reader.get
        self.search_by_time = reader.search_by_time
        self.store_time = reader.store_time
        self.earliest_store_time = reader.earliest_store_time
        self.query = reader.query

    def _new_index(self, root: Path) -> KeyIndex:
        return KeyIndex(
            self._disk,
            root / layout.INDEX,
            self.config.index_slots,
            self.config.index_entries,
            self._clock.wall_ms,
            writable=not self._read_only,
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
        store = cls(root, config, clock, disk, store_host, read_only)
        store._confirmed = confirmed
        try:
            store._open(post, progress)
        except BaseException:
            store._release()
            raise
        return store

    def _open(self, post: Post | None, progress: Callable[[int, int], None] | None) -> None:
        disk, root = self._disk, self.root
        if not self._read_only:
            disk.make_directory(root)
            self._lock = disk.lock(root / layout.LOCK)
            online_rebuild.settle(disk, root)
        aborted = disk.file_size(root / layout.ABORT) is not None
        self._checkpoint = self._read_checkpoint()
        intent = truncation.pending(disk, root)
        if intent is not None and not self._read_only:
            self._roll_forward(intent)
        self.log.chain.load()
        self.log.appended = self.log.written = self.log.first_offset
        recovery = Recovery(
            log=self.log,
            queues=self._queue_table,
            index=self._index,
            checkpoint=self._checkpoint.read(),
            aborted=aborted or intent is not None,
            truncation=intent,
            boot_id=disk.boot_id(),
            check_crc=self.config.check_crc_on_recover,
            read_only=self._read_only,
            monotonic=self._clock.monotonic,
            dispatch_limit=self._confirmed,
            progress=progress,
            save=self._save_damaged,
        )
        self.recovered = recovery.run(self._dispatcher)
        if self.dispatched < self.appended:
            self.number_undispatched()
        self._flusher = Flusher(self.log, disk, self.config, self._clock, self.recovered.durable, post)
        self._flusher.on_idle = self._hand_over_views
        if self._read_only:
            if self.recovered.behind:
                self.log.set_end(self.recovered.behind)  # tools show what they can, and say what is missing
            self._flusher.flushed = self.log.appended
            return
        if self._sync_flush and self._flusher.flushed < self.log.appended:
            self._flusher.flush_once()
        self._dirty_queues.update(self._queues)
        self._mark_running(aborted)
        if intent is not None:
            self._sync_views()
            truncation.finish(disk, root)

    def _mark_running(self, already: bool) -> None:
        """The abort marker, durable before the first append. One that is there already costs no sync to keep."""
        path, pid = self.root / layout.ABORT, str(os.getpid()).encode()
        if already:
            self._disk.write_at(path, 0, pid.ljust(self._disk.file_size(path) or 0))
        else:
            self._disk.replace_file(path, pid)

    def _roll_forward(self, intent: Truncation) -> None:
        """A truncation was interrupted: its log part again; the views follow from recovery."""
        chain = self.log.chain
        if intent.reset:
            self._reset_files(intent.offset)
            self._reset_views(intent.offset)
            return
        chain.load()
        self.log.appended = self.log.written = chain.end
        if chain.bases and intent.offset >= chain.first_offset:
            self.log.cut(min(intent.offset, chain.end), thorough=True)

    def start(self) -> None:
        """Starts the flush thread."""
        if not self._read_only:
            self._flusher.start()

    def close(self) -> None:
        """Everything durable, checkpoint written, abort marker removed: the next open has nothing to repair."""
        if self._closed:
            return
        self._closed = True
        self._cancel_rebuild("the store was closed")
        try:
            self._flusher.stop()
            if not self._read_only and self._flusher.poison is None:
                self._close_clean()
            self._flusher.fail_waiters(StoreError("the store was closed"))
        finally:
            self._release()

    def _close_clean(self) -> None:
        self._flusher.flush_once()
        online_rebuild.discard(self._disk, self.root)
        try:
            while self.dispatch():
                pass
            self._sync_views(clean=self.dispatched == self.log.appended)
        except DiskFull:
            return  # views can't be written: the marker stays, the next open dispatches again
        if self.dispatched == self.log.appended and self._flusher.views_problem is None:
            self._disk.remove(self.root / layout.ABORT)
            self._disk.sync_directory(self.root)

    def abandon(self) -> None:
        """Lets go of everything without flushing or saying goodbye: what a crash does. For tests and fatal errors."""
        self._closed = True
        if hasattr(self, "_flusher"):
            self._flusher.stop()
        self._release()

    def _release(self) -> None:
        self.log.close()
        if self._index is not None:
            self._index.close()
        self._disk.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _read_checkpoint(self) -> CheckpointFile:
        path = self.root / layout.CHECKPOINT
        found = self._disk.file_size(path) is not None
        return CheckpointFile(self._disk.read_at(path, 0, checkpoint.SIZE) if found else b"")

    # -- watermarks

    @property
    def first_offset(self) -> int:
        return self.log.first_offset

    @property
    def appended(self) -> int:
        return self.log.appended

    @property
    def segment_size(self) -> int:
        """Size of one commit-log file."""
        return self.log.segment_size

    @property
    def flushed(self) -> int:
        return self._flusher.flushed

    @property
    def dispatched(self) -> int:
        return self._dispatcher.position

    @property
    def readable_limit(self) -> int:
        """Readers and dispatch stop here: what is flushed (SYNC_FLUSH) or appended, and not above what is confirmed."""
        limit = self._flusher.flushed if self._sync_flush else self.log.appended
        if self._confirmed is not None and self._confirmed < limit:
            return self._confirmed
        return limit

    @readable_limit.setter
    def readable_limit(self, offset: int | None) -> None:
        self._confirmed = offset

    def set_confirmed(self, offset: int | None) -> None:
        """Replication's word on what can't vanish any more; None when it has none to give."""
        self._confirmed = offset

    @property
    def health(self) -> Health:
        if self._flusher.poison is not None:
            return Health(False, str(self._flusher.poison))
        if self._read_only:
            return Health(False, "the store is open read-only")
        if self._closed:
            return Health(False, "the store is closed")
        if self._disk_full:
            return Health(False, self._disk_full)
        return Health(True)

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
    ) -> Appended:
        """Writes one message at the end of the log and gives it its queue offset. Durable when `flushed` has passed
        it."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        if len(body) > self.config.message_size_max or len(properties) > PROPERTIES_MAX:
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
        queue = self._queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        # Prepared and rolled-back records (both have this bit) are in no queue and take no offset.
        queue_offset = 0 if sys_flag & TRANSACTION_PREPARED else queue.next_offset
        now = self._wall_ms()
        log = self.log
        try:
            size = log.append(
                topic_part, magic, queue_id, queue_offset, flag, sys_flag, born_timestamp, born_host, now, store_host,
                reconsume_times, prepared_transaction_offset, body, properties,
            )  # fmt: skip
        except DiskFull as error:
            self._disk_full = str(error)
            raise
        if not sys_flag & TRANSACTION_PREPARED:
            queue.next_offset = queue_offset + 1
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
        elements: list[tuple[int, bytes | bytearray | memoryview, bytes]],
        store_host: bytes | None = None,
    ) -> list[Appended]:
        """Writes several messages of one queue, contiguous and in one segment: all of them or none."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        store_host = store_host if store_host is not None else self._store_host
        sys_flag = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_flags(born_host, store_host)
        topic_part, magic = self._topics.get(topic) or self._topic_part(topic)
        fixed = WHOLE_HEADS[(sys_flag >> 4) & 3].size + len(topic_part) + 2
        total = 0
        for _, body, properties in elements:
            if len(properties) > PROPERTIES_MAX:
                self._too_large(len(body), len(properties))
            total += fixed + len(body) + len(properties)
        if total > self.config.record_size_max:
            self._too_large(total, 0)
        queue = self._queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        log = self.log
        try:
            log.make_room(total)
        except DiskFull as error:
            self._disk_full = str(error)
            raise
        now = self._wall_ms()
        result = []
        for flag, body, properties in elements:
            size = log.append(
                topic_part, magic, queue_id, queue.next_offset, flag, sys_flag, born_timestamp, born_host, now,
                store_host, reconsume_times, 0, body, properties,
            )  # fmt: skip
            result.append(Appended(log.appended - size, size, queue.next_offset, now))
            queue.next_offset += 1
        self._flusher.note_append()
        return result

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """A slave's append: bytes of the master's log, cut anywhere, exactly at the end of ours; the new end."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        try:
            end = self.log.append_raw(physical_offset, data)
        except DiskFull as error:
            self._disk_full = str(error)
            raise
        self._flusher.note_append()
        return end

    def raw_window(self, physical_offset: int, size_max: int) -> memoryview:
        """Room at the end of the log for recv_into; then `commit_raw(n)`. Never crosses a segment."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        try:
            return self.log.raw_window(physical_offset, size_max)
        except DiskFull as error:
            self._disk_full = str(error)
            raise

    def write_raw(self, behind: int, data: bytes | bytearray | memoryview) -> None:
        """A slave that catches up: bytes `behind` the end of the log, within one segment; then `commit_raw(n)`."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        try:
            self.log.write_raw(behind, data)
        except DiskFull as error:
            self._disk_full = str(error)
            raise

    def commit_raw(self, size: int) -> int:
        end = self.log.commit_raw(size)
        self._flusher.note_append()
        return end

    def _refuse(self) -> None:
        if self._flusher.poison is not None:
            raise self._flusher.poison
        reason = self.health.reason
        raise DiskFull(reason) if self._disk_full else StoreError(f"{self.root}: no appends, {reason}")

    def _too_large(self, body_size: int, properties_size: int) -> None:
        raise StoreError(
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

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queue_table.create(topic, queue_id)
        if queue is None:
            raise StoreError(f"queue {queue_id} of topic {topic[:100]!r} can't be created: not a name for a directory")
        return queue

    # -- dispatch

    def dispatch(self, limit_bytes: int = DISPATCH_SIZE) -> set[tuple[str, int]]:
        """Brings the views up to the readable limit, at most `limit_bytes` of log; the queues that got messages."""
        limit = self.readable_limit
        if self._dispatcher.position >= limit or self._read_only:
            return set()
        touched = self._dispatcher.run(limit, limit_bytes)
        if touched:
            self._dirty_queues |= touched
            self._after_dispatch()
        return touched

    def _after_dispatch(self) -> None:
        now = self._clock.monotonic()
        if (now - self._last_views) * 1000 >= self.config.flush_views_interval_ms:
            self._hand_over_views()
        elif self._dispatcher.pending_size > self.config.pending_views_max:
            self._write_tails()
        elif self._flusher._thread is not None:
            self._flusher.want_views(True)

    def _write_tails(self) -> None:
        try:
            self._queue_table.write_tails(self._dirty_queues)
        except DiskFull as error:
            self._disk_full = str(error)
            raise
        self._dispatcher.pending_size = 0

    def _hand_over_views(self) -> None:
        """Queue entries into their files, and the list of what to sync to whoever syncs."""
        if self._closed or self._read_only or self._flusher.views_busy:
            return
        self._last_views = self._clock.monotonic()
        if self._dispatcher.position == self._views_offset:
            self._flusher.want_views(False)
            return
        self._flusher.hand_over_views(self._views_work(clean=False))
        self._flusher.want_views(False)

    def _sync_views(self, clean: bool = False) -> None:
        """Views and checkpoint durable now, in this thread."""
        with self._flusher.paused():
            self._flusher.forget_views()
            self._flusher._sync_views(self._views_work(clean))

    def _views_work(self, clean: bool) -> ViewsWork:
        self._write_tails()
        files: list[Path] = []
        directories = self._queue_table.take_new_directories()
        for key in self._dirty_queues:
            queue = self._queues.get(key)
            if queue is not None:
                paths, named = queue.take_dirty()
                files += paths
                if named:
                    directories.append(queue.directory)
        self._dirty_queues.clear()
        index_name, index_count = "", 1
        if self._index is not None:
            files += self._index.take_dirty()
            newest = self._index.newest
            if newest is not None:
                index_name, index_count = newest.path.name, newest.count
        position = self._dispatcher.position
        views = ViewsPoint(
            offset=position,
            queue_entries=self._queue_table.entries(),
            index_name=index_name,
            index_count=index_count,
            clean=clean,
            boot_id=self._disk.boot_id(),
        )
        data = self._checkpoint_data(views, self._dispatcher.last_timestamp)
        path = self.root / layout.CHECKPOINT
        if self._disk.file_size(path) is None:
            self._disk.create_file(path, checkpoint.SIZE)
            directories.append(self.root)

        def done() -> None:
            self._views_offset = position

        return ViewsWork(position, files, directories, data, path, done)

    def _checkpoint_data(self, views: ViewsPoint, timestamp: int) -> bytes:
        return self._checkpoint.written(
            Checkpoint(
                log_timestamp=timestamp,
                queue_timestamp=timestamp,
                index_timestamp=timestamp,
                master_flushed_offset=0,
                confirmed_offset=self._confirmed or 0,
                views=views,
            )
        )

    # -- building the views anew

    @property
    def is_open(self) -> bool:
        return not self._closed

    def rebuild_views(self, step_size: int = online_rebuild.STEP_SIZE) -> OnlineRebuild:
        """Begins to build queues and index anew from the log, beside the live ones; see `OnlineRebuild.steps`.

        Appends, reads and dispatch go on meanwhile. One at a time; a cut of the log ends it.
        """
        if self._read_only or self._closed:
            self._refuse()
        if self._rebuild is not None and self._rebuild.is_running:
            raise StoreError(f"{self.root}: the views are being built anew already, wait until that is done")
        beside = self.root / layout.REBUILD
        queues = QueueTable(self._disk, beside, self.config.consume_queue_file_size)
        index = self._new_index(beside) if self._index is not None else None
        self._rebuild = OnlineRebuild(self, self._disk, self.root, self.log, queues, index, self._delays, step_size)
        return self._rebuild

    def adopt(self, rebuild: OnlineRebuild) -> int:
        """The last step of a rebuild: its views replace ours, all or nothing. How many queues had another end."""
        with self._flusher.paused():
            self._flusher.forget_views()
            self._flusher._sync_log()
            if self._flusher.poison is not None:
                raise self._flusher.poison
            rebuild.catch_up()
            durable_ends, corrected = rebuild.match(self._queues)
            point = rebuild.synced
            online_rebuild.announce(self._disk, self.root, self._rebuilt_checkpoint(point, durable_ends))
            rebuild.is_decided = True
            if self._index is not None and rebuild.index is not None:
                self._index.close()
                rebuild.index.close()
            try:
                online_rebuild.swap(self._disk, self.root)
            except (OSError, StoreError) as error:
                # Decided and half done: only opening the store again can finish it. The log itself is not touched.
                problem = f"{self.root}: new views could not take their place ({error}): restart, which finishes it"
                self._dispatcher.problem = problem
                raise StoreError(problem) from error
            self._queue_table.adopt(rebuild.queues, rebuild.unsynced)
            if self._index is not None and rebuild.index is not None:
                self._index.adopt(rebuild.index)
        self._dirty_queues = set(rebuild.unsynced)
        self._dispatcher.index_from = self._dispatcher.position
        self._dispatcher.pending_size = 0
        self._views_offset = point.position
        return corrected

    def _rebuilt_checkpoint(self, point: SyncedPoint, durable_ends: int) -> bytes:
        views = ViewsPoint(
            offset=point.position,
            queue_entries=durable_ends,
            index_name=point.index_name,
            index_count=point.index_count,
            clean=False,
            boot_id=self._disk.boot_id(),
        )
        return self._checkpoint_data(views, point.timestamp)

    def _cancel_rebuild(self, reason: str) -> None:
        if self._rebuild is not None:
            self._rebuild.cancelled = reason

    # -- flushing

    def flush_once(self) -> int:
        """The log durable up to its end, synchronously; views too when their interval has passed."""
        flushed = self._flusher.flush_once()
        if (self._clock.monotonic() - self._last_views) * 1000 >= self.config.flush_views_interval_ms:
            self._hand_over_views()
        return flushed

    def flush_all(self) -> None:
        """Log, views and checkpoint durable, synchronously."""
        self._flusher.flush_once()
        self._sync_views()

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

    # -- reading by physical offset

    def read(self, physical_offset: int, limit: int | None = None) -> StoredMessage:
        """One message; OffsetOutOfRange beyond the limit, CorruptRecord if no record starts there."""
        record = self.log.record(physical_offset, self.readable_limit if limit is None else limit)
        message = parse_record(record)
        if message.physical_offset != physical_offset:
            raise CorruptRecord(
                f"no record starts at offset {physical_offset}: what is there says {message.physical_offset}"
            )
        return message

    def read_raw(self, physical_offset: int, limit: int | None = None) -> memoryview:
        """The bytes of one record."""
        return self.log.record(physical_offset, self.readable_limit if limit is None else limit)

    def slice(self, physical_offset: int, size: int) -> memoryview:
        """Log bytes without a copy; within one segment."""
        return self.log.slice(physical_offset, size)

    def file_range(self, physical_offset: int, size_max: int) -> tuple[int, int, int]:
        """(fd, position, size) for os.sendfile, size 0 at the end; use it at once, the file may be closed later."""
        return self.log.file_range(physical_offset, size_max)

    # -- changing history

    def delete_topic(self, topic: str) -> int:
        """Forgets a topic's queues (their messages expire with the log); how many queues."""
        count = self._queue_table.delete_topic(topic)
        if count:
            self._topics.pop(topic, None)
            self._dirty_queues = {key for key in self._dirty_queues if key[0] != topic}
            self._sync_views()
        return count

    def truncate(self, offset: int, save_to: Path | None = None) -> int:
        """Cuts the log (and its views) at `offset`; how many bytes went. Crash-safe: all or nothing.

        `save_to` is a directory: the bytes are kept there, in a file named after the offset.
        """
        if self._read_only or self._closed:
            self._refuse()
        end = self.log.appended
        if not self.first_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.first_offset, end)
        if offset == end and self.log.written == end:
            return 0
        self._cancel_rebuild(f"the log was cut at {offset}")
        if save_to is not None and offset < end:
            self._save(offset, end, save_to)
        with self._flusher.paused():
            self._flusher.forget_views()
            truncation.announce(self._disk, self.root, Truncation(offset))
            self.log.cut(offset)
            self._cut_views(offset)
            self._flusher.lower(offset)
            self._flusher._sync_views(self._views_work(clean=False))
            truncation.finish(self._disk, self.root)
        self._flusher.fail_above(offset)
        return end - offset

    def _cut_views(self, offset: int) -> None:
        if self._dispatcher.position > offset:
            for key, queue in self._queues.items():
                if queue.cut(offset):
                    self._dirty_queues.add(key)
            if self._index is not None:
                self._index.cut(offset)
            self._dispatcher.position = self._dispatcher.index_from = offset
        self._dispatcher.problem = None
        for queue in self._queues.values():
            queue.next_offset = queue.count
        # Records between the dispatched position and the cut keep their queue offsets.
        if self._dispatcher.position < offset:
            self._renumber(offset)

    def _renumber(self, offset: int) -> None:
        """Queue offsets handed out for records that survive the cut but are not dispatched yet."""
        position = self._dispatcher.position
        for message in self._walk(position, offset):
            queue = self._queues.get((message.topic, message.queue_id))
            if queue is not None and not message.sys_flag & TRANSACTION_PREPARED:
                queue.next_offset = max(queue.next_offset, message.queue_offset + 1)

    def number_undispatched(self) -> None:
        """Before the first append of a new master: records that readers may not see yet keep their queue offsets."""
        for message in self._walk(self._dispatcher.position, self.log.appended):
            key = (message.topic, message.queue_id)
            queue = self._queues.get(key) or self._queue_table.create(*key)
            if queue is not None and not message.sys_flag & TRANSACTION_PREPARED:
                queue.next_offset = max(queue.next_offset, message.queue_offset + 1)

    def walk(self, start: int | None = None) -> Iterator[StoredMessage]:
        """Every readable message from a physical offset on (the first record at or after it), in log order."""
        position = self.first_offset if start is None else max(start, self.first_offset)
        base = position - position % self.log.segment_size
        for message in self._walk(max(base, self.first_offset), self.readable_limit):
            if message.physical_offset >= position:
                yield message

    def _walk(self, start: int, stop: int) -> Iterator[StoredMessage]:
        while start < stop:
            try:
                message = parse_record(self.log.record(start, stop))
            except CorruptRecord:
                start += self.log.segment_size - start % self.log.segment_size  # the blank
                continue
            except OffsetOutOfRange:
                return
            yield message
            start += message.size

    def _save_damaged(self, offset: int, end: int) -> None:
        """Recovery is about to cut off bytes that hold whole records behind a damaged one: keep them."""
        self.log.appended = end
        self._save(offset, end, self.root / layout.CUT)
        self.log.appended = offset

    def _save(self, offset: int, end: int, directory: Path) -> None:
        """Copies [offset, end) aside before it is cut, durably."""
        self._disk.make_directory(directory)
        path = directory / layout.segment_name(offset)
        self._disk.remove(path)
        self._disk.create_file(path, 0)
        position = offset
        while position < end:
            size = min(1 << 20, end - position, self.log.segment_size - position % self.log.segment_size)
            self._disk.write_at(path, position - offset, self.log.slice(position, size))
            position += size
        self._disk.sync_file(path)
        self._disk.sync_directory(directory)
        self._disk.sync_directory(directory.parent)

    def reset(self, first_offset: int) -> None:
        """Drops everything and starts an empty log at an offset: a slave whose history the master no longer has."""
        if self._read_only or self._closed:
            self._refuse()
        if first_offset % self.config.commit_log_segment_size:
            raise StoreError(
                f"a log can't start at {first_offset}, which is no multiple of "
                f"mappedFileSizeCommitLog={self.config.commit_log_segment_size}: use the size the other replicas have"
            )
        self._cancel_rebuild(f"the log was reset to start at {first_offset}")
        with self._flusher.paused():
            self._flusher.forget_views()
            truncation.announce(self._disk, self.root, Truncation(first_offset, reset=True))
            self._reset_files(first_offset)
            self._reset_views(first_offset)
            self._flusher.flushed = first_offset
            self._flusher._sync_views(self._views_work(clean=False))
            truncation.finish(self._disk, self.root)
        self._flusher.fail_waiters(StoreError(f"the log was reset to start at {first_offset}"))

    def _reset_views(self, first_offset: int) -> None:
        self._queue_table.destroy()
        if self._index is not None:
            self._index.destroy()
        self._dirty_queues.clear()
        self._dispatcher.position = self._dispatcher.index_from = first_offset
        self._dispatcher.problem = None

    def _reset_files(self, first_offset: int) -> None:
        chain = self.log.chain
        self._disk.make_directory(chain.directory)
        if not chain.bases:
            chain.bases = [int(n) for n in self._disk.list(chain.directory) if layout.is_segment_name(n)]
        while chain.bases:
            chain.drop_from(chain.bases[-1])
        chain.add(first_offset)
        self.log.appended = self.log.written = first_offset
        self.log.set_end(first_offset)

    # -- retention

    def retain(self, now_ms: int | None = None, manual: bool = False) -> int:
        """Deletes expired segments and what points to them; looks at disk use. How many segments went."""
        now_ms = self._wall_ms() if now_ms is None else now_ms
        deleted = 0
        for _ in range(_MANUAL_ROUNDS if manual else 1):
            verdict = self._verdict(now_ms, manual)
            for _base in verdict.delete:
                with self._flusher.paused():
                    self.log.chain.drop_oldest()
                deleted += 1
            self._note_disk(verdict)
            if not verdict.delete:
                break
        if deleted:
            self._drop_views_of_deleted()
        return deleted

    def _verdict(self, now_ms: int, manual: bool) -> Verdict:
        used, total = self._disk.usage(self.root)
        self._disk_used = used / total if total else 0.0
        bases = self.log.chain.bases
        limit = min(self.dispatched, self.flushed)
        ages = []
        for base, following in pairwise(bases):
            if following > limit:
                break
            ages.append(SegmentAge(base, self._first_store_time(following)))
        return decide(self.config, ages, now_ms, self._disk_used, writable=not self._disk_full, manual=manual)

    def _first_store_time(self, base: int) -> int:
        """Store time of a segment's first record, the earliest moment after which the one before it was complete."""
        try:
            record = self.log.record(base, self.log.appended)
        except (CorruptRecord, OffsetOutOfRange):
            return self._wall_ms()
        return store_timestamp(record, 0, HEAD.unpack_from(record)[7])

    def _note_disk(self, verdict: Verdict) -> None:
        if not verdict.writable:
            self._disk_full = (
                f"the disk of {self.root} is {self._disk_used:.0%} full, above diskSpaceWarningLevelRatio="
                f"{self.config.disk_warning_ratio} %: free some space; writing resumes below "
                f"{self.config.disk_clean_forcibly_ratio} %"
            )
        else:
            self._disk_full = ""

    def _drop_views_of_deleted(self) -> None:
        first = self.log.first_offset
        for queue in self._queues.values():
            queue.drop_before(first)
        if self._index is not None:
            self._index.drop_before(first)

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
            index_files=len(self._index.names) if self._index is not None else 0,
            disk_used_ratio=self._disk_used,
            writable=health.writable,
            reason=health.reason or self._dispatcher.problem or self._flusher.views_problem or "",
            recovered=self.recovered,
            skipped_records=self._dispatcher.skipped,
        )
