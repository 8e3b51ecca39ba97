"""What readers of a store's files learn from replica.json."""

import pytest

from tandemq.formats.replica_record import confirmed_offset


def test_the_confirmed_offset_is_read() -> None:
    assert confirmed_offset(b'{"content":{"replica":"x","confirmed":42},"crc":1}') == 42
    assert confirmed_offset(b'{"content":{},"crc":1}') == 0


@pytest.mark.parametrize("data", [b"", b"[]", b'{"content":7}', b'{"confirmed":3}', b"\xff"])
def test_anything_else_is_no_such_file(data: bytes) -> None:
    assert confirmed_offset(data) is None
