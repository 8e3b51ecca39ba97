"""What a record's sysFlag says about its body: compressed or not, and how.

Bit 0 = compressed; bits 8-10 the method: 0 or 3 zlib, 1 LZ4 frame, 2 zstd. The broker never compresses or decompresses;
clients, Spark and the store's tools do. Output is bounded: a few hostile bytes must not become gigabytes.
"""

import zlib
from collections.abc import Iterator

import lz4.frame
import zstandard

from tandemq.errors import BodyTooLarge, CorruptRecord
from tandemq.model.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

DECOMPRESSED_SIZE_MAX = 64 * 1024 * 1024
"""Sixteen times RocketMQ's default message limit of 4 MiB: room for raised limits, still an end for a bomb."""
_PIECE = 256 * 1024
"""Decompressed bytes asked for at a time."""
_ZSTD_WINDOW_MAX = 8 * 1024 * 1024
"""The most that the zstd format asks every decoder to support; a frame that wants more is refused."""


def decompress(body: bytes | memoryview, sys_flag: int = COMPRESSED, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Returns the body as the producer gave it; unchanged when sysFlag says it was not compressed.

    Raises BodyTooLarge as soon as more than `size_max` bytes have come out, CorruptRecord when the bytes can't be read.
    Memory grows with what comes out, never ahead of it: a hostile body costs at most `size_max`.
    """
    if not sys_flag & COMPRESSED:
        return bytes(body)
    method = sys_flag & COMPRESSION_MASK
    if method in (0, COMPRESSION_ZLIB):
        stream = _from_zlib(body)
    elif method == COMPRESSION_LZ4:
        stream = _from_lz4(body)
    elif method == COMPRESSION_ZSTD:
        stream = _from_zstd(body)
    else:
        raise CorruptRecord(f"unknown compression type {method >> 8} in sysFlag 0x{sys_flag:X}")
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in stream:
            pieces.append(piece)
            size += len(piece)
            if size > size_max:
                raise BodyTooLarge(f"a compressed body of {len(body)} bytes grows beyond the limit of {size_max} bytes")
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise CorruptRecord(f"a compressed body of {len(body)} bytes can't be read: {error}") from None
    return b"".join(pieces)


def _from_zlib(body: bytes | memoryview) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    rest: bytes | memoryview = body
    while not stream.eof:
        piece = stream.decompress(rest, _PIECE)
        rest = stream.unconsumed_tail
        if not piece and not rest and not stream.eof:
            raise EOFError("it ends too early")
        yield piece


def _from_lz4(body: bytes | memoryview) -> Iterator[bytes]:
    stream = lz4.frame.LZ4FrameDecompressor()
    rest = bytes(body)
    while not stream.eof:
        piece: bytes = stream.decompress(rest, max_length=_PIECE)
        rest = b""
        if not piece and not stream.eof and stream.needs_input:
            raise EOFError("it ends too early")
        yield piece


def _from_zstd(body: bytes | memoryview) -> Iterator[bytes]:
    # A cut frame reads short without an error; the frame's own size, where it has one, tells.
    stated = zstandard.frame_content_size(bytes(body))
    size = 0
    with zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).stream_reader(bytes(body)) as stream:
        while piece := stream.read(_PIECE):
            size += len(piece)
            yield piece
    if 0 <= stated != size:
        raise EOFError("it ends too early")


def compress(body: bytes | memoryview, method: int = COMPRESSION_ZLIB, *, level: int = 5) -> tuple[bytes, int]:
    """Returns (compressed body, sysFlag bits that say so).

    `method` is one of model.message.COMPRESSION_*, or 0 for the zlib of 4.x.
    """
    if method in (0, COMPRESSION_ZLIB):
        output = zlib.compress(body, level)
    elif method == COMPRESSION_LZ4:
        output = lz4.frame.compress(bytes(body), compression_level=level)
    elif method == COMPRESSION_ZSTD:
        output = zstandard.ZstdCompressor(level=level).compress(bytes(body))
    else:
        raise CorruptRecord(f"unknown compression method 0x{method:X}")
    return output, COMPRESSED | method
