"""Changing history: cutting the log's end off, starting it anew, keeping what is cut, and numbering what stays.

Each change is announced durably before it begins and finished by the next opening if a crash comes between (see
truncation): after it either the old tail is there or the cut, never a mixture.
"""

from collections.abc import Callable
from pathlib import Path

from tandemq.errors import OffsetOutOfRange, StoreError
from tandemq.formats import layout
from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted, decode_mark
from tandemq.store import truncation
from tandemq.store.commit_log import CommitLog
from tandemq.store.disk import Disk
from tandemq.store.flush import Flusher
from tandemq.store.numbering import QueueNumbering
from tandemq.store.truncation import Truncation
from tandemq.store.views import Views

COPY_SIZE = 1 << 20


class LogChanges:
    """Owner thread only; while the log changes the flusher is paused."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        log: CommitLog,
        views: Views,
        flusher: Flusher,
        numbering: QueueNumbering,
        lower_confirmed: Callable[[int], None],
    ) -> None:
        self._disk = disk
        self._root = root
        self._log = log
        self._views = views
        self._flusher = flusher
        self._numbering = numbering
        self._lower_confirmed = lower_confirmed
        """Told before the log is cut: a killed process must not leave word that what comes there was confirmed."""

    # -- cutting

    def truncate(self, offset: int, save_to: Path | None) -> int:
        """Cuts log and views at `offset`. Returns how many bytes went."""
        log, flusher = self._log, self._flusher
        end = log.appended
        if not log.first_offset <= offset <= end:
            raise OffsetOutOfRange(offset, log.first_offset, end)
        if offset == end and log.written == end:
            return 0
        self._views.cancel_rebuild(f"the log was cut at {offset}")
        if save_to is not None and offset < end:
            self._save(offset, end, save_to)
        undone = self._has_deletion(offset)
        with flusher.paused():
            flusher.forget_views()
            if undone:
                self._views.distrust()  # after a crash on the way all queues are built anew
            self._lower_confirmed(offset)
            truncation.announce(self._disk, self._root, Truncation(offset))
            log.cut(offset)
            self._views.cut(offset)
            if undone:
                self._views.start_over(log.first_offset)
            self.number_undispatched()
            flusher.lower(offset)
            self._views.sync_after_cut()
            truncation.finish(self._disk, self._root)
        flusher.fail_above(offset)
        return end - offset

    def drop_unfinished(self) -> int:
        """Makes what was written past the end, and never became log, zeros again, durably. Returns how many bytes.

        Nothing has to be announced: until the first of these bytes is zero they are what they were, and no record
        follows a zero. No view knows them.
        """
        log, flusher = self._log, self._flusher
        unfinished = log.written - log.appended
        if unfinished > 0:
            with flusher.paused():
                log.cut(log.appended)
                flusher.lower(log.appended)
        return max(0, unfinished)

    def _has_deletion(self, offset: int) -> bool:
        """Returns whether queues were deleted that a cut at this offset would bring back.

        A dispatch that met a full disk may have followed marks above the position that it will begin at again.
        """
        if self._views.queue_table.has_deleted_from(offset):
            return True
        messages = self._log.messages(offset, self._views.dispatched)
        marks = (decode_mark(message.body) for message in messages if message.topic == LOG_MARK_TOPIC)
        return any(isinstance(mark, TopicDeleted) for mark in marks)

    def roll_forward(self, intent: Truncation) -> None:
        """Repeats the log part of a truncation that was interrupted; the views follow from recovery."""
        log, chain = self._log, self._log.chain
        if intent.reset:
            self._reset_files(intent.offset)
            self._views.reset(intent.offset)
            return
        chain.load()
        log.appended = log.written = chain.end
        if chain.bases and intent.offset >= chain.first_offset:
            log.cut(min(intent.offset, chain.end), thorough=True)

    # -- starting anew

    def reset(self, first_offset: int) -> None:
        """Drops everything and starts an empty log at an offset."""
        size = self._log.segment_size
        if first_offset % size:
            raise StoreError(
                f"a log can't start at {first_offset}, which is no multiple of "
                f"mappedFileSizeCommitLog={size}: use the size the other replicas have"
            )
        flusher = self._flusher
        self._views.cancel_rebuild(f"the log was reset to start at {first_offset}")
        with flusher.paused():
            flusher.forget_views()
            self._lower_confirmed(0)
            truncation.announce(self._disk, self._root, Truncation(first_offset, reset=True))
            self._reset_files(first_offset)
            self._views.reset(first_offset)
            self.number_undispatched()
            flusher.restart(first_offset)
            self._views.sync_after_cut()
            truncation.finish(self._disk, self._root)
        flusher.fail_waiters(StoreError(f"the log was reset to start at {first_offset}"))

    def _reset_files(self, first_offset: int) -> None:
        log, chain = self._log, self._log.chain
        self._disk.make_directory(chain.directory)
        if not chain.bases:
            chain.bases = [int(n) for n in self._disk.list(chain.directory) if layout.is_segment_name(n)]
        while chain.bases:
            chain.drop_from(chain.bases[-1])
        chain.add(first_offset)
        chain.sync_names()
        log.appended = log.written = first_offset
        log.set_end(first_offset)

    # -- keeping what is cut

    def save_damaged(self, offset: int, end: int) -> None:
        """Keeps bytes that recovery is about to cut off: whole records that follow a damaged one."""
        self._log.appended = end
        self._save(offset, end, self._root / layout.CUT)
        self._log.appended = offset

    def _save(self, offset: int, end: int, directory: Path) -> None:
        """Copies [offset, end) aside before it is cut, durably."""
        log = self._log
        self._disk.make_directory(directory)
        path = directory / layout.segment_name(offset)
        self._disk.remove(path)
        self._disk.create_file(path, 0)
        position = offset
        while position < end:
            size = min(COPY_SIZE, end - position, log.segment_size - position % log.segment_size)
            self._disk.write_at(path, position - offset, log.slice(position, size))
            position += size
        self._disk.sync_file(path)
        self._disk.sync_directory(directory)
        self._disk.sync_directory(directory.parent)

    # -- numbering

    def number_undispatched(self) -> None:
        """Takes the next number of each queue from the queues and from what readers may not see yet."""
        self._numbering.renumber(self._log.messages(self._views.dispatched, self._log.appended))
