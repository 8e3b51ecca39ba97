"""An ordered chain of fixed-size segments: find by offset, roll, cut, drop the oldest.

Files are named after the offset of their first byte and follow each other without a gap. Only the most recently used
are mapped, so neither memory nor descriptors grow with the log.

The file after the last one is made ahead, by the flush thread: creating a file, reserving its blocks and syncing its
directory can take a tenth of a second, for which the owner's loop must not stop. Such a *spare* has its final name, as
RocketMQ's preallocated files have, and becomes part of the chain when the log reaches it. The name of a new file is
durable before anything in it counts as flushed (`sync_names`), and at most one name at a time is not: a crash never
leaves a gap.

Opened for writing, a chain with a hole or a file of a wrong size is refused. Opened for reading, by tools, it is read
as far as it goes: a missing file counts as one blank record, a short one as followed by zeros; `problems` says so.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from tandemq.errors import CorruptLog, DiskFull, OffsetOutOfRange, StoreError
from tandemq.formats.layout import is_segment_name, segment_name
from tandemq.formats.record import MAGIC_BLANK, SIZE_MAGIC
from tandemq.store.disk import RESERVE_CHUNK, Disk, Segment, StandInSegment

FIRST_TOUCH = 2 << 20
"""Bytes of a spare that are written as zeros: the first access to a fresh mapping takes 2 ms and more for them, which
is then the flush thread's time and not the owner's."""
MISSING_MAX = 4096
"""Missing files in a row that are taken for a hole in the log; a file that follows more of them is not this log's."""


class SegmentChain:
    """The files of one log. `bases` are their first offsets, ascending, `segment_size` apart."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_size: int,
        *,
        mapped_max: int = 32,
        writable: bool = True,
        on_full: Callable[[DiskFull], None] = lambda error: None,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.segment_size = segment_size
        self._mapped_max = mapped_max
        self._writable = writable
        self._on_full = on_full
        self._mapped: OrderedDict[int, Segment] = OrderedDict()
        self._making = threading.Lock()
        """Held while the next file is made, by the owner or by the flush thread."""
        self._spare: tuple[int, Segment] | None = None
        """First offset and mapping of the file that was made ahead."""
        self._names = self._names_synced = 0
        """Files created so far, and how many of those had a durable name when the directory was synced last."""
        self.bases: list[int] = []
        self.problems: list[tuple[str, str]] = []
        """(file, what is wrong with it), of a chain opened for reading."""
        self.missing: list[tuple[int, int]] = []
        """[start, stop) of the log that has no files, likewise."""
        self._sizes: dict[int, int] = {}
        """Real sizes of files that have a wrong one, 0 for one that is missing; likewise."""

    def load(self) -> None:
        """Finds the files. For writing, refuses a wrong size and a gap, naming the file."""
        self.bases = [int(name) for name in self._disk.list(self.directory) if is_segment_name(name)]
        if not self._writable:
            self._load_what_is_there()
            return
        self._names += 1  # a process that was killed may have left a name that is not durable yet
        for base in self.bases:
            size = self._disk.file_size(self.path(base))
            if size != self.segment_size and not (size == 0 and base == self.bases[-1]):
                raise CorruptLog(
                    f"{self.path(base)} has {size} bytes, the setting is {self.segment_size}: "
                    "set mappedFileSizeCommitLog to the size this store was made with"
                )
        self._drop_empty_last()
        for before, base in zip(self.bases, self.bases[1:], strict=False):
            if base != before + self.segment_size:
                missing = before + self.segment_size
                raise CorruptLog(
                    f"{self.path(missing)} is missing: the log has a hole in [{missing}, {base}); "
                    "bring the file back, or move the files after it away if their messages may be lost"
                )
        if self.bases and self.bases[0] % self.segment_size:
            raise CorruptLog(f"{self.path(self.bases[0])}: its offset is no multiple of {self.segment_size}")

    def _load_what_is_there(self) -> None:
        found, self.bases = self.bases, []
        self._sizes.clear()
        if found and self._disk.file_size(self.path(found[-1])) == 0:
            found.pop()  # a creation that a crash interrupted
        for base in found:
            if base % self.segment_size:
                self._problem(base, f"its offset is no multiple of {self.segment_size}: not read")
                continue
            if self.bases and not self._fill_gap(base):
                continue
            size = self._disk.file_size(self.path(base)) or 0
            if size != self.segment_size:
                self._sizes[base] = min(size, self.segment_size)
                self._problem(base, f"it has {size} bytes instead of {self.segment_size}")
            self.bases.append(base)

    def _fill_gap(self, base: int) -> bool:
        """Returns whether `base` follows what is there, maybe after missing files."""
        start = self.end
        if base == start:
            return True
        if (base - start) // self.segment_size > MISSING_MAX:
            self._problem(base, f"it lies {base - start} bytes after the end of the files before it: not read")
            return False
        self._problem(start, f"it is missing: the log has a hole in [{start}, {base})")
        self.missing.append((start, base))
        for lost in range(start, base, self.segment_size):
            self._sizes[lost] = 0
            self.bases.append(lost)
        return True

    def _problem(self, base: int, what: str) -> None:
        self.problems.append((f"{self.directory.name}/{segment_name(base)}", what))

    def _stand_in(self, base: int) -> Segment:
        size = self._sizes[base]
        if size:
            return StandInSegment(self._disk.read_at(self.path(base), 0, size), self.segment_size)
        return StandInSegment(SIZE_MAGIC.pack(self.segment_size, MAGIC_BLANK), self.segment_size)

    def _drop_empty_last(self) -> None:
        """Drops a last file of no bytes, which is a creation that a crash interrupted."""
        if self.bases and self._disk.file_size(self.path(self.bases[-1])) == 0:
            base = self.bases.pop()
            self._disk.remove(self.path(base))
            self._disk.sync_directory(self.directory)

    def path(self, base: int) -> Path:
        return self.directory / segment_name(base)

    @property
    def first_offset(self) -> int:
        return self.bases[0] if self.bases else 0

    @property
    def end(self) -> int:
        """Returns where the last file ends, written or not."""
        return self.bases[-1] + self.segment_size if self.bases else 0

    def base_of(self, offset: int) -> int:
        base = offset - offset % self.segment_size
        if not self.bases or not self.bases[0] <= base <= self.bases[-1]:
            raise OffsetOutOfRange(offset, self.first_offset, self.end)
        return base

    def segment(self, base: int) -> Segment:
        """Returns the mapped file that starts at `base`."""
        found = self._mapped.get(base)
        if found is not None:
            return found
        if base not in self.bases_set():
            raise OffsetOutOfRange(base, self.first_offset, self.end)
        if base in self._sizes:
            return self._remember(base, self._stand_in(base))
        return self._remember(base, self._disk.open_segment(self.path(base), writable=self._writable))

    def bases_set(self) -> Sequence[int]:
        return range(self.bases[0], self.end, self.segment_size) if self.bases else ()

    def _remember(self, base: int, segment: Segment) -> Segment:
        # Eviction by age of mapping. The newest file is the one being written: never evicted.
        self._mapped[base] = segment
        for old in list(self._mapped):
            if len(self._mapped) <= self._mapped_max:
                break
            if old != self.bases[-1] and old != base:
                self._mapped.pop(old).close()
        return segment

    def add(self, base: int | None = None) -> Segment:
        """Adds the next file (or the first one, at `base`): the spare if there is one, else a new one."""
        if base is None or self.bases:
            base = self.end
        if base % self.segment_size:
            raise StoreError(
                f"a log can't start at {base}, which is no multiple of mappedFileSizeCommitLog={self.segment_size}: "
                "use the size the other replicas have"
            )
        first = not self.bases
        if first:
            self._disk.make_directory(self.directory)
        with self._making:
            spare, self._spare = self._spare, None
            if spare is None or spare[0] != base:
                self._discard(spare)
                spare = base, self._create(base)
        if first:
            # Durable at once: a replica's record may outrun the first flush, and a record without any file of the log
            # is refused at the next start as a directory that is not mounted.
            self.sync_names()
            self._disk.sync_directory(self.directory.parent)
        self.bases.append(base)
        return self._remember(base, spare[1])

    def _create(self, base: int) -> Segment:
        self.sync_names()
        try:
            segment = self._disk.create_segment(self.path(base), self.segment_size)
        except DiskFull as error:
            self._on_full(error)
            raise
        self._names += 1
        return segment

    def prepare(self, appended: int) -> None:
        """Reserves blocks ahead of `appended` and makes the next file once the last is half full.

        For the flush thread, while nothing is cut. A full disk is left for the owner to meet.
        """
        base = appended - appended % self.segment_size
        current = self._mapped.get(base)
        if current is None or not self.bases or base != self.bases[-1]:
            return
        with contextlib.suppress(StoreError):
            current.reserve(min(self.segment_size, appended - base + RESERVE_CHUNK // 2))
            if self._spare is None and appended - base > self.segment_size // 2:
                self._make_spare(base + self.segment_size)
        self.sync_names()

    def _make_spare(self, base: int) -> None:
        with self._making:
            if self._spare is not None or self.end != base:
                return  # the owner was faster
            self.sync_names()
            spare = base, self._disk.create_segment(self.path(base), self.segment_size)
            self._names += 1
            try:
                spare[1].reserve(1)
                spare[1].write(0, bytes(min(self.segment_size, FIRST_TOUCH)))
            except BaseException:
                self._discard(spare)
                raise
            self._spare = spare

    def sync_names(self) -> None:
        """Makes the names of all files durable."""
        names = self._names
        if names != self._names_synced:
            self._disk.sync_directory(self.directory)
            self._names_synced = names

    def drop_spare(self) -> None:
        """Removes the file that was made ahead, if there is one."""
        with self._making:
            spare, self._spare = self._spare, None
            if self._discard(spare):
                self._disk.sync_directory(self.directory)

    def _discard(self, spare: tuple[int, Segment] | None) -> bool:
        if spare is None:
            return False
        spare[1].close()
        self._disk.remove(self.path(spare[0]))
        return True

    def reserve(self, base: int, stop: int) -> int:
        """Makes sure that [0, stop) of a file has blocks on disk, or raises DiskFull. Returns how far they reach."""
        try:
            return self.segment(base).reserve(stop)
        except DiskFull as error:
            self._on_full(error)
            raise

    def drop_from(self, base: int) -> None:
        """Removes every file that starts at `base` or later, the last first, so that a crash never leaves a gap."""
        self.drop_spare()
        while self.bases and self.bases[-1] >= base:
            self._remove(self.bases[-1])
            self._disk.sync_directory(self.directory)

    def drop_oldest(self) -> int:
        """Removes the first file. Returns its size."""
        self._remove(self.bases[0])
        self._disk.sync_directory(self.directory)
        return self.segment_size

    def _remove(self, base: int) -> None:
        mapped = self._mapped.pop(base, None)
        self._disk.remove(self.path(base))
        self.bases.remove(base)
        if mapped is not None:
            mapped.close()

    def close(self) -> None:
        for segment in self._mapped.values():
            segment.close()
        self._mapped.clear()
        if self._spare is not None:
            self._spare[1].close()
            self._spare = None
