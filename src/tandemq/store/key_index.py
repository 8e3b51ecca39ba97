"""The key index: hash files that find messages by `topic#key` and time.

    header 40: beginTimestamp 8 | endTimestamp 8 | beginPhyOffset 8 | endPhyOffset 8 | hashSlotCount 4 | indexCount 4
    slots      4 each: number of the newest entry of the slot, 0 for none
    entries    20 each: keyHash 4 | phyOffset 8 | seconds since beginTimestamp 4 | number of the slot's previous entry 4

Entry 0 is never used; indexCount is the number the next entry gets. A put writes entry, slot, header, in this order,
so that a killed process leaves entries that the header does not count and maybe no slot names; `cut` takes entries back
in reverse order, which restores every slot exactly. Not checksummed: what a machine crash may have damaged is rebuilt
(see recovery).

Entries of a run follow each other: they are written with one copy. Slots lie anywhere: they are read and written as
machine words, and the byte order of a whole run is turned at once.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import chain, repeat
from itertools import count as count_from
from operator import itemgetter
from pathlib import Path
from struct import Struct, iter_unpack
from sys import byteorder
from typing import Any

from tandemq.errors import CorruptLog
from tandemq.store.disk import Disk, Segment
from tandemq.store.zeros import zero

HEADER = Struct(">qqqqii")
_HEADER_END = Struct(">qqqii")
"""The header behind beginTimestamp."""
ENTRY = Struct(">Iqii")
_SLOT = Struct(">I")
SECONDS_MAX = 0x7FFFFFFF
RUN_MIN = 12
"""Below so many entries a run is not worth its preparations."""
RUN_MAX = 256
"""A run ends where the last byte of entry numbers overflows: up to there they are evenly spaced in any byte order."""
MAPPED_MAX = 4
"""Index files mapped at a time: the newest for writing, and those a query looks at."""


def _as_word(number: int) -> int:
    """What a slot with this number is when read in the machine's byte order."""
    return int.from_bytes(number.to_bytes(4, "big"), byteorder)


_NEXT_WORD = _as_word(1)
"""From one number to the next, as words."""


@cache
def _run_formats(size: int) -> tuple[Struct, Struct, Struct]:
    """(slots as in the file, slots as machine words, entries) for runs of `size`."""
    return Struct(f">{size}I"), Struct(f"={size}I"), Struct(">" + ENTRY.format[1:] * size)


class IndexFile:
    """One file; the header is kept in fields and mirrored."""

    def __init__(self, path: Path, segment: Segment, slots: int, entries: int) -> None:
        self.path = path
        self.segment = segment
        self.slots = slots
        self.entries_max = entries
        self.view = segment.view
        self._entries_at = HEADER.size + 4 * slots
        self._words = self.view[HEADER.size : self._entries_at].cast("I")
        """The slots in the machine's byte order."""
        self._reserved = 0
        fields: tuple[int, ...] = HEADER.unpack_from(self.view, 0)
        self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical, self.slot_count = fields[:5]
        self.count = min(max(fields[5], 1), entries)

    @staticmethod
    def size(slots: int, entries: int) -> int:
        return HEADER.size + 4 * slots + ENTRY.size * entries

    def put_some(self, hashes: list[int], offsets: list[int], times: list[int], start: int) -> int:
        """Adds key hashes with their messages' physical offsets and store times, from `start` on; how far it came:
        until all are in, the file is full, or the longest run is done."""
        if self.count <= 1:
            self.put_first(hashes[start], offsets[start], times[start])
            return start + 1
        stop = self.make_room(start, len(hashes))
        if stop - start >= RUN_MIN:
            stop = min(stop, start + RUN_MAX - self.count % RUN_MAX)
        if stop - start < RUN_MIN or not self._put_run(hashes[start:stop], offsets[start:stop], times[start:stop]):
            self._put_each(hashes, offsets, times, start, stop)
        self.end_put(offsets[stop - 1], times[stop - 1])
        return stop

    def make_room(self, start: int, stop: int) -> int:
        """Room for keys [start, stop); up to where they fit in."""
        stop = min(stop, start + self.entries_max - self.count)
        need = self.entry_at(self.count + stop - start)
        if need > self._reserved:
            self._reserved = self.segment.reserve(need)
        return stop

    def put_first(self, key_hash: int, physical_offset: int, stored_at: int) -> None:
        """The first entry; as upstream it counts its seconds from where the file before ended."""
        self.make_room(0, 1)
        seconds = self._seconds(stored_at) if self.begin_timestamp > 0 else 0
        ENTRY.pack_into(self.view, self.entry_at(1), key_hash, physical_offset, seconds, 0)
        _SLOT.pack_into(self.view, HEADER.size + 4 * (key_hash % self.slots), 1)
        self.slot_count, self.count = 1, 2
        self.begin_physical, self.begin_timestamp = physical_offset, stored_at
        self.end_put(physical_offset, stored_at)

    def end_put(self, physical_offset: int, stored_at: int) -> None:
        """Entries and slots are written, up to a key of this message: the header counts them."""
        self.end_physical, self.end_timestamp = physical_offset, stored_at
        self.write_header()

    def entry_at(self, number: int) -> int:
        """Where an entry lies in the file."""
        return self._entries_at + ENTRY.size * number

    def _put_run(self, hashes: list[int], offsets: list[int], times: list[int]) -> bool:
        """Entries, then slots, each all at once. False, and nothing done, if two entries share a slot."""
        size, slots, count, words = len(hashes), self.slots, self.count, self._words
        places = [key_hash % slots for key_hash in hashes]
        if len(set(places)) < size:
            return False
        in_file, in_memory, entries = _run_formats(size)
        previous = in_file.unpack(in_memory.pack(*itemgetter(*places)(words)))
        if max(previous) >= count:
            previous = tuple([number if number < count else 0 for number in previous])
        known = {time: self._seconds(time) for time in set(times)}
        seconds = repeat(known[times[0]]) if len(known) == 1 else map(known.__getitem__, times)
        at = self._entries_at + 20 * count
        self.view[at : at + 20 * size] = entries.pack(
            *chain.from_iterable(zip(hashes, offsets, seconds, previous, strict=False))
        )
        numbers = count_from(_as_word(count), _NEXT_WORD)
        for place, number in zip(places, numbers, strict=False):
            words[place] = number
        self.slot_count += previous.count(0)
        self.count = count + size
        return True

    def put_one(self, key_hash: int, physical_offset: int, stored_at: int) -> bool:
        """Adds one entry behind others; False, and nothing done, if that takes more than writing it."""
        view, count = self.view, self.count
        at = self._entries_at + 20 * count
        if at + 20 > self._reserved or count >= self.entries_max or count <= 1:
            return False
        slot_at = 40 + 4 * (key_hash % self.slots)
        previous: int = _SLOT.unpack_from(view, slot_at)[0]
        seconds = (stored_at - self.begin_timestamp) // 1000
        if previous >= count or not 0 <= seconds <= SECONDS_MAX:
            return False
        if not previous:
            self.slot_count += 1
        ENTRY.pack_into(view, at, key_hash, physical_offset, seconds, previous)
        _SLOT.pack_into(view, slot_at, count)
        self.count = count + 1
        self.end_physical = physical_offset
        self.end_timestamp = stored_at
        _HEADER_END.pack_into(view, 8, stored_at, self.begin_physical, physical_offset, self.slot_count, count + 1)
        return True

    def _put_each(self, hashes: list[int], offsets: list[int], times: list[int], start: int, stop: int) -> None:
        view, count = self.view, self.count
        for item in range(start, stop):
            key_hash = hashes[item]
            slot_at = 40 + 4 * (key_hash % self.slots)
            previous: int = _SLOT.unpack_from(view, slot_at)[0]
            if previous >= count:  # damage, or another program's leftovers
                previous = 0
            seconds = self._seconds(times[item])
            ENTRY.pack_into(view, self._entries_at + 20 * count, key_hash, offsets[item], seconds, previous)
            _SLOT.pack_into(view, slot_at, count)
            if not previous:
                self.slot_count += 1
            self.count = count = count + 1

    def _seconds(self, stored_at: int) -> int:
        seconds = (stored_at - self.begin_timestamp) // 1000
        if 0 <= seconds <= SECONDS_MAX:
            return seconds
        return 0 if seconds < 0 else SECONDS_MAX

    def slot(self, number: int) -> int:
        """The newest entry of a slot; 0 for none."""
        return int(_SLOT.unpack_from(self.view, HEADER.size + 4 * number)[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(key hash, physical offset, seconds, previous)"""
        return ENTRY.unpack_from(self.view, self._entries_at + ENTRY.size * number)

    def all_entries(self) -> Iterator[tuple[int, int, int, int]]:
        start = self._entries_at + ENTRY.size
        return iter_unpack(ENTRY.format, self.view[start : self._entries_at + ENTRY.size * self.count])

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of entries with this hash in the time range, newest first."""
        number: int = _SLOT.unpack_from(self.view, HEADER.size + 4 * (key_hash % self.slots))[0]
        while 0 < number < self.count:
            found, physical_offset, seconds, previous = self.entry(number)
            # Seconds are rounded down: the message may be almost a second later than this. Those of the first entry
            # count from elsewhere, but it is the beginning.
            stored_at = self.begin_timestamp + (seconds * 1000 if number > 1 else 0)
            if stored_at + 999 < begin_ms:
                return
            if found == key_hash and stored_at <= end_ms:
                yield physical_offset
            if previous >= number:  # chains go back; anything else is damage, and would loop
                return
            number = previous

    def cut(self, physical_limit: int) -> None:
        """Takes back every entry at or above the limit, newest first."""
        self._count_uncounted()
        while self.count > 1:
            key_hash, physical_offset, _, previous = self.entry(self.count - 1)
            if physical_offset < physical_limit:
                break
            self._take_back(key_hash, self.count - 1, previous)
            self.count -= 1
        self._header_from_last()

    def _count_uncounted(self) -> None:
        """A kill came between entries and header: behind the counted entries everything else is zero."""
        while self.count < self.entries_max:
            key_hash, physical_offset, seconds, previous = self.entry(self.count)
            if not (key_hash or physical_offset or seconds or previous):
                break
            if previous == 0 and self.slot(key_hash % self.slots) >= self.count:
                self.slot_count += 1
            self.count += 1

    def _take_back(self, key_hash: int, number: int, previous: int) -> None:
        if self.slot(key_hash % self.slots) >= number:  # else a kill came before the slot named the entry
            previous = previous if 0 < previous < number else 0  # anything else is damage
            _SLOT.pack_into(self.view, HEADER.size + 4 * (key_hash % self.slots), previous)
            if previous == 0:
                self.slot_count -= 1
        ENTRY.pack_into(self.view, self._entries_at + ENTRY.size * number, 0, 0, 0, 0)

    def _header_from_last(self) -> None:
        if self.count > 1:
            _, physical_offset, seconds, _ = self.entry(self.count - 1)
            self.end_physical = physical_offset
            self.end_timestamp = min(self.end_timestamp, self.begin_timestamp + seconds * 1000 + 999)
        else:
            self.begin_timestamp = self.end_timestamp = 0
            self.begin_physical = self.end_physical = 0
        self.write_header()

    def rebuild_slots(self, count: int, physical_limit: int) -> None:
        """Entries [1, count) below the limit are trusted, nothing else is: slots are made anew from them.

        Entries are in log order; the first that is not, or is empty, was being taken back when the machine stopped.
        """
        zero(self.segment, HEADER.size, self._entries_at)
        self.segment.reserve(self._entries_at)
        slots, pack, view = self.slots, _SLOT.pack_into, self.view
        self.slot_count = 0
        self.count = count
        before = 0
        for number, (key_hash, physical_offset, seconds, previous) in enumerate(self.all_entries(), 1):
            if not before <= physical_offset < physical_limit or not (key_hash or physical_offset or seconds):
                self.count = number
                break
            before = physical_offset
            pack(view, 40 + 4 * (key_hash % slots), number)
            if previous == 0:
                self.slot_count += 1
        zero(self.segment, self._entries_at + ENTRY.size * self.count, self.segment.size)
        if self.count > 1:
            self.begin_physical = self.entry(1)[1]
        self._header_from_last()

    def write_header(self) -> None:
        HEADER.pack_into(
            self.view, 0, self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
            self.slot_count, self.count,
        )  # fmt: skip

    def close(self) -> None:
        self.view = self._words = memoryview(b"")
        self.segment.close()


class KeyIndex:
    """All index files of a store, oldest first."""

    def __init__(
        self, disk: Disk, directory: Path, slots: int, entries: int, wall_ms: Callable[[], int], writable: bool = True
    ) -> None:
        self._disk = disk
        self.directory = directory
        self._slots = slots
        self._entries = entries
        self._wall_ms = wall_ms
        self._writable = writable
        self.names: list[str] = []
        self._mapped: dict[str, IndexFile] = {}
        self._newest: IndexFile | None = None
        self.dirty: set[Path] = set()
        self._marked: IndexFile | None = None
        """The newest file, once it is known to be in `dirty`."""

    def load(self) -> bool:
        """Finds the files; False if one has another size than the settings say."""
        self.names = [name for name in self._disk.list(self.directory) if name.isdecimal()]
        size = IndexFile.size(self._slots, self._entries)
        return all(self._disk.file_size(self.directory / name) == size for name in self.names)

    def file(self, name: str) -> IndexFile:
        found = self._mapped.get(name)
        if found is None:
            path = self.directory / name
            segment = self._disk.open_segment(path, writable=self._writable)
            if segment.size != IndexFile.size(self._slots, self._entries):
                raise CorruptLog(f"{path} has {segment.size} bytes: maxHashSlotNum or maxIndexNum differ from its own")
            found = self._remember(IndexFile(path, segment, self._slots, self._entries))
        return found

    def _remember(self, file: IndexFile) -> IndexFile:
        self._mapped[file.path.name] = file
        for name in list(self._mapped):
            if len(self._mapped) <= MAPPED_MAX:
                break
            if name != self.names[-1] and name != file.path.name:
                self._mapped.pop(name).close()
        return file

    @property
    def newest(self) -> IndexFile | None:
        if self._newest is None and self.names:
            self._newest = self.file(self.names[-1])
        return self._newest

    @property
    def end_physical(self) -> int:
        """Messages below this offset are indexed already; -1 for an empty index."""
        newest = self.newest
        if newest is None or (newest.count <= 1 and newest.end_physical == 0):
            return -1
        return newest.end_physical

    def put(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        """Adds key hashes with their messages' physical offsets and store times, in log order, in new files as old
        ones fill up."""
        marked = self._marked
        if len(hashes) == 1 and marked is not None and marked.put_one(hashes[0], offsets[0], times[0]):
            return
        done = 0
        while done < len(hashes):
            done = self._with_room().put_some(hashes, offsets, times, done)

    def put_arrays(self, hashes: Any, offsets: Any, times: Any) -> None:
        """`put` for numpy arrays."""
        from tandemq.store.index_arrays import put_some  # it knows IndexFile, and loads numpy

        done = 0
        while done < len(hashes):
            done = put_some(self._with_room(), hashes, offsets, times, done)

    def _with_room(self) -> IndexFile:
        """The file that takes the next key, about to change."""
        file = self._newest or self.newest
        if file is None or file.count >= file.entries_max:
            file = self._add()
        if file is not self._marked:
            self.dirty.add(file.path)
            self._marked = file
        return file

    def _add(self) -> IndexFile:
        before = self.newest
        self._disk.make_directory(self.directory)
        path = self.directory / self._new_name()
        segment = self._disk.create_segment(path, IndexFile.size(self._slots, self._entries))
        # Slots are written at random: all of them get their blocks now. A file without them is not kept.
        try:
            segment.reserve(HEADER.size + 4 * self._slots)
        except BaseException:
            segment.close()
            self._disk.remove(path)
            raise
        self._disk.sync_directory(self.directory)
        self.names.append(path.name)
        file = IndexFile(path, segment, self._slots, self._entries)
        if before is not None:
            file.begin_timestamp = file.end_timestamp = before.end_timestamp
            file.begin_physical = file.end_physical = before.end_physical
        file.write_header()
        self._newest, self._marked = self._remember(file), None
        return file

    def _new_name(self) -> str:
        moment = datetime.fromtimestamp(self._wall_ms() / 1000, tz=UTC).astimezone()
        name = moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
        if self.names and name <= self.names[-1]:  # the clock went back, or two files in one millisecond
            name = str(int(self.names[-1]) + 1)
        return name

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of candidates, newest first; the caller compares topic and key."""
        for name in reversed(self.names):
            file = self.file(name)
            if file.count > 1 and file.begin_timestamp <= end_ms and file.end_timestamp + 999 >= begin_ms:
                yield from file.find(key_hash, begin_ms, end_ms)

    def cut(self, physical_limit: int) -> None:
        """Forgets every message at or above the limit."""
        while self.names:
            file = self.file(self.names[-1])
            file.cut(physical_limit)
            self.dirty.add(file.path)
            if file.count > 1 or len(self.names) == 1:
                break
            self._drop(self.names[-1])
        self._newest = self._marked = None

    def rebuild_from(self, name: str, count: int, physical_limit: int, *, deeper: bool) -> None:
        """After a machine crash: files newer than `name` go, its slots are made anew from its first `count` entries.

        `deeper`: a cut was under way and may have touched older files too; they are made anew until one has entries
        left.
        """
        self.drop_newer_than(name)
        while self.names:
            file = self.file(self.names[-1])
            file.rebuild_slots(file.entries_max if deeper else max(1, count), physical_limit)
            self.dirty.add(file.path)
            if not deeper or file.count > 1 or len(self.names) == 1:
                break
            self._drop(self.names[-1])
        self._newest = self._marked = None

    def drop_newer_than(self, name: str) -> None:
        while self.names and self.names[-1] > name:
            self._drop(self.names[-1])

    def drop_from(self, name: str) -> None:
        while self.names and self.names[-1] >= name:
            self._drop(self.names[-1])

    def drop_before(self, physical_offset: int) -> int:
        """Removes files that hold nothing at or above an offset; how many. The newest stays."""
        dropped = 0
        while len(self.names) > 1 and self.file(self.names[0]).end_physical < physical_offset:
            self._drop(self.names[0])
            dropped += 1
        return dropped

    def destroy(self) -> None:
        while self.names:
            self._drop(self.names[-1])
        self._disk.remove_tree(self.directory)
        self._disk.sync_directory(self.directory.parent)

    def _drop(self, name: str) -> None:
        mapped = self._mapped.pop(name, None)
        if mapped is self._newest:
            self._newest = self._marked = None
        if mapped is not None:
            mapped.close()
        self.names.remove(name)
        self._disk.remove(self.directory / name)
        self.dirty.discard(self.directory / name)

    def adopt(self, fresh: "KeyIndex") -> None:
        """Forgets its files for those of another index, which now lie where ours were."""
        self.close()
        self.load()
        self.dirty = {self.directory / path.name for path in fresh.dirty}
        self._marked = None

    def take_dirty(self) -> list[Path]:
        paths = list(self.dirty)
        self.dirty.clear()
        self._marked = None
        return paths

    def close(self) -> None:
        for file in self._mapped.values():
            file.close()
        self._mapped.clear()
        self._newest = self._marked = None
