"""Real inputs, damaged: bits flipped, cut, spliced, repeated, sizes overwritten, types swapped, or plain noise.

The same seed gives the same inputs.
"""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"9" * 30,
    b"\\u",
    b"\xff",
    b"\0",
    b"{{",
]


def damaged(seed: int, originals: list[bytes], count: int) -> Iterator[bytes]:
    """The same inputs for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1) if data else 0
            match chance.randrange(9):
                case 0 if data:
                    data[at % len(data)] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = chance.choice(TOKENS)
                case 3:
                    data[at : at + chance.randrange(1, 9)] = b""
                case 4:
                    data[at : at + 4] = struct.pack(">i", chance.choice([-1, 0, 1, 2**31 - 1, -(2**31), 255, 65536]))
                case 5:
                    start = chance.randrange(len(data) + 1)
                    data[at:at] = data[start : start + chance.randrange(1, 64)]
                case 6:
                    data = bytearray(chance.randbytes(chance.randrange(64)))
                case 7:
                    data[at:at] = chance.choice(TOKENS) * chance.randrange(1, 200)
                case _:
                    data[at : at + 1] = chance.randbytes(1)
        yield bytes(data)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
