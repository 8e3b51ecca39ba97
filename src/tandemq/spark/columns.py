"""The columns of a message in Spark, ours and those of Kafka's source: names, types, meaning; the check of a schema.

Spark prunes no columns of a Python source by itself, so every reader takes a schema and the decoder builds nothing
else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tandemq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

CORRUPT = "_corrupt_record"
"""With mode=permissive and this column in the schema, damage becomes a row that says what and where."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())

COLUMNS: dict[str, tuple[str, pa.DataType, str]] = {
    "topic": (
        "STRING",
        pa.string(),
        "The topic as stored: a delayed message is under SCHEDULE_TOPIC_XXXX until it is due.",
    ),
    "broker": ("STRING", pa.string(), "Name of the broker group; for files, the store's label (option `brokerName`)."),
    "queue_id": ("INT", pa.int32(), "The queue of the topic on its broker."),
    "queue_offset": ("BIGINT", pa.int64(), "Index of the message in its queue."),
    "physical_offset": ("BIGINT", pa.int64(), "Byte position in the commit log of its broker group."),
    "born_timestamp": ("TIMESTAMP", _TIMESTAMP, "When the producer made it (its clock)."),
    "store_timestamp": ("TIMESTAMP", _TIMESTAMP, "When the broker stored it (its clock)."),
    "born_host": ("STRING", pa.string(), "The producer, ip:port."),
    "store_host": ("STRING", pa.string(), "The broker that stored it, ip:port."),
    "flag": ("INT", pa.int32(), "The user's flag."),
    "sys_flag": ("INT", pa.int32(), "RocketMQ's flag bits: compression, transaction type, IPv6."),
    "reconsume_times": ("INT", pa.int32(), "How often it was sent back for another try."),
    "body_crc": ("INT", pa.int32(), "CRC-32 of the stored body, without its highest bit."),
    "keys": ("STRING", pa.string(), "KEYS: the keys it can be found by, separated by spaces; null if none."),
    "tags": ("STRING", pa.string(), "TAGS: null if none."),
    "msg_id": ("STRING", pa.string(), "The producer's unique id (UNIQ_KEY), else the broker's offset id."),
    "properties": (
        "MAP<STRING, STRING>",
        _MAP,
        "All properties. The dearest column: leave it out if you don't need it.",
    ),
    "body": ("BINARY", pa.binary(), "The body, decompressed."),
    "properties_raw": ("BINARY", pa.binary(), "The properties text as stored."),
    "prepared_transaction_offset": ("BIGINT", pa.int64(), "Of a committed transaction: where its half message lies."),
    "record_size": ("INT", pa.int32(), "Bytes of the record in the log."),
    "body_size": ("INT", pa.int32(), "Bytes of the body as stored, without reading it."),
    CORRUPT: ("STRING", pa.string(), "mode=permissive: what is wrong with a damaged place; null for a good message."),
}
"""column -> (Spark SQL type, Arrow type, meaning), in the order of the default schema."""

HEADERS = "headers"
KAFKA_COLUMNS: dict[str, tuple[str, pa.DataType, str]] = {
    "key": ("BINARY", pa.binary(), "KEYS as bytes; null if none."),
    "value": ("BINARY", pa.binary(), "The body, decompressed."),
    "topic": ("STRING", pa.string(), "The topic."),
    "partition": (
        "INT",
        pa.int32(),
        "The queue. Where a topic has several broker groups, their queues are numbered on in the order of their names.",
    ),
    "offset": ("BIGINT", pa.int64(), "Index of the message in its queue."),
    "timestamp": ("TIMESTAMP", _TIMESTAMP, "When the broker stored it."),
    "timestampType": ("INT", pa.int32(), "Always 1: the time of the log."),
    HEADERS: (
        "ARRAY<STRUCT<key: STRING, value: BINARY>>",
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "The user's properties; null if none.",
    ),
}
"""The columns of `schema=kafka`, in Kafka's order."""

_MAYBE_NULL = {"keys", "tags", CORRUPT, "key", HEADERS}
"""All others have a value in every whole message. Spark is told so: it checks no row for a null that can't be there,
which takes a tenth of its time in a scan."""

_ON_DEMAND = {"properties_raw", "prepared_transaction_offset", "record_size", "body_size", CORRUPT}

DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name not in _ON_DEMAND)


def ddl(names: tuple[str, ...] | list[str]) -> str:
    """Returns the schema of these columns as Spark's DDL text; any may be null."""
    return ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in names)


def spark_schema(
    names: tuple[str, ...], columns: Mapping[str, tuple[str, pa.DataType, str]] = COLUMNS, *, may_be_damaged: bool
) -> "StructType":
    """Returns the schema that says of all that can't be null that it isn't; a damaged record may lack any column."""
    from pyspark.sql import types

    return types.StructType(
        [types.StructField(name, _spark_type(columns[name][0]), _nullable(name, may_be_damaged)) for name in names]
    )


def _spark_type(sql: str) -> "DataType":
    from pyspark.sql import types

    simple = {
        "STRING": types.StringType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "TIMESTAMP": types.TimestampType(),
        "BINARY": types.BinaryType(),
        "MAP<STRING, STRING>": types.MapType(types.StringType(), types.StringType(), valueContainsNull=False),
    }
    if sql in simple:
        return simple[sql]
    header = [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    return types.ArrayType(types.StructType(header))


def _nullable(name: str, may_be_damaged: bool) -> bool:
    return may_be_damaged or name in _MAYBE_NULL


def default_arrow_schema(names: tuple[str, ...] | list[str] = DEFAULT_COLUMNS) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def arrow_schema(
    spark_schema: Any, columns: Mapping[str, tuple[str, pa.DataType, str]] = COLUMNS, *, may_be_damaged: bool
) -> pa.Schema:
    """Returns what the decoder must build for a Spark schema; ConfigError names the column that can't be had so."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(spark_schema, timezone="UTC")
    for field in schema:
        if field.name not in columns:
            raise ConfigError(f"column {field.name!r}: no message has it; choose from {', '.join(columns)}")
        if not field.nullable and _nullable(field.name, may_be_damaged):
            raise ConfigError(f"column {field.name!r}: the schema says NOT NULL, but it may be null here")
        sql_type, wanted, _ = columns[field.name]
        is_text_body = field.name in ("body", "value") and field.type == pa.string()
        if not is_text_body and not _same(field.type, wanted):
            raise ConfigError(
                f"column {field.name!r}: the schema says {field.type}, it is {sql_type}"
                + (" (or STRING for text bodies)" if field.name in ("body", "value") else "")
            )
    return schema


def _same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether two types differ at most in names of inner fields and in what may be null inside."""
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return bool(given.key_type == wanted.key_type and given.item_type == wanted.item_type)
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        inner, expected = given.value_type, wanted.value_type
        return bool(
            pa.types.is_struct(inner) and [(f.name, f.type) for f in inner] == [(f.name, f.type) for f in expected]
        )
    return bool(given == wanted)
