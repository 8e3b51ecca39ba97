"""The columnar decoder agrees with the plain one, record by record, whatever the mix of versions, hosts and bodies."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.made_log import V4, make_log

from tandemq.errors import ConfigError, CorruptRecord
from tandemq.formats.compression import compress
from tandemq.formats.record import parse_record
from tandemq.formats.record_starts import walk
from tandemq.spark.columns import COLUMNS, CORRUPT, DEFAULT_COLUMNS, arrow_schema, default_arrow_schema, spark_schema
from tandemq.spark.source import scan
from tandemq.spark.source.decoder import Decoder, Wanted

ALL = default_arrow_schema([name for name in COLUMNS if name != CORRUPT])


def decode(log: bytes, schema: pa.Schema = ALL, **options: Any) -> list[dict[str, Any]]:
    decoder = Decoder(schema, **options)
    found = walk(log, 0, len(log), len(log), base=0)
    rows = [row for batch in decoder.decode(log, found.positions, base=0) for row in batch.to_pylist()]
    return rows + [row for batch in decoder.leftovers() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_every_column_agrees_with_the_plain_decoder(seed: int) -> None:
    """Any mix of v1/v2, IPv4/IPv6, compressed and plain, regular and odd properties."""
    from tandemq.formats.compression import decompress

    log, starts = make_log(300, seed)
    rows = decode(log)
    assert [row["physical_offset"] for row in rows] == starts
    for row, start in zip(rows, starts, strict=True):
        message = parse_record(log, start)
        assert dict(row["properties"]) == dict(message.properties)
        assert len(row["properties"]) == len(message.properties)
        assert row["body"] == decompress(message.body, message.sys_flag)
        assert row["topic"] == message.topic
        assert row["tags"] == message.properties.get("TAGS")
        assert row["keys"] == message.properties.get("KEYS")
        assert row["msg_id"] == message.properties.get("UNIQ_KEY", message.message_id)
        for name in ("queue_id", "queue_offset", "flag", "sys_flag", "body_crc", "reconsume_times"):
            assert row[name] == getattr(message, name), name
        assert row["prepared_transaction_offset"] == message.prepared_transaction_offset
        assert row["record_size"] == message.size
        assert int(row["born_timestamp"].timestamp() * 1000) == message.born_timestamp
        assert int(row["store_timestamp"].timestamp() * 1000) == message.store_timestamp
        assert row["born_host"] == (
            "10.0.0.9:40000" if message.born_host == V4 else "[1:203:405:607:809:a0b:c0d:e0f]:10911"
        )


def test_only_the_columns_of_the_schema_are_built() -> None:
    """A schema of one column gives batches of one column."""
    log, _ = make_log(20)
    rows = decode(log, default_arrow_schema(["queue_offset"]))
    assert rows == [{"queue_offset": n} for n in range(20)]


def damaged(log: bytes, at: int, value: bytes) -> bytes:
    return log[:at] + value + log[at + len(value) :]


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (84, (10_000_000).to_bytes(4, "big"), "body length"),
        (84, (-5).to_bytes(4, "big", signed=True), "body length"),
        (28, (77).to_bytes(8, "big"), "physical offset 77"),
        (88, b"?", "CRC-32"),
        (36, (0x30).to_bytes(4, "big"), "body length|fixed part|add up|topic length"),
        (84, (9).to_bytes(4, "big"), "topic length|add up|body length"),
    ],
)
def test_damage_is_an_error_that_names_the_place(offset: int, value: bytes, reason: str) -> None:
    """Error by default; permissive leaves the record out, counts it and can show it as a row."""
    log, starts = make_log(9, topic="t", born_host=V4, store_host=V4, sys_flag=0, body=b"0123456789", properties=b"")
    broken = damaged(log, starts[4] + offset, value)
    with pytest.raises(CorruptRecord, match=f"file 4711.*({reason})"):
        decode(broken, verify_crc=True, place=lambda position: f"file 4711 at {position}")
    schema = default_arrow_schema(["queue_offset", "physical_offset", CORRUPT])
    rows = decode(broken, schema, verify_crc=True, permissive=True)
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8, None]
    assert rows[-1]["physical_offset"] == starts[4]
    assert rows[-1][CORRUPT]


def test_a_body_that_does_not_decompress_is_damage() -> None:
    """Permissive gives the row a null body and reports it."""
    log, _ = make_log(3, sys_flag=1, body=b"no zlib at all")
    with pytest.raises(CorruptRecord, match="can't be read"):
        decode(log)
    rows = decode(log, default_arrow_schema(["body", CORRUPT]), permissive=True)
    assert [row["body"] for row in rows] == [None] * 6
    assert sum(row[CORRUPT] is not None for row in rows) == 3


def test_decompressed_bodies_are_handed_over_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory follows the limit, not the compression ratio."""
    monkeypatch.setattr("tandemq.spark.source.decoder._INFLATED_BYTES_MAX", 1000)
    body, flags = compress(b"a" * 600)
    log, _ = make_log(7, sys_flag=flags, body=body)
    decoder = Decoder(default_arrow_schema(["queue_offset", "body"]))
    batches = list(decoder.decode(log, walk(log, 0, len(log), len(log)).positions))
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 1]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"queue_offset": n, "body": b"a" * 600} for n in range(7)]


def test_wanted_topics_tags_keys_and_times_select_rows() -> None:
    """Filters come before columns; tags and keys are compared exactly."""
    log, starts = make_log(400, 3)
    everything = [parse_record(log, start) for start in starts]

    def offsets(wanted: Wanted) -> list[int]:
        return [row["queue_offset"] for row in decode(log, default_arrow_schema(["queue_offset"]), wanted=wanted)]

    assert offsets(Wanted(topics=frozenset({"orders"}))) == [m.queue_offset for m in everything if m.topic == "orders"]
    assert offsets(Wanted(excluded_topic=lambda t: t.startswith("t"))) == [
        m.queue_offset for m in everything if not m.topic.startswith("t")
    ]
    assert offsets(Wanted(tags=frozenset({"tag1"}))) == [
        m.queue_offset for m in everything if m.properties.get("TAGS") == "tag1"
    ]
    assert offsets(Wanted(keys=frozenset({"k7", "shared"}))) == [
        m.queue_offset for m in everything if {"k7", "shared"} & set(m.properties.get("KEYS", "").split())
    ]
    assert offsets(Wanted(stored_from_ms=1_700_000_000_011, stored_before_ms=1_700_000_000_016)) == [10, 11, 12, 13, 14]
    nothing = Wanted(stored_from_ms=1_800_000_000_000, topics=frozenset({"orders"}), tags=frozenset({"tag1"}))
    assert decode(log, ALL, wanted=nothing) == []


def test_a_body_may_be_read_as_text() -> None:
    """A schema that says STRING gets text; bytes that are no UTF-8 become replacement characters."""
    log, _ = make_log(2, sys_flag=0, body=b"gr\xc3\xbc\xff")
    rows = decode(log, pa.schema([("body", pa.string())]))
    assert rows == [{"body": "grü�"}] * 2


def test_an_unknown_column_or_type_is_refused() -> None:
    """The message names the column and what there is."""
    from pyspark.sql.types import LongType, StructField, StructType

    from tandemq.spark.columns import arrow_schema

    with pytest.raises(ConfigError, match="'offset': no message has it; choose from topic"):
        arrow_schema(StructType([StructField("offset", LongType())]), may_be_damaged=False)
    with pytest.raises(ConfigError, match="'queue_id': the schema says int64, it is INT"):
        arrow_schema(StructType([StructField("queue_id", LongType())]), may_be_damaged=False)


def test_not_null_is_believed_only_where_it_is_true() -> None:
    """Spark would read garbage where a column that it must not look at for nulls has one."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    body, tags = StructField("body", BinaryType(), nullable=False), StructField("tags", StringType(), nullable=False)
    assert not arrow_schema(StructType([body]), may_be_damaged=False).field("body").nullable
    for schema, may_be_damaged in ((StructType([body]), True), (StructType([tags]), False)):
        with pytest.raises(ConfigError, match="the schema says NOT NULL, but it may be null here"):
            arrow_schema(schema, may_be_damaged=may_be_damaged)


def test_the_own_schema_says_of_everything_that_can_not_be_null_that_it_is_not() -> None:
    """Spark looks for nulls wherever there may be one, six times for six properties."""
    own = spark_schema(DEFAULT_COLUMNS, may_be_damaged=False)
    assert {column.name for column in own if column.nullable} == {"keys", "tags"}
    assert not own["properties"].dataType.valueContainsNull
    log, starts = make_log(200)
    [batch] = Decoder(arrow_schema(own, may_be_damaged=False)).decode(log, np.array(starts), base=0)
    batch.validate(full=True)
    assert all(column.nullable for column in spark_schema(DEFAULT_COLUMNS, may_be_damaged=True))


def test_a_run_is_decoded_at_once_and_handed_over_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    log, positions = make_log(3000)
    whole = decode(log)
    monkeypatch.setattr(scan, "RUN_BYTES", 100_000)
    monkeypatch.setattr(scan, "BATCH_BYTES", 20_000)
    decoder = Decoder(ALL)
    found = [
        batch
        for run in scan.runs(np.array(positions))
        for batch in scan.decoded(decoder, log, run, base=0, rows_max=50)
    ]
    assert [row for batch in found for row in batch.to_pylist()] == whole
    assert max(batch.num_rows for batch in found) <= 50
    assert all(batch.num_rows > 0 for batch in found)
    wide = [batch.nbytes for batch in scan.decoded(decoder, log, np.array(positions[:200]), base=0, rows_max=20_000)]
    assert len(wide) > 1
    assert sum(wide) / len(wide) <= 20_000
