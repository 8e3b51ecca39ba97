"""Rows to batch sends: Arrow columns in, the bytes of batch elements out, without a Python object per message.

An element is totalSize 4 | magic 4 | CRC 4 | flag 4 | bodyLen 4 + body | propertiesLen 2 + properties. All elements of
a RecordBatch come out of one join in one buffer; sends are put together from slices of it. Delayed messages can't be in
a batch, because RocketMQ refuses them, and compressed ones can't either, because one sysFlag holds for the whole batch:
they are sent one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.errors import ConfigError
from tandemq.formats.batch import ELEMENT_FIXED
from tandemq.formats.compression import compress
from tandemq.formats.record import PROPERTIES_MAX
from tandemq.model.message import (
    ACK_COPIES,
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    DELAY,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
)
from tandemq.model.topic import topic_name_problem
from tandemq.spark.options import Compression, SchemaKind, SinkOptions
from tandemq.spark.sink.property_texts import header_texts, key_texts, map_texts, named

_BODY_SIZE_AT = 16
"""Of an element."""


@dataclass(slots=True)
class Rows:
    """Some rows of one topic, ready to be placed, keyed and encoded."""

    numbers: npt.NDArray[np.int64]
    """Which row of its partition each one is."""
    bodies: pa.Array
    properties: pa.Array
    """BinaryArray: the properties text without UNIQ_KEY."""
    flags: npt.NDArray[np.int32]
    sys_flags: npt.NDArray[np.int32]
    """How each body is compressed; 0 if it is not."""
    alone: npt.NDArray[np.bool_]
    """Rows that must be a send of their own."""
    queue_ids: npt.NDArray[np.int32] | None
    """The queue that each row wishes, -1 if none: a queue's own number."""
    partitions: npt.NDArray[np.int32] | None
    """The same, by the place among all queues of the topic."""
    sharding: pa.Array | None
    """Rows with the same value go to the same queue."""

    def __len__(self) -> int:
        return len(self.bodies)


@dataclass(slots=True)
class Elements:
    """Rows as batch elements, one after the other in one buffer."""

    data: memoryview
    starts: npt.NDArray[np.int64]
    """Where each element begins; one more: where the last one ends."""

    def cuts(self, rows: npt.NDArray[np.int64], size_max: int) -> list[npt.NDArray[np.int64]]:
        """Returns the rows in groups of at most `size_max` bytes; a single larger row is a group of its own."""
        ends = np.cumsum(self.starts[rows + 1] - self.starts[rows])
        groups, start, done = [], 0, 0
        while start < len(rows):
            stop = max(int(np.searchsorted(ends, done + size_max, side="right")), start + 1)
            groups.append(rows[start:stop])
            start, done = stop, int(ends[stop - 1])
        return groups

    def taken(self, rows: npt.NDArray[np.int64]) -> bytes:
        """Returns the elements of these rows, which rise, as the body of a batch send."""
        edges = np.flatnonzero(np.diff(rows) != 1) + 1
        firsts = rows[np.concatenate([[0], edges])]
        lasts = rows[np.concatenate([edges - 1, [len(rows) - 1]])]
        slices = zip(self.starts[firsts].tolist(), self.starts[lasts + 1].tolist(), strict=True)
        return b"".join([self.data[start:stop] for start, stop in slices])

    def properties(self, row: int) -> str:
        """Returns the properties text of one row."""
        start, stop = int(self.starts[row]), int(self.starts[row + 1])
        body_size = int.from_bytes(self.data[start + _BODY_SIZE_AT : start + ELEMENT_FIXED - 2], "big")
        return bytes(self.data[start + ELEMENT_FIXED + body_size : stop]).decode("utf-8", "replace")


class Encoder:
    """Encodes RecordBatches of one schema."""

    def __init__(self, options: SinkOptions, columns: dict[str, str]) -> None:
        self._options = options
        self.columns = columns

    def by_topic(self, batch: pa.RecordBatch, first_row: int) -> Iterator[tuple[str, Rows]]:
        """Yields the rows of each topic, in their order; `first_row` is the number of the batch's first row."""
        numbers = np.arange(first_row, first_row + len(batch), dtype=np.int64)
        if self._options.topic:
            if len(batch):
                yield self._options.topic, self._rows(batch, numbers)
            return
        topics = self._column(batch, "topic")
        assert topics is not None
        if topics.null_count:
            raise ConfigError("column `topic` is null in a row; every message needs a topic")
        for topic in pc.unique(topics).to_pylist():
            problem = topic_name_problem(topic)
            if problem:
                raise ConfigError(f"column `topic`: {problem}")
            chosen = pc.equal(topics, topic)
            yield topic, self._rows(batch.filter(chosen), numbers[np.asarray(chosen)])

    def _column(self, batch: pa.RecordBatch, meaning: str) -> pa.Array | None:
        return batch.column(self.columns[meaning]) if meaning in self.columns else None

    def _rows(self, batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> Rows:
        bodies = self._column(batch, "body")
        assert bodies is not None
        if bodies.null_count:
            raise ConfigError("column `body` is null in a row; a message needs a body (it may be empty)")
        if not pa.types.is_binary(bodies.type):
            bodies = bodies.cast(pa.binary())
        bodies, sys_flags = self._compressed(bodies)
        flags = self._column(batch, "flag")
        delays = self._column(batch, "delay_level")
        queues, partitions = self._column(batch, "queue_id"), self._column(batch, "partition")
        delayed = None if delays is None else np.asarray(pc.fill_null(delays, 0))
        return Rows(
            numbers,
            bodies,
            self._properties(batch, delayed),
            np.zeros(len(batch), dtype=np.int32) if flags is None else np.asarray(pc.fill_null(flags, 0)),
            sys_flags,
            (sys_flags != 0) if delayed is None else (sys_flags != 0) | (delayed > 0),
            None if queues is None else np.asarray(pc.fill_null(queues, -1)),
            None if partitions is None else np.asarray(pc.fill_null(partitions, -1)),
            self._sharding(batch),
        )

    def _sharding(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Returns what decides on the queue: the sharding or order key, or in Kafka's way the key itself."""
        for meaning in ("sharding_key", "order_key"):
            if meaning in self.columns:
                return self._column(batch, meaning)
        return self._column(batch, "keys") if self._options.schema is SchemaKind.KAFKA else None

    def _compressed(self, bodies: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """Returns the bodies with the large ones compressed, and the flag bits that say so."""
        flags = np.zeros(len(bodies), dtype=np.int32)
        method = {
            Compression.ZLIB: COMPRESSION_ZLIB, Compression.LZ4: COMPRESSION_LZ4, Compression.ZSTD: COMPRESSION_ZSTD,
        }.get(self._options.compression)  # fmt: skip
        if method is None:
            return bodies, flags
        large = np.asarray(pc.binary_length(bodies)) >= max(1, self._options.compress_over)
        if not large.any():
            return bodies, flags
        packed = [compress(b.as_py(), method)[0] if big else b.as_py() for b, big in zip(bodies, large, strict=True)]
        flags[large] = COMPRESSED | method
        return pa.array(packed, type=pa.binary()), flags

    def _properties(self, batch: pa.RecordBatch, delayed: npt.NDArray[np.int32] | None) -> pa.Array:
        parts = []
        keys = self._column(batch, "keys")
        if keys is not None and keys.null_count < len(keys):
            parts += key_texts(keys)
        for name, meaning in ((TAGS, "tags"), (SHARDING_KEY, "sharding_key")):
            column = self._column(batch, meaning)
            if column is not None and column.null_count < len(column):
                parts.append(named(name, column, meaning))
        if delayed is not None and delayed.any():
            levels = pa.array(delayed, mask=delayed <= 0).cast(pa.string())
            parts.append(named(DELAY, levels, "delay_level"))
        mapped, headers = self._column(batch, "properties"), self._column(batch, "headers")
        if mapped is not None:
            parts.append(map_texts(mapped))
        if headers is not None:
            parts += header_texts(headers)
        fixed = f"{ACK_COPIES}\x01{self._options.copies}\x02".encode() if self._options.copies else b""
        texts = pc.binary_join_element_wise(pa.array([fixed] * len(batch), type=pa.binary()), *parts, b"")
        too_long = pc.max(pc.binary_length(texts)).as_py() if len(batch) else 0
        if too_long and too_long > PROPERTIES_MAX - 100:
            raise ConfigError(f"a message's properties make {too_long} bytes, the limit is {PROPERTIES_MAX - 100}")
        return texts


_HEX = np.frombuffer(b"".join(f"{byte:02x}".encode() for byte in range(256)), dtype=np.uint16)
"""The two digits of every byte."""


def keys(prefix: str, ids: Sequence[str], which: npt.NDArray[np.int64], sequences: npt.NDArray[np.int64]) -> pa.Array:
    """Returns the UNIQ_KEY property of every row: `ids[which]` and the sequence, all of the same length."""
    head = f"{UNIQUE_KEY}\x01{prefix}".encode()
    at, id_size = len(head), len(ids[0])
    count = len(sequences)
    made = np.empty((count, at + id_size + 17), dtype=np.uint8)
    made[:, :at] = np.frombuffer(head, dtype=np.uint8)
    digits = np.frombuffer("".join(ids).encode(), dtype=np.uint8).reshape(len(ids), id_size)
    made[:, at : at + id_size] = digits[which]
    made[:, at + id_size : -1] = _HEX[sequences.astype(">u8").view(np.uint8)].view(np.uint8).reshape(count, 16)
    made[:, -1] = 2
    return _fixed(made)


def _fixed(made: npt.NDArray[np.uint8]) -> pa.Array:
    """Returns the rows of a matrix of bytes as an Arrow array."""
    count, width = made.shape
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(made)]).cast(pa.binary())


def elements(rows: Rows, unique: pa.Array) -> Elements:
    """Returns all rows as batch elements; `unique` holds their UNIQ_KEY properties."""
    count = len(rows)
    body_sizes = np.asarray(pc.binary_length(rows.bodies)).astype(np.int64)
    property_sizes = np.asarray(pc.add(pc.binary_length(rows.properties), pc.binary_length(unique))).astype(np.int64)
    heads = np.zeros((count, 20), dtype=np.uint8)
    heads[:, 0:4] = _big_endian(body_sizes + property_sizes + ELEMENT_FIXED, ">u4")
    heads[:, 12:16] = _big_endian(rows.flags, ">i4")
    heads[:, 16:20] = _big_endian(body_sizes, ">u4")
    lengths = np.ascontiguousarray(_big_endian(property_sizes, ">u2"))
    joined = pc.binary_join_element_wise(_fixed(heads), rows.bodies, _fixed(lengths), unique, rows.properties, b"")
    joined = pa.concat_arrays([joined]) if joined.offset else joined
    _, offsets, data = joined.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=count + 1).astype(np.int64)
    return Elements(memoryview(data), starts)


def _big_endian(numbers: npt.NDArray[Any], kind: str) -> npt.NDArray[np.uint8]:
    """Returns the bytes of each number, a row each."""
    return np.ascontiguousarray(numbers.astype(kind)).view(np.uint8).reshape(len(numbers), -1)
