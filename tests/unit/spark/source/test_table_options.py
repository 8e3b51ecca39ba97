"""A table's options travel in its schema, because Spark hands them to no reader."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tandemq.errors import ConfigError
from tandemq.spark.source import table_options


def schema() -> StructType:
    return StructType([StructField("topic", StringType()), StructField("keys", StringType())])


CREATED = {
    "provider": "rocketmq", "owner": "me", "option.nameserver": "n:1", "nameserver": "n:1", "option.subscribe": "t",
    "subscribe": "t", "comment": "our orders",
}  # fmt: skip


def test_only_a_catalog_creates_tables() -> None:
    assert table_options.of_created_table({"nameserver": "n:1"}) is None
    assert table_options.of_created_table(CREATED) == {"nameserver": "n:1", "subscribe": "t"}
    located = {"provider": "x", "path": "file:/data", "location": "file:/data"}
    assert table_options.of_created_table(located) == {"path": "file:/data"}


def test_options_come_back_out_of_the_schema_without_secrets() -> None:
    stored = table_options.with_options(schema(), {"nameserver": "n:1", "subscribe": "t", "secretKey": "hush"})
    assert "hush" not in stored.json()
    assert table_options.merged(stored, {}, "nameserver") == {"nameserver": "n:1", "subscribe": "t"}
    assert table_options.merged(stored, {"Tags": "a"}, "nameserver")["tags"] == "a"


def test_a_read_with_options_of_its_own_is_not_a_read_of_the_table() -> None:
    stored = table_options.with_options(schema(), {"nameserver": "n:1", "subscribe": "t"})
    given = {"NameServer": "other:1", "assign": '{"t": [0]}'}
    assert table_options.merged(stored, given, "nameserver") == given
    assert table_options.merged(schema(), {"x": "y"}, "nameserver") == {"x": "y"}


def test_a_table_that_is_written_to_is_read_by_its_topic() -> None:
    both = {"nameserver": "n:1", "topic": "t", "copies": "2", "columns": "body"}
    assert table_options.for_reading(both) == {"nameserver": "n:1", "columns": "body", "subscribe": "t"}
    assert table_options.for_reading({"nameserver": "n:1", "topic": "t", "assign": "x"})["assign"] == "x"
    with pytest.raises(ConfigError, match="'colour': neither the source nor the sink"):
        table_options.for_reading({"topic": "t", "colour": "red"})


def test_a_write_takes_the_sinks_share_of_a_tables_options() -> None:
    """The metadata of a table's columns is all that Spark hands to a sink."""
    stored = table_options.with_options(schema(), {"nameserver": "n:1", "topic": "t", "columns": "body", "copies": "2"})
    assert table_options.for_writing(stored, {}) == {"nameserver": "n:1", "topic": "t", "copies": "2"}
    assert table_options.for_writing(stored, {"Copies": "1"})["copies"] == "1"
    assert table_options.for_writing(stored, {"colour": "red"})["colour"] == "red"  # told by name later
    elsewhere = {"nameserver": "m:1", "topic": "u"}
    assert table_options.for_writing(stored, elsewhere) == elsewhere
    read = table_options.with_options(schema(), {"nameserver": "n:1", "subscribe": "t"})
    with pytest.raises(ConfigError, match="made for reading"):
        table_options.for_writing(read, {})


def test_what_an_insert_need_not_give_may_be_null() -> None:
    both = table_options.made_for_writing(
        StructType([StructField("topic", StringType(), False), StructField("body", StringType(), False)]),
        {"Topic": "t"},
    )
    assert [field.nullable for field in both.fields] == [True, False]
    read = table_options.made_for_writing(StructType([StructField("topic", StringType(), False)]), {"subscribe": "t"})
    assert not read.fields[0].nullable
