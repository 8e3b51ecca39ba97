"""One consume queue: entry i of (topic, queue) says where message i lies in the log (formats/queue_entry).

Entries are derived from the log and added only by dispatch. The newest are held in memory (`tail`) and written to their
file in runs: no descriptor, no mapping and no system call per message, so that ten thousand queues cost what one does.
What a crash takes from the tail, recovery dispatches again.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from tandemq.formats.layout import is_segment_name
from tandemq.formats.queue_entry import ENTRY, ENTRY_SIZE, FILLER, FILLER_SIZE, file_name, search
from tandemq.store.disk import Disk

_EMPTY = bytes(ENTRY_SIZE)
_HEAD_ENTRIES = 51
"""What is read of a file at first when it is opened: all of a short queue, in a kilobyte."""
_FILLERS_AT_ONCE = 4096
"""Entries that a search reads at a time where it has met a filler: a run of them is as long as a file at most."""
_PATHS_MAX = 4096
"""Paths that are kept: making one takes longer than writing the file."""


@lru_cache(_PATHS_MAX)
def _file_path(directory: str, file_index: int) -> Path:
    return Path(directory, file_name(file_index))


class ConsumeQueue:
    """Entries [first, count) exist; those before `min_index` point to deleted log.

    Holds nothing that Python's garbage collector looks at one by one (lists, sets, paths): a broker may have a hundred
    thousand queues, and a collection stops it for as long as it takes to look at all of them.
    """

    __slots__ = (
        "_begins_well",
        "_directory",
        "_dirty",
        "_disk",
        "_file_entries",
        "_files",
        "_last_entry",
        "_last_written",
        "_named",
        "_tail_at",
        "_writable",
        "count",
        "first",
        "key",
        "mentioned_at",
        "min_index",
        "min_known_for",
        "queue_id",
        "tail",
        "topic",
    )

    def __init__(
        self, disk: Disk, directory: Path, file_size: int, topic: str, queue_id: int, writable: bool = True
    ) -> None:
        self._disk = disk
        self._writable = writable
        self._directory = str(directory)
        self._file_entries = file_size // ENTRY_SIZE
        self._files: tuple[int, ...] = ()
        """First entry index of each file, ascending, without a gap."""
        self.topic = topic
        self.queue_id = queue_id
        self.key = (topic, queue_id)
        self.first = 0
        self.count = 0
        """Index of the next entry: RocketMQ's maxOffset."""
        self.mentioned_at = -1
        """Where the newest mark lies that told this queue's number; -1 if none did since the store was opened."""
        self.tail = bytearray()
        """Entries [_tail_at, count), not in a file yet."""
        self._tail_at = 0
        self._dirty: tuple[int, ...] = ()
        """Files written since the last sync."""
        self._named = False
        """A file was created since the last sync: its name is not durable yet."""
        self._last_written = -1
        """Where the message of entry _tail_at - 1 lies, so that nobody opens a file to know; -1 if it is not known."""
        self._last_entry = b""
        """The entry before _tail_at as it was found in its file; empty if it is to be read."""
        self._begins_well = False
        """Whether the first entry was there when the files were found."""
        self.min_index = 0
        self.min_known_for = -1
        """Log start that min_index was computed for."""

    # -- opening

    def load(self, directory: Path | None = None) -> bool:
        """Finds the files; False if they are not a chain of the right sizes (then the queue must be rebuilt).

        `directory` is its directory, from those who have the path at hand: of thousands, making it takes long.
        """
        directory = directory or self.directory
        names = [name for name in self._disk.list(directory) if is_segment_name(name)]
        bases = list(map(int, names))
        file_size = self._file_entries * ENTRY_SIZE
        self._files = tuple(base // ENTRY_SIZE for base in bases)
        if not bases or bases[0] % file_size or (len(bases) > 1 and not self._are_chained(bases)):
            return False
        size, head = self._disk.peek(directory / names[0], _HEAD_ENTRIES * ENTRY_SIZE)
        if size != file_size:
            return False
        self._begins_well = head[:ENTRY_SIZE] not in (FILLER, _EMPTY)
        self.first = self._first_real() if head[:ENTRY_SIZE] == FILLER else self._files[0]
        count, last = self._written_end(head)
        self._set_count(count)
        self._last_entry = last if count > self.first else b""
        return True

    def _are_chained(self, bases: list[int]) -> bool:
        """Returns whether these files follow each other, and have the right size from the second on."""
        file_size = self._file_entries * ENTRY_SIZE
        follow = all(after == before + file_size for before, after in pairwise(bases))
        return follow and all(self._disk.file_size(self._path(index)) == file_size for index in self._files[1:])

    def _first_real(self) -> int:
        """Returns the first entry that is no filler (binary search: fillers come first)."""
        low, high = self._files[0], self._files[0] + self._file_entries
        while low < high:
            middle = (low + high) // 2
            if self._read(middle, 1) == FILLER:
                low = middle + 1
            else:
                high = middle
        return low

    def _written_end(self, head: bytes) -> tuple[int, bytes]:
        """Returns where entries end, and the last of them unless it takes another read. `head` begins the first file.

        Looks into the beginning of the last file that has entries and bisects if they go on: everything durable is
        contiguous, so the result is never below that.
        """
        position = len(self._files) - 1
        start = head if position == 0 else self._read(self._files[position], _HEAD_ENTRIES)
        while position >= 0 and start[:ENTRY_SIZE] == _EMPTY:
            position -= 1
            start = head if position <= 0 else self._read(self._files[position], _HEAD_ENTRIES)
        if position < 0:
            return self.first, b""
        low = self._files[position]
        high = low + self._file_entries
        used = -(-len(start.rstrip(b"\0")) // ENTRY_SIZE)
        if used < len(start) // ENTRY_SIZE:
            return max(low + used, self.first), start[(used - 1) * ENTRY_SIZE : used * ENTRY_SIZE]
        low += used
        while low < high:
            middle = (low + high) // 2
            if self._read(middle, 1) != _EMPTY:
                low = middle + 1
            else:
                high = middle
        return max(low, self.first), b""

    def hole(self) -> int | None:
        """Returns an empty entry that others follow, None if the ends of the files show none."""
        edges = [edge for start in self._files[1:] for edge in (start - 1, start)]
        for index in edges if self._begins_well else (self.first, *edges):
            if self.first <= index < self._tail_at and self._read(index, 1) == _EMPTY:
                return index
        return None

    def _set_count(self, count: int) -> None:
        self._last_entry = b""
        self.count = self._tail_at = count
        self.tail = bytearray()

    def keep_below(self, physical_limit: int, confirmed: Callable[[int, int, int], bool]) -> None:
        """Drops from the end, during recovery, what points at or above the limit or is not confirmed by the log.

        `confirmed(physical_offset, size, queue_offset)` compares one entry with the log; asked for the last one only,
        because entries below a durable point are either all there or the queue was damaged by other hands.
        """
        while self.count > self.first:
            physical_offset, size, _ = self.last_entry
            inside = 0 < size != FILLER_SIZE and physical_offset < physical_limit
            if inside and confirmed(physical_offset, size, self.count - 1):
                self._last_written = physical_offset
                return
            self.count -= 1
            self._tail_at = self.count
            self._last_written = -1
            self._last_entry = b""

    @property
    def last_entry(self) -> tuple[int, int, int]:
        """(physical offset, size, tags code) of the last entry; there must be one."""
        known = self._last_entry if self._tail_at == self.count else b""
        return ENTRY.unpack(known) if known else self.entry(self.count - 1)

    # -- writing (dispatch only)

    def start_at(self, index: int) -> None:
        """Makes an empty queue begin at `index`."""
        self._last_written = -1
        self._last_entry = b""
        self.first = self.min_index = index
        self.count = self._tail_at = index

    def fill_to(self, index: int) -> None:
        """Writes fillers for entries that the log does not have (its history has a hole); readers step over them."""
        self.tail += FILLER * (index - self.count)
        self.count = index

    def write_tail(self) -> None:
        """Moves the tail into its files (page cache, not yet durable)."""
        while self._tail_at < self.count:
            file_index = self._tail_at - self._tail_at % self._file_entries
            if file_index not in self._files:
                self._add_file(file_index)
            stop = min(self.count, file_index + self._file_entries)
            data = memoryview(self.tail)[: (stop - self._tail_at) * ENTRY_SIZE]
            self._disk.write_at(self._path(file_index), (self._tail_at - file_index) * ENTRY_SIZE, data)
            self._note_dirty(file_index)
            self._last_entry = b""
            self._last_written = ENTRY.unpack_from(data, len(data) - ENTRY_SIZE)[0]
            data.release()
            del self.tail[: (stop - self._tail_at) * ENTRY_SIZE]
            self._tail_at = stop

    def _add_file(self, file_index: int) -> None:
        if not self._files:
            self._disk.make_directory(self.directory)
        path = self._path(file_index)
        self._disk.create_file(path, self._file_entries * ENTRY_SIZE)
        if not self._files and self.first > file_index:
            self._disk.write_at(path, 0, FILLER * (self.first - file_index))
        self._files += (file_index,)
        self._named = True

    def _note_dirty(self, file_index: int) -> None:
        if file_index not in self._dirty:
            self._dirty += (file_index,)

    def take_dirty(self) -> tuple[list[Path], bool]:
        """Returns the files to sync and whether the directory needs it too.

        The caller syncs them or claims no durability.
        """
        paths = [self._path(index) for index in sorted(self._dirty)]
        named = self._named
        self._dirty = ()
        self._named = False
        return paths, named

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    def moved_to(self, directory: Path) -> None:
        """Follows its files, which were renamed."""
        self._directory = str(directory)

    def cut(self, physical_limit: int) -> bool:
        """Drops every entry at or above the limit, in memory and in the files; whether there was any."""
        end = self.lower_bound(physical_limit)
        if end >= self.count:
            return False
        if end < self._tail_at:
            self._clear_files(end)
            self._last_written = -1
            self._last_entry = b""
            self.tail.clear()
            self._tail_at = end
        else:
            del self.tail[(end - self._tail_at) * ENTRY_SIZE :]
        self.count = end
        self.min_known_for = -1
        return True

    def clear_range(self, start: int, stop: int) -> None:
        """Zeros entries [start, stop) of the files: remains of a crash behind the last entry."""
        while start < stop:
            file_index = start - start % self._file_entries
            part = min(stop, file_index + self._file_entries)
            if file_index in self._files:
                zeros = bytes((part - start) * ENTRY_SIZE)
                self._disk.write_at(self._path(file_index), (start - file_index) * ENTRY_SIZE, zeros)
                self._note_dirty(file_index)
            start = part

    def _clear_files(self, end: int) -> None:
        while self._files and self._files[-1] >= end and self._files[-1] > self.first:
            *rest, last = self._files
            self._files = tuple(rest)
            self._disk.remove(self._path(last))
        for index in self._files:
            stop = index + self._file_entries
            if stop > end:
                start = max(end, index)
                stale = self._read(start, stop - start).rstrip(b"\0")
                if stale:
                    self._disk.write_at(self._path(index), (start - index) * ENTRY_SIZE, bytes(len(stale)))
                    self._note_dirty(index)

    def is_idle(self, physical_offset: int) -> bool:
        """Returns whether the log holds no message of this queue at or above an offset."""
        return self.count == self.first or self.last_physical < physical_offset

    def has_messages(self, log_start: int) -> bool:
        """Returns whether one of its entries still has its message."""
        if self.count == self.first:
            return False
        last = self.last_physical
        # 0 may be a filler, which a queue can end with, or the first message of all.
        return last >= log_start if last else self.min_offset(log_start) < self.count

    @property
    def last_physical(self) -> int:
        """Where the message of the last entry lies; there must be one."""
        if self.tail:
            return int(ENTRY.unpack_from(self.tail, len(self.tail) - ENTRY_SIZE)[0])
        if self._last_written < 0:
            self._last_written = self.entry(self.count - 1)[0]
        return self._last_written

    @property
    def file_entries(self) -> int:
        """How many entries a file has."""
        return self._file_entries

    @property
    def written(self) -> int:
        """The first entry that is not in a file yet."""
        return self._tail_at

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    @property
    def is_fileless(self) -> bool:
        """Whether it has a number to go on with and no file that tells."""
        return not self._files and self.count == self.first > 0

    @property
    def begin(self) -> int:
        """The first entry of the first file, there or to be made."""
        return self._files[0] if self._files else self.first - self.first % self._file_entries

    def begin_after(self, physical_offset: int) -> int:
        """Returns what `begin` will be after `drop_before`."""
        number = self._droppable(physical_offset)
        return self._files[number] if number else self.begin

    def _droppable(self, physical_offset: int) -> int:
        """Returns how many files only point below an offset."""
        number = 0
        while number + 1 < len(self._files) and self._tail_at >= self._files[number + 1]:
            if ENTRY.unpack(self._read(self._files[number + 1] - 1, 1))[0] >= physical_offset:
                break
            number += 1
        return number

    def drop_before(self, physical_offset: int) -> int:
        """Removes files whose last entry points below the log's start. Returns how many."""
        dropped = self._droppable(physical_offset)
        for _ in range(dropped):
            index, *rest = self._files
            self._files = tuple(rest)
            self._disk.remove(self._path(index))
            self._dirty = tuple(dirty for dirty in self._dirty if dirty != index)
            self.first = max(self.first, self._files[0])
        return dropped

    def destroy(self) -> None:
        if self._writable:
            self._disk.remove_tree(self.directory)
        self._files = self._dirty = ()
        self._set_count(0)
        self._last_written = -1
        self.first = self.min_index = 0
        self.min_known_for = -1

    # -- reading

    def entry(self, index: int) -> tuple[int, int, int]:
        """Returns physical offset, size and tags code of entry `index`, which must exist."""
        return ENTRY.unpack(self.entries(index, 1))

    def entries(self, start: int, count: int) -> bytes | bytearray:
        """Returns raw entries [start, start + count), fewer where a file or the queue ends."""
        count = min(count, self.count - start)
        if start >= self._tail_at:
            at = (start - self._tail_at) * ENTRY_SIZE
            return self.tail[at : at + count * ENTRY_SIZE]
        found = self._read(start, min(count, self._tail_at - start))
        read = len(found) // ENTRY_SIZE
        if read < count and start + read == self._tail_at:
            # A reader that asks for what is there gets all of it, wherever the line between file and tail runs.
            return found + self.tail[: (count - read) * ENTRY_SIZE]
        return found

    def _read(self, start: int, count: int) -> bytes:
        file_index = start - start % self._file_entries
        count = min(count, file_index + self._file_entries - start)
        return self._disk.read_at(self._path(file_index), (start - file_index) * ENTRY_SIZE, count * ENTRY_SIZE)

    def lower_bound(self, physical_offset: int) -> int:
        """Returns the first entry of a message at or above a physical offset, `count` if there is none."""
        reaches = lambda index: self.entry(index)[0] >= physical_offset  # noqa: E731
        return search(self.first, self.count, self.skip_fillers, reaches)[1]

    def skip_fillers(self, start: int, stop: int) -> int:
        """Returns the first entry of [start, stop) that is no filler, `stop` if there is none."""
        count = 1
        while start < stop:
            found = self.entries(start, min(count, stop - start))
            read = len(found) // ENTRY_SIZE
            if found != FILLER * read:
                at = next(at for at in range(0, len(found), ENTRY_SIZE) if found[at : at + ENTRY_SIZE] != FILLER)
                return start + at // ENTRY_SIZE
            start += read
            count = _FILLERS_AT_ONCE
        return stop

    def min_offset(self, log_start: int) -> int:
        """Returns the first entry that still has its message, `count` if none has."""
        if self.min_known_for != log_start:
            self.min_index = self.lower_bound(log_start)
            if self.min_index < self.count:  # an empty answer changes with the next entry
                self.min_known_for = log_start
        return self.min_index

    def _path(self, file_index: int) -> Path:
        return _file_path(self._directory, file_index)
