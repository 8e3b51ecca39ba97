"""The derived views of one log as the store holds them: queues, index, the dispatcher that fills them, and the
checkpoint that vouches for what of them is durable.

Dispatch adds entries in memory; `hand_over` writes them to their files and gives the list of what to sync to the
flusher, now and then; the checkpoint is written after all of it is durable. What a crash takes, recovery dispatches
again.

With thousands of queues this takes long, so on a loop it is done in slices. The checkpoint vouches for the position at
which it began; entries that dispatch adds meanwhile may get into the files too, as they do when a broker crashes, and
the queues they are in are dirty again.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandemq.clock import Clock
from tandemq.errors import DiskFull, NoDescriptors, StoreError
from tandemq.formats import checkpoint, layout
from tandemq.formats.checkpoint import Checkpoint, CheckpointFile, ViewsPoint
from tandemq.formats.envelope import parse_delay_levels
from tandemq.formats.queue_starts import QueueStarts, decode_starts, encode_starts
from tandemq.store import online_rebuild
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.store.dispatch import LogDispatcher
from tandemq.store.flush import Flusher, ViewsWork
from tandemq.store.key_index import KeyIndex
from tandemq.store.online_rebuild import OnlineRebuild, SyncedPoint
from tandemq.store.ordered_file import OrderedFile
from tandemq.store.queues import QueueTable

SLICE_SECONDS = 0.002
"""How long queue files are made and written in one go."""
SECONDS_PER_QUEUE = 0.001
INTERVAL_MAX = 60.0
"""How much later queues are handed over for each of them that has new entries, and at most, which is how long RocketMQ
may take. A file is opened twice and synced for it, which for a single entry costs more than its message did."""
PENDING_OVER = 4
"""So many times what may be pending is written at once, however long it takes: memory has a bound."""
Key = tuple[str, int]


@dataclass(slots=True)
class _HandOver:
    """Views on their way to disk, as they were at a position of the log."""

    point: ViewsPoint
    timestamp: int
    keys: list[Key]
    """Queues whose entries are still to be written."""
    starts: QueueStarts | None
    removals: int
    obsolete: list[Path]
    files: list[Path] = field(default_factory=list)
    directories: dict[Path, None] = field(default_factory=dict)
    """In the order in which they were found."""


class Views:
    """All calls from the store's owner thread."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        flusher: Flusher,
        *,
        read_only: bool,
        on_full: Callable[[DiskFull], None],
    ) -> None:
        self._disk = disk
        self._root = root
        self._config = config
        self._clock = clock
        self._log = log
        self._flusher = flusher
        self._read_only = read_only
        self._on_full = on_full
        self.queue_table = QueueTable(disk, root, config.consume_queue_file_size, not read_only)
        self.index = self._new_index(root) if config.index_enable else None
        self.delays_ms = parse_delay_levels(config.message_delay_level)
        index = self.index if not read_only else None  # queues grow in memory, index files stay as they are
        self.dispatcher = LogDispatcher(log, self.queue_table, index, self.delays_ms, 0)
        self.dirty: dict[Key, None] = {}
        """Queues with entries that no checkpoint vouches for, always in one order: where a disk fills up, it does so at
        the same file."""
        self.checkpoint = CheckpointFile(b"")
        self.confirmed: int | None = None
        """Replication's word on what can't vanish any more; goes into the checkpoint."""
        self._starts_file = OrderedFile(disk, root / layout.QUEUE_STARTS)
        self.starts: QueueStarts | None = None
        """The queues at the first offset of the log, as they were saved last."""
        self.is_open = True
        self._last_handed = clock.monotonic()
        self._durable_offset = -1
        """Where the last checkpoint vouches up to."""
        self._rebuild: OnlineRebuild | None = None
        self._unsynced: ViewsWork | None = None
        """What was handed over last, until it is done: a cut may take it from the flusher, then the next has it too."""
        self._left_files: list[Path] = []
        self._left_directories: list[Path] = []
        """Written by a hand-over that was given up; the next one syncs them."""
        self._slicing: _HandOver | None = None
        """What is being handed over in slices."""

    def _new_index(self, root: Path) -> KeyIndex:
        return KeyIndex(
            self._disk,
            root / layout.INDEX,
            self._config.index_slots,
            self._config.index_entries,
            self._clock.wall_ms,
            writable=not self._read_only,
        )

    def read_checkpoint(self) -> Checkpoint:
        path = self._root / layout.CHECKPOINT
        found = self._disk.file_size(path) is not None
        self.checkpoint = CheckpointFile(self._disk.read_at(path, 0, checkpoint.SIZE) if found else b"")
        return self.checkpoint.read()

    def distrust(self) -> None:
        """Removes the checkpoint, durably, before the views it vouches for are taken away."""
        self.checkpoint.forget()
        self._disk.remove(self._root / layout.CHECKPOINT)
        self._disk.sync_directory(self._root)

    def close(self) -> None:
        if self.index is not None:
            self.index.close()

    @property
    def dispatched(self) -> int:
        return self.dispatcher.position

    # -- from memory to disk

    def note_dispatched(self, touched: list[Key]) -> None:
        """Writes or hands over, for queues that got messages, what has been waiting long enough."""
        self.dirty.update(dict.fromkeys(touched))
        pending, pending_max = self.dispatcher.pending_size, self._config.pending_views_max
        if self.are_due:
            self.hand_over()
        elif pending > pending_max and (not self._in_slices or pending > PENDING_OVER * pending_max):
            self.write_tails()
        elif pending > pending_max:
            self.hand_over()
        elif self._flusher._thread is not None:
            self._flusher.want_views(True)

    def write_tails(self) -> None:
        try:
            self.queue_table.write_tails(self.dirty)
            if self._slicing is not None:
                self.queue_table.write_tails(self._slicing.keys)
        except DiskFull as error:
            self._on_full(error)
            raise
        self.dispatcher.pending_size = 0

    @property
    def are_due(self) -> bool:
        """Whether it is time to hand over. The more files there are to open and to sync for it, the rarer."""
        interval = min(len(self.dirty) * SECONDS_PER_QUEUE, INTERVAL_MAX)
        return self._clock.monotonic() - self._last_handed >= max(interval, self._config.flush_views_interval_ms / 1000)

    @property
    def _in_slices(self) -> bool:
        """Whether the owner has a loop on which others wait."""
        return self._flusher.is_posting

    def hand_over_if_due(self) -> None:
        """Hands over now, or lets whoever asks do so again."""
        if self.are_due:
            self.hand_over()

    def hand_over(self) -> None:
        """Writes queue entries into their files, and gives the list of what to sync to whoever syncs."""
        if not self.is_open or self._read_only or self._flusher.views_busy or self._slicing is not None:
            return
        self._last_handed = self._clock.monotonic()
        if self.dispatcher.position == self._durable_offset:
            self._flusher.want_views(False)
            return
        self._flusher.want_views(False)
        if self._in_slices:
            self._slicing = begun = self._begin(clean=False)
            self._slice(begun, self._steps(begun))
        else:
            self._flusher.hand_over_views(self.work(clean=False))

    def _slice(self, begun: _HandOver, steps: Iterator[None]) -> None:
        """Goes on with a hand-over for a while; the rest comes in a later turn of the loop."""
        if self._slicing is not begun or not self.is_open:
            return
        if self.queue_table.removals != begun.removals:
            self._give_up()  # its position can't be vouched for any more; the next one begins where dispatch is then
            self._flusher.want_views(True)
            return
        until = self._clock.monotonic() + SLICE_SECONDS
        try:
            for _ in steps:
                if self._clock.monotonic() >= until:
                    self._flusher.post(lambda: self._slice(begun, steps))
                    return
            work = self._finish(begun)
        except (OSError, StoreError) as error:
            self._give_up()
            self._flusher.want_views(True)
            if not isinstance(error, DiskFull):
                raise
            self._on_full(error)
            return
        self._slicing = None
        self._flusher.hand_over_views(work)

    def _give_up(self) -> None:
        """Takes back what was being handed over: its queues are dirty as before, its files are left to the next."""
        begun, self._slicing = self._slicing, None
        if begun is not None:
            self.dirty.update(dict.fromkeys(begun.keys))
            self.queue_table.starts_changed |= begun.starts is not None
            self._left_files += begun.files
            self._left_directories += begun.directories

    def sync(self, clean: bool = False) -> None:
        """Makes views and checkpoint durable now, in this thread. Raises NoDescriptors or DiskFull."""
        with self._flusher.paused():
            self._flusher.forget_views()
            self._sync_paused(clean)

    def sync_after_cut(self) -> None:
        """Does what `sync` does, for those who hold the flusher's lock and changed what a checkpoint vouches for.

        Where there is no room the checkpoint goes instead, until there is: a crash before dispatches everything again.
        """
        is_durable = False
        with contextlib.suppress(DiskFull, NoDescriptors):
            self._sync_paused(clean=False)
            is_durable = self._unsynced is None
        if not is_durable:
            self.distrust()

    def _sync_paused(self, clean: bool) -> None:
        self._give_up()
        try:
            self._flusher.sync_views_now(self.work(clean))
        except (DiskFull, NoDescriptors):
            self._flusher.want_views(True)
            raise

    def work(self, clean: bool) -> ViewsWork:
        """Writes everything at once. Returns what is to be synced."""
        begun = self._slicing = self._begin(clean)
        try:
            for _ in self._steps(begun):
                pass
            work = self._finish(begun)
        except (OSError, StoreError) as error:
            self._give_up()
            if isinstance(error, DiskFull):
                self._on_full(error)
            raise
        self._slicing = None
        return work

    def _begin(self, clean: bool) -> _HandOver:
        """Notes what is to be vouched for: everything up to where dispatch is now."""
        index_name, index_count = "", 1
        files: list[Path] = []
        index_directories: list[Path] = []
        if self.index is not None:
            files, named = self.index.take_dirty()
            if named:
                index_directories = [self.index.directory, self._root]
            newest = self.index.newest
            if newest is not None:
                index_name, index_count = newest.path.name, newest.count
        position, table = self.dispatcher.position, self.queue_table
        point = ViewsPoint(
            offset=position,
            queue_entries=table.entries(),
            index_name=index_name,
            index_count=index_count,
            clean=clean,
            boot_id=self._disk.boot_id(),
        )
        starts = QueueStarts(self._log.first_offset) if table.starts_changed else None
        table.starts_changed = False
        keys, self.dirty = list(reversed(self.dirty)), {}
        obsolete = table.deleted_below(position)
        begun = _HandOver(point, self.dispatcher.last_timestamp, keys, starts, table.removals, obsolete, files)
        begun.directories.update(dict.fromkeys((*table.take_renamed_directories(), *index_directories)))
        return begun

    def _steps(self, begun: _HandOver) -> Iterator[None]:
        """Writes the entries of the queues into their files, one queue after the other."""
        if begun.starts is not None:
            # Before the files: what is in memory still tells where a queue ends.
            yield from self.queue_table.starts_steps(begun.starts)
        yield from self.queue_table.note_gone()
        table, keys, dispatcher = self.queue_table.table, begun.keys, self.dispatcher
        while keys:
            queue = table.get(keys[-1])
            if queue is not None:
                size = len(queue.tail)
                queue.write_tail()
                dispatcher.pending_size = max(0, dispatcher.pending_size - size)
                paths, named = queue.take_dirty()
                begun.files += paths
                if named:
                    begun.directories[queue.directory] = None
                begun.directories.update(dict.fromkeys(self.queue_table.take_new_directories(queue)))
            keys.pop()
            yield

    def _finish(self, begun: _HandOver) -> ViewsWork:
        """Returns what is to be synced: what was written, and what was to be synced before and was not."""
        position, path, unsynced = begun.point.offset, self._root / layout.CHECKPOINT, self._unsynced
        data = self._checkpoint_data(begun.point, begun.timestamp)
        replacements = list(unsynced.replacements) if unsynced is not None else []
        if begun.starts is not None:
            replacements.append(self._starts_file.replacement(encode_starts(self._current_starts(begun.starts))))
        if self._disk.file_size(path) is None:
            self._disk.create_file(path, checkpoint.SIZE)
            begun.directories[self._root] = None
        files, directories = begun.files, list(begun.directories)
        if unsynced is not None or self._left_files or self._left_directories:
            before = (unsynced.files, unsynced.directories) if unsynced is not None else ([], [])
            files = list(dict.fromkeys([*before[0], *self._left_files, *files]))
            directories = list(dict.fromkeys([*before[1], *self._left_directories, *directories]))
            self._left_files, self._left_directories = [], []

        def done() -> None:
            self._durable_offset = position
            self._unsynced = None

        self._unsynced = ViewsWork(position, files, directories, data, path, replacements, begun.obsolete, done)
        return self._unsynced

    def _checkpoint_data(self, point: ViewsPoint, timestamp: int) -> bytes:
        return self.checkpoint.written(
            Checkpoint(
                log_timestamp=timestamp,
                queue_timestamp=timestamp,
                index_timestamp=timestamp,
                master_flushed_offset=0,
                confirmed_offset=self.confirmed or 0,
                views=point,
            )
        )

    # -- following the log when its history changes

    def cut(self, offset: int) -> None:
        """Cuts the views with the log, and takes back the queue offsets handed out beyond them."""
        dispatcher, queues = self.dispatcher, self.queue_table.table
        # Also above the dispatched position: a dispatch that met a full disk has put entries of records it will repeat.
        for key, queue in queues.items():
            if queue.cut(offset):
                self.dirty[key] = None
        if max(dispatcher.position, dispatcher.index_from) > offset and self.index is not None:
            self.index.cut(offset)
        dispatcher.position = min(dispatcher.position, offset)
        dispatcher.index_from = min(dispatcher.index_from, offset)
        dispatcher.problem = None

    def reset(self, first_offset: int) -> None:
        """Drops everything; the log begins anew at an offset."""
        self._slicing = None
        self.queue_table.destroy()
        if self.index is not None:
            self.index.destroy()
        self._starts_file.remove()
        self.starts = None
        self.queue_table.starts_changed = True
        self.dirty.clear()
        self.dispatcher.position = self.dispatcher.index_from = first_offset
        self.dispatcher.problem = None

    def save_starts(self, first_offset: int) -> None:
        """Keeps what only files tell that are about to be deleted, for a log that will begin at an offset."""
        # All others who save it have synced the log before.
        starts = self.queue_table.starts(first_offset, self._flusher.flushed)
        self._starts_file.replacement(encode_starts(starts))()
        self.starts = starts  # not before: without room for it the log still begins where it did

    def know_starts_at(self, first_offset: int) -> None:
        """Learns from recovered queues what `queue-starts` does not say: a crash came before what it tells of went."""
        if self.starts is None or self.starts.offset != first_offset:
            self.queue_table.starts_changed = True
            if self.starts is not None:
                self.starts = self.queue_table.starts(first_offset)

    def _current_starts(self, now: QueueStarts) -> QueueStarts:
        """Returns what is to be saved with a checkpoint: numbers at the first offset do not change while it stays."""
        known = self.starts
        self.starts = replace(now, idle=known.idle) if known is not None and known.offset == now.offset else now
        return self.starts

    def read_starts(self) -> QueueStarts | None:
        """Returns what is known of the queues at the log's first offset, None if nothing is."""
        path = self._root / layout.QUEUE_STARTS
        self.starts = decode_starts(self._disk.read_file(path)) if self._disk.file_size(path) is not None else None
        return self.starts

    def start_over(self, first_offset: int) -> None:
        """Drops all queues, to be dispatched again from the first offset; the index stays as it is."""
        self._slicing = None
        self.queue_table.destroy()
        if self.starts is not None:
            self.queue_table.start_idle(self.starts.idle)
        self.dirty.clear()
        self.dispatcher.position = first_offset
        self.dispatcher.problem = None

    def drop_before(self, first_offset: int) -> None:
        """Removes files that only point below `offset`, where the log was deleted."""
        self.queue_table.removals += 1
        for queue in self.queue_table.table.values():
            queue.drop_before(first_offset)
        self.drop_index_before(first_offset)

    def drop_index_before(self, first_offset: int) -> None:
        """Removes index files that only point below `offset`, where the log was or is about to be deleted."""
        if self.index is not None:
            self.index.drop_before(first_offset)

    # -- building them anew

    def rebuild(self, step_size: int) -> OnlineRebuild:
        """Begins to build queues and index anew beside the live ones. One at a time."""
        if self._rebuild is not None and self._rebuild.is_running:
            raise StoreError(f"{self._root}: the views are being built anew already, wait until that is done")
        beside = self._root / layout.REBUILD
        queues = QueueTable(self._disk, beside, self._config.consume_queue_file_size)
        index = self._new_index(beside) if self.index is not None else None
        self._rebuild = OnlineRebuild(self, self._disk, self._root, self._log, queues, index, self.delays_ms, step_size)
        return self._rebuild

    def cancel_rebuild(self, reason: str) -> None:
        if self._rebuild is not None:
            self._rebuild.cancelled = reason

    def adopt(self, rebuild: OnlineRebuild) -> int:
        """Replaces our views by those of a rebuild, all or nothing. Returns how many queues had another end."""
        with self._flusher.paused():
            self._flusher.forget_views()
            self._flusher._sync_log()
            if self._flusher.poison is not None:
                raise self._flusher.poison
            self._slicing = None
            rebuild.catch_up()
            durable_ends, corrected = rebuild.match(self.queue_table.table)
            starts = rebuild.queues.starts(self._log.first_offset)
            self.starts = replace(starts, idle=self.starts.idle) if self.starts is not None else starts
            self._starts_file.replacement(encode_starts(self.starts))()
            point = rebuild.synced
            self.checkpoint.forget()
            online_rebuild.announce(self._disk, self._root, self._rebuilt_checkpoint(point, durable_ends))
            rebuild.is_decided = True
            if self.index is not None and rebuild.index is not None:
                self.index.close()
                rebuild.index.close()
            try:
                online_rebuild.swap(self._disk, self._root)
            except (OSError, StoreError) as error:
                # Decided and half done: only opening the store again can finish it. The log itself is not touched.
                problem = f"{self._root}: new views could not take their place ({error}): restart, which finishes it"
                self.dispatcher.problem = problem
                raise StoreError(problem) from error
            self.queue_table.adopt(rebuild.queues, rebuild.unsynced)
            if self.index is not None and rebuild.index is not None:
                self.index.adopt(rebuild.index)
        self.dirty = dict.fromkeys(sorted(rebuild.unsynced))
        self.dispatcher.index_from = self.dispatcher.position
        self.dispatcher.pending_size = 0
        self._durable_offset = point.position
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
