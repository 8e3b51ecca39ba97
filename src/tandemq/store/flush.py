"""When bytes become durable: `flushed` follows `appended`, and whoever waits for it is told, in offset order.

`flush_once` is plain and synchronous: a simulator calls it. In production one thread per store calls it, woken by
waiters (SYNC_FLUSH: one fdatasync serves everybody who waits: group commit) or by its interval (ASYNC_FLUSH), and
asleep without a timer while nothing is dirty.

A failed fdatasync poisons the log. The kernel may have dropped the very pages it could not write and a second call may
succeed: after the first failure nothing is ever reported flushed again.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tandemq.clock import Clock
from tandemq.errors import DiskFull, LogPoisoned, NoDescriptors, StoreError
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.disk import Disk, SyncFile

Done = Callable[[Exception | None], None]
Post = Callable[[Callable[[], None]], object]
PAGE = 4096


@dataclass(slots=True)
class ViewsWork:
    """What must be durable before a checkpoint may say so."""

    log_offset: int
    files: list[Path]
    directories: list[Path]
    checkpoint: bytes
    checkpoint_path: Path
    replacements: list[Callable[[], None]] = field(default_factory=list)
    """Replace small files; called before the checkpoint is written."""
    obsolete: list[Path] = field(default_factory=list)
    """Directories to be removed once the checkpoint is written."""
    done: Callable[[], None] = field(default=lambda: None)


class Flusher:
    """`flushed` only moves forward, except when the owner cuts the log."""

    def __init__(
        self,
        log: CommitLog,
        disk: Disk,
        config: StoreConfig,
        clock: Clock,
        flushed: int,
        post: Post | None,
        on_poison: Callable[[LogPoisoned], None],
    ) -> None:
        self._log = log
        self._disk = disk
        self._config = config
        self._clock = clock
        self._post = post
        self._on_poison = on_poison
        self.flushed = flushed
        self.poison: LogPoisoned | None = None
        self.delay = ""
        """Why a sync has to be tried again: the process had no file descriptor left."""
        self._open: dict[int, SyncFile] = {}
        """Files of the log that are kept open for the next sync, by first offset."""
        self.views_problem: str | None = None
        self._waiters: deque[tuple[int, Done]] = deque()
        self._lock = threading.Lock()
        """Held while syncing: a cut waits for it, so that `flushed` never ends up above a cut."""
        self._wake = threading.Event()
        self._work: ViewsWork | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._asleep = False
        self._last_flush = clock.monotonic()
        self.on_flushed: Callable[[], None] | None = None
        """Told after `flushed` moved, on the owner's side."""
        self.on_idle: Callable[[], None] | None = None
        """Posted to the owner when the views are due for a flush and nobody has handed them over."""

    # -- waiting

    def when_flushed(self, offset: int, done: Done) -> None:
        """Calls `done(None)` once everything below `offset` is durable, or `done(error)`. Offsets must not decrease."""
        if self.poison is not None:
            done(self.poison)
        elif offset <= self.flushed and not self._waiters:
            done(None)
        else:
            self._waiters.append((offset, done))
            if self.poison is not None:  # it happened in between
                self._complete()
            self._wake.set()

    def _complete(self) -> None:
        """Answers those whose offset was reached, and everybody after a failure."""
        waiters = self._waiters
        while waiters:
            poison, flushed = self.poison, self.flushed
            if poison is None and waiters[0][0] > flushed:
                break
            _, done = waiters.popleft()
            done(poison)
        if self.on_flushed is not None:
            self.on_flushed()

    def fail_waiters(self, error: Exception) -> None:
        """Fails all waiters: the log was cut below their offset, or closed."""
        while self._waiters:
            self._waiters.popleft()[1](error)

    def fail_above(self, offset: int) -> None:
        """Fails those who wait for more than `offset`: the log was cut, and they never get it."""
        waiting = [(wanted, done) for wanted, done in self._waiters if wanted > offset]
        self._waiters = deque(item for item in self._waiters if item[0] <= offset)
        for wanted, done in waiting:
            done(StoreError(f"the log was cut at {offset}, below the awaited offset {wanted}"))

    # -- flushing

    def flush_once(self) -> int:
        """Makes the log durable up to where it ends now. Returns the new `flushed`; raises LogPoisoned, or
        NoDescriptors if files could not be opened."""
        target = self._log.appended
        with self._lock:
            self._sync_log()
        self._tell()
        if self.poison is not None:
            raise self.poison
        if self.flushed < target:
            raise NoDescriptors(self.delay)
        return self.flushed

    def _sync_log(self) -> None:
        target = self._log.appended
        start = self.flushed
        if self.poison is not None or target <= start:
            return
        try:
            self._sync_files(start, target)
            self._log.chain.sync_names()
        except NoDescriptors as error:
            self.delay = str(error)
            return
        except OSError as error:
            self.poison = LogPoisoned(
                f"fdatasync of the log failed ({error}): nothing after offset {start} is known to be on disk. "
                "Check the disk, then restart: recovery will find what survived"
            )
            self.poison.__cause__ = error
            self._on_poison(self.poison)
        else:
            self.flushed = target
            self.delay = ""
        self._last_flush = self._clock.monotonic()

    def _sync_files(self, start: int, target: int) -> None:
        """Syncs the files of [start, target); the one that is written next is kept open."""
        size, chain = self._log.segment_size, self._log.chain
        for base in range(start - start % size, target, size):
            file = self._open.get(base)
            if file is None:
                file = self._open[base] = self._disk.open_to_sync(chain.path(base))
            file.sync()
        for base in [base for base in self._open if base + size <= target]:
            self._open.pop(base).close()

    def _close_files(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _tell(self) -> None:
        if self._post is not None and threading.current_thread() is self._thread:
            self._post(self._complete)
        else:
            self._complete()

    def hand_over_views(self, work: ViewsWork) -> None:
        """Takes the views' files that the owner wrote; the thread (or the caller, without one) makes them durable."""
        if self._thread is None:
            with self._lock:
                self._sync_views(work)  # what there was no room for, the next one has too
        else:
            self._work = work
            self._wake.set()

    @property
    def views_busy(self) -> bool:
        return self._work is not None

    @property
    def is_posting(self) -> bool:
        """Whether there is a thread beside the owner, and a way to call the owner back."""
        return self._thread is not None and self._post is not None

    def post(self, call: Callable[[], None]) -> None:
        """Has the owner call this in a later turn of its loop."""
        if self._post is not None:
            self._post(call)

    def _sync_views(self, work: ViewsWork) -> bool:
        """Does what `sync_views_now` does. Returns False if it has to be tried again."""
        try:
            self.sync_views_now(work)
        except (NoDescriptors, DiskFull) as error:
            self.delay = str(error)
            return False
        return True

    def sync_views_now(self, work: ViewsWork) -> None:
        """Syncs the log first, then the views, then the checkpoint that vouches for both. Needs the lock.

        Raises NoDescriptors or DiskFull, after which it may be tried again.
        """
        if self.views_problem is not None:
            return
        self._sync_log()
        if self.poison is not None:
            return
        if self.flushed < work.log_offset:
            raise NoDescriptors(self.delay)
        try:
            for path in work.files:
                with contextlib.suppress(FileNotFoundError):  # a topic or an old file was deleted meanwhile
                    self._disk.sync_file(path)
                if self._thread is not None and self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                    self._between_files()
            for directory in work.directories:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync_directory(directory)
            for write in work.replacements:
                write()
            self._disk.write_synced(work.checkpoint_path, work.checkpoint)
            for path in work.obsolete:
                self._disk.remove_tree(path)
        except (NoDescriptors, DiskFull):
            raise
        except (OSError, StoreError) as error:
            self.views_problem = f"the views could not be flushed ({error}); recovery will dispatch again from the log"
        else:
            work.done()

    def _between_files(self) -> None:
        """Thousands of queues must not delay a send that waits for the log."""
        if self._waiters and self._log.appended > self.flushed:
            self._sync_log()
            self._tell()

    # -- the thread

    def start(self) -> None:
        if self._thread is None:
            self._stopping = False
            self._log.on_half_full = self._wake.set
            self._thread = threading.Thread(target=self._run, name="tandemq-flush", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        thread = self._thread
        if thread is not None:
            self._stopping = True
            self._wake.set()
            thread.join()
            self._thread = None

    def close(self) -> None:
        """Lets go of the files. Nothing may be flushed afterwards."""
        with self._lock:
            self._close_files()

    def note_append(self) -> None:
        """Wakes an idle thread after the owner wrote something; a busy one will see it by itself."""
        if self._asleep:
            self._asleep = False
            self._wake.set()

    def _run(self) -> None:
        interval = self._config.flush_interval_ms / 1000
        views_interval = self._config.flush_views_interval_ms / 1000
        last_views = self._clock.monotonic()
        while not self._stopping:
            idle = self._log.appended <= self.flushed and self._work is None and not self._waiters
            views_due = self._views_wanted and self._work is None
            if idle and not views_due:
                self._asleep = True
                idle = self._log.appended <= self.flushed and not self._waiters
            if self.poison is not None:
                self._wake.wait()
            else:
                self._wake.wait(None if idle and not views_due else min(interval, views_interval))
            self._asleep = False
            self._wake.clear()
            if self._stopping:
                break
            self._turn()
            now = self._clock.monotonic()
            if self._views_wanted and self._work is None and now - last_views >= views_interval:
                last_views = now
                self._ask_for_views()

    _views_wanted = False

    def want_views(self, wanted: bool) -> None:
        """Returns whether there are dispatched records that no checkpoint vouches for yet."""
        self._views_wanted = wanted
        if wanted:
            self.note_append()

    def _ask_for_views(self) -> None:
        if self._post is not None and self.on_idle is not None:
            self._post(self.on_idle)

    def _turn(self) -> None:
        work = self._work
        with self._lock:
            if self._due():
                self._sync_log()
        self._tell()
        if work is not None:
            with self._lock:
                if self._work is work and self._sync_views(work):
                    self._work = None
            self._tell()
        self.prepare()

    def prepare(self) -> None:
        """Makes the next file of the log before it is needed."""
        with self._lock:
            if self.poison is not None:
                return
            with contextlib.suppress(OSError, StoreError):  # the owner meets what is wrong when it needs the file
                self._log.chain.prepare(self._log.appended)

    def _due(self) -> bool:
        """Returns whether to flush. SYNC_FLUSH: always.

        ASYNC_FLUSH: enough pages, or long enough ago, or somebody waits.
        """
        if self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH or self._waiters:
            return True
        dirty_pages = (self._log.appended - self.flushed) // PAGE
        waited_ms = (self._clock.monotonic() - self._last_flush) * 1000
        return dirty_pages >= self._config.flush_pages_min or waited_ms >= self._config.flush_thorough_interval_ms

    # -- cutting

    def paused(self) -> threading.Lock:
        """Holds off every sync while the owner cuts the log. Forget handed-over views inside."""
        return self._lock

    def forget_views(self) -> None:
        self._work = None

    def lower(self, offset: int) -> None:
        """Follows a cut of the log: nothing above it is flushed, and files above it may be other ones now."""
        self._close_files()
        self.flushed = min(self.flushed, offset)

    def restart(self, offset: int) -> None:
        """Follows a log that begins anew at an offset."""
        self._close_files()
        self.flushed = offset
