"""Options that a catalog stores with a table (`CREATE TABLE … USING rocketmq OPTIONS (…)`).

Spark hands a Python source the options of a table once, to `schema()` when the table is created, and to nobody when it
is read or written. What a catalog does keep for us is the schema, and rows that are inserted have the metadata of the
table's columns, so the options travel in the metadata of its first column. Secrets do not: they would be in every
schema that is printed or written to a file. Give them with the query (`WITH`) or in the environment.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tandemq.errors import ConfigError
from tandemq.spark.options import PullOptions, SinkOptions
from tandemq.spark.options.parsing import knows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

METADATA = "tandemq.options"
_PREFIX = "option."
"""What catalogs put before each option, besides giving it as it is."""
_SECRETS = {"secretkey", "securitytoken"}
_SELECTS = {"subscribe", "subscribepattern", "assign"}
_NEEDED = {"body", "value"}
"""What every message must have."""


def of_created_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options of the table that is being created; None if there is no table, only a read."""
    if "provider" not in {key.lower() for key in given}:
        return None
    options = {key[len(_PREFIX) :]: value for key, value in given.items() if key.lower().startswith(_PREFIX)}
    location = next((value for key, value in given.items() if key.lower() == "path"), None)
    if location is not None and "path" not in {key.lower() for key in options}:
        options["path"] = location
    return options


def for_reading(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the source's share of the options of a table that is also written to: `topic` says what is read then."""
    names = {key.lower(): value for key, value in options.items()}
    if "topic" not in names:
        return dict(options)
    for key in options:
        if key.lower() != "path" and not knows(PullOptions, key) and not knows(SinkOptions, key):
            raise ConfigError(f"unknown option {key!r}: neither the source nor the sink `rocketmq` has it")
    found = {key: value for key, value in options.items() if knows(PullOptions, key)}
    if _SELECTS.isdisjoint(names):
        found["subscribe"] = names["topic"]
    return found


def for_writing(schema: "StructType", given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a write: those given with it, and the sink's share of the table's."""
    merged_options = merged(schema, given, "nameserver")
    if merged_options == dict(given):
        return merged_options
    if "topic" not in {key.lower() for key in merged_options}:
        raise ConfigError(
            "topic: missing. This table was made for reading; give the topic with the write, INSERT INTO t WITH "
            "(topic = '…'), or when the table is made, OPTIONS (nameserver '…', topic '…')"
        )
    named = {key.lower() for key in given}
    return {key: value for key, value in merged_options.items() if key.lower() in named or knows(SinkOptions, key)}


def made_for_writing(schema: "StructType", options: Mapping[str, str]) -> "StructType":
    """Returns the schema of a table; what an INSERT need not give may be null if the table can be written to."""
    if "topic" in {key.lower() for key in options}:
        for field in schema.fields:
            field.nullable = field.nullable or field.name not in _NEEDED
    return schema


def with_options(schema: "StructType", options: Mapping[str, str]) -> "StructType":
    """Returns the schema with a table's options in it."""
    kept = {key: value for key, value in options.items() if key.lower() not in _SECRETS}
    schema.fields[0].metadata = {**(schema.fields[0].metadata or {}), METADATA: json.dumps(kept)}
    return schema


def merged(schema: "StructType", given: Mapping[str, str], needed: str) -> dict[str, str]:
    """Returns the options of a read: those given with it, and the table's if it has any.

    A table's options count only where the option that every read needs is not given: else it is no read of the table.
    """
    if needed in {key.lower() for key in given}:
        return dict(given)
    for field in schema.fields:
        stored: Any = (field.metadata or {}).get(METADATA)
        if stored:
            return {**json.loads(stored), **{key.lower(): value for key, value in given.items()}}
    return dict(given)
