"""Deleting what has expired: asks the disk and the log, lets `retention` decide, and does it.

Also where the store learns that its disk is too full to take more, or no longer is.
"""

import contextlib
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from tandemq.clock import Clock
from tandemq.errors import CorruptRecord, DiskFull, NoDescriptors, OffsetOutOfRange, StoreError
from tandemq.formats.layout import CUT
from tandemq.formats.log_mark import BODY_SIZE_MAX, LogMark, marks_of
from tandemq.formats.record import store_timestamp
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import StoreConfig
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk
from tandemq.store.flush import Flusher
from tandemq.store.retention import HOUR_MS, RetentionDecision, SegmentAge, decide
from tandemq.store.views import Views
from tandemq.store.write_gate import WriteGate

log = logging.getLogger(__name__)

_MANUAL_ROUNDS = 20
AppendMark: TypeAlias = Callable[[LogMark], object]


class Cleaner:
    def __init__(
        self,
        disk: Disk,
        root: Path,
        config: Callable[[], StoreConfig],
        clock: Clock,
        log: CommitLog,
        views: Views,
        flusher: Flusher,
        gate: WriteGate,
        number_of: Callable[[ConsumeQueue], int],
    ) -> None:
        self._disk = disk
        self._root = root
        self._config = config
        self._clock = clock
        self._log = log
        self._views = views
        self._flusher = flusher
        self._gate = gate
        self._number_of = number_of
        self.disk_used = 0.0
        """Share of the file system in use when it was last measured."""

    def run(self, now_ms: int, manual: bool, append_mark: AppendMark | None, keep_from: int | None = None) -> int:
        """Deletes expired segments and what points to them, and opens or shuts the gate by how full the disk is.

        Returns how many segments went. What only they told of queues is kept: in this store's own file, and for
        those who copy the log as marks, if this node may write (`append_mark`). Messages that still wait to be
        delivered stay (`keep_from`), and what follows them.
        """
        deleted = 0
        for _ in range(_MANUAL_ROUNDS if manual else 1):
            decision = self._decide(now_ms, manual, keep_from, writable=not self._gate.is_full)
            if decision.delete and not self._deletions_are_durable():
                break  # the next round finds them so, or the log is poisoned
            if decision.delete:
                first_offset = decision.delete[-1] + self._log.segment_size
                if not self._are_starts_saved(first_offset):
                    break
                if append_mark is not None:
                    self.mention(first_offset, append_mark)
            for _base in decision.delete:
                # Not while the flusher is paused: it syncs only what is above, and waiting for it would stop the owner.
                self._log.chain.drop_oldest()
                deleted += 1
            self._gate.set_full("" if decision.writable else self._full())
            if not decision.delete:
                break
        if deleted:
            self._views.drop_before(self._log.first_offset)
        if decision.reason:
            self._drop_old_cuts(now_ms)
        return deleted

    def _deletions_are_durable(self) -> bool:
        """Syncs the log if a crash could take a topic's deletion back. Returns whether that is out of the question.

        Its queues would be there again, with messages in the files that are about to go, and nobody left to ask where
        their numbers go on.
        """
        if self._views.queue_table.has_deleted_from(self._flusher.flushed):
            with contextlib.suppress(StoreError):
                self._flusher.flush_once()
        return not self._views.queue_table.has_deleted_from(self._flusher.flushed)

    def _are_starts_saved(self, first_offset: int) -> bool:
        """Keeps what only files tell that are about to go. Returns whether it is kept: without it they stay.

        Deleting is what mends a full disk, so what can be done without makes room for it.
        """
        with contextlib.suppress(DiskFull, NoDescriptors):
            self._views.save_starts(first_offset)
            return True
        self._log.chain.drop_spare()
        self._views.drop_index_before(first_offset)
        try:
            self._views.save_starts(first_offset)
        except (DiskFull, NoDescriptors) as error:
            log.warning("expired files of %s can't be deleted: %s", self._root, error)
            return False
        return True

    def _drop_old_cuts(self, now_ms: int) -> None:
        """Removes cut bytes as old as deleted messages; their directories are named `offset-wall ms`."""
        for name in self._disk.list(self._root / CUT):
            cut_at = name.partition("-")[2]
            if cut_at.isdecimal() and int(cut_at) < now_ms - self._config().file_reserved_hours * HOUR_MS:
                self._disk.remove_tree(self._root / CUT / name)

    def mention(self, first_offset: int, append_mark: AppendMark) -> None:
        """Appends marks with the numbers of queues of which the log from an offset on would tell nothing."""
        silent = (
            (key, self._number_of(queue))
            for key, queue in self._views.queue_table.table.items()
            if queue.mentioned_at < first_offset and queue.is_idle(first_offset)
        )
        size_max = min(BODY_SIZE_MAX, self._log.segment_size // 4)
        # A full disk, most likely, which deleting mends: this store knows the numbers, and tells them next time.
        with contextlib.suppress(StoreError):
            for mark in list(marks_of(((key, number) for key, number in silent if number), size_max)):
                append_mark(mark)

    def _decide(self, now_ms: int, manual: bool, keep_from: int | None, writable: bool) -> RetentionDecision:
        self.measure()
        limit = min(self._views.dispatched, self._flusher.flushed)
        if keep_from is not None:
            limit = min(limit, keep_from)
        ages = []
        for base, following in pairwise(self._log.chain.bases[: self._config().delete_batch_max + 1]):
            if following > limit:
                break
            ages.append(SegmentAge(base, self._first_store_time(following)))
        return decide(self._config(), ages, now_ms, self.disk_used, writable=writable, manual=manual)

    def measure(self) -> None:
        """Updates `disk_used`; the directory of the store must exist."""
        used, total = self._disk.usage(self._root)
        self.disk_used = used / total if total else 0.0

    def _first_store_time(self, base: int) -> int:
        """Returns the store time of a segment's first record, at which the segment before it was complete."""
        try:
            record = self._log.record(base, self._log.appended)
        except (CorruptRecord, OffsetOutOfRange):
            return self._clock.wall_ms()
        return store_timestamp(record, 0)

    def _full(self) -> str:
        return (
            f"the disk of {self._root} is {self.disk_used:.0%} full, above diskSpaceWarningLevelRatio="
            f"{self._config().disk_warning_ratio} %: free some space; writing resumes below "
            f"{self._config().disk_clean_forcibly_ratio} %"
        )
