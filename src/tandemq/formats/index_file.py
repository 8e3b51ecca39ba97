"""One file of the key index: a hash table that finds messages by `topic#key` and time.

    at                   field             size
     0                   beginTimestamp    8      store time of the first message
     8                   endTimestamp      8      store time of the last
    16                   beginPhyOffset    8
    24                   endPhyOffset      8
    32                   hashSlotCount     4      slots in use
    36                   indexCount        4      number of the next entry; entry 0 is never used
    40 + 4 × slot        newest entry      4      number of the slot's newest entry, 0 for none
    40 + 4 × slots + 20 × number:
        0                keyHash           4      of `topic#key`, see key_hash; its slot is keyHash % slots
        4                phyOffset         8
        12               seconds           4      since beginTimestamp
        16               previous          4      number of the slot's entry before this one, 0 for none

All integers are big-endian. A put writes entry, slot and header in this order, so a killed process leaves entries that
the header does not count and that maybe no slot names; `cut` takes entries back in reverse order, which restores every
slot exactly. Nothing is checksummed: what a machine crash may have damaged is rebuilt from the log.

Entries of a run follow each other and are written with one copy. Slots lie anywhere: they are read and written as
machine words, and the byte order of a whole run is turned at once.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, repeat
from itertools import count as count_from
from operator import itemgetter
from struct import Struct, iter_unpack
from sys import byteorder

HEADER = Struct(">qqqqii")
HEADER_SIZE = HEADER.size
_HEADER_END = Struct(">qqqii")
"""The header after beginTimestamp."""
_END_TIMESTAMP_AT = 8
SLOT = Struct(">I")
SLOT_SIZE = SLOT.size
ENTRY = Struct(">Iqii")
ENTRY_SIZE = ENTRY.size
ENTRY_COLUMNS = (("hash", ">u4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">u4"))
"""ENTRY for numpy.dtype."""
SECONDS_MAX = 0x7FFFFFFF
RUN_MIN = 12
"""Below so many entries a run is not worth its preparations."""
RUN_MAX = 256
"""A run ends where the last byte of entry numbers overflows: up to there they are evenly spaced in any byte order."""


def file_size(slots: int, entries: int) -> int:
    """Returns the size of a file with so many slots and entries, the unused entry 0 included."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * entries


def _as_word(number: int) -> int:
    """Returns what a slot with this number is when read in the machine's byte order."""
    return int.from_bytes(number.to_bytes(SLOT_SIZE, "big"), byteorder)


_NEXT_WORD = _as_word(1)
"""The step from one number to the next, as words."""


@cache
def _run_formats(size: int) -> tuple[Struct, Struct, Struct]:
    """Returns the structs of (slots as in the file, slots as machine words, entries) for runs of `size`."""
    return Struct(f">{size}I"), Struct(f"={size}I"), Struct(">" + ENTRY.format[1:] * size)


class IndexFile:
    """The file as a writable buffer. The header is kept in fields and mirrored.

    `reserve(stop)` makes sure that the bytes [0, stop) may be written and returns how far that now holds.
    """

    def __init__(self, view: memoryview, slots: int, entries: int, reserve: Callable[[int], int]) -> None:
        self.slots = slots
        self.entries_max = entries
        self.view = view
        self._reserve = reserve
        self.entries_at = HEADER_SIZE + SLOT_SIZE * slots
        self._words = self.view[HEADER_SIZE : self.entries_at].cast("I")
        """The slots in the machine's byte order."""
        self._reserved = 0
        fields: tuple[int, ...] = HEADER.unpack_from(self.view, 0)
        self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical, self.slot_count = fields[:5]
        self.count = min(max(fields[5], 1), entries)

    # -- putting

    def put_some(self, hashes: list[int], offsets: list[int], times: list[int], start: int) -> int:
        """Adds key hashes with their messages' physical offsets and store times, from `start` on.

        Returns how far it came: until all are in, the file is full, or the longest run is done.
        """
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
        """Reserves room for keys [start, stop). Returns up to where they fit in."""
        stop = min(stop, start + self.entries_max - self.count)
        need = self.entry_at(self.count + stop - start)
        if need > self._reserved:
            self._reserved = self._reserve(need)
        return stop

    def inherit(self, before: "IndexFile") -> None:
        """Begins where the full file before it ends, as upstream does: the first entry counts its seconds from it."""
        self.begin_timestamp = self.end_timestamp = before.end_timestamp
        self.begin_physical = self.end_physical = before.end_physical

    def put_first(self, key_hash: int, physical_offset: int, stored_at: int) -> None:
        """Adds the first entry; its seconds count from where the file before ended (see `inherit`)."""
        self.make_room(0, 1)
        seconds = self._seconds(stored_at) if self.begin_timestamp > 0 else 0
        ENTRY.pack_into(self.view, self.entry_at(1), key_hash, physical_offset, seconds, 0)
        SLOT.pack_into(self.view, self._slot_at(key_hash), 1)
        self.slot_count, self.count = 1, 2
        self.begin_physical, self.begin_timestamp = physical_offset, stored_at
        self.end_put(physical_offset, stored_at)

    def end_put(self, physical_offset: int, stored_at: int) -> None:
        """Counts in the header what was written, up to a key of this message."""
        self.end_physical, self.end_timestamp = physical_offset, stored_at
        self.write_header()

    def entry_at(self, number: int) -> int:
        """Returns where an entry lies in the file."""
        return self.entries_at + ENTRY_SIZE * number

    def _slot_at(self, key_hash: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * (key_hash % self.slots)

    def _put_run(self, hashes: list[int], offsets: list[int], times: list[int]) -> bool:
        """Writes entries, then slots, each all at once. Returns False, having done nothing, if two share a slot."""
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
        at = self.entries_at + ENTRY_SIZE * count
        self.view[at : at + ENTRY_SIZE * size] = entries.pack(
            *chain.from_iterable(zip(hashes, offsets, seconds, previous, strict=False))
        )
        numbers = count_from(_as_word(count), _NEXT_WORD)
        for place, number in zip(places, numbers, strict=False):
            words[place] = number
        self.slot_count += previous.count(0)
        self.count = count + size
        return True

    def put_one(self, key_hash: int, physical_offset: int, stored_at: int) -> bool:
        """Adds one entry after others. Returns False, having done nothing, if that takes more than writing it."""
        view, count = self.view, self.count
        at = self.entries_at + ENTRY_SIZE * count
        if at + ENTRY_SIZE > self._reserved or count >= self.entries_max or count <= 1:
            return False
        slot_at = HEADER_SIZE + SLOT_SIZE * (key_hash % self.slots)
        previous: int = SLOT.unpack_from(view, slot_at)[0]
        seconds = (stored_at - self.begin_timestamp) // 1000
        if previous >= count or not 0 <= seconds <= SECONDS_MAX:
            return False
        if not previous:
            self.slot_count += 1
        ENTRY.pack_into(view, at, key_hash, physical_offset, seconds, previous)
        SLOT.pack_into(view, slot_at, count)
        self.count = count + 1
        self.end_physical = physical_offset
        self.end_timestamp = stored_at
        _HEADER_END.pack_into(
            view, _END_TIMESTAMP_AT, stored_at, self.begin_physical, physical_offset, self.slot_count, count + 1
        )
        return True

    def _put_each(self, hashes: list[int], offsets: list[int], times: list[int], start: int, stop: int) -> None:
        view, count = self.view, self.count
        for item in range(start, stop):
            key_hash = hashes[item]
            slot_at = self._slot_at(key_hash)
            previous: int = SLOT.unpack_from(view, slot_at)[0]
            if previous >= count:  # damage, or another program's leftovers
                previous = 0
            seconds = self._seconds(times[item])
            ENTRY.pack_into(view, self.entry_at(count), key_hash, offsets[item], seconds, previous)
            SLOT.pack_into(view, slot_at, count)
            if not previous:
                self.slot_count += 1
            self.count = count = count + 1

    def _seconds(self, stored_at: int) -> int:
        seconds = (stored_at - self.begin_timestamp) // 1000
        if 0 <= seconds <= SECONDS_MAX:
            return seconds
        return 0 if seconds < 0 else SECONDS_MAX

    # -- finding

    def slot(self, number: int) -> int:
        """Returns the newest entry of a slot, 0 for none."""
        return int(SLOT.unpack_from(self.view, HEADER_SIZE + SLOT_SIZE * number)[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Returns (key hash, physical offset, seconds, previous)."""
        return ENTRY.unpack_from(self.view, self.entry_at(number))

    def all_entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields the entries that the header counts, from number 1 on."""
        return iter_unpack(ENTRY.format, self.view[self.entry_at(1) : self.entry_at(self.count)])

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yields physical offsets of entries with this hash in the time range, newest first."""
        number = self.slot(key_hash % self.slots)
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

    # -- taking back

    def cut(self, physical_limit: int) -> None:
        """Takes back every entry at or above the limit, newest first."""
        self._count_uncounted()
        while self.count > 1:
            key_hash, physical_offset, _, previous = self.entry(self.count - 1)
            if physical_offset < physical_limit:
                break
            self._take_back(key_hash, self.count - 1, previous)
            self.count -= 1
        self.header_from_last()

    def _count_uncounted(self) -> None:
        """Counts entries that a killed process wrote without counting them: past those everything is zero."""
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
            SLOT.pack_into(self.view, self._slot_at(key_hash), previous)
            if previous == 0:
                self.slot_count -= 1
        ENTRY.pack_into(self.view, self.entry_at(number), 0, 0, 0, 0)

    def make_slots(self, count: int, physical_limit: int) -> None:
        """Makes the slots, which must be zero, anew from entries [1, count) below the limit.

        Entries are in log order; the first that is not, or is empty, was being taken back when the machine stopped.
        """
        self.slot_count = 0
        self.count = count
        before = 0
        for number, (key_hash, physical_offset, seconds, previous) in enumerate(self.all_entries(), 1):
            if not before <= physical_offset < physical_limit or not (key_hash or physical_offset or seconds):
                self.count = number
                break
            before = physical_offset
            SLOT.pack_into(self.view, self._slot_at(key_hash), number)
            if previous == 0:
                self.slot_count += 1

    def header_from_last(self) -> None:
        """Writes the header as the last counted entry says."""
        if self.count > 1:
            _, physical_offset, seconds, _ = self.entry(self.count - 1)
            self.end_physical = physical_offset
            self.end_timestamp = min(self.end_timestamp, self.begin_timestamp + seconds * 1000 + 999)
        else:
            self.begin_timestamp = self.end_timestamp = 0
            self.begin_physical = self.end_physical = 0
        self.write_header()

    def write_header(self) -> None:
        """Writes the header from the fields."""
        HEADER.pack_into(
            self.view, 0, self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
            self.slot_count, self.count,
        )  # fmt: skip

    def close(self) -> None:
        """Lets go of the buffer."""
        self.view = self._words = memoryview(b"")
