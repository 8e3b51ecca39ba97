"""The columnar decoder agrees with the plain one, record by record, whatever the mix of versions, hosts and bodies."""

import mmap
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tandemq.codec.compression import compress
from tandemq.codec.record import encode_record, parse_record
from tandemq.errors import ConfigError, CorruptRecord
from tandemq.model.message import COMPRESSION_LZ4, COMPRESSION_ZSTD, decode_properties, encode_properties
from tandemq.spark import scan
from tandemq.spark import walk as walk_module
from tandemq.spark.columns import COLUMNS, CORRUPT, DEFAULT_COLUMNS, arrow_schema, default_arrow_schema, spark_schema
from tandemq.spark.decoder import Decoder, Wanted
from tandemq.spark.fields import Fields
from tandemq.spark.walk import End, big_endian, resynchronise, walk

V4 = bytes([10, 0, 0, 9]) + (40000).to_bytes(4, "big")
V6 = bytes(range(16)) + (10911).to_bytes(4, "big")
ALL = default_arrow_schema([name for name in COLUMNS if name != CORRUPT])


def make_log(count: int, seed: int = 1, **fixed: Any) -> tuple[bytes, list[int]]:
    """A log of random records and where they begin."""
    rng, log, starts = random.Random(seed), bytearray(), []
    for n in range(count):
        body, flags = rng.randbytes(rng.choice((0, 10, 300))), 0
        method = rng.choice((None, None, 0, COMPRESSION_LZ4, COMPRESSION_ZSTD))
        if method is not None:
            body, flags = compress(body, method)
        values = {
            "topic": rng.choice(("orders", "payments", "t" * 200)),
            "born_host": rng.choice((V4, V6)),
            "store_host": rng.choice((V4, V6)),
            "properties": properties(rng, n),
            "body": body,
            "sys_flag": flags,
        } | fixed
        starts.append(len(log))
        log += encode_record(
            queue_id=n % 4, flag=rng.randint(-9, 9), queue_offset=n, physical_offset=len(log),
            born_timestamp=1_700_000_000_000 + n, store_timestamp=1_700_000_000_001 + n, reconsume_times=n % 3,
            prepared_transaction_offset=n * 7, **values,
        )  # fmt: skip
    return bytes(log), starts


def properties(rng: random.Random, n: int) -> bytes:
    regular = {"TAGS": f"tag{n % 3}", "KEYS": f"k{n} shared", "UNIQ_KEY": f"{n:032X}", "a-rather-long-name": "ü"}
    return rng.choice(
        (
            encode_properties(regular),
            encode_properties(regular)[:-1],  # the last separator missing
            b"",
            b"TAGS\x01\x02KEYS\x01k\x02",  # an empty value
            b"\x01v\x02x\x01y\x02",  # an empty name
            b"junk\x02a\x01b\x02",  # no name separator
            b"a\x01first\x02a\x01second\x02",  # the later one counts
            b"a\x01b\x01c\x02",  # a separator inside the value
            b"bad\x01\xff\xfe\x02",
            b"nul\x01\x00x\x02",
        )
    )


def decode(log: bytes, schema: pa.Schema = ALL, **options: Any) -> list[dict[str, Any]]:
    decoder = Decoder(schema, **options)
    found = walk(log, 0, len(log), len(log), base=0)
    rows = [row for batch in decoder.decode(log, found.positions, base=0) for row in batch.to_pylist()]
    return rows + [row for batch in decoder.leftovers() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_every_column_agrees_with_the_plain_decoder(seed: int) -> None:
    """Any mix of v1/v2, IPv4/IPv6, compressed and plain, regular and odd properties."""
    from tandemq.codec.compression import decompress

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


@pytest.mark.parametrize("odd", [None, 0, 7, 39])
@pytest.mark.parametrize(
    "others",
    [
        {"TAGS": "other", "KEYS": "order", "x": "y", "UNIQ_KEY": "z"},
        {"KEYZ": "k", "TAGS": "a", "UNIQ_KEY": "z", "a-name-longer-than-eight": "v"},
        {"KEYS": "k", "TAGS": "a", "UNIQ_KEY": "z", "a-name-longer-than-neun!": "v"},
        {"KEYS": "k"},
        {},
    ],
)
def test_uniform_properties_take_the_short_way_to_the_same_answer(odd: int | None, others: dict[str, str]) -> None:
    """All messages of one producer have the same names; one that differs ends the short way, wherever it stands."""
    log = bytearray()
    for n in range(40):
        names = {"KEYS": f"k{n}", "TAGS": "a" * (n % 5 + 1), "UNIQ_KEY": f"{n:08X}", "a-name-longer-than-eight": "v"}
        if n == odd:
            names = others
        log += encode_record(
            topic="t", queue_id=0, queue_offset=n, physical_offset=len(log), born_timestamp=1, born_host=V4,
            store_timestamp=1, store_host=V4, body=b"b", properties=encode_properties(names),
        )  # fmt: skip
    data = bytes(log)
    positions = walk(data, 0, len(data), len(data)).positions.tolist()
    for row, start in zip(decode(data), positions, strict=True):
        message = parse_record(data, start)
        assert dict(row["properties"]) == message.properties
        assert (row["tags"], row["keys"]) == (message.properties.get("TAGS"), message.properties.get("KEYS"))


@pytest.mark.parametrize(
    "texts",
    [
        [b"KEYS\x01k\x02TAGS\x01t\x02", b"KEY\x01k\x02STAGS\x01t\x02"],
        [b"KEYS\x01k\x02TAGS\x01t\x02", b"KEYS\x01k\x02", b"TAGS\x01t\x02KEYS\x01k\x02TAGS\x01u\x02"],
    ],
    ids=["the same letters", "the same names, cut otherwise"],
)
def test_names_that_are_the_same_only_when_joined_are_not_taken_for_the_same(texts: list[bytes]) -> None:
    log = bytearray()
    for n, properties in enumerate(texts):
        log += encode_record(
            topic="t", queue_id=0, queue_offset=n, physical_offset=len(log), born_timestamp=1, born_host=V4,
            store_timestamp=1, store_host=V4, body=b"b", properties=properties,
        )  # fmt: skip
    expected = [decode_properties(properties) for properties in texts]
    rows = decode(bytes(log))
    assert [dict(row["properties"]) for row in rows] == expected
    assert [(row["tags"], row["keys"]) for row in rows] == [(m.get("TAGS"), m.get("KEYS")) for m in expected]


def test_only_the_columns_of_the_schema_are_built() -> None:
    """A schema of one column gives batches of one column."""
    log, _ = make_log(20)
    rows = decode(log, default_arrow_schema(["queue_offset"]))
    assert rows == [{"queue_offset": n} for n in range(20)]


def test_a_large_log_is_walked_by_lanes_to_the_same_positions() -> None:
    """Long enough that the vectorised walk is used; bodies that contain records do not mislead it."""
    inner, _ = make_log(30, 5)
    log, starts = make_log(2500, 6, body=inner[:2000], sys_flag=0)
    found = walk(log, 0, len(log), len(log), base=0)
    assert found.positions.tolist() == starts
    assert found.next == len(log)
    assert walk(log, 0, len(log), len(log), base=None).positions.tolist() == starts


@pytest.mark.parametrize("at", [0, 1, 700_000, 1_000_000])
def test_lanes_stop_where_the_chain_is_broken(at: int) -> None:
    """A damaged size in the middle ends the walk exactly there."""
    log, starts = make_log(4000, 7, sys_flag=0, body=b"x" * 400)
    victim = next(start for start in starts if start >= at)
    damaged = bytearray(log)
    damaged[victim : victim + 4] = b"\xff\xff\xff\xff"
    found = walk(damaged, 0, len(log), len(log), base=0)
    assert found.next == victim
    assert found.positions.tolist() == [start for start in starts if start < victim]
    assert resynchronise(damaged, victim, len(log), len(log), 0) == starts[starts.index(victim) + 1]


@pytest.mark.parametrize("seed", range(12))
def test_lanes_and_the_plain_loop_agree_on_damaged_logs(seed: int) -> None:
    """Sizes of nothing, too small, negative or beyond the end, foreign magics, and logs cut anywhere."""
    log, starts = make_log(1500, 8, sys_flag=0, body=b"x" * 400)
    rng, damaged = random.Random(seed), bytearray(log)
    for victim in rng.sample(starts, rng.randrange(4)):
        at, value = rng.choice(
            (
                (0, 0),
                (0, 7),
                (0, 90),
                (0, 91),
                (0, 0x7FFFFFFF),
                (0, 0x80000000),
                (0, 0xFFFFFFFF),
                (4, 0),
                (4, 0xDAA320FF),
            )
        )
        damaged[victim + at : victim + at + 4] = value.to_bytes(4, "big")
    limit = rng.choice((len(log), len(log) - 1, starts[-1] + 8, starts[-1] + 7, starts[-1] + 1))
    found = walk(damaged, 0, len(log), limit, base=0)
    plain = walk(damaged, 0, len(log), limit, base=0, records_max=len(log))
    assert found.positions.tolist() == plain.positions.tolist()
    assert (found.next, found.end) == (plain.next, plain.end)


def test_a_search_for_records_stays_away_from_the_end_of_a_mapped_file(tmp_path: Path) -> None:
    """Debian's Python 3.11.2 dies of a search up to the last byte of whole pages. No record can begin there."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(1 << 20))
    ends: list[int] = []

    class Watched(mmap.mmap):
        def find(self, sub: Any, start: int = 0, end: int = 0) -> int:  # type: ignore[override]
            ends.append(end)
            return super().find(sub, start, end)

    with open(path, "rb") as file, Watched(file.fileno(), 0, access=mmap.ACCESS_READ) as segment:
        assert resynchronise(segment, 0, 1 << 20, 1 << 20, 0) is None
        assert walk(segment, 0, 1 << 20, 1 << 20, base=0).end is End.ZEROS
        assert resynchronise(segment, 0, 50, 50, 0) is None
    assert max(ends) < 1 << 20
    assert min(ends) >= 0


def test_lanes_do_not_run_through_what_was_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last segment of a log is mostly zeros, and every query asks where they begin."""
    log, starts = make_log(1500, 8, sys_flag=0, body=b"x" * 400)
    looks = 0

    class Counted:
        def __init__(self, heads: Any) -> None:
            self.heads = heads

        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += len(at)
            return self.heads[at]

    monkeypatch.setattr(walk_module, "big_endian", lambda view, kind: Counted(big_endian(view, kind)))
    found = walk(log + bytes(40 << 20), 0, len(log) + (40 << 20), len(log) + (40 << 20), base=0)
    assert (found.positions.tolist(), found.end) == (starts, End.ZEROS)
    assert len(starts) // 2 < looks < 2 * len(starts)


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        (b"\0" * 64, End.ZEROS),
        ((64).to_bytes(4, "big") + bytes.fromhex("CBD43194") + b"?" * 56, End.BLANK),
        (b"garbage garbage!", End.BROKEN),
        (b"\0\0\0", End.CUT),
    ],
)
def test_a_walk_says_why_it_ended(tail: bytes, end: End) -> None:
    """Zeros, a blank, garbage and a cut are told apart."""
    log, starts = make_log(5)
    found = walk(log + tail, 0, len(log) + len(tail), len(log) + len(tail), base=0)
    assert (found.positions.tolist(), found.next, found.end) == (starts, len(log), end)


def test_a_torn_record_is_cut() -> None:
    """The last record misses its last byte."""
    log, starts = make_log(5)
    found = walk(log[:-1], 0, len(log), len(log), base=0)
    assert (found.positions.tolist(), found.next, found.end) == (starts[:-1], starts[-1], End.CUT)


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
    monkeypatch.setattr("tandemq.spark.decoder._INFLATED_BYTES_MAX", 1000)
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


@pytest.mark.parametrize("before", [0, 3, 5000])
@pytest.mark.parametrize("behind", [0, 3, 5000])
@pytest.mark.parametrize("sizes", [[0], [7], [0, 0, 0], [1, 900, 0, 5, 900], [400] * 20])
def test_ranges_are_gathered_wherever_they_lie_in_the_buffer(before: int, behind: int, sizes: list[int]) -> None:
    rng = random.Random(before + behind)
    parts = [rng.randbytes(size) for size in sizes]
    gaps = [bytes(rng.randrange(9)) for _ in sizes[1:]]
    buffer, at = bytes(before), []
    for part, gap in zip(parts, [*gaps, b""], strict=True):
        at.append(len(buffer))
        buffer += part + gap
    fields = Fields(buffer + bytes(behind), np.empty(0, dtype=np.int64))
    assert fields.gather(np.array(at), np.array(sizes, dtype=np.int32)).to_pylist() == parts
