"""An ordered chain of fixed-size segments: find by offset, roll, cut, drop the oldest.

Files are named after the offset of their first byte and follow each other without a gap. Only the most recently used
are mapped, so neither memory nor descriptors grow with the log.

Opened for writing, a chain with a hole or a file of a wrong size is refused. Opened for reading, by tools, it is read
as far as it goes: a missing file counts as one blank record, a short one as followed by zeros; `problems` says so.
"""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from tandemq.codec.record import MAGIC_BLANK, SIZE_MAGIC
from tandemq.errors import CorruptLog, OffsetOutOfRange, StoreError
from tandemq.store.disk import Disk, Segment, StandInSegment
from tandemq.store.layout import is_segment_name, segment_name

MISSING_MAX = 4096
"""Missing files in a row that are taken for a hole in the log; a file behind more of them is not this log's."""


class SegmentChain:
    """The files of one log. `bases` are their first offsets, ascending, `segment_size` apart."""

    def __init__(
        self, disk: Disk, directory: Path, segment_size: int, *, mapped_max: int = 32, writable: bool = True
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.segment_size = segment_size
        self._mapped_max = mapped_max
        self._writable = writable
        self._mapped: OrderedDict[int, Segment] = OrderedDict()
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
                    "bring the file back, or move the files behind it away if their messages may be lost"
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
        """Whether `base` follows what is there, maybe behind missing files."""
        start = self.end
        if base == start:
            return True
        if (base - start) // self.segment_size > MISSING_MAX:
            self._problem(base, f"it lies {base - start} bytes behind the end of the files before it: not read")
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
        """A last file of no bytes is a creation that a crash interrupted."""
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
        """Where the last file ends, written or not."""
        return self.bases[-1] + self.segment_size if self.bases else 0

    def base_of(self, offset: int) -> int:
        base = offset - offset % self.segment_size
        if not self.bases or not self.bases[0] <= base <= self.bases[-1]:
            raise OffsetOutOfRange(offset, self.first_offset, self.end)
        return base

    def segment(self, base: int) -> Segment:
        """The mapped file that starts at `base`."""
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
        """Creates the next file (or the first one, at `base`), durably named before anything is written to it."""
        if base is None or self.bases:
            base = self.end
        if base % self.segment_size:
            raise StoreError(
                f"a log can't start at {base}, which is no multiple of mappedFileSizeCommitLog={self.segment_size}: "
                "use the size the other replicas have"
            )
        if not self.bases:
            self._disk.make_directory(self.directory)
        segment = self._disk.create_segment(self.path(base), self.segment_size)
        self._disk.sync_directory(self.directory)
        self.bases.append(base)
        return self._remember(base, segment)

    def drop_from(self, base: int) -> None:
        """Removes every file that starts at `base` or later, the last first, so that a crash never leaves a gap."""
        while self.bases and self.bases[-1] >= base:
            self._remove(self.bases[-1])
            self._disk.sync_directory(self.directory)

    def drop_oldest(self) -> int:
        """Removes the first file; its size."""
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
