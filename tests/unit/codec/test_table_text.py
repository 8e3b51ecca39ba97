"""A table's text with its changes."""

import binascii

import pytest

from tandemq.codec.table_text import table_of
from tandemq.errors import CodecError
from tandemq.formats.table_files import change_line, first_line


def test_changes_are_taken_over() -> None:
    text = b'{"offsetTable":{"T@g":{"0":5}}}'
    journal = first_line(binascii.crc32(text), 3) + change_line({"offsetTable": {"T@g": {"1": 6}}})
    assert table_of(text, journal)[0] == {"offsetTable": {"T@g": {"0": 5, "1": 6}}}
    assert table_of(text, b"")[0] == {"offsetTable": {"T@g": {"0": 5}}}


def test_upstreams_text_is_read() -> None:
    assert table_of(b'{"offsetTable":{3:1,4:2}}', b"")[0] == {"offsetTable": {3: 1, 4: 2}}


@pytest.mark.parametrize("text", [b"[]", b'{"a":', b"garbage", b"3"])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(CodecError):
        table_of(text, b"")
