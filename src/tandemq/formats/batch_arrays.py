"""A batch of many messages: its fields as arrays, the heads of its records made together.

What follows an element's flag is taken as it is: bodyLen and body, then propertiesLen and properties, are laid out in
the record as in the element, with the topic between them.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tandemq.formats.batch import ELEMENT_FIXED, HEAD, MessageBatch, Shared
from tandemq.formats.crc import crc32
from tandemq.formats.record import CRC_MASK, HEAD_FIELDS, WHOLE_HEADS, Buffer

Array: TypeAlias = npt.NDArray[Any]
_BODY_LENGTH_AT = HEAD.size - 4


_KINDS = {"I": ">u4", "i": ">i4", "q": ">i8"}


def _head_of(*host_sizes: int) -> "np.dtype[Any]":
    """Returns a record's head without the body's length, which is taken from the element."""
    sizes = iter(host_sizes)
    fields = [(name, _KINDS[kind] if kind in _KINDS else f"V{next(sizes)}") for name, kind in HEAD_FIELDS[:-1]]
    return np.dtype(fields)


_HEADS = (_head_of(8, 8), _head_of(20, 8), _head_of(8, 20), _head_of(20, 20))
"""By (sysFlag >> 4) & 3, as WHOLE_HEADS."""


class ArrayBatch(MessageBatch):
    """`ArrayBatch.parse`."""

    def __init__(
        self, view: memoryview, starts: Array, flags: Array, body_sizes: Array, properties_sizes: Array
    ) -> None:
        self._view = view
        self._starts = starts
        self._flags = flags
        self._body_sizes = body_sizes
        self._properties_sizes = properties_sizes
        self.properties_size_max = int(properties_sizes.max(initial=0))
        self.content_size = int(body_sizes.sum() + properties_sizes.sum())

    @classmethod
    def parse(cls, view: memoryview, starts: list[int]) -> "ArrayBatch | None":
        """Returns the batch whose elements begin there, with sizes that add up; None if other fields do not."""
        buffer = np.frombuffer(view, dtype=np.uint8)
        at = np.array(starts, dtype=np.int64)
        fields = at[:, None] + np.arange(HEAD.size)
        words = buffer[fields].view(">u4").astype(np.int64)
        sizes, flags, body_sizes = words[:, 0], words[:, 3].astype(np.int32), words[:, 4]
        properties_sizes = sizes - ELEMENT_FIXED - body_sizes
        if properties_sizes.min() < 0:
            return None
        length_at = at + HEAD.size + body_sizes
        told = buffer[length_at].astype(np.int64) << 8 | buffer[length_at + 1]
        if (told != properties_sizes).any():
            return None
        return cls(view, at, flags, body_sizes, properties_sizes)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def last_body(self) -> Buffer:
        start = int(self._starts[-1]) + HEAD.size
        return self._view[start : start + int(self._body_sizes[-1])]

    def without(self, count: int) -> MessageBatch:
        columns = (self._starts, self._flags, self._body_sizes, self._properties_sizes)
        return ArrayBatch(self._view, *(column[count:] for column in columns))

    def records(self, shared: Shared, offset: int, queue_offset: int) -> tuple[list[int], list[Buffer]]:
        view, topic_part = self._view, shared.topic_part
        bodies_at = self._starts + HEAD.size
        bodies_stop = bodies_at + self._body_sizes
        stops = (bodies_stop + 2 + self._properties_sizes).tolist()
        sizes = shared.fixed_size + self._body_sizes + self._properties_sizes
        ends = offset + np.cumsum(sizes)
        offsets = ends - sizes
        first = bodies_stop.tolist()
        kind = (shared.sys_flag >> 4) & 3
        heads = np.empty(len(self), dtype=_HEADS[kind])
        heads[:] = np.frombuffer(self._common_head(shared, kind), dtype=_HEADS[kind], count=1)
        heads["size"], heads["flag"], heads["physical_offset"] = sizes, self._flags, offsets
        heads["queue_offset"] = np.arange(queue_offset, queue_offset + len(self))
        sums = [crc32(view[start:stop]) for start, stop in zip(bodies_at.tolist(), first, strict=True)]
        heads["crc"] = np.array(sums, dtype=np.uint32) & CRC_MASK
        packed, width = memoryview(heads.tobytes()), heads.itemsize
        parts: list[Buffer] = []
        for at, start, middle, stop in zip(
            range(0, len(packed), width), (self._starts + _BODY_LENGTH_AT).tolist(), first, stops, strict=True
        ):
            parts += (packed[at : at + width], view[start:middle], topic_part, view[middle:stop])
        return offsets.tolist(), parts

    def _common_head(self, shared: Shared, kind: int) -> bytes:
        return WHOLE_HEADS[kind].pack(
            0, shared.magic, 0, shared.queue_id, 0, 0, 0, shared.sys_flag, shared.born_timestamp, shared.born_host,
            shared.store_timestamp, shared.store_host, shared.reconsume_times, 0, 0,
        )  # fmt: skip
