"""Records to Arrow: the one decoder of files and pulls. Only the columns of the wanted schema are built.

`Decoder.decode` takes a buffer and the positions of records in it and yields RecordBatches. Damage is an error that
names the place; in permissive mode the damaged record is left out, counted, and reported in the `_corrupt_record`
column if the schema has it.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.errors import CorruptRecord
from tandemq.formats.compression import decompress
from tandemq.formats.crc import crc32
from tandemq.formats.record import (
    BORN_HOST_AT,
    CRC_AT,
    CRC_MASK,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    PREPARED_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    SIZE_AT,
    STORE_HOST_AT,
    SYS_FLAG_AT,
)
from tandemq.formats.record_starts import Positions
from tandemq.model.message import COMPRESSED, KEYS, TAGS, UNIQUE_KEY, offset_message_id
from tandemq.spark.columns import CORRUPT, HEADERS
from tandemq.spark.source.arrow_arrays import bools_in, numbers_in, of_bools, of_numbers, of_texts, repeated
from tandemq.spark.source.kafka_columns import LOG_APPEND_TIME, kafka_headers, kafka_keys
from tandemq.spark.source.property_columns import PropertyTexts
from tandemq.spark.source.record_columns import ArrowFields

_INFLATED_BYTES_MAX = 32 << 20
"""Decompressed bytes after which a batch is handed over: memory follows this, not the compression ratio."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages: everything that is empty or None lets all pass."""

    topics: frozenset[str] = frozenset()
    excluded_topic: Callable[[str], bool] | None = None
    """Asked once per distinct topic of a batch, when `topics` is empty."""
    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None

    @property
    def by_properties(self) -> bool:
        return bool(self.tags or self.keys)


@dataclass(slots=True)
class Damage:
    """What permissive reading left out."""

    count: int = 0
    size: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, text: str, size: int) -> None:
        self.count += 1
        self.size += size
        if len(self.examples) < 10:
            self.examples.append(text)


class Decoder:
    """Decodes with one schema, one filter and one policy for damage; reused for all batches of a partition."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        broker: str = "",
        partition_bases: Mapping[str, int] | None = None,
        wanted: Wanted | None = None,
        permissive: bool = False,
        verify_crc: bool = False,
        place: Callable[[int], str] = lambda position: f"position {position}",
    ) -> None:
        """`place` names a position of the current buffer for people: file and offset.

        `partition_bases`: topic -> number of its first partition on this broker, where that is not 0.
        """
        self.schema = schema
        self.broker = broker
        self._partition_bases = partition_bases or {}
        self.wanted = wanted or Wanted()
        self.permissive = permissive
        self.verify_crc = verify_crc
        self.place = place
        self.damage = Damage()
        self._reported: list[tuple[int, str]] = []
        self._hosts: dict[bytes, str] = {}

    def report(self, physical_offset: int, text: str, size: int) -> None:
        """Reports a damaged place: raises an error, or takes a note when permissive."""
        if not self.permissive:
            raise CorruptRecord(f"{text}; mode=permissive skips and counts damaged records")
        self.damage.add(text, size)
        if CORRUPT in self.schema.names:
            self._reported.append((physical_offset, text))

    def decode(self, buffer: Any, positions: Positions, base: int | None = None) -> Iterator[pa.RecordBatch]:
        """Returns the wanted records among those at `positions` (ascending; each ends inside the buffer).

        `base`: physical offset of the buffer in the log; then each record must carry its own place.
        """
        fields = self._sound(ArrowFields(buffer, positions), base)
        fields, topics = self._selected(fields)
        texts = self._texts(fields) if self._needs_texts() else None
        if texts is not None and self.wanted.by_properties:
            keep = self._matching(texts)
            if not keep.all():
                fields, topics = fields.selected(keep), topics.filter(of_bools(keep)) if topics is not None else None
                texts = self._texts(fields)
        if len(fields):
            yield from self._batches(fields, topics, texts)

    def leftovers(self) -> Iterator[pa.RecordBatch]:
        """Returns rows for the damage met so far (when the schema has the column for it)."""
        if self._reported:
            reported, self._reported = self._reported, []
            values: dict[str, pa.Array] = {
                "physical_offset": pa.array([offset for offset, _ in reported], type=pa.int64()),
                "broker": pa.array([self.broker] * len(reported), type=pa.string()),
                CORRUPT: pa.array([text for _, text in reported], type=pa.string()),
            }
            arrays = [values.get(f.name, pa.nulls(len(reported), f.type)) for f in self.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # -- which records -----------------------------------------------------------------------------------

    def _sound(self, fields: ArrowFields, base: int | None) -> ArrowFields:
        while problems := fields.broken():
            fields = self._without(fields, problems, base)
        if base is not None:
            stated = fields.int64(PHYSICAL_OFFSET_AT)
            wrong = np.flatnonzero(stated != fields.positions + base)
            if len(wrong):
                fields = self._without(
                    fields, {i: f"it says it lies at physical offset {stated[i]}" for i in wrong.tolist()}, base
                )
        if self.verify_crc:
            bad = [i for i, good in enumerate(_crc_good(fields)) if not good]
            if bad:
                fields = self._without(fields, dict.fromkeys(bad, "its body does not match its CRC-32"), base)
        return fields

    def _without(self, fields: ArrowFields, problems: dict[int, str], base: int | None) -> ArrowFields:
        for index, problem in problems.items():
            position = int(fields.positions[index])
            offset = (base or 0) + position
            self.report(offset, f"{self.place(position)}: damaged record: {problem}", int(fields.size[index]))
        keep = np.ones(len(fields), dtype=bool)
        keep[list(problems)] = False
        return fields.selected(keep)

    def _selected(self, fields: ArrowFields) -> tuple[ArrowFields, pa.Array | None]:
        """Returns the records in the wanted time range and topics.

        The topics as a dictionary column if they were read.
        """
        wanted = self.wanted
        if wanted.stored_from_ms is not None or wanted.stored_before_ms is not None:
            stored = fields.store_timestamp()
            keep = np.ones(len(fields), dtype=bool)
            if wanted.stored_from_ms is not None:
                keep &= stored >= wanted.stored_from_ms
            if wanted.stored_before_ms is not None:
                keep &= stored < wanted.stored_before_ms
            if not keep.all():
                fields = fields.selected(keep)
        needs_topics = "topic" in self.schema.names or (self._partition_bases and "partition" in self.schema.names)
        if not (wanted.topics or wanted.excluded_topic or needs_topics):
            return fields, None
        only = fields.only_topic
        if only is not None:
            name = _text(only)
            if not self._topic_allowed(name):
                fields = fields.selected(np.zeros(len(fields), dtype=bool))
            return fields, repeated(name, len(fields))
        topics = fields.topic_column()
        names = [_text(name) for name in topics.dictionary.to_pylist()]
        allowed = np.array([self._topic_allowed(name) for name in names], dtype=bool)
        indices = numbers_in(topics.indices)
        if not allowed.all():
            keep = allowed[indices]
            fields, indices = fields.selected(keep), indices[keep]
        return fields, _from_dictionary(names, of_numbers(indices))

    def _topic_allowed(self, name: str) -> bool:
        if self.wanted.topics:
            return name in self.wanted.topics
        return self.wanted.excluded_topic is None or not self.wanted.excluded_topic(name)

    def _matching(self, texts: PropertyTexts) -> npt.NDArray[np.bool_]:
        keep = np.ones(texts.count, dtype=bool)
        if self.wanted.tags:
            options = of_texts(sorted(self.wanted.tags))
            keep &= bools_in(pc.is_in(texts.value_of(TAGS), value_set=options))
        if self.wanted.keys:
            keys = texts.value_of(KEYS).dictionary_encode()
            hit = [bool(self.wanted.keys.intersection(key.split())) for key in keys.dictionary.to_pylist()]
            hits = np.array([*hit, False])
            none = of_numbers(np.array([len(hit)], dtype=np.int32))[0]
            keep &= hits[numbers_in(pc.fill_null(keys.indices, none))]
        return keep

    # -- columns -----------------------------------------------------------------------------------------

    def _needs_texts(self) -> bool:
        return self.wanted.by_properties or not _OF_PROPERTIES.isdisjoint(self.schema.names)

    def _texts(self, fields: ArrowFields) -> PropertyTexts:
        return PropertyTexts(fields.property_texts())

    def _batches(
        self, fields: ArrowFields, topics: pa.Array | None, texts: PropertyTexts | None
    ) -> Iterator[pa.RecordBatch]:
        columns = {f.name: self._column(f, fields, topics, texts) for f in self.schema if f.name not in _BODIES}
        if len(columns) == len(self.schema):
            yield self._assemble(columns, 0, len(fields), None)
            return
        for start, stop, bodies in self._bodies(fields):
            yield self._assemble(columns, start, stop, bodies)

    def _assemble(self, columns: dict[str, pa.Array], start: int, stop: int, bodies: pa.Array | None) -> pa.RecordBatch:
        arrays = []
        for f in self.schema:
            if f.name in _BODIES:
                arrays.append(bodies if f.type == pa.binary() else _as_text(bodies))
            else:
                arrays.append(columns[f.name].slice(start, stop - start))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(
        self, f: pa.Field, fields: ArrowFields, topics: pa.Array | None, texts: PropertyTexts | None
    ) -> pa.Array:
        name = f.name
        if name in _INT32:
            return of_numbers(fields.int32(_INT32[name]))
        if name in _INT64:
            return of_numbers(fields.int64(_INT64[name]))
        if name in _TEXT_PROPERTIES:
            assert texts is not None
            return texts.value_of(_TEXT_PROPERTIES[name])
        if name == "topic":
            return topics
        if name == "partition":
            return self._partitions(fields, topics)
        if name == "broker":
            return repeated(self.broker, len(fields))
        if name == "properties":
            assert texts is not None
            return texts.as_map(f.type)
        return self._rarer_column(f, fields, texts)

    def _rarer_column(self, f: pa.Field, fields: ArrowFields, texts: PropertyTexts | None) -> pa.Array:
        name = f.name
        if name == "key":
            assert texts is not None
            return kafka_keys(texts)
        if name == HEADERS:
            assert texts is not None
            return kafka_headers(texts, f.type)
        if name == "timestampType":
            return of_numbers(np.full(len(fields), LOG_APPEND_TIME, dtype=np.int32))
        if name in ("born_timestamp", "store_timestamp", "timestamp"):
            milliseconds = fields.born_timestamp() if name == "born_timestamp" else fields.store_timestamp()
            return of_numbers(milliseconds * 1000).view(f.type)
        if name in ("born_host", "store_host"):
            return self._host_column(fields, name.removesuffix("_host"))
        if name == "msg_id":
            assert texts is not None
            return self._message_ids(fields, texts)
        if name == "properties_raw":
            return fields.property_texts()
        if name == "reconsume_times":
            return of_numbers(fields.int32(RECONSUME_TIMES_AT, fields.store_shift))
        if name == "prepared_transaction_offset":
            return of_numbers(fields.int64(PREPARED_OFFSET_AT, fields.store_shift))
        if name == "body_size":
            return of_numbers(fields.body_size)
        return pa.nulls(len(fields), f.type)

    def _partitions(self, fields: ArrowFields, topics: pa.Array | None) -> pa.Array:
        queues = fields.int32(QUEUE_ID_AT)
        if not self._partition_bases:
            return of_numbers(queues)
        assert topics is not None
        encoded = topics.dictionary_encode()
        bases = [self._partition_bases.get(topic, 0) for topic in encoded.dictionary.to_pylist()]
        return of_numbers(queues + np.array(bases, dtype=np.int32)[numbers_in(encoded.indices)])

    def _host_column(self, fields: ArrowFields, which: str) -> pa.Array:
        at, is_v6 = fields.hosts(which)
        if is_v6.any() or isinstance(fields.born_shift, np.ndarray):
            encoded = fields.gather(at, np.where(is_v6, 20, 8)).dictionary_encode()
            hosts = encoded.dictionary.to_pylist()
        else:
            numbers = fields.int64(BORN_HOST_AT if which == "born" else STORE_HOST_AT)
            if len(numbers) and (numbers == numbers[0]).all():
                host = self._host_text(int(numbers[0]).to_bytes(8, "big", signed=True))
                return repeated(host, len(numbers))
            encoded = of_numbers(numbers).dictionary_encode()
            hosts = [host.to_bytes(8, "big", signed=True) for host in encoded.dictionary.to_pylist()]
        return _from_dictionary([self._host_text(host) for host in hosts], encoded.indices)

    def _host_text(self, host: bytes) -> str:
        known = self._hosts.get(host)
        if known is None:
            if len(self._hosts) > 100_000:
                self._hosts.clear()
            address = ipaddress.ip_address(host[:-4])
            port = int.from_bytes(host[-4:], "big")
            known = self._hosts[host] = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        return known

    def _message_ids(self, fields: ArrowFields, texts: PropertyTexts) -> pa.Array:
        unique = texts.value_of(UNIQUE_KEY)
        if not unique.null_count:
            return unique
        missing = np.flatnonzero(bools_in(unique.is_null()))
        lacking = fields.selected(missing)
        at, is_v6 = lacking.hosts("store")
        hosts = lacking.gather(at, np.where(is_v6, 20, 8)).to_pylist()
        offsets = lacking.int64(PHYSICAL_OFFSET_AT).tolist()
        made = of_texts([offset_message_id(h, o) for h, o in zip(hosts, offsets, strict=True)])
        return _overlaid(unique, missing, made)

    def _bodies(self, fields: ArrowFields) -> Iterator[tuple[int, int, pa.Array]]:
        """Yields (start, stop, bodies) of runs of rows.

        One run, or several when decompressed bodies would grow too much.
        """
        bodies = fields.gather(fields.body_at, fields.body_size)
        packed = np.flatnonzero(fields.sys_flag & COMPRESSED)
        if not len(packed):
            yield 0, len(fields), bodies
            return
        start, size = 0, 0
        rows: list[int] = []
        inflated: list[bytes | None] = []
        for row in packed.tolist():
            body = self._inflated(fields, row, bodies[row].as_buffer())
            rows.append(row)
            inflated.append(body)
            size += len(body or b"")
            if size > _INFLATED_BYTES_MAX:
                yield start, row + 1, _run(bodies, start, row + 1, rows, inflated)
                start, size, rows, inflated = row + 1, 0, [], []
        if start < len(fields):
            yield start, len(fields), _run(bodies, start, len(fields), rows, inflated)

    def _inflated(self, fields: ArrowFields, row: int, body: Any) -> bytes | None:
        try:
            return decompress(memoryview(body), int(fields.sys_flag[row]))
        except CorruptRecord as error:
            position = int(fields.positions[row])
            offset = int(fields.int64(PHYSICAL_OFFSET_AT)[row])
            self.report(offset, f"{self.place(position)}: {error}", int(fields.size[row]))
            return None


_INT32 = {"queue_id": QUEUE_ID_AT, "flag": FLAG_AT, "sys_flag": SYS_FLAG_AT, "body_crc": CRC_AT, "record_size": SIZE_AT}
_INT64 = {"queue_offset": QUEUE_OFFSET_AT, "offset": QUEUE_OFFSET_AT, "physical_offset": PHYSICAL_OFFSET_AT}
_BODIES = ("body", "value")
_OF_PROPERTIES = {"properties", "keys", "tags", "msg_id", "key", HEADERS}
_TEXT_PROPERTIES = {"keys": KEYS, "tags": TAGS}


def _run(bodies: pa.Array, start: int, stop: int, rows: list[int], inflated: list[bytes | None]) -> pa.Array:
    part = bodies.slice(start, stop - start)
    return _overlaid(part, np.array(rows, dtype=np.int64) - start, pa.array(inflated, type=pa.binary()))


def _overlaid(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """Returns the column with some rows replaced."""
    index = np.arange(len(column))
    index[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(of_numbers(index))


def _from_dictionary(names: list[str], indices: pa.Array) -> pa.Array:
    """Returns the column with these distinct values; most batches have one."""
    if len(names) == 1:
        return repeated(names[0], len(indices))
    return of_texts(names).take(indices)


def _crc_good(fields: ArrowFields) -> Iterator[bool]:
    view = memoryview(fields.buffer)
    stored = fields.int32(CRC_AT).tolist()
    for at, size, crc in zip(fields.body_at.tolist(), fields.body_size.tolist(), stored, strict=True):
        yield size == 0 or crc32(view[at : at + size]) & CRC_MASK == crc


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _as_text(bodies: pa.Array) -> pa.Array:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if body is None else _text(body) for body in bodies.to_pylist()]
        return pa.array(texts, type=pa.string())
