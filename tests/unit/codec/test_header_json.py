"""JSON headers as Java, C++ and Node write them."""

import pytest

from tandemq.codec import header_json
from tandemq.errors import MalformedHeader

TOLERATED = {
    "numbers and booleans as ext values": (b'{"code":1,"extFields":{"a":5,"b":true}}', {"a": "5", "b": "true"}),
    "null is absent": (b'{"code":1,"extFields":{"a":null}}', {}),
    "no ext fields": (b'{"code":1}', {}),
    "numbers as text": (b'{"code":"1","opaque":"7","extFields":{"a":"b"}}', {"a": "b"}),
    "unknown members": (b'{"code":1,"serializeTypeCurrentRPC":"JSON","extFields":{"a":"b"}}', {"a": "b"}),
    "control characters in texts": (b'{"code":1,"extFields":{"a":"b\x02"}}', {"a": "b\x02"}),
}  # fmt: skip


@pytest.mark.parametrize(("header", "ext"), TOLERATED.values(), ids=TOLERATED.keys())
def test_what_clients_send_is_understood(header: bytes, ext: dict[str, str]) -> None:
    fields = header_json.decode(header)
    assert fields[0] == 1
    assert fields[6] == ext


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"opaque":1}',
        b'{"code":2147483648}',
        b'{"code":1.5}',
        b'{"code":1,"extFields":[1]}',
        b"\xff",
    ],
)
def test_what_is_no_command_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedHeader):
        header_json.decode(header)


def test_too_many_fields_are_refused() -> None:
    ext = {str(number): "x" for number in range(header_json.EXT_FIELDS_MAX + 1)}
    with pytest.raises(MalformedHeader, match="the limit is 256"):
        header_json.decode(header_json.encode(1, "JAVA", 407, 1, 0, None, ext))


def test_members_are_written_in_order() -> None:
    """Equal commands have equal bytes, and Java's prefix: code first."""
    encoded = header_json.encode(30, "JAVA", 407, 5, 0, "r", {"b": "2", "a": "1"})
    assert encoded == (
        b'{"code":30,"extFields":{"a":"1","b":"2"},"flag":0,"language":"JAVA","opaque":5,"remark":"r","version":407}'
    )
