"""Compression by sysFlag, bounded."""

import zlib

import pytest

from tandemq.codec.compression import compress, decompress
from tandemq.errors import CorruptRecord

METHODS = [0, 0x100, 0x200, 0x300]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("body", [b"", b"x", b"abc" * 5000])
def test_round_trip(method: int, body: bytes) -> None:
    packed, flags = compress(body, method)
    assert flags == method | 1
    assert decompress(packed, flags) == body


def test_an_uncompressed_body_is_left_alone() -> None:
    assert decompress(b"plain", 0x300) == b"plain"


@pytest.mark.parametrize("method", METHODS)
def test_a_bomb_is_refused_at_the_limit(method: int) -> None:
    packed, flags = compress(bytes(1_000_000), method)
    with pytest.raises(CorruptRecord, match="limit of 1000"):
        decompress(packed, flags, size_max=1000)


@pytest.mark.parametrize("method", METHODS)
def test_cut_and_changed_bodies_are_refused(method: int) -> None:
    """Never a crash, never a short body taken for whole."""
    body = bytes(range(256)) * 20
    packed, flags = compress(body, method)
    for size in range(0, len(packed), 7):
        with pytest.raises(CorruptRecord):
            decompress(packed[:size], flags)
    with pytest.raises(CorruptRecord):
        decompress(b"\xff" * 60, flags)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(CorruptRecord, match="type 5"):
        decompress(zlib.compress(b"x"), 0x501)
