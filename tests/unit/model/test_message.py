"""Properties texts, Java's hash, offset message ids."""

import pytest

from tandemq.model.message import (
    decode_properties,
    encode_properties,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
    tags_code,
)


def test_properties_come_back_as_they_were_written() -> None:
    properties = {"TAGS": "a", "KEYS": "k1 k2", "é": "ü"}
    assert decode_properties(encode_properties(properties)) == properties
    assert encode_properties({"a": "b"}) == b"a\x01b\x02"


def test_odd_entries_are_skipped_and_the_last_separator_may_miss() -> None:
    assert decode_properties(b"a\x01b\x02\x02c\x02\x01d\x02e\x01f") == {"a": "b", "e": "f"}


@pytest.mark.parametrize(("text", "code"), [("", 0), ("a", 97), ("TagA", 2598919), ("polygenelubricants", -(2**31))])
def test_the_hash_is_javas(text: str, code: int) -> None:
    assert java_hash(text) == code
    assert tags_code(text) == code


@pytest.mark.parametrize("host", [bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(range(20))])
def test_an_offset_message_id_names_host_and_offset(host: bytes) -> None:
    text = offset_message_id(host, 123_456)
    assert text == text.upper()
    assert parse_offset_message_id(text) == (host, 123_456)


@pytest.mark.parametrize("text", ["", "zz", "00" * 15])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError):
        parse_offset_message_id(text)
