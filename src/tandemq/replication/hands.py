"""Carries out on the store what the state machines decide: the same hands in production and in the simulator."""

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tandemq.clock import Clock
from tandemq.errors import DiskFull
from tandemq.formats.record import BLANK_SIZE_MIN, MAGIC_BLANK, SIZE_MAGIC
from tandemq.replication import replica_file
from tandemq.replication.decisions import (
    Append,
    Commit,
    Discard,
    LogEnds,
    Reset,
    Save,
    Truncate,
)
from tandemq.replication.epochs import ReplicaRecord
from tandemq.store.disk import Disk
from tandemq.store.message_store import MessageStore

CUT_DIRECTORY = "cut"


class StoreHands:
    """One node's store and its replica record."""

    def __init__(self, store: MessageStore, disk: Disk, root: Path, clock: Clock) -> None:
        self.store = store
        self._disk = disk
        self._root = root
        self._clock = clock
        self.cuts: list[str] = []
        """What was cut since the start, newest last; for status and for people."""
        self.cut_bytes = 0
        self.on_cut: Callable[[], None] = lambda: None
        """Told after the log was cut or began anew, before anything comes after it."""
        self.events: Counter[str] = Counter()
        """How often the log was cut, and how often it began anew, by reason."""

    def log_ends(self) -> LogEnds:
        """Returns where the log begins and ends, for a state machine that begins; clears what lies past the end.

        A large frame is received past the end before it counts; its session may have died since. Whatever history is
        saved from here on, these bytes are not part of it.
        """
        store = self.store
        store.drop_unfinished()
        return LogEnds(store.first_offset, store.appended, store.flushed, store.segment_size)

    def after_recovery(self, record: ReplicaRecord) -> ReplicaRecord:
        """Returns the record as the store's recovery leaves it, on disk before anybody acts on it."""
        recovered = self.store.recovered
        if self.store.dispatched > record.confirmed and record.history.epochs:
            record = record.with_(confirmed=self.store.dispatched)  # readers were shown it, so it can't vanish
        if recovered is None or not recovered.after_machine_crash or not record.complete:
            return record
        record = record.after_machine_crash()
        with contextlib.suppress(DiskFull):  # it serves readers all the same; the next change of the record saves it
            replica_file.save(self._disk, self._root, record)
        return record

    def prepare(self) -> int:
        """Removes an incomplete last record before a reign and makes the rest durable. Returns the end of the log."""
        store = self.store
        store.drop_unfinished()
        end = complete_end(store)
        if end < store.appended:
            self._note(end, store.appended, "an incomplete record at the end")
            store.truncate(end)
        store.number_undispatched()
        store.flush_once()
        return store.appended

    # --- decisions: errors of the disk pass through -----------------------------------------------------------------

    def append(self, append: Append) -> None:
        self.store.append_raw(append.offset, append.data)

    def commit(self, commit: Commit) -> None:
        self.store.commit_raw(commit.size)

    def discard(self, discard: Discard) -> None:
        self.store.drop_unfinished()

    def save(self, save: Save) -> None:
        replica_file.save(self._disk, self._root, save.record)

    def truncate(self, cut: Truncate) -> None:
        """Cuts the log, after what is cut was saved aside."""
        self.save_aside(cut.offset, cut.end)
        self._note(cut.offset, cut.end, cut.why)
        self.events["cut"] += 1
        self.store.truncate(cut.offset)
        self.on_cut()

    def reset(self, reset: Reset) -> None:
        """Begins an empty log, after what is dropped was saved aside."""
        if reset.save_from < reset.end:
            self.save_aside(reset.save_from, reset.end)
            self._note(reset.save_from, reset.end, reset.why)
        elif self.store.appended > self.store.first_offset:
            self._note(reset.end, reset.end, f"began anew at {reset.offset}: {reset.why}")
        self.events[reset.event] += 1
        self.store.reset(reset.offset)
        self.on_cut()

    def save_aside(self, start: int, end: int) -> None:
        """Copies [start, end) durably to `cut/<start>-<wall ms>/`, one file per segment, named like the log's own."""
        store = self.store
        folder = self._root / CUT_DIRECTORY / f"{start:020d}-{self._clock.wall_ms()}"
        self._disk.make_directory(folder)
        while start < end:
            stop = min(end, (start // store.segment_size + 1) * store.segment_size)
            path = folder / f"{start:020d}"
            self._disk.create_file(path, stop - start)
            self._disk.write_at(path, 0, store.slice(start, stop - start))
            self._disk.sync_file(path)
            start = stop
        self._disk.sync_directory(folder)
        self._disk.sync_directory(folder.parent)

    def _note(self, start: int, end: int, why: str) -> None:
        self.cut_bytes += end - start
        self.cuts.append(f"[{start}, {end}), {end - start} bytes: {why}")
        del self.cuts[:-32]


def complete_end(store: MessageStore) -> int:
    """Returns where the last complete record ends: a slave's log may end in the middle of one."""
    position, end, segment_size = max(store.dispatched, store.first_offset), store.appended, store.segment_size
    while end - position >= BLANK_SIZE_MIN:
        size, magic = SIZE_MAGIC.unpack_from(store.slice(position, BLANK_SIZE_MIN))
        if magic == MAGIC_BLANK:
            size = segment_size - position % segment_size
        if size < BLANK_SIZE_MIN or position + size > end:
            break
        position += size
    return position
