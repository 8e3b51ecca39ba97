"""Rows to batch sends: Arrow columns in, the bytes of batch elements out, without a Python object per message.

An element is totalSize 4 | magic 4 | CRC 4 | flag 4 | bodyLen 4 + body | propertiesLen 2 + properties; all elements of
a RecordBatch come out of one join in one buffer, cut into sends afterwards. Delayed messages can't be in a batch
(RocketMQ refuses them) and compressed ones not either (sysFlag speaks for the whole batch): they are sent one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.codec.batch import ELEMENT_FIXED
from tandemq.codec.compression import compress
from tandemq.codec.record import PROPERTIES_MAX
from tandemq.errors import ConfigError
from tandemq.model.message import (
    ACK_COPIES,
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    DELAY,
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
)
from tandemq.spark.columns import COLUMNS
from tandemq.spark.options import Compression, SinkOptions

WRITABLE = {
    "topic": "STRING", "body": "BINARY or STRING", "value": "the same, Kafka's name", "keys": "STRING",
    "key": "the same, Kafka's name", "tags": "STRING", "tag": "the same", "properties": "MAP<STRING, STRING>",
    "flag": "INT", "delay_level": "INT", "queue_id": "INT", "sharding_key": "STRING",
}  # fmt: skip
_ALIASES = {"value": "body", "key": "keys", "tag": "tags"}
_TYPES = {
    "topic": pa.types.is_string, "body": lambda t: pa.types.is_binary(t) or pa.types.is_string(t),
    "keys": pa.types.is_string, "tags": pa.types.is_string, "properties": pa.types.is_map,
    "flag": pa.types.is_int32, "delay_level": pa.types.is_int32, "queue_id": pa.types.is_int32,
    "sharding_key": pa.types.is_string,
}  # fmt: skip

RESERVED = (
    UNIQUE_KEY, KEYS, TAGS, DELAY, SHARDING_KEY, ACK_COPIES, "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "REAL_TOPIC",
    "REAL_QID", "PGROUP", "TRAN_MSG", "__transactionId__", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "POP_CK", "1ST_POP_TIME",
    "MIN_OFFSET", "MAX_OFFSET", "__CRC32#", "TIMER_OUT_MS", "CHECK_IMMUNITY_TIME_IN_SECONDS",
)  # fmt: skip
"""Properties that columns, the client or the broker set; in a `properties` map they are left out."""


def checked_columns(schema: Any, options: SinkOptions) -> dict[str, str]:
    """Meaning -> column of the data; ConfigError names what is missing or not understood."""
    found: dict[str, str] = {}
    for name in schema.names:
        meaning = _ALIASES.get(name, name)
        if meaning not in _TYPES:
            if name in COLUMNS:
                continue  # what a source adds (offsets, times, hosts) has no meaning for a new message
            raise ConfigError(f"column {name!r} can't be written; there are {', '.join(WRITABLE)}")
        if meaning in found:
            raise ConfigError(f"columns {found[meaning]!r} and {name!r} mean the same: keep one")
        kind = schema.field(name).type
        if not _TYPES[meaning](kind):
            raise ConfigError(f"column {name!r} has type {kind}, it must be {WRITABLE[meaning]}")
        found[meaning] = name
    if "body" not in found:
        raise ConfigError("the data needs a column `body` (or `value`)")
    if options.topic and "topic" in found:
        del found["topic"]  # the option decides, as in Spark's Kafka sink
    elif not options.topic and "topic" not in found:
        raise ConfigError("either the option `topic` or a column `topic` must say where messages go")
    return found


@dataclass(slots=True)
class Rows:
    """Some rows of one topic, ready to be keyed and encoded."""

    bodies: pa.Array
    properties: pa.Array
    """BinaryArray: the properties text without UNIQ_KEY."""
    flags: npt.NDArray[np.int32]
    sys_flags: npt.NDArray[np.int32]
    """How each body is compressed; 0 if it is not."""
    alone: npt.NDArray[np.bool_]
    """Rows that must be a send of their own."""
    queue_ids: npt.NDArray[np.int32] | None
    sharding: pa.Array | None

    def __len__(self) -> int:
        return len(self.bodies)

    def between(self, start: int, stop: int) -> "Rows":
        """The rows of a range; nothing is copied."""
        part = slice(start, stop)
        return Rows(
            self.bodies[part],
            self.properties[part],
            self.flags[part],
            self.sys_flags[part],
            self.alone[part],
            None if self.queue_ids is None else self.queue_ids[part],
            None if self.sharding is None else self.sharding[part],
        )

    def taken(self, index: npt.NDArray[Any]) -> "Rows":
        """These rows, in this order."""
        at = pa.array(index)
        return Rows(
            self.bodies.take(at),
            self.properties.take(at),
            self.flags[index],
            self.sys_flags[index],
            self.alone[index],
            None if self.queue_ids is None else self.queue_ids[index],
            None if self.sharding is None else self.sharding.take(at),
        )


class Encoder:
    """Encodes RecordBatches of one schema."""

    def __init__(self, options: SinkOptions, columns: dict[str, str]) -> None:
        self._options = options
        self.columns = columns

    def by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        """The rows of each topic, in their order."""
        if self._options.topic:
            if len(batch):
                yield self._options.topic, self._rows(batch)
            return
        topics = self._column(batch, "topic")
        assert topics is not None
        if topics.null_count:
            raise ConfigError("column `topic` is null in a row; every message needs a topic")
        for topic in pc.unique(topics).to_pylist():
            yield topic, self._rows(batch.filter(pc.equal(topics, topic)))

    def _column(self, batch: pa.RecordBatch, meaning: str) -> pa.Array | None:
        return batch.column(self.columns[meaning]) if meaning in self.columns else None

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        bodies = self._column(batch, "body")
        assert bodies is not None
        if bodies.null_count:
            raise ConfigError("column `body` is null in a row; a message needs a body (it may be empty)")
        if not pa.types.is_binary(bodies.type):
            bodies = bodies.cast(pa.binary())
        bodies, sys_flags = self._compressed(bodies)
        flags = self._column(batch, "flag")
        delays = self._column(batch, "delay_level")
        queues = self._column(batch, "queue_id")
        delayed = None if delays is None else np.asarray(pc.fill_null(delays, 0))
        return Rows(
            bodies,
            self._properties(batch, delayed),
            np.zeros(len(batch), dtype=np.int32) if flags is None else np.asarray(pc.fill_null(flags, 0)),
            sys_flags,
            (sys_flags != 0) if delayed is None else (sys_flags != 0) | (delayed > 0),
            None if queues is None else np.asarray(pc.fill_null(queues, -1)),
            self._column(batch, "sharding_key"),
        )

    def _compressed(self, bodies: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """The bodies with the large ones compressed, and the flag bits that say so."""
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
        for name, meaning in ((KEYS, "keys"), (TAGS, "tags"), (SHARDING_KEY, "sharding_key")):
            column = self._column(batch, meaning)
            if column is not None and column.null_count < len(column):
                parts.append(_named(name, column))
        if delayed is not None and delayed.any():
            levels = pa.array(delayed, mask=delayed <= 0).cast(pa.string())
            parts.append(_named(DELAY, levels))
        mapped = self._column(batch, "properties")
        if mapped is not None:
            parts.append(_map_texts(mapped))
        fixed = f"{ACK_COPIES}\x01{self._options.copies}\x02".encode() if self._options.copies else b""
        texts = pc.binary_join_element_wise(pa.array([fixed] * len(batch), type=pa.binary()), *parts, b"")
        too_long = pc.max(pc.binary_length(texts)).as_py() if len(batch) else 0
        if too_long and too_long > PROPERTIES_MAX - 100:
            raise ConfigError(f"a message's properties make {too_long} bytes, the limit is {PROPERTIES_MAX - 100}")
        return texts


def _named(name: str, values: pa.Array) -> pa.Array:
    """`name 0x01 value 0x02` per row, nothing where the value is null or empty."""
    texts = values.cast(pa.binary())
    made = pc.binary_join_element_wise(f"{name}\x01".encode(), texts, b"\x02", b"")
    empty = pc.equal(pc.binary_length(texts), 0)
    return pc.if_else(pc.fill_null(empty, True), pa.scalar(b"", pa.binary()), pc.fill_null(made, b""))


def _map_texts(column: pa.Array) -> pa.Array:
    """The property text of each row's map, without reserved names and null values."""
    column = pa.concat_arrays([column])  # own offsets: a slice's would start anywhere
    names, values = column.keys, column.items
    keep = pc.and_(pc.invert(pc.is_in(names, value_set=pa.array(RESERVED))), pc.is_valid(values))
    keep = pc.and_(keep, pc.fill_null(pc.greater(pc.binary_length(values), 0), False))
    counts = np.concatenate([[0], np.cumsum(np.asarray(keep, dtype=np.int64))])
    offsets = np.asarray(column.offsets)
    names, values = names.filter(keep).cast(pa.binary()), values.filter(keep).cast(pa.binary())
    pairs = pc.binary_join_element_wise(names, values, b"\x01")
    pairs = pa.concat_arrays([pc.binary_join_element_wise(pairs, b"", b"\x02")])
    _, starts, data = pairs.buffers()
    ends = np.frombuffer(starts, dtype=np.int32, count=len(pairs) + 1) if len(pairs) else np.zeros(1, dtype=np.int32)
    rows = ends[counts[offsets - offsets[0]]].astype(np.int32)
    if data is None:
        data = pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(rows), data])


_HEX = np.frombuffer(b"".join(f"{byte:02x}".encode() for byte in range(256)), dtype=np.uint16)
"""The two digits of every byte."""


def keyed(rows: Rows, producer: str, prefix: str, first_sequence: int) -> pa.Array:
    """The properties texts with UNIQ_KEY in front: consecutive sequence numbers of one producer."""
    count = len(rows)
    numbers = np.arange(first_sequence, first_sequence + count, dtype=">u8")
    digits = _HEX[numbers.view(np.uint8)]
    sequence = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(digits)]).cast(pa.binary())
    head = f"{UNIQUE_KEY}\x01{prefix}{producer}".encode()
    return pc.binary_join_element_wise(pa.scalar(head, pa.binary()), sequence, b"\x02", rows.properties, b"")


def elements(rows: Rows, properties: pa.Array) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """All rows as batch elements in one buffer, and where each begins (one more: the end)."""
    count = len(rows)
    body_sizes = np.asarray(pc.binary_length(rows.bodies)).astype(np.int64)
    property_sizes = np.asarray(pc.binary_length(properties)).astype(np.int64)
    heads = np.zeros((count, 20), dtype=np.uint8)
    total = (body_sizes + property_sizes + ELEMENT_FIXED).astype(">u4")
    heads[:, 0:4] = total.view(np.uint8).reshape(count, 4)
    heads[:, 12:16] = rows.flags.astype(">i4").view(np.uint8).reshape(count, 4)
    heads[:, 16:20] = body_sizes.astype(">u4").view(np.uint8).reshape(count, 4)
    tails = property_sizes.astype(">u2").view(np.uint8).reshape(count, 2)
    joined = pc.binary_join_element_wise(
        pa.Array.from_buffers(pa.binary(20), count, [None, pa.py_buffer(np.ascontiguousarray(heads))]).cast(
            pa.binary()
        ),
        rows.bodies,
        pa.Array.from_buffers(pa.binary(2), count, [None, pa.py_buffer(np.ascontiguousarray(tails))]).cast(pa.binary()),
        properties,
        b"",
    )
    joined = pa.concat_arrays([joined]) if joined.offset else joined
    _, offsets, data = joined.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=count + 1).astype(np.int64)
    return memoryview(data), starts


def cuts(starts: npt.NDArray[np.int64], size_max: int) -> list[tuple[int, int]]:
    """Row ranges whose elements make at most `size_max` bytes (a single larger row goes alone)."""
    ranges, row, count = [], 0, len(starts) - 1
    while row < count:
        stop = int(np.searchsorted(starts, starts[row] + size_max, side="right")) - 1
        stop = min(count, max(stop, row + 1))
        ranges.append((row, stop))
        row = stop
    return ranges
