"""The hash by which the index finds `topic#key`: abs of Java's String.hashCode, without a Python step per character.

The hash is a polynomial in 31, so h(a + b) = h(a) * 31^len(b) + h(b). Keys that matter (UNIQ_KEY, order numbers)
share long beginnings and end in a counter: the hashes of the former and of every four-character ending are remembered,
for all topics together. Tables are bounded.
"""

from operator import mul

from tandemq.model.message import java_hash

MASK = 0xFFFFFFFF
SIGN = 0x80000000
SIZE_MAX = 255
"""Keys longer than this are hashed without the tables."""
POWERS = tuple(pow(31, size, 1 << 32) for size in range(SIZE_MAX + 1))
_P4 = POWERS[4]
UNIQUE_SIZE = 32
"""Length of a unique key as all clients make them on IPv4."""
HEADS_MAX = 1 << 15
ENDINGS_MAX = 1 << 17

_heads: dict[bytes, int] = {}
"""Hashes of keys without their last four characters, ready for an ending to be added."""
UNIQUE_HEADS: dict[bytes, int] = {}
"""Those of keys of UNIQUE_SIZE again: dispatch looks here itself, and need not look at the length of what it finds."""
ENDINGS: dict[bytes, int] = {}
"""Hashes of four-character endings; dispatch looks here too."""


def _polynomial(text: bytes) -> int:
    """Unsigned hash of ASCII text, a C loop instead of a Python one."""
    total: int = sum(map(mul, reversed(text), POWERS))
    return total & MASK


def _ending(text: bytes) -> int:
    if len(ENDINGS) >= ENDINGS_MAX:
        ENDINGS.clear()
    a, b, c, d = text
    value = ENDINGS[text] = ((a * 31 + b) * 31 + c) * 31 + d
    return value


def _head(head: bytes) -> int:
    """A unique key has its time before its counter: a new head is mostly a known one with another ending."""
    if len(_heads) >= HEADS_MAX - 1:
        _heads.clear()
        UNIQUE_HEADS.clear()
    if len(head) < 4:
        return _remember(head, _polynomial(head))
    shorter = _heads.get(head[:-4])
    if shorter is None:
        shorter = _remember(head[:-4], _polynomial(head[:-4]))
    ending = ENDINGS.get(head[-4:])
    if ending is None:
        ending = _ending(head[-4:])
    return _remember(head, shorter + ending)


def _remember(head: bytes, its_hash: int) -> int:
    value = _heads[head] = its_hash * _P4 & MASK
    if len(head) == UNIQUE_SIZE - 4:
        UNIQUE_HEADS[head] = value
    return value


class TopicHasher:
    """Key hashes of one topic."""

    __slots__ = ("_start", "_topic", "unique_start")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._start = java_hash(topic + "#") & MASK
        """Hash of what stands before a key; it counts 31^len(key) times."""
        self.unique_start = self._start * POWERS[UNIQUE_SIZE] & MASK
        """Its share in the hash of a key of UNIQUE_SIZE."""

    def key_hash(self, key: bytes) -> int:
        """What the index file stores for `topic#key`; key as UTF-8."""
        head, ending = _heads.get(key[:-4]), ENDINGS.get(key[-4:])
        if head is None or ending is None:
            if not 4 <= len(key) <= SIZE_MAX or not key.isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            if head is None:
                head = _head(key[:-4])
            if ending is None:
                ending = _ending(key[-4:])
        value = (self._start * POWERS[len(key)] + head + ending) & MASK
        return value if value < SIGN else (SIGN * 2 - value) & 0x7FFFFFFF


def absolute(value: int) -> int:
    """Java's Math.abs with upstream's fix: the smallest integer, whose abs is negative, becomes 0."""
    return 0 if value == -SIGN else abs(value)
