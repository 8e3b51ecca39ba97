"""The commit log: the one truth. Append records, append raw bytes (a slave), read, cut.

Invariants: first_offset <= appended <= written. [first_offset, appended) is the log; bytes up to `written` may be
something else than zero (a slave's receive window); everything after it is zero. A cut keeps that: what is cut is
overwritten with zeros, because a stale record left past the end could line up with what is appended later and come
back to life.

A record's head, which holds its size, is written after everything else: a process killed in the middle of an append
leaves zeros where the next record's size would be.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct

from tandemq.errors import CorruptRecord, MessageTooLarge, OffsetOutOfRange, StoreError
from tandemq.formats.batch import MessageBatch, Shared
from tandemq.formats.crc import crc32
from tandemq.formats.record import (
    BLANK_SIZE_MIN,
    CRC_MASK,
    FIXED_SIZE_V4,
    MAGIC_BLANK,
    SIZE_MAGIC,
    WHOLE_HEADS,
    parse_record,
)
from tandemq.model.message import StoredMessage
from tandemq.store.segments import SegmentChain
from tandemq.store.zeros import zero

_SHORT = Struct(">H")
_SIZE = 4
"""Bytes of the size at the beginning of a record."""
WRITE_SIZE_MIN = 16 << 10
"""From here on a system call is cheaper than the faults of fresh pages (disk.py has the figures)."""


class CommitLog:
    """Written by one thread. Positions are physical offsets."""

    def __init__(self, chain: SegmentChain) -> None:
        self.chain = chain
        self.appended = chain.first_offset
        self.written = self.appended
        self._view = memoryview(b"")
        self._base = 0
        self._soft_stop = 0
        """Position in the current segment up to which appending needs no thought: reserved, and leaves room for a
        blank."""
        self._reserved = 0
        self.on_half_full: Callable[[], None] | None = None
        """Told once for each file that gets half full: the next one will be needed soon."""
        self._told_half_full = -1

    @property
    def first_offset(self) -> int:
        return self.chain.first_offset

    @property
    def segment_size(self) -> int:
        return self.chain.segment_size

    def set_end(self, end: int) -> None:
        """Sets the end that recovery found; appending continues here."""
        self.appended = end
        self.written = max(self.written, end)
        self._attach()

    def _attach(self) -> None:
        """Makes the segment that holds `appended` the current one; none if the log ends with its last file."""
        chain = self.chain
        self._reserved = 0
        if chain.bases and self.appended < chain.end:
            self._base = chain.base_of(self.appended)
            self._view = chain.segment(self._base).view
        else:
            self._base = self.appended
            self._view = memoryview(b"")
        self._set_soft_stop()

    def _set_soft_stop(self) -> None:
        self._soft_stop = min(self._reserved, len(self._view) - BLANK_SIZE_MIN)
        half = len(self._view) // 2
        if self.appended - self._base <= half:
            self._soft_stop = min(self._soft_stop, half)  # there `make_room` asks for the next file

    # -- writing

    def append(
        self,
        topic_part: bytes,
        magic: int,
        queue_id: int,
        queue_offset: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | bytearray | memoryview,
        properties: bytes,
    ) -> int:
        """Writes one record at the end. Returns its size. `topic_part` is the topic with its length before it."""
        head = WHOLE_HEADS[(sys_flag >> 4) & 3]
        body_size = len(body)
        tail = b"".join((topic_part, _SHORT.pack(len(properties)), properties))
        head_size = head.size
        size = head_size + body_size + len(tail)
        at = self.appended - self._base
        if at + size > self._soft_stop:
            self.make_room(size)
            at = self.appended - self._base
        view = self._view
        body_at = at + head_size
        tail_at = body_at + body_size
        view[body_at:tail_at] = body
        view[tail_at : at + size] = tail
        head.pack_into(
            view, at, size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, self.appended, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times, prepared_transaction_offset,
            body_size,
        )  # fmt: skip
        self.appended += size
        if self.appended > self.written:
            self.written = self.appended
        return size

    def append_batch(self, size: int, shared: Shared, queue_offset: int, batch: MessageBatch) -> list[int]:
        """Writes one record per message (at least one), `size` bytes together and in one segment.

        Returns where each begins.

        Put together first and copied at once, the first record's size last: half the time per message of `append`, and
        a process killed in the middle leaves none of them.
        """
        self.make_room(size)
        offsets, parts = batch.records(shared, self.appended, queue_offset)
        data = memoryview(b"".join(parts))
        view, at = self._view, self.appended - self._base
        end = self.appended + len(data)
        self.written = max(self.written, end)
        if len(data) >= WRITE_SIZE_MIN:
            self.chain.segment(self._base).write(at + _SIZE, data[_SIZE:])
        else:
            view[at + _SIZE : at + len(data)] = data[_SIZE:]
        view[at : at + _SIZE] = data[:_SIZE]
        self.appended = end
        return offsets

    def make_room(self, size: int) -> None:
        """Makes room for `size` bytes in one piece, in a new segment if need be. Raises DiskFull if there is none."""
        segment_size = self.chain.segment_size
        if size + BLANK_SIZE_MIN > segment_size:
            raise MessageTooLarge(
                f"a record (or batch) of {size} bytes does not fit in a segment of {segment_size}: "
                "send less, or raise mappedFileSizeCommitLog"
            )
        at = self.appended - self._base
        if not len(self._view) or at == segment_size:
            self._roll()
        elif at + size + BLANK_SIZE_MIN > segment_size:
            self._reserve(segment_size)
            # The new file first: if there is no room for it, the log stays as it is.
            blank_at, old = at, self._view
            if self.chain.end == self._base + segment_size:
                self.chain.add()
            SIZE_MAGIC.pack_into(old, blank_at, segment_size - blank_at, MAGIC_BLANK)
            self.appended = self._base + segment_size
            self.written = max(self.written, self.appended)
            self._attach()
        self._reserve(self.appended - self._base + size)

    def _roll(self) -> None:
        if self.chain.end <= self.appended:
            self.chain.add(self.appended)
        self._attach()

    def _reserve(self, stop: int) -> None:
        if stop > self._reserved:
            self._reserved = self.chain.reserve(self._base, stop)
        self._set_soft_stop()
        if stop > self.chain.segment_size // 2 and self._told_half_full != self._base:
            self._told_half_full = self._base
            if self.on_half_full is not None:
                self.on_half_full()

    def append_raw(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Appends the very bytes of the master, cut anywhere: a slave's append. Returns the new end."""
        rest = memoryview(data)
        while len(rest):
            window = self.raw_window(physical_offset, len(rest))
            taken = len(window)
            window[:] = rest[:taken]
            physical_offset = self.commit_raw(taken)
            rest = rest[taken:]
        return self.appended

    def raw_window(self, physical_offset: int, size_max: int) -> memoryview:
        """Returns room at the end of the log to receive into, in one segment. `commit_raw` says how much is used."""
        if physical_offset != self.appended:
            raise OffsetOutOfRange(physical_offset, self.first_offset, self.appended)
        at = self.appended - self._base
        if not len(self._view) or at == self.chain.segment_size:
            self._roll()
            at = 0
        stop = min(at + size_max, self.chain.segment_size)
        if stop > self._reserved:
            self._reserve(stop)
        self.written = max(self.written, self._base + stop)
        return self._view[at:stop]

    def write_raw(self, past_end: int, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes `past_end` bytes past the end, within one segment; they count once `commit_raw` says so."""
        start = self._raw_start(past_end, len(data))
        self.chain.segment(self._base).write(start, data)

    def raw_place(self, past_end: int, size: int) -> tuple[int, int]:
        """Returns (fd, position) where the kernel may put such bytes by itself; use them at once."""
        start = self._raw_start(past_end, size)
        return self.chain.segment(self._base).fileno(), start

    def _raw_start(self, past_end: int, size: int) -> int:
        at = self.appended - self._base
        if not len(self._view) or at == self.chain.segment_size:
            self._roll()
            at = 0
        start, stop = at + past_end, at + past_end + size
        if stop > self.chain.segment_size:
            raise OffsetOutOfRange(self._base + stop, self._base, self._base + self.chain.segment_size)
        if stop > self._reserved:
            self._reserve(stop)
        self.written = max(self.written, self._base + stop)
        return start

    def commit_raw(self, size: int) -> int:
        """Makes the first `size` bytes of the last window log. Returns the new end."""
        if size < 0 or self.appended + size > self.written:
            raise StoreError(f"{size} bytes can't be committed: the window ends at {self.written - self.appended}")
        self.appended += size
        return self.appended

    # -- reading

    def slice(self, physical_offset: int, size: int) -> memoryview:
        """Returns `size` bytes of the log without a copy; within one segment."""
        if not self.first_offset <= physical_offset <= physical_offset + size <= self.appended:
            raise OffsetOutOfRange(physical_offset, self.first_offset, self.appended)
        if size == 0:
            return memoryview(b"")
        base = self.chain.base_of(physical_offset)
        at = physical_offset - base
        if at + size > self.chain.segment_size:
            raise OffsetOutOfRange(physical_offset + size, base, base + self.chain.segment_size)
        return self.chain.segment(base).view[at : at + size]

    def slices(self, runs: Iterable[Sequence[int]]) -> list[memoryview]:
        """Returns several [start, stop) without a copy, each within one segment: what a pull found."""
        chain, first, end = self.chain, self.first_offset, self.appended
        segment_size = chain.segment_size
        base, view = -segment_size, memoryview(b"")
        found = []
        for start, stop in runs:
            if not base <= start < base + segment_size:
                base = chain.base_of(start)
                view = chain.segment(base).view
            if not first <= start <= stop <= end or stop - base > segment_size:
                raise OffsetOutOfRange(start, first, end)
            found.append(view[start - base : stop - base])
        return found

    def record(self, physical_offset: int, limit: int) -> memoryview:
        """Returns one whole record that ends at or before `limit`."""
        if physical_offset < self.first_offset or physical_offset + FIXED_SIZE_V4 > min(limit, self.appended):
            raise OffsetOutOfRange(physical_offset, self.first_offset, min(limit, self.appended))
        base = self.chain.base_of(physical_offset)
        view = self.chain.segment(base).view
        at = physical_offset - base
        left = min(limit - base, self.appended - base, len(view)) - at
        if left < FIXED_SIZE_V4:
            raise CorruptRecord(f"no record starts at offset {physical_offset}: the segment ends {left} bytes later")
        size, magic = SIZE_MAGIC.unpack_from(view, at)
        if not FIXED_SIZE_V4 <= size <= left or magic == MAGIC_BLANK:
            raise CorruptRecord(f"no record starts at offset {physical_offset} (size {size}, magic 0x{magic:08X})")
        return view[at : at + size]

    def messages(self, start: int, stop: int) -> Iterator[StoredMessage]:
        """Yields the messages of [start, stop) in log order; `start` must be where a record begins."""
        while start < stop:
            try:
                message = parse_record(self.record(start, stop))
            except CorruptRecord:
                start += self.segment_size - start % self.segment_size  # the blank at the end of a segment
                continue
            except OffsetOutOfRange:
                return
            yield message
            start += message.size

    def file_range(self, physical_offset: int, size_max: int) -> tuple[int, int, int]:
        """Returns (fd, position in the file, size) for sendfile. Use it at once: the next call may close the file."""
        if not self.first_offset <= physical_offset <= self.appended:
            raise OffsetOutOfRange(physical_offset, self.first_offset, self.appended)
        if physical_offset == self.appended:
            return -1, 0, 0
        base = self.chain.base_of(physical_offset)
        at = physical_offset - base
        size = min(size_max, self.appended - physical_offset, self.chain.segment_size - at)
        return self.chain.segment(base).fileno(), at, size

    # -- cutting

    def cut(self, offset: int, *, thorough: bool = False) -> None:
        """Makes everything from `offset` on zeros, durably. Repeatable: a crash in the middle is finished by cutting
        again.

        `thorough` reads the whole rest of the segment instead of trusting `written`: after a crash nobody knows it.
        """
        chain = self.chain
        if not self.first_offset <= offset <= max(self.appended, chain.end):
            raise OffsetOutOfRange(offset, self.first_offset, self.appended)
        boundary = offset if offset % chain.segment_size == 0 else chain.base_of(offset) + chain.segment_size
        # A log that is cut to nothing keeps its first file, so that its first offset is not forgotten.
        chain.drop_from(max(boundary, chain.first_offset + chain.segment_size) if chain.bases else boundary)
        if chain.bases and offset < chain.end:
            base = chain.base_of(offset)
            segment = chain.segment(base)
            stop = segment.size if thorough else min(segment.size, max(self.written, self.appended) - base)
            if zero(segment, offset - base, stop):
                segment.sync()
        self.appended = offset
        self.written = offset
        self._attach()

    def close(self) -> None:
        self._view = memoryview(b"")
        self.chain.close()
