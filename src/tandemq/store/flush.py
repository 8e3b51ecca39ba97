"""When bytes become durable: `flushed` follows `appended`, and whoever waits for it is told, in offset order.

`flush_once` is plain and synchronous: a simulator calls it. In production one thread per store calls it, woken by
waiters (SYNC_FLUSH: one fdatasync serves everybody who waits: group commit) or by its interval (ASYNC_FLUSH), and
asleep without a timer while nothing is dirty.

A failed fdatasync poisons the log. The kernel may have dropped the very pages it could not write and a second call may
succeed: after the first failure nothing is ever reported flushed again.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tandemq.clock import Clock
from tandemq.errors import LogPoisoned, StoreError
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.disk import Disk

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
    done: Callable[[], None] = field(default=lambda: None)


class Flusher:
    """`flushed` only moves forward, except when the owner cuts the log."""

    def __init__(
        self, log: CommitLog, disk: Disk, config: StoreConfig, clock: Clock, flushed: int, post: Post | None
    ) -> None:
        self._log = log
        self._disk = disk
        self._config = config
        self._clock = clock
        self._post = post
        self.flushed = flushed
        self.poison: LogPoisoned | None = None
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
        """Answers those whose offset was reached; everybody after a failure."""
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
        """The owner gives up: cut below their offset, or closed."""
        while self._waiters:
            self._waiters.popleft()[1](error)

    def fail_above(self, offset: int) -> None:
        """The log was cut: those who wait for more than `offset` never get it."""
        waiting = [(wanted, done) for wanted, done in self._waiters if wanted > offset]
        self._waiters = deque(item for item in self._waiters if item[0] <= offset)
        for wanted, done in waiting:
            done(StoreError(f"the log was cut at {offset}, below the awaited offset {wanted}"))

    # -- flushing

    def flush_once(self) -> int:
        """Makes the log durable up to where it ends now; the new `flushed`. Raises LogPoisoned."""
        with self._lock:
            self._sync_log()
        self._tell()
        if self.poison is not None:
            raise self.poison
        return self.flushed

    def _sync_log(self) -> None:
        target = self._log.appended
        start = self.flushed
        if self.poison is not None or target <= start:
            return
        size = self._log.segment_size
        chain = self._log.chain
        try:
            for base in range(start - start % size, target, size):
                self._disk.sync_file(chain.path(base))
        except OSError as error:
            self.poison = LogPoisoned(
                f"fdatasync of the log failed ({error}): nothing after offset {start} is known to be on disk. "
                "Check the disk, then restart: recovery will find what survived"
            )
            self.poison.__cause__ = error
        else:
            self.flushed = target
        self._last_flush = self._clock.monotonic()

    def _tell(self) -> None:
        if self._post is not None and threading.current_thread() is self._thread:
            self._post(self._complete)
        else:
            self._complete()

    def hand_over_views(self, work: ViewsWork) -> None:
        """The views' files were written by the owner; the thread (or the caller, without one) makes them durable."""
        if self._thread is None:
            with self._lock:
                self._sync_views(work)
        else:
            self._work = work
            self._wake.set()

    @property
    def views_busy(self) -> bool:
        return self._work is not None

    def _sync_views(self, work: ViewsWork) -> None:
        """Log first, then views, then the checkpoint that vouches for both."""
        if self.views_problem is not None:
            return
        self._sync_log()
        if self.poison is not None or self.flushed < work.log_offset:
            return
        try:
            for path in work.files:
                if self._disk.file_size(path) is not None:
                    self._disk.sync_file(path)
                if self._thread is not None and self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                    self._between_files()
            for directory in work.directories:
                if self._disk.list(directory):
                    self._disk.sync_directory(directory)
            self._disk.write_synced(work.checkpoint_path, work.checkpoint)
        except FileNotFoundError:
            return  # a topic or an old file was deleted meanwhile; the next round has a fresh list
        except OSError as error:
            self.views_problem = f"the views could not be flushed ({error}); recovery will dispatch again from the log"
            return
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
            self._thread = threading.Thread(target=self._run, name="tandemq-flush", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        thread = self._thread
        if thread is not None:
            self._stopping = True
            self._wake.set()
            thread.join()
            self._thread = None

    def note_append(self) -> None:
        """The owner wrote something: an idle thread has to know, a busy one will see it by itself."""
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
        """Whether there are dispatched records that no checkpoint vouches for yet."""
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
                if self._work is work:
                    self._sync_views(work)
                    self._work = None
            self._tell()

    def _due(self) -> bool:
        """SYNC_FLUSH: always. ASYNC_FLUSH: enough pages, or long enough ago, or somebody waits."""
        if self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH or self._waiters:
            return True
        dirty_pages = (self._log.appended - self.flushed) // PAGE
        waited_ms = (self._clock.monotonic() - self._last_flush) * 1000
        return dirty_pages >= self._config.flush_pages_min or waited_ms >= self._config.flush_thorough_interval_ms

    # -- cutting

    def paused(self) -> threading.Lock:
        """For the owner's cuts: no sync is under way while it is held. Forget handed-over views inside."""
        return self._lock

    def forget_views(self) -> None:
        self._work = None

    def lower(self, offset: int) -> None:
        self.flushed = min(self.flushed, offset)
