"""The columns that Spark sees are those that the decoder builds."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tandemq.errors import ConfigError
from tandemq.spark.columns import COLUMNS, DEFAULT_COLUMNS, KAFKA_COLUMNS, arrow_schema, spark_schema


def test_batches_have_exactly_the_schema_that_spark_expects() -> None:
    """int32 for int64, string for large_string: the first batch would be refused."""
    schema = StructType(
        [
            StructField("queue_id", IntegerType()), StructField("queue_offset", LongType()),
            StructField("store_timestamp", TimestampType()), StructField("keys", StringType()),
            StructField("properties", MapType(StringType(), StringType())), StructField("body", BinaryType()),
        ]
    )  # fmt: skip
    assert arrow_schema(schema, may_be_damaged=True).equals(to_arrow_schema(schema, timezone="UTC"))
    as_text = StructType([StructField("body", StringType())])
    assert arrow_schema(as_text, may_be_damaged=True).equals(to_arrow_schema(as_text, timezone="UTC"))


def test_kafkas_schema_is_kafkas() -> None:
    """Names, order and types; a job that selects by them needs no change."""
    schema = spark_schema(tuple(KAFKA_COLUMNS), KAFKA_COLUMNS, may_be_damaged=False)
    assert [(field.name, field.dataType.simpleString()) for field in schema] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    assert [field.name for field in schema if field.nullable] == ["key", "headers"]
    arrow_schema(schema, KAFKA_COLUMNS, may_be_damaged=False)


def test_what_can_not_be_null_is_said_so_unless_records_may_be_damaged() -> None:
    whole = spark_schema(DEFAULT_COLUMNS, may_be_damaged=False)
    assert {field.name for field in whole if field.nullable} == {"keys", "tags"}
    assert all(field.nullable for field in spark_schema(DEFAULT_COLUMNS, may_be_damaged=True))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("colour", StringType()), "'colour': no message has it"),
        (StructField("queue_id", LongType()), "'queue_id': the schema says int64, it is INT"),
        (StructField("body", LongType()), "or STRING for text bodies"),
        (StructField("keys", StringType(), False), "NOT NULL, but it may be null"),
    ],
)
def test_a_schema_that_can_not_be_had_is_refused_by_column(field: StructField, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        arrow_schema(StructType([field]), may_be_damaged=False)


def test_headers_of_another_shape_are_refused() -> None:
    wrong = StructType([StructField("headers", ArrayType(StringType()))])
    with pytest.raises(ConfigError, match="'headers': the schema says"):
        arrow_schema(wrong, KAFKA_COLUMNS, may_be_damaged=False)
    assert set(COLUMNS) >= set(DEFAULT_COLUMNS)
