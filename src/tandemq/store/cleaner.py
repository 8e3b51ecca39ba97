"""Deleting what has expired: asks the disk and the log, lets `retention` decide, and does it.

Also where the store learns that its disk is too full to take more, or no longer is.
"""

from itertools import pairwise
from pathlib import Path

from tandemq.clock import Clock
from tandemq.codec.record import HEAD, store_timestamp
from tandemq.errors import CorruptRecord, OffsetOutOfRange
from tandemq.store.commit_log import CommitLog
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.store.flush import Flusher
from tandemq.store.retention import SegmentAge, Verdict, decide
from tandemq.store.views import Views

_MANUAL_ROUNDS = 20


class Cleaner:
    def __init__(
        self, disk: Disk, root: Path, config: StoreConfig, clock: Clock, log: CommitLog, views: Views, flusher: Flusher
    ) -> None:
        self._disk = disk
        self._root = root
        self._config = config
        self._clock = clock
        self._log = log
        self._views = views
        self._flusher = flusher
        self.disk_used = 0.0
        """Share of the file system in use, when it was last asked."""

    def run(self, now_ms: int, manual: bool, full: str) -> tuple[int, str]:
        """Deletes expired segments and what points to them. (how many went, why the disk is too full or "").

        `full` is the reason known so far.
        """
        deleted = 0
        for _ in range(_MANUAL_ROUNDS if manual else 1):
            verdict = self._verdict(now_ms, manual, writable=not full)
            for _base in verdict.delete:
                with self._flusher.paused():
                    self._log.chain.drop_oldest()
                deleted += 1
            full = "" if verdict.writable else self._full()
            if not verdict.delete:
                break
        if deleted:
            self._views.drop_before(self._log.first_offset)
        return deleted, full

    def _verdict(self, now_ms: int, manual: bool, writable: bool) -> Verdict:
        used, total = self._disk.usage(self._root)
        self.disk_used = used / total if total else 0.0
        limit = min(self._views.dispatched, self._flusher.flushed)
        ages = []
        for base, following in pairwise(self._log.chain.bases):
            if following > limit:
                break
            ages.append(SegmentAge(base, self._first_store_time(following)))
        return decide(self._config, ages, now_ms, self.disk_used, writable=writable, manual=manual)

    def _first_store_time(self, base: int) -> int:
        """Store time of a segment's first record, the earliest moment after which the one before it was complete."""
        try:
            record = self._log.record(base, self._log.appended)
        except (CorruptRecord, OffsetOutOfRange):
            return self._clock.wall_ms()
        return store_timestamp(record, 0, HEAD.unpack_from(record)[7])

    def _full(self) -> str:
        return (
            f"the disk of {self._root} is {self.disk_used:.0%} full, above diskSpaceWarningLevelRatio="
            f"{self._config.disk_warning_ratio} %: free some space; writing resumes below "
            f"{self._config.disk_clean_forcibly_ratio} %"
        )
