"""Where the records of a piece of log begin: one vectorised pass over the sizes.

A record says its size, so positions form a chain that only a loop can follow; in Python that loop costs more than all
the columns together. Instead many places of the buffer are followed at once: a *lane* starts at a likely record (its
magic, and its physical offset where the buffer's place in the log is known), numpy advances all lanes by one record per
step, and a lane counts only if the lane before it arrives exactly at its start. Lane 0 starts at a known record, so by
induction every accepted position is on the chain; where two lanes don't meet, the plain loop takes over from there.
"""

from enum import Enum
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tandemq.formats.record import (
    BLANK_SIZE_MIN,
    FIXED_SIZE_V4,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SIZE_MAGIC,
    check_record,
)

Positions = npt.NDArray[np.int64]

_SIZE = Struct(">I")
_MAGIC_V1_BYTES = MAGIC_V1.to_bytes(4, "big")
_MAGIC_PREFIX = _MAGIC_V1_BYTES[:3]
_MAGIC_MASK = 0xFFFFFFFF ^ (MAGIC_V1 ^ MAGIC_V2)
_MAGIC_BITS = MAGIC_V1 & _MAGIC_MASK
"""Two magics, told from all others by one comparison; the bits they differ in (0x0C) also allow two unused values,
which the decoder refuses."""
_LANE_BYTES = 1 << 16
"""About 80 records of 800 bytes per lane at least: that pays for finding its start."""
_LANES_MIN, _LANES_MAX = 8, 256
"""Fewer don't keep numpy busy; more don't make it busier, and every start must be found."""

_FAR = 1 << 40
"""Beyond any buffer: a lane that meets what can't be a record goes no further."""


class End(Enum):
    """Why a walk stopped."""

    LIMIT = "the next record begins at or after the stop"
    BLANK = "the blank record that ends a segment"
    ZEROS = "nothing was ever written here"
    CUT = "a record that goes beyond the readable bytes"
    BROKEN = "no record: unknown magic or impossible size"


class Walk(NamedTuple):
    """Record positions in ascending order, where the chain stopped, and why."""

    positions: Positions
    next: int
    end: End


def big_endian(view: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Returns a view of the bytes as overlapping big-endian numbers: element i is read at byte i."""
    size = np.dtype(kind).itemsize
    return np.ndarray(shape=(max(0, len(view) - size + 1),), dtype=kind, buffer=view.data, strides=(1,))


def walk(buffer: Any, start: int, stop: int, limit: int, *, base: int | None = None) -> Walk:
    """Returns the positions of the records that begin in [start, stop) and end at or before `limit`.

    `buffer` is bytes, bytearray or mmap (it must have `find`); `start` must be a record boundary. `base` is the
    physical offset of the buffer's first byte, None when the records are not in log order (pulled messages).
    """
    limit = min(limit, len(buffer))
    stop = min(stop, limit)
    lanes = min((stop - start) // _LANE_BYTES, _LANES_MAX)
    found: list[Positions] = []
    if lanes >= _LANES_MIN:
        view = np.frombuffer(buffer, dtype=np.uint8, count=limit)
        positions, start = _walk_lanes(buffer, view, start, stop, limit, base, lanes)
        found.append(positions)
    tail = hop(buffer, start, stop, limit)
    return Walk(np.concatenate([*found, tail.positions]), tail.next, tail.end) if found else tail


def hop(buffer: Any, position: int, stop: int, limit: int) -> Walk:
    """Does what `walk` does in a plain loop: the better way for less than about a megabyte, and for a memoryview.

    The loop goes by the sizes; whether what it met are records is checked afterwards, all at once.
    """
    size_at, found = _SIZE.unpack_from, list[int]()
    add, heads_stop = found.append, min(stop, limit - BLANK_SIZE_MIN + 1)
    while position < heads_stop:
        (size,) = size_at(buffer, position)
        next_position = position + size
        if next_position > limit or size < FIXED_SIZE_V4:
            break
        add(position)
        position = next_position
    positions = np.array(found, dtype=np.int64)
    magics = big_endian(np.frombuffer(buffer, dtype=np.uint8), ">u4")[positions + MAGIC_AT]
    if magics.tobytes() != _MAGIC_V1_BYTES * len(found):  # nearly always equal, and cheaper than comparing arrays
        bad = (magics != MAGIC_V1) & (magics != MAGIC_V2)
        if bad.any():
            first = int(bad.argmax())
            positions, position = positions[:first], found[first]
    return Walk(positions, position, _end_at(buffer, position, stop, limit))


def _end_at(buffer: Any, position: int, stop: int, limit: int) -> End:
    """Returns why a walk stopped here."""
    if position >= stop:
        return End.LIMIT
    if position > limit - BLANK_SIZE_MIN:
        return End.CUT
    size, magic = SIZE_MAGIC.unpack_from(buffer, position)
    if magic in (MAGIC_V1, MAGIC_V2):
        return End.BROKEN if size < FIXED_SIZE_V4 else End.CUT
    if magic == MAGIC_BLANK and size >= BLANK_SIZE_MIN:
        return End.BLANK
    return End.ZEROS if magic == 0 and size == 0 else End.BROKEN


def _walk_lanes(
    buffer: Any, view: npt.NDArray[np.uint8], start: int, stop: int, limit: int, base: int | None, lanes: int
) -> tuple[Positions, int]:
    """Returns the positions as far as the lanes meet, and where the loop must go on.

    The lanes run first, by the sizes alone; what they met is judged afterwards, all at once.
    """
    starts = _lane_starts(buffer, start, stop, limit, base, lanes)
    bounds = np.append(starts[1:], stop)
    ends = starts.copy()
    all_heads = big_endian(view, ">i8")
    steps: list[tuple[Positions, Positions, Positions]] = []
    lane, position, bound = np.arange(len(starts)), starts, np.minimum(bounds, limit - 7)
    while len(position):
        head = all_heads[position].astype(np.int64)
        steps.append((position, head, lane))
        size = head >> 32
        position = position + np.where(size < FIXED_SIZE_V4, _FAR, size)
        going = position < bound
        if not going.all():
            ends[lane] = position
            lane, position, bound = lane[going], position[going], bound[going]
    positions, heads, owners = (np.concatenate(of_all) for of_all in zip(*steps, strict=True))
    good = (heads & _MAGIC_MASK) == _MAGIC_BITS
    good &= (heads >= FIXED_SIZE_V4 << 32) & (positions + (heads >> 32) <= limit)
    if not good.all():
        np.minimum.at(ends, owners[~good], positions[~good])
        before = positions < ends[owners]
        positions, owners = positions[before], owners[before]
    meets = ends[:-1] == bounds[:-1]
    if meets.all():
        return np.sort(positions), int(ends[-1])
    whole = int(np.argmin(meets))
    return np.sort(positions[owners <= whole]), int(ends[whole])


def _lane_starts(buffer: Any, start: int, stop: int, limit: int, base: int | None, lanes: int) -> Positions:
    starts = [start]
    for target in range(start + (stop - start) // lanes, stop, max(1, (stop - start) // lanes)):
        found = _candidate(buffer, max(target, starts[-1] + 1), min(stop, target + _LANE_BYTES), limit, base)
        if found is not None:
            starts.append(found)
    return np.array(starts, dtype=np.int64)


def _candidate(buffer: Any, start: int, stop: int, limit: int, base: int | None) -> int | None:
    """Returns the first place in [start, stop) that looks like the beginning of a record."""
    position = start
    # Only as far as a whole record may begin. Python 3.11 before .4 reads the byte after the end of the search, and
    # after the end of a mapped file that is the end of the process.
    end = max(0, min(limit - FIXED_SIZE_V4 + MAGIC_AT + 3, stop + MAGIC_AT + 2))
    while True:
        at: int = buffer.find(_MAGIC_PREFIX, position + MAGIC_AT, end)
        if at < 0:
            return None
        position = at - MAGIC_AT
        if looks_like_record(buffer, position, limit, base):
            return position
        position += 1


def looks_like_record(buffer: Any, position: int, limit: int, base: int | None) -> bool:
    """Returns whether magic and size fit, and the record carries the physical offset of its place."""
    if position + FIXED_SIZE_V4 > limit:
        return False
    size, magic = SIZE_MAGIC.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2) or size < FIXED_SIZE_V4 or position + size > limit:
        return False
    at = position + PHYSICAL_OFFSET_AT
    return base is None or int.from_bytes(buffer[at : at + 8], "big") == base + position


def are_records(buffer: Any, positions: Positions, sizes: Positions) -> npt.NDArray[np.bool_]:
    """Returns at which places a record of the stated size begins and ends inside the buffer, by size and magic."""
    view = np.frombuffer(buffer, dtype=np.uint8)
    good = (positions >= 0) & (sizes >= FIXED_SIZE_V4) & (positions + sizes <= len(view))
    heads = big_endian(view, ">i8")[positions[good]].astype(np.int64)
    magics, stated = heads & 0xFFFFFFFF, heads >> 32
    good[good] = (stated == sizes[good]) & ((magics == MAGIC_V1) | (magics == MAGIC_V2))
    return good


def resynchronise(buffer: Any, start: int, stop: int, limit: int, base: int) -> int | None:
    """Returns the first record boundary in [start, stop) of a buffer that lies at `base` in the log, or None.

    Splits of a segment begin anywhere, and damaged records hide where the next one begins: both are found by magic and
    physical offset, and confirmed by the record's own lengths adding up. What follows may be damaged.
    """
    position = start
    while position < stop:
        found = _candidate(buffer, position, stop, limit, base)
        if found is None or check_record(buffer, found, limit, crc=False) is None:
            return found
        position = found + 1
    return None
