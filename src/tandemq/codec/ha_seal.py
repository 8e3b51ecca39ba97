"""What ties an HA session to the shared key: the master's proof, a key for each direction, a seal on every frame.

Both ends know the key and, from the first two frames, what the session is about:

    handshake   = version, group, the slave's nonce, the master's nonce, epoch number and id, each with its size before
    proof       = HMAC-SHA256(key, "proof" + handshake)              in CHALLENGE: the master knows all this
    direction   = HMAC-SHA256(key, "master" or "slave" + handshake)  the keys of the seals, each way its own
    seal        = HMAC-SHA256(direction, count uint64, header, payload), the first 16 bytes
                  of a DATA frame with log bytes: SHA-256 of these in their place, so that it serves all slaves

CHALLENGE is the last frame without a seal, so a peer's first sealed frame proves that it knows the key and saw the same
handshake. Frames are counted each way from 0 and the count is never sent: none can be left out, repeated, moved,
reflected or taken into another session. The seal hides nothing: who must not read the log needs TLS to be kept away.
"""

import hashlib
import hmac
import struct
from typing import Final

from tandemq.errors import CodecError

SEAL_SIZE: Final = 16
"""Bytes of a seal: nobody guesses 128 bits, and a session ends with the first wrong one."""
SEALED_VERSION: Final = 2
BLOCK_SIZE: Final = 64
"""Bytes that SHA-256 takes at a time."""
_COUNT: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">I")


class SealBroken(CodecError):
    """A frame is not what the holder of the key sent next."""


class Seal:
    """The seals of one direction of a session, in the order of its frames.

    HMAC from its two hashes, whose first blocks depend on nothing but the key and are kept: `hmac.digest` sets itself
    up anew for every frame, which takes longer than the frame of a single message.
    """

    __slots__ = ("_count", "_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > BLOCK_SIZE:
            key = hashlib.sha256(key).digest()
        block = key.ljust(BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))
        self._count = 0

    def __repr__(self) -> str:
        return f"Seal(***, {self._count})"

    def next(self, header: bytes, payload: bytes) -> bytes:
        """Returns the seal of the next frame."""
        count = self._count
        self._count = count + 1
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(_COUNT.pack(count) + header + payload)
        outer.update(inner.digest())
        return outer.digest()[:SEAL_SIZE]

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
