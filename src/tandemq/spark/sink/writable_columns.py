"""Which columns the sink understands, under which names and types."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from tandemq.errors import ConfigError
from tandemq.spark.columns import COLUMNS, KAFKA_COLUMNS
from tandemq.spark.options import SchemaKind, SinkOptions


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        return False
    name, value = kind.value_type
    return bool(
        name.name == "key" and value.name == "value" and pa.types.is_string(name.type) and _is_bytes(value.type)
    )


class Writable(NamedTuple):
    """One meaning that a column can have."""

    sql: str
    accepts: Callable[[pa.DataType], bool]
    aliases: tuple[str, ...] = ()


WRITABLE = {
    "topic": Writable("STRING", pa.types.is_string),
    "body": Writable("BINARY or STRING", _is_bytes, ("value",)),
    "keys": Writable("STRING or BINARY", _is_bytes, ("key",)),
    "tags": Writable("STRING", pa.types.is_string, ("tag",)),
    "properties": Writable("MAP<STRING, STRING>", pa.types.is_map),
    "headers": Writable("ARRAY<STRUCT<key: STRING, value: BINARY>>", _is_headers),
    "flag": Writable("INT", pa.types.is_int32),
    "delay_level": Writable("INT", pa.types.is_int32),
    "queue_id": Writable("INT", pa.types.is_int32),
    "partition": Writable("INT", pa.types.is_int32),
    "sharding_key": Writable("STRING", pa.types.is_string),
    "order_key": Writable("STRING", pa.types.is_string),
}
"""Meaning -> what a column with it must be."""

_MEANINGS = {name: meaning for meaning, about in WRITABLE.items() for name in (meaning, *about.aliases)}


def checked_columns(schema: Any, options: SinkOptions) -> dict[str, str]:
    """Returns meaning -> column of the data; ConfigError names what is missing or not understood."""
    found: dict[str, str] = {}
    for name in schema.names:
        meaning = _MEANINGS.get(name)
        if meaning is None:
            if name in COLUMNS or (options.schema is SchemaKind.KAFKA and name in KAFKA_COLUMNS):
                continue  # what a source adds (offsets, times, hosts) has no meaning for a new message
            raise ConfigError(f"column {name!r} can't be written; there are {', '.join(_MEANINGS)}")
        if meaning in found:
            raise ConfigError(f"columns {found[meaning]!r} and {name!r} mean the same: keep one")
        kind = schema.field(name).type
        if not WRITABLE[meaning].accepts(kind):
            raise ConfigError(f"column {name!r} has type {kind}, it must be {WRITABLE[meaning].sql}")
        found[meaning] = name
    if "body" not in found:
        raise ConfigError("the data needs a column `body` (or `value`)")
    if "queue_id" in found and "partition" in found:
        raise ConfigError("columns 'queue_id' and 'partition' both name a queue: keep one")
    if options.topic and "topic" in found:
        del found["topic"]  # the option decides, as in Spark's Kafka sink
    elif not options.topic and "topic" not in found:
        raise ConfigError("either the option `topic` or a column `topic` must say where messages go")
    return found
