"""HMAC with a key that is used again and again.

Its two hashes begin with a block that depends on nothing but the key: they are kept and copied. The standard library's
`hmac` sets itself up anew for every text, which takes longer than the text of a single message.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final

BLOCK_SIZE: Final = 64
"""Bytes that SHA-1 and SHA-256 take at a time."""


class PreparedHmac:
    """Call it with the parts of a text: the HMAC of all of them together."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, new_hash: Callable[[bytes], Any] = hashlib.sha256) -> None:
        """`new_hash`: hashlib.sha1 or hashlib.sha256."""
        if len(key) > BLOCK_SIZE:
            key = new_hash(key).digest()
        block = key.ljust(BLOCK_SIZE, b"\0")
        self._inner = new_hash(bytes(byte ^ 0x36 for byte in block))
        self._outer = new_hash(bytes(byte ^ 0x5C for byte in block))

    def __repr__(self) -> str:
        return "PreparedHmac(***)"

    def __call__(self, *parts: bytes | memoryview) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        for part in parts:
            inner.update(part)
        outer.update(inner.digest())
        digest: bytes = outer.digest()
        return digest
