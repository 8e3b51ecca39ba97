"""The same as the standard library's, for every length of key and however the text is divided."""

import hashlib
import hmac

import pytest

from tandemq.codec.prepared_hmac import BLOCK_SIZE, PreparedHmac


@pytest.mark.parametrize("name", ["sha1", "sha256"])
@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 1000])
def test_it_is_an_hmac(name: str, size: int) -> None:
    key = bytes(range(250)) * 4
    prepared = PreparedHmac(key[:size], getattr(hashlib, name))
    for text in (b"", b"text", bytes(5000)):
        expected = hmac.digest(key[:size], text, name)
        assert prepared(text) == expected
        assert prepared(text[:2], memoryview(text[2:])) == expected


def test_it_does_not_show_its_key() -> None:
    assert "secret" not in repr(PreparedHmac(b"secret"))
