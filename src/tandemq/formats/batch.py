"""A batch send: several messages for one queue in one body, and the records they become in the log.

The body is a run of elements: totalSize 4 | magic 4 | bodyCRC 4 | flag 4 | bodyLen 4 + body | propertiesLen 2 +
properties; magic and CRC are not checked (upstream clients write 0).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from tandemq.errors import CorruptRecord
from tandemq.formats.crc import crc32
from tandemq.formats.record import CRC_MASK, PROPERTIES_MAX, WHOLE_HEADS, Buffer

HEAD = struct.Struct(">IIIiI")
ELEMENT_FIXED = HEAD.size + 2
LARGE_COUNT_MIN = 32
"""From so many elements on, numpy's preparations pay."""
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">I")

BatchElement: TypeAlias = tuple[int, Buffer, Buffer]
"""(flag, body, properties)"""


class Shared(NamedTuple):
    """What all records of a batch have in common."""

    topic_part: bytes
    """The topic with its length before it."""
    magic: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int

    @property
    def fixed_size(self) -> int:
        """Returns the bytes that a record has beside its body and its properties."""
        return WHOLE_HEADS[(self.sys_flag >> 4) & 3].size + len(self.topic_part) + 2


class MessageBatch:
    """The messages of one batch."""

    def __init__(self, elements: Sequence[BatchElement]) -> None:
        self._elements = elements
        properties = [len(properties) for _, _, properties in elements]
        self.properties_size_max = max(properties, default=0)
        self.content_size = sum([len(body) for _, body, _ in elements]) + sum(properties)
        """Bytes of all bodies and properties."""

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def last_body(self) -> Buffer:
        """Returns the body of the last element."""
        return self._elements[-1][1]

    def without(self, count: int) -> "MessageBatch":
        """Returns the batch without its first elements."""
        return MessageBatch(self._elements[count:])

    def records(self, shared: Shared, offset: int, queue_offset: int) -> tuple[list[int], list[Buffer]]:
        """Returns (physical offsets of the records from `offset` on, the pieces they are made of)"""
        head, fixed = WHOLE_HEADS[(shared.sys_flag >> 4) & 3], shared.fixed_size
        pack_head, pack_length = head.pack, _SHORT.pack
        (
            topic_part, magic, queue_id, sys_flag, born_timestamp, born_host, store_timestamp, store_host,
            reconsume_times,
        ) = shared  # fmt: skip
        offsets, parts = [], list[Buffer]()
        for flag, body, properties in self._elements:
            body_size, properties_size = len(body), len(properties)
            size = fixed + body_size + properties_size
            parts += (
                pack_head(
                    size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, offset, sys_flag,
                    born_timestamp, born_host, store_timestamp, store_host, reconsume_times, 0, body_size,
                ),
                body, topic_part, pack_length(properties_size), properties,
            )  # fmt: skip
            offsets.append(offset)
            offset += size
            queue_offset += 1
        return offsets, parts


def parse_batch(body: Buffer, count_max: int | None = None) -> MessageBatch:
    """Returns the batch in a body, its elements as slices of it.

    Raises CorruptRecord if they do not add up, or as soon as there are more than `count_max`.
    """
    view = memoryview(body)
    starts = _starts(view, count_max)
    if len(starts) >= LARGE_COUNT_MIN:
        from tandemq.formats.batch_arrays import ArrayBatch  # numpy takes a tenth of a second to load

        batch = ArrayBatch.parse(view, starts)
        if batch is not None:
            return batch
    return MessageBatch(split_batch(body))


def _starts(view: memoryview, count_max: int | None) -> list[int]:
    """Returns where elements begin if their sizes lead exactly to the end, else nothing."""
    found, size_at = list[int](), _INT.unpack_from
    position, end = 0, len(view)
    while position <= end - ELEMENT_FIXED:
        found.append(position)
        size: int = size_at(view, position)[0]
        if size < ELEMENT_FIXED:
            return []
        if count_max is not None and len(found) > count_max:
            raise CorruptRecord(f"a batch of more than {count_max} messages: their records would be too large together")
        position += size
    return found if position == end else []


def split_batch(body: Buffer) -> list[BatchElement]:
    """Returns the elements of a batch, as slices of the input."""
    view = memoryview(body)
    elements: list[BatchElement] = []
    position, end = 0, len(view)
    while position < end:
        if position + ELEMENT_FIXED > end:
            raise CorruptRecord(
                f"batch element {len(elements)}: {end - position} bytes left, at least {ELEMENT_FIXED} needed"
            )
        size, _, _, flag, body_size = HEAD.unpack_from(view, position)
        body_at = position + HEAD.size
        properties_at = body_at + body_size + 2
        if size < ELEMENT_FIXED or position + size > end or properties_at > position + size:
            raise CorruptRecord(
                f"batch element {len(elements)}: size {size} and body length {body_size} do not fit in "
                f"the {end - position} bytes left"
            )
        properties_size: int = _SHORT.unpack_from(view, properties_at - 2)[0]
        if properties_at + properties_size != position + size:
            raise CorruptRecord(
                f"batch element {len(elements)}: its fields make {properties_at + properties_size - position} bytes, "
                f"it says {size}"
            )
        stop = position + size
        elements.append((flag, view[body_at : properties_at - 2], view[properties_at:stop]))
        position = stop
    return elements


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """Returns the body of a batch send from (flag, body, properties) elements.

    Magic and CRC 0 as upstream's clients write.
    """
    parts: list[Buffer] = []
    for flag, body, properties in elements:
        if len(properties) > PROPERTIES_MAX:
            raise CorruptRecord(f"the properties have {len(properties)} bytes, the limit is {PROPERTIES_MAX}")
        size = ELEMENT_FIXED + len(body) + len(properties)
        parts += (HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)
