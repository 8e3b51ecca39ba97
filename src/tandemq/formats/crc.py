"""CRC-32, the polynomial of zlib and of RocketMQ's records.

ISA-L computes it with the processor's carry-less multiplication, several times faster than the C library's zlib. An
executor that got this package by `--py-files` may lack it: slower, but the same numbers.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
