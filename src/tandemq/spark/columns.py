"""The columns of a message in Spark: names, types, which are read by default; the check of a user's schema.

A user schema is the only way to tell a Python source which columns are wanted (Spark prunes none itself), so every
reader takes one and the decoder builds nothing else.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tandemq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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

_MAYBE_NULL = {"keys", "tags", CORRUPT}
"""All others have a value in every whole message. Spark is told so: it looks at no row for a null that can't be there,
a tenth of its time in a scan."""

_ON_DEMAND = {"properties_raw", "prepared_transaction_offset", "record_size", "body_size", CORRUPT}

DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name not in _ON_DEMAND)


def ddl(names: tuple[str, ...] | list[str]) -> str:
    """The schema of these columns as Spark's DDL text; any may be null."""
    return ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in names)


def spark_schema(names: tuple[str, ...], *, may_be_damaged: bool) -> "StructType":
    """The schema that says of all that can't be null that it isn't; a damaged record may lack any column."""
    from pyspark.sql import types

    of = {
        "STRING": types.StringType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "TIMESTAMP": types.TimestampType(),
        "BINARY": types.BinaryType(),
        "MAP<STRING, STRING>": types.MapType(types.StringType(), types.StringType(), valueContainsNull=False),
    }
    return types.StructType(
        [types.StructField(name, of[COLUMNS[name][0]], _nullable(name, may_be_damaged)) for name in names]
    )


def _nullable(name: str, may_be_damaged: bool) -> bool:
    return may_be_damaged or name in _MAYBE_NULL


def default_arrow_schema(names: tuple[str, ...] | list[str] = DEFAULT_COLUMNS) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def arrow_schema(spark_schema: Any, *, may_be_damaged: bool) -> pa.Schema:
    """What the decoder must build for a Spark schema; ConfigError names the column that can't be had so."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(spark_schema, timezone="UTC")
    for field in schema:
        check_name(field.name)
        if not field.nullable and _nullable(field.name, may_be_damaged):
            raise ConfigError(f"column {field.name!r}: the schema says NOT NULL, but it may be null here")
        sql_type, wanted, _ = COLUMNS[field.name]
        text_body = field.name == "body" and field.type == pa.string()
        if field.type != wanted and not text_body and not _same_map(field.type, wanted):
            raise ConfigError(
                f"column {field.name!r}: the schema says {field.type}, it is {sql_type}"
                + (" (or STRING for text bodies)" if field.name == "body" else "")
            )
    return schema


def check_name(name: str) -> None:
    """ConfigError for a column that no message has."""
    if name not in COLUMNS:
        raise ConfigError(f"column {name!r}: no message has it; choose from {', '.join(COLUMNS)}")


def _same_map(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Maps that differ only in whether values may be null."""
    return bool(
        pa.types.is_map(given)
        and pa.types.is_map(wanted)
        and given.key_type == wanted.key_type
        and given.item_type == wanted.item_type
    )
