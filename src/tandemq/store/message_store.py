"""The small face the broker sees: one log and its views.

No network, no asyncio. Everything is called from one owner thread; only fdatasync happens elsewhere (store/flush.py).

Watermarks, all physical offsets that only move forward unless the log is cut:
    first_offset <= dispatched <= readable_limit <= appended,   flushed <= appended
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tandemq.clock import Clock, SystemClock
from tandemq.codec.batch import Batch, Shared
from tandemq.codec.record import (
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_MAX,
    TOPIC_V1_MAX,
    host_flags,
    parse_record,
)
from tandemq.errors import CorruptRecord, DiskFull, StoreError
from tandemq.model.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    StoredMessage,
)
from tandemq.store import layout, online_rebuild, truncation
from tandemq.store.cleaner import Cleaner
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk, FileDisk, Lock
from tandemq.store.flush import Done, Flusher, Post
from tandemq.store.history import History
from tandemq.store.online_rebuild import OnlineRebuild
from tandemq.store.reader import Reader
from tandemq.store.recovery import Recovered, Recovery
from tandemq.store.results import Appended as Appended
from tandemq.store.results import AppendedBatch as AppendedBatch
from tandemq.store.results import GetResult as GetResult
from tandemq.store.results import GetStatus as GetStatus
from tandemq.store.results import Health as Health
from tandemq.store.results import StoreStatus as StoreStatus
from tandemq.store.segments import SegmentChain
from tandemq.store.views import Views

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
        self._closed = False
        self._disk_full: str = ""
        self.recovered: Recovered | None = None
        self.log = CommitLog(
            SegmentChain(
                disk,
                root / layout.COMMIT_LOG,
                config.commit_log_segment_size,
                mapped_max=config.mapped_segments_max,
                writable=not read_only,
            )
        )
        self._flusher = Flusher(self.log, disk, config, clock, 0, post)
        self._views = Views(
            disk, root, config, clock, self.log, self._flusher, read_only=read_only, on_full=self._note_full
        )
        self._history = History(disk, root, self.log, self._views, self._flusher)
        self._cleaner = Cleaner(disk, root, config, clock, self.log, self._views, self._flusher)
        # Looked up for every message.
        self._dispatcher = self._views.dispatcher
        self._queues = self._views.queue_table.table
        reader = Reader(
            self.log,
            self._views.queue_table,
            self._views.index,
            config.query_count_max,
            self.read,
            lambda: self.readable_limit,
        )
        # The face is one object; what a call costs is one call.
        self.queues = reader.queues
        self.queue_range = reader.queue_range
        self.get = reader.get
        self.search_by_time = reader.search_by_time
        self.store_time = reader.store_time
        self.earliest_store_time = reader.earliest_store_time
        self.query = reader.query

    def _note_full(self, error: DiskFull) -> None:
        self._disk_full = str(error)

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
            online_rebuild.settle(disk, root)
        aborted = disk.file_size(root / layout.ABORT) is not None
        known = views.read_checkpoint()
        intent = truncation.pending(disk, root)
        if intent is not None and not self._read_only:
            self._history.roll_forward(intent)
        self.log.chain.load()
        self.log.appended = self.log.written = self.log.first_offset
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
            save=self._history.save_damaged,
        )
        self.recovered = recovery.run(self._dispatcher)
        if self.dispatched < self.appended:
            self.number_undispatched()
        flusher.flushed = self.recovered.durable
        flusher.on_idle = views.hand_over
        if self._read_only:
            if self.recovered.behind:
                self.log.set_end(self.recovered.behind)  # tools show what they can, and say what is missing
            flusher.flushed = self.log.appended
            return
        if self._sync_flush and flusher.flushed < self.log.appended:
            flusher.flush_once()
        views.dirty.update(self._queues)
        self._mark_running(aborted)
        if intent is not None:
            views.sync()
            truncation.finish(disk, root)

    def _mark_running(self, already: bool) -> None:
        """The abort marker, durable before the first append. One that is there already costs no sync to keep."""
        path, pid = self.root / layout.ABORT, str(os.getpid()).encode()
        if already:
            self._disk.write_at(path, 0, pid.ljust(self._disk.file_size(path) or 0))
        else:
            self._disk.replace_file(path, pid)

    def start(self) -> None:
        """Starts the flush thread."""
        if not self._read_only:
            self._flusher.start()

    def close(self) -> None:
        """Everything durable, checkpoint written, abort marker removed: the next open has nothing to repair."""
        if self._closed:
            return
        self._closed = True
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
        self._flusher.flush_once()
        online_rebuild.discard(self._disk, self.root)
        try:
            while self.dispatch():
                pass
            self._views.sync(clean=self.dispatched == self.log.appended)
        except DiskFull:
            return  # views can't be written: the marker stays, the next open dispatches again
        if self.dispatched == self.log.appended and self._flusher.views_problem is None:
            self._disk.remove(self.root / layout.ABORT)
            self._disk.sync_directory(self.root)

    def abandon(self) -> None:
        """Lets go of everything without flushing or saying goodbye: what a crash does. For tests and fatal errors."""
        self._closed = True
        self._views.is_open = False
        self._flusher.stop()
        self._release()

    def _release(self) -> None:
        self.log.close()
        self._views.close()
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
        confirmed = self._views.confirmed
        return confirmed if confirmed is not None and confirmed < limit else limit

    def set_confirmed(self, offset: int | None) -> None:
        """Replication's word on what can't vanish any more; None when it has none to give."""
        self._views.confirmed = offset

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
        batch: Batch,
        store_host: bytes | None = None,
    ) -> AppendedBatch:
        """Writes several messages of one queue, contiguous and in one segment: all of them or none."""
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
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
        queue = self._queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        queue_offset = queue.next_offset
        try:
            offsets = self.log.append_batch(total, shared, queue_offset, batch)
        except DiskFull as error:
            self._disk_full = str(error)
            raise
        queue.next_offset = queue_offset + len(offsets)
        self._flusher.note_append()
        return AppendedBatch(offsets, self.log.appended, queue_offset, now)

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
        with self._raw_writing():
            self.log.write_raw(behind, data)

    def splice_raw(self, behind: int, size: int, move: Callable[[int, int, int], int]) -> int:
        """Likewise, for bytes that never pass through here: `move(fd, position, size)` has the kernel put them there;
        how many, 0 at the end of where they come from."""
        with self._raw_writing():
            fd, position = self.log.raw_place(behind, size)
            return move(fd, position, size)

    @contextmanager
    def _raw_writing(self) -> Iterator[None]:
        if self._disk_full or self._flusher.poison is not None or self._read_only or self._closed:
            self._refuse()
        try:
            yield
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
        queue = self._views.queue_table.create(topic, queue_id)
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
            self._views.note_dispatched(touched)
        return touched

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
        return self._views.rebuild(step_size)

    # -- flushing

    def flush_once(self) -> int:
        """The log durable up to its end, synchronously; views too when their interval has passed."""
        flushed = self._flusher.flush_once()
        if self._views.are_due:
            self._views.hand_over()
        return flushed

    def flush_all(self) -> None:
        """Log, views and checkpoint durable, synchronously."""
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
        count = self._views.delete_topic(topic)
        if count:
            self._topics.pop(topic, None)
        return count

    def truncate(self, offset: int, save_to: Path | None = None) -> int:
        """Cuts the log (and its views) at `offset`; how many bytes went. Crash-safe: all or nothing.

        `save_to` is a directory: the bytes are kept there, in a file named after the offset.
        """
        if self._read_only or self._closed:
            self._refuse()
        return self._history.truncate(offset, save_to)

    def number_undispatched(self) -> None:
        """Before the first append of a new master: records that readers may not see yet keep their queue offsets."""
        self._history.number_undispatched()

    def walk(self, start: int | None = None) -> Iterator[StoredMessage]:
        """Every readable message from a physical offset on (the first record at or after it), in log order."""
        position = self.first_offset if start is None else max(start, self.first_offset)
        base = position - position % self.log.segment_size
        for message in self._history.walk(max(base, self.first_offset), self.readable_limit):
            if message.physical_offset >= position:
                yield message

    def reset(self, first_offset: int) -> None:
        """Drops everything and starts an empty log at an offset: a slave whose history the master no longer has."""
        if self._read_only or self._closed:
            self._refuse()
        self._history.reset(first_offset)

    # -- retention

    def retain(self, now_ms: int | None = None, manual: bool = False) -> int:
        """Deletes expired segments and what points to them; looks at disk use. How many segments went."""
        now_ms = self._wall_ms() if now_ms is None else now_ms
        deleted, self._disk_full = self._cleaner.run(now_ms, manual, self._disk_full)
        return deleted

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
