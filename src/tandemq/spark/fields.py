"""Where the fields of many records lie: lengths and positions of hosts, bodies, topics and properties as numpy arrays.

Works for any mix of v1 and v2 records, IPv4 and IPv6 hosts: the shifts are arrays too, or plain zeros when a batch is
uniform (nearly always). Every length is checked against its record before it is followed.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq.codec.record import (
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    MAGIC_V2,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    WHOLE_HEADS,
)
from tandemq.model.message import BORN_HOST_V6, STORE_HOST_V6
from tandemq.spark.walk import Positions, big_endian

_V6_EXTRA = 12
STORE_HOST_AT = STORE_TIMESTAMP_AT + 8
RECONSUME_TIMES_AT = STORE_HOST_AT + 8
PREPARED_OFFSET_AT = RECONSUME_TIMES_AT + 4
BODY_SIZE_AT = PREPARED_OFFSET_AT + 8
BODY_AT = WHOLE_HEADS[0].size

_SPAN_MAX = (1 << 31) - 1
"""Bytes that offsets of 32 bits reach."""

Shift = npt.NDArray[np.int64] | int


def _of_one_size(view: npt.NDArray[np.uint8], at: npt.NDArray[Any], size: int) -> npt.NDArray[np.uint8]:
    """The `size` bytes at each place, one after the other: a copy of whole blocks, far cheaper than many odd reads."""
    blocks = np.ndarray(shape=(max(0, len(view) - size + 1),), dtype=f"V{size}", buffer=view.data, strides=(1,))
    return np.asarray(blocks[at]).view(np.uint8)


class Fields:
    """The records of `buffer` at `positions`, every one known to end inside the buffer."""

    def __init__(self, buffer: Any, positions: Positions) -> None:
        self.buffer = buffer
        self.view = np.frombuffer(buffer, dtype=np.uint8)
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def selected(self, mask: npt.NDArray[Any]) -> "Fields":
        """Only the records that the mask (or index array) names."""
        return Fields(self.buffer, self.positions[mask])

    @cached_property
    def _heads(self) -> npt.NDArray[np.uint8]:
        """The first 88 bytes of each record, a row each."""
        return _of_one_size(self.view, self.positions, BODY_AT).reshape(len(self), BODY_AT)

    def int32(self, at: int, shift: Shift = 0) -> npt.NDArray[np.int32]:
        return self._numbers(">i4", at, shift).astype(np.int32)

    def int64(self, at: int, shift: Shift = 0) -> npt.NDArray[np.int64]:
        return self._numbers(">i8", at, shift).astype(np.int64)

    def _numbers(self, kind: str, at: int, shift: Shift) -> npt.NDArray[Any]:
        if isinstance(shift, int):
            return self._heads[:, at : at + np.dtype(kind).itemsize].view(kind)[:, 0]
        return np.asarray(big_endian(self.view, kind)[self.positions + at + shift])

    def _shorts(self, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return big_endian(self.view, ">u2")[at].astype(np.int64)

    @cached_property
    def size(self) -> npt.NDArray[np.int32]:
        return self.int32(0)

    @cached_property
    def sys_flag(self) -> npt.NDArray[np.int32]:
        return self.int32(SYS_FLAG_AT)

    @cached_property
    def _is_v2(self) -> npt.NDArray[np.bool_] | None:
        is_v2 = self._heads[:, 7] == MAGIC_V2 & 0xFF
        return is_v2 if is_v2.any() else None

    def _v6_shift(self, bit: int) -> Shift:
        flagged = self.sys_flag & bit
        return np.where(flagged, _V6_EXTRA, 0) if flagged.any() else 0

    @cached_property
    def born_shift(self) -> Shift:
        """Bytes by which an IPv6 born host moves what comes after it."""
        return self._v6_shift(BORN_HOST_V6)

    @cached_property
    def store_shift(self) -> Shift:
        """Bytes by which both hosts move what comes after the store host."""
        return self.born_shift + self._v6_shift(STORE_HOST_V6)

    @cached_property
    def body_at(self) -> npt.NDArray[np.int64]:
        return self.positions + BODY_AT + self.store_shift

    @cached_property
    def body_size(self) -> npt.NDArray[np.int32]:
        return self.int32(BODY_SIZE_AT, self.store_shift)

    @cached_property
    def topic_at(self) -> npt.NDArray[np.int64]:
        return self.body_at + self.body_size + (1 if self._is_v2 is None else np.where(self._is_v2, 2, 1))

    @cached_property
    def topic_size(self) -> npt.NDArray[np.int64]:
        """May be asked for once the body is known to end inside the record."""
        if self.only_topic is not None:
            return np.full(len(self), len(self.only_topic))
        sizes = self.view[self.topic_at - 1].astype(np.int64)
        if self._is_v2 is not None:
            sizes = np.where(self._is_v2, self._shorts(self.topic_at - 2), sizes)
        return sizes

    @cached_property
    def only_topic(self) -> bytes | None:
        """The topic if all records have the same one (nearly always, where queues are read), else None."""
        if not len(self) or self._is_v2 is not None:
            return None
        length_at = self.topic_at - 1
        size = 1 + int(self.view[length_at[0]])
        if int(length_at.max()) + size > len(self.view):
            return None
        found = _of_one_size(self.view, length_at, size)
        first = found[:size].tobytes()
        return first[1:] if size > 1 and found.tobytes() == first * len(self) else None

    @cached_property
    def properties_at(self) -> npt.NDArray[np.int64]:
        return self.topic_at + self.topic_size + 2

    @cached_property
    def properties_size(self) -> npt.NDArray[np.int64]:
        return self._shorts(self.properties_at - 2)

    def broken(self) -> dict[int, str]:
        """index -> what is wrong, for records whose fields don't add up to their size; checked in the order of
        trust.
        """
        found: dict[int, str] = {}
        stop = self.positions + self.size
        # A host flag that makes the fixed part longer than the record must not send the next gather out of bounds.
        if isinstance(self.store_shift, np.ndarray):
            short = self.body_at + 3 > stop
            if short.any():
                return dict.fromkeys(np.flatnonzero(short).tolist(), "its size is too small for its fixed part")
        for array_of, what in ((self._topic_stop, "body length"), (self._properties_stop, "topic length")):
            bad = array_of() > stop
            if what == "body length":
                bad |= self.body_size < 0
            if bad.any():
                return dict.fromkeys(np.flatnonzero(bad).tolist(), f"its {what} goes beyond its size")
        bad = self.properties_at + self.properties_size != stop
        if bad.any():
            found.update(dict.fromkeys(np.flatnonzero(bad).tolist(), "its fields do not add up to its size"))
        return found

    def _topic_stop(self) -> npt.NDArray[np.int64]:
        return self.topic_at + 2  # at least the two bytes of the properties length follow the topic

    def _properties_stop(self) -> npt.NDArray[np.int64]:
        return self.properties_at

    def born_timestamp(self) -> npt.NDArray[np.int64]:
        return self.int64(BORN_TIMESTAMP_AT)

    def store_timestamp(self) -> npt.NDArray[np.int64]:
        return self.int64(STORE_TIMESTAMP_AT, self.born_shift)

    def hosts(self, which: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(position of the host, whether it is IPv6) of the born or the store hosts."""
        if which == "born":
            return self.positions + BORN_HOST_AT, (self.sys_flag & BORN_HOST_V6) != 0
        return self.positions + STORE_HOST_AT + self.born_shift, (self.sys_flag & STORE_HOST_V6) != 0

    def gather(self, at: npt.NDArray[np.int64], size: npt.NDArray[Any]) -> pa.Array:
        """The byte ranges as one BinaryArray, copied by Arrow in one go.

        The ranges are the odd elements of an array that spans the buffer without a gap (gap, range, gap, ..., gap),
        which needs ascending ranges; `take` then gathers them. It reserves as many bytes as so many average elements
        have, and copies all again when these are too few: the outer gaps are as large as it takes to be enough.
        """
        count = len(at)
        if not count:
            return pa.array([], type=pa.binary())
        first, end = int(at[0]), int(at[-1]) + int(size[-1])
        spare = max(0, min((2 * count + 1) * (int(size.sum()) // count + 1), _SPAN_MAX) - (end - first))
        after = min(spare, len(self.view) - end)
        base = first - min(spare - after, first)
        offsets = np.empty(2 * count + 2, dtype=np.int32)
        offsets[0] = 0
        offsets[1:-1:2] = at - base
        np.add(offsets[1:-1:2], size, out=offsets[2::2], casting="unsafe")
        offsets[-1] = end + after - base
        data = pa.py_buffer(self.buffer).slice(base)
        spans = pa.Array.from_buffers(pa.binary(), 2 * count + 1, [None, pa.py_buffer(offsets), data])
        return spans.take(pa.array(np.arange(1, 2 * count + 1, 2, dtype=np.int32)))
