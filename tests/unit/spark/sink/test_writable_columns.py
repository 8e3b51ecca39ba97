"""Columns are understood by name and type, before anything is sent."""

from typing import Any

import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.writable_columns import checked_columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def options(**given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": "n:1", "topic": "t", **given})


def test_kafkas_names_mean_ours() -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("partition", pa.int32())])
    assert checked_columns(schema, options()) == {
        "keys": "key", "body": "value", "headers": "headers", "partition": "partition",
    }  # fmt: skip


def test_what_a_kafka_source_adds_is_ignored_in_its_schema_only() -> None:
    schema = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("timestampType", pa.int32())])
    assert checked_columns(schema, options(schema="kafka")) == {"body": "value"}
    with pytest.raises(ConfigError, match="'offset' can't be written"):
        checked_columns(schema, options())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": pa.binary(), "headers": pa.list_(pa.string())}, "'headers' has type"),
        ({"body": pa.binary(), "queue_id": pa.int32(), "partition": pa.int32()}, "both name a queue"),
        ({"body": pa.binary(), "key": pa.int64()}, "it must be STRING or BINARY"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_columns(pa.schema(list(columns.items())), options())
