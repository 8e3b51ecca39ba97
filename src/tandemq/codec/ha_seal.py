"""What ties an HA session to the shared key: the master's proof, a key for each direction, a seal on every frame.

Both ends know the key and, from the first two frames, what the session is about:

    handshake   = version, group, the slave's nonce, the master's nonce, epoch number and id, each with its size before
    proof       = HMAC-SHA256(key, "proof" + handshake)              in CHALLENGE: the master knows all this
    direction   = HMAC-SHA256(key, "master" or "slave" + handshake)  the keys of the seals, each way its own
    seal        = HMAC-SHA256(direction, count uint64, header, payload), the first 16 bytes
                  of a DATA frame with log bytes: their sum in their place
    sum         = SHA-256 of the log bytes, which serves all slaves; in a frame with the flag FAST, for a slave that
                  asked for it, Poly1305 with HMAC-SHA256(direction, "log bytes") as its key

Poly1305 is many times as fast as SHA-256, also on processors made for that, and history is bound by the sums. Its key
may be used again and again because a sum never leaves: it is only hashed into the seal, and without the key nobody
finds other bytes with the same sum.

CHALLENGE is the last frame without a seal, so a peer's first sealed frame proves that it knows the key and saw the same
handshake. Frames are counted each way from 0 and the count is never sent: none can be left out, repeated, moved,
reflected or taken into another session. The seal hides nothing: who must not read the log needs TLS to be kept away.
"""

import hashlib
import hmac
import struct
from typing import Final, Protocol

from tandemq.codec.prepared_hmac import PreparedHmac
from tandemq.errors import CodecError

SEAL_SIZE: Final = 16
"""Bytes of a seal: nobody guesses 128 bits, and a session ends with the first wrong one."""
SEALED_VERSION: Final = 2
POLY1305: Final = "poly1305"
"""How a slave asks for fast sums in its HELLO."""
FAST_SIZE_MIN: Final = 32 << 10
"""Log bytes of a frame that are worth a Poly1305: to set one up takes as long as SHA-256 of some kilobytes."""
SUM_STEP: Final = 256 << 10
"""Bytes summed without a break: Poly1305 keeps other threads from running."""
_COUNT: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">I")


class SealBroken(CodecError):
    """A frame is not what the holder of the key sent next."""


class LogSum(Protocol):
    """The sum of a frame's log bytes, as far as they have come."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes:
        """Returns the sum; nothing is added afterwards."""
        ...


class _Poly1305:
    """With the face of a hash."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.poly1305 import Poly1305  # only groups with a key pay for loading it

        self._poly = Poly1305(key)

    def update(self, data: bytes | memoryview, /) -> None:
        self._poly.update(data)

    def digest(self) -> bytes:
        return self._poly.finalize()


def log_sum(data: bytes | memoryview, fast_key: bytes | None) -> bytes:
    """Returns the sum of a frame's log bytes: a fast one if there is a key for it."""
    if fast_key is None:
        return hashlib.sha256(data).digest()
    running, view = _Poly1305(fast_key), memoryview(data)
    for at in range(0, len(view), SUM_STEP):
        running.update(view[at : at + SUM_STEP])
    return running.digest()


class Seal:
    """The seals of one direction of a session, in the order of its frames."""

    __slots__ = ("_count", "_hmac", "fast_key")

    def __init__(self, key: bytes) -> None:
        self._hmac = PreparedHmac(key)
        self._count = 0
        self.fast_key = self._hmac(b"log bytes")
        """Of the fast sums of this direction's log bytes."""

    def __repr__(self) -> str:
        return f"Seal(***, {self._count})"

    def next(self, header: bytes, payload: bytes) -> bytes:
        """Returns the seal of the next frame."""
        count = self._count
        self._count = count + 1
        return self._hmac(_COUNT.pack(count) + header + payload)[:SEAL_SIZE]

    def running_sum(self, fast: bool) -> LogSum:
        """Returns an empty sum for the log bytes of a frame."""
        return _Poly1305(self.fast_key) if fast else hashlib.sha256()

    def fits(self, given: bytes, header: bytes, payload: bytes) -> bool:
        """Returns whether this is the seal of the next frame, compared in constant time."""
        return hmac.compare_digest(given, self.next(header, payload))


class Handshake:
    """What both ends know after CHALLENGE, with the key: the source of the proof and of both directions' keys."""

    __slots__ = ("_key", "_text")

    def __init__(self, key: str, group: str, slave_nonce: str, master_nonce: str, number: int, id: str) -> None:
        parts = [text.encode() for text in (str(SEALED_VERSION), group, slave_nonce, master_nonce, str(number), id)]
        self._key = key.encode()
        self._text = b"".join(_SIZE.pack(len(part)) + part for part in parts)

    def proof(self) -> str:
        """Returns the master's proof."""
        return self._derived(b"proof").hex()

    def seals(self) -> tuple[Seal, Seal]:
        """Returns the seals of frames from the master, and of frames from the slave."""
        return Seal(self._derived(b"master")), Seal(self._derived(b"slave"))

    def _derived(self, purpose: bytes) -> bytes:
        return hmac.digest(self._key, b"tandemq-ha session\0" + purpose + b"\0" + self._text, hashlib.sha256)
