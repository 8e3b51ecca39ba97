"""Where the fields of many records lie: lengths and positions of hosts, bodies, topics and properties as numpy arrays.

Any mix of v1 and v2 records, IPv4 and IPv6 hosts will do: the shifts are arrays too, or plain zeros when a batch is
uniform (nearly always). Every length is checked against its record before it is followed.
"""

from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tandemq.formats.record import (
    BODY_AT,
    BODY_SIZE_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    MAGIC_AT,
    MAGIC_V2,
    SIZE_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    V6_EXTRA,
)
from tandemq.formats.record_starts import Positions, big_endian
from tandemq.model.message import BORN_HOST_V6, STORE_HOST_V6

_MAGIC_END = MAGIC_AT + 3
"""The byte in which the magics of the two versions differ."""

Shift = npt.NDArray[np.int64] | int


def blocks_at(view: npt.NDArray[np.uint8], at: npt.NDArray[Any], size: int) -> npt.NDArray[np.uint8]:
    """Returns the `size` bytes at each place, one after the other: whole blocks are far cheaper than many odd reads."""
    if not size:
        return np.empty(0, dtype=np.uint8)
    blocks = np.ndarray(shape=(max(0, len(view) - size + 1),), dtype=f"V{size}", buffer=view.data, strides=(1,))
    return np.asarray(blocks[at]).view(np.uint8)


def groups_of_one_size(sizes: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[tuple[int, int, int]]]:
    """Returns the rows ordered by their size, and (start, stop, size) of each group among them."""
    rows = np.arange(len(sizes))
    if not len(sizes):
        return rows, []
    if (sizes == sizes[0]).all():
        return rows, [(0, len(sizes), int(sizes[0]))]
    rows = np.argsort(sizes, kind="stable")
    cuts = np.flatnonzero(np.diff(sizes[rows])) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    return rows, [(start, stop, int(sizes[rows[start]])) for start, stop in pairwise(bounds)]


class Fields:
    """The records of `buffer` at `positions`, every one known to end inside the buffer."""

    def __init__(self, buffer: Any, positions: Positions) -> None:
        self.buffer = buffer
        self.view = np.frombuffer(buffer, dtype=np.uint8)
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def selected(self, mask: npt.NDArray[Any] | slice) -> Self:
        """Returns only the records that the mask, index array or slice names."""
        return type(self)(self.buffer, self.positions[mask])

    @cached_property
    def _heads(self) -> npt.NDArray[np.uint8]:
        """Returns the heads of the records, one row each."""
        return blocks_at(self.view, self.positions, BODY_AT).reshape(len(self), BODY_AT)

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
        return self.int32(SIZE_AT)

    @cached_property
    def sys_flag(self) -> npt.NDArray[np.int32]:
        return self.int32(SYS_FLAG_AT)

    @cached_property
    def _is_v2(self) -> npt.NDArray[np.bool_] | None:
        is_v2 = self._heads[:, _MAGIC_END] == MAGIC_V2 & 0xFF
        return is_v2 if is_v2.any() else None

    def _v6_shift(self, bit: int) -> Shift:
        flagged = self.sys_flag & bit
        return np.where(flagged, V6_EXTRA, 0) if flagged.any() else 0

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
        """Returns the topic if all records have the same one (nearly always, where queues are read), else None."""
        if not len(self) or self._is_v2 is not None:
            return None
        length_at = self.topic_at - 1
        size = 1 + int(self.view[length_at[0]])
        if int(length_at.max()) + size > len(self.view):
            return None
        found = blocks_at(self.view, length_at, size)
        first = found[:size].tobytes()
        return first[1:] if size > 1 and found.tobytes() == first * len(self) else None

    @cached_property
    def topics(self) -> tuple[list[bytes], npt.NDArray[np.int64]]:
        """Returns the distinct topics, and for each record the number of its topic among them."""
        if self.only_topic is not None:
            return [self.only_topic], np.zeros(len(self), dtype=np.int64)
        numbers: dict[bytes, int] = {}
        topic_of = np.zeros(len(self), dtype=np.int64)
        rows, groups = groups_of_one_size(self.topic_size)
        for start, stop, size in groups:
            names = blocks_at(self.view, self.topic_at[rows[start:stop]], size).tobytes()
            each = (names[at : at + size] for at in range(0, len(names), size)) if size else [b""] * (stop - start)
            topic_of[rows[start:stop]] = [numbers.setdefault(name, len(numbers)) for name in each]
        return list(numbers), topic_of

    def properties(self, row: int) -> bytes:
        """Returns the property text of one record."""
        start = int(self.properties_at[row])
        return self.view[start : start + int(self.properties_size[row])].tobytes()

    @cached_property
    def properties_at(self) -> npt.NDArray[np.int64]:
        return self.topic_at + self.topic_size + 2

    @cached_property
    def properties_size(self) -> npt.NDArray[np.int64]:
        return self._shorts(self.properties_at - 2)

    def broken(self) -> dict[int, str]:
        """Returns {row: what is wrong} of records whose fields do not add up to their size.

        Lengths are checked in the order in which they are followed; a first pass that finds something ends there.
        """
        stop = self.positions + self.size
        # A host flag that makes the fixed part longer than the record must not send the next gather out of bounds.
        if isinstance(self.store_shift, np.ndarray):
            short = self.body_at + 3 > stop
            if short.any():
                return dict.fromkeys(np.flatnonzero(short).tolist(), "its size is too small for its fixed part")
        bad = self.topic_at + 2 > stop  # at least the two bytes of the properties length follow the topic
        bad |= self.body_size < 0
        if bad.any():
            return dict.fromkeys(np.flatnonzero(bad).tolist(), "its body length goes beyond its size")
        beyond = self.properties_at > stop
        if beyond.any():
            return dict.fromkeys(np.flatnonzero(beyond).tolist(), "its topic length goes beyond its size")
        bad = self.properties_at + self.properties_size != stop
        return dict.fromkeys(np.flatnonzero(bad).tolist(), "its fields do not add up to its size")

    def born_timestamp(self) -> npt.NDArray[np.int64]:
        return self.int64(BORN_TIMESTAMP_AT)

    def store_timestamp(self) -> npt.NDArray[np.int64]:
        return self.int64(STORE_TIMESTAMP_AT, self.born_shift)

    def hosts(self, which: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Returns (position of the host, whether it is IPv6) of the born or the store hosts."""
        if which == "born":
            return self.positions + BORN_HOST_AT, (self.sys_flag & BORN_HOST_V6) != 0
        return self.positions + STORE_HOST_AT + self.born_shift, (self.sys_flag & STORE_HOST_V6) != 0
