"""Property texts as columns: whatever way they take, the answer is the one of the plain decoder."""

from typing import Any

import pyarrow as pa
import pytest
from tests.made_log import V4

from tandemq.formats.record import encode_record, parse_record
from tandemq.formats.record_starts import walk
from tandemq.model.message import decode_properties, encode_properties
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.property_columns import PropertyTexts


def decode(log: bytes) -> list[dict[str, Any]]:
    decoder = Decoder(default_arrow_schema(["properties", "tags", "keys"]))
    positions = walk(log, 0, len(log), len(log), base=0).positions
    return [row for batch in decoder.decode(log, positions, base=0) for row in batch.to_pylist()]


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


def test_a_property_that_nobody_has_is_null() -> None:
    """Also in a batch without any property at all."""
    assert PropertyTexts(pa.array([b"a\x01b\x02"], type=pa.binary())).value_of("TAGS").to_pylist() == [None]
    assert PropertyTexts(pa.array([b"", b""], type=pa.binary())).value_of("TAGS").to_pylist() == [None, None]
