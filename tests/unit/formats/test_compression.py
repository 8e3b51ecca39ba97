"""Compression by sysFlag, bounded."""

import tracemalloc
import zlib

import pytest

from tandemq.errors import BodyTooLarge, CorruptRecord
from tandemq.formats.compression import compress, decompress

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
    with pytest.raises(BodyTooLarge, match="limit of 1000"):
        decompress(packed, flags, size_max=1000)


@pytest.mark.parametrize("method", METHODS)
def test_memory_grows_with_the_output_and_ends_at_the_limit(method: int) -> None:
    """2 KB of zstd cost 64 MiB once, whatever was in them."""
    (bomb, flags), (small, _) = compress(bytes(64 << 20), method), compress(b"small" * 100, method)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            decompress(bomb, flags, size_max=1 << 20)
        of_bomb = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        decompress(small, flags)
        of_small = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert of_bomb < 4 << 20
    assert of_small < 1 << 20


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
