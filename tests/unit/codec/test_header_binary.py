"""The binary header, written and read; hostile lengths are refused."""

import pytest

from tandemq.codec import header_binary
from tandemq.errors import MalformedHeader

FIELDS = (310, "GO", 407, 5, 1, "remark", {"a": "group", "é": "ü"})


def test_a_header_comes_back_as_it_was_written() -> None:
    assert header_binary.decode(header_binary.encode(*FIELDS)) == FIELDS


def test_an_unknown_language_is_other() -> None:
    code, _, *rest = FIELDS
    assert header_binary.decode(header_binary.encode(code, "COBOL", *rest))[1] == "OTHER"


@pytest.mark.parametrize("cut", range(len(header_binary.encode(*FIELDS)) - 1))
def test_no_prefix_of_a_header_is_a_header(cut: int) -> None:
    with pytest.raises(MalformedHeader):
        header_binary.decode(header_binary.encode(*FIELDS)[:cut])


def test_a_code_of_17_bits_needs_json() -> None:
    with pytest.raises(MalformedHeader, match="code 200050 does not fit"):
        header_binary.encode(200050, "JAVA", 407, 1, 0, None, {})


def test_text_must_be_utf8() -> None:
    encoded = header_binary.encode(1, "JAVA", 407, 1, 0, "abc", {})
    with pytest.raises(MalformedHeader, match="no UTF-8"):
        header_binary.decode(encoded.replace(b"abc", b"\xff\xfe\xfd"))
