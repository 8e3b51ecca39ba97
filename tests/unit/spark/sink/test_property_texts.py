"""Columns become the text of properties; bytes that are no text are marked; separators are refused."""

import base64

import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.model.message import decode_properties
from tandemq.spark.sink.property_texts import header_texts, key_texts, map_texts, named

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MAP = pa.map_(pa.string(), pa.string())


def decoded(*columns: pa.Array) -> list[dict[str, str]]:
    return [decode_properties(b"".join(parts)) for parts in zip(*(c.to_pylist() for c in columns), strict=True)]


def headers(*rows: list[tuple[str, bytes | None]] | None) -> pa.Array:
    made = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows]
    return pa.array(made, type=HEADERS)


def test_nothing_is_written_for_null_and_empty() -> None:
    assert named("TAGS", pa.array(["a", None, ""]), "tags").to_pylist() == [b"TAGS\x01a\x02", b"", b""]


def test_text_keys_are_written_as_they_are_and_others_as_base64() -> None:
    odd = bytes([200, 1])
    assert decoded(*key_texts(pa.array(["k1 k2"]))) == [{"KEYS": "k1 k2"}]
    assert decoded(*key_texts(pa.array([b"k", None], pa.binary()))) == [{"KEYS": "k"}, {}]
    assert decoded(*key_texts(pa.array([b"k", odd], pa.binary()))) == [
        {"KEYS": "k"}, {"KEYS": base64.b64encode(odd).decode(), "TANDEMQ_KEY_ENCODING": "base64"},
    ]  # fmt: skip


def test_maps_lose_reserved_names_only() -> None:
    maps = pa.array([[("a", "1"), ("KEYS", "mine")], [], None, [("b", None)]], MAP)
    assert decoded(map_texts(maps)) == [{"a": "1"}, {}, {}, {}]


def test_headers_become_properties_and_bytes_come_with_a_mark() -> None:
    odd = bytes([255])
    found = decoded(*header_texts(headers([("a", b"1"), ("x,y", odd)], None, [("b", b"2")])))
    assert found == [
        {"a": "1", "x,y": base64.b64encode(odd).decode(), "TANDEMQ_BINARY_HEADERS": "x%2Cy"}, {}, {"b": "2"},
    ]  # fmt: skip


def test_slices_are_taken_like_copies() -> None:
    rows = headers([("a", b"1")], [("b", b"2"), ("c", b"3")], [], [("d", b"4")])
    assert decoded(*header_texts(rows.slice(1, 3))) == [{"b": "2", "c": "3"}, {}, {"d": "4"}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([("KEYS", b"x")], "'KEYS' is a property that RocketMQ sets itself"),
        ([("a", b"1"), ("b", b"2"), ("a", b"3")], "'a' is there twice"),
        ([("a\x01b", b"1")], "separates properties"),
    ],
)
def test_headers_that_a_message_can_not_have_are_refused(row: list[tuple[str, bytes]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        header_texts(headers([("ok", b"1")], row))


def test_separators_inside_values_are_refused() -> None:
    """They would make other properties of a message than the user gave."""
    for column in (
        lambda: named("TAGS", pa.array(["a\x02b"]), "tags"),
        lambda: map_texts(pa.array([[("a", "x\x01y")]], MAP)),
    ):
        with pytest.raises(ConfigError, match="separates properties in RocketMQ's messages"):
            column()
