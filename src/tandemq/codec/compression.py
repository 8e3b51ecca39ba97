"""What a record's sysFlag says about its body: compressed or not, and how.

Bit 0 = compressed; bits 8-10 the method: 0 or 3 zlib, 1 LZ4 frame, 2 zstd. The broker never compresses or decompresses;
clients, Spark and the store's tools do. Output is bounded: a few hostile bytes must not become gigabytes.
"""

import zlib

import lz4.frame
import zstandard

from tandemq.errors import CorruptRecord
from tandemq.model.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

DECOMPRESSED_SIZE_MAX = 64 * 1024 * 1024
"""Sixteen times RocketMQ's default message limit of 4 MiB: room for raised limits, still an end for a bomb."""


def decompress(body: bytes | memoryview, sys_flag: int = COMPRESSED, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The body as the producer gave it; returned as it is when sysFlag says it was not compressed."""
    if not sys_flag & COMPRESSED:
        return bytes(body)
    method = sys_flag & COMPRESSION_MASK
    try:
        if method in (0, COMPRESSION_ZLIB):
            output, whole = _from_zlib(body, size_max)
        elif method == COMPRESSION_LZ4:
            output, whole = _from_lz4(body, size_max)
        elif method == COMPRESSION_ZSTD:
            output, whole = _from_zstd(body, size_max)
        else:
            raise CorruptRecord(f"unknown compression type {method >> 8} in sysFlag 0x{sys_flag:X}")
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise CorruptRecord(f"a compressed body of {len(body)} bytes can't be read: {error}") from None
    if len(output) > size_max:
        raise CorruptRecord(f"a compressed body of {len(body)} bytes grows beyond the limit of {size_max} bytes")
    if not whole:
        raise CorruptRecord(f"a compressed body of {len(body)} bytes ends too early")
    return output


def _from_zlib(body: bytes | memoryview, size_max: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    output = stream.decompress(body, size_max + 1)
    return output, stream.eof


def _from_lz4(body: bytes | memoryview, size_max: int) -> tuple[bytes, bool]:
    stream = lz4.frame.LZ4FrameDecompressor()
    output: bytes = stream.decompress(bytes(body), max_length=size_max + 1)
    return output, bool(stream.eof)


def _from_zstd(body: bytes | memoryview, size_max: int) -> tuple[bytes, bool]:
    with zstandard.ZstdDecompressor().stream_reader(bytes(body)) as stream:
        output = stream.read(size_max + 1)
    # A cut frame reads short without an error; the frame's own size, where it has one, tells.
    stated = zstandard.frame_content_size(bytes(body))
    return output, stated < 0 or len(output) == stated or len(output) > size_max


def compress(body: bytes | memoryview, method: int = COMPRESSION_ZLIB, *, level: int = 5) -> tuple[bytes, int]:
    """(compressed body, sysFlag bits that say so). `method`: one of model.message.COMPRESSION_*, or 0 for 4.x zlib."""
    if method in (0, COMPRESSION_ZLIB):
        output = zlib.compress(body, level)
    elif method == COMPRESSION_LZ4:
        output = lz4.frame.compress(bytes(body), compression_level=level)
    elif method == COMPRESSION_ZSTD:
        output = zstandard.ZstdCompressor(level=level).compress(bytes(body))
    else:
        raise CorruptRecord(f"unknown compression method 0x{method:X}")
    return output, COMPRESSED | method
