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
_HEX_PAIRS = [
    {bytes((a, b)): a * 31 + b for a in digits for b in digits} for digits in (b"0123456789ABCDEF", b"0123456789abcdef")
]
HEADS_MAX = 1 << 15
ENDINGS_MAX = 1 << 17

HEADS: dict[bytes, int] = {}
"""Hashes of keys without their last four characters, ready for an ending to be added; dispatch looks here itself."""
ENDINGS: dict[bytes, int] = {}
"""Hashes of four-character endings; dispatch looks here too."""


def _polynomial(text: bytes) -> int:
    """Returns the unsigned hash of ASCII text, by a C loop instead of a Python one."""
    total: int = sum(map(mul, reversed(text), POWERS))
    return total & MASK


def _ending(text: bytes) -> int:
    """Counters count on: an ending in hexadecimal digits brings the other 255 that begin as it does."""
    if len(ENDINGS) > ENDINGS_MAX - 256:
        ENDINGS.clear()
    a, b, c, d = text
    start = (a * 31 + b) * 961
    for pairs in _HEX_PAIRS:
        if text[2:] in pairs:
            first = text[:2]
            ENDINGS.update({first + pair: start + value for pair, value in pairs.items()})
            break
    value = ENDINGS[text] = start + c * 31 + d
    return value


def _head(head: bytes) -> int:
    """Returns the hash of a unique key's head: its time comes first, so it resembles a known one."""
    if len(HEADS) >= HEADS_MAX - 1:
        HEADS.clear()
    if len(head) < 4:
        return _remember(head, _polynomial(head))
    shorter = HEADS.get(head[:-4])
    if shorter is None:
        shorter = _remember(head[:-4], _polynomial(head[:-4]))
    ending = ENDINGS.get(head[-4:])
    if ending is None:
        ending = _ending(head[-4:])
    return _remember(head, shorter + ending)


def _remember(head: bytes, its_hash: int) -> int:
    value = HEADS[head] = its_hash * _P4 & MASK
    return value


class TopicHasher:
    """Key hashes of one topic."""

    __slots__ = ("_topic", "seed")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.seed = java_hash(topic + "#") & MASK
        """The hash of what comes before every key."""

    def start(self, size: int) -> int:
        """Returns the topic's share in the hash of a key of this length, at most SIZE_MAX."""
        return self.seed * POWERS[size] & MASK

    def key_hash(self, key: bytes) -> int:
        """Returns what the index file stores for `topic#key`; the key is UTF-8."""
        head, ending = HEADS.get(key[:-4]), ENDINGS.get(key[-4:])
        if head is None or ending is None:
            if not 4 <= len(key) <= SIZE_MAX or not key.isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            if head is None:
                head = _head(key[:-4])
            if ending is None:
                ending = _ending(key[-4:])
        value = (self.seed * POWERS[len(key)] + head + ending) & MASK
        return value if value < SIGN else (SIGN * 2 - value) & 0x7FFFFFFF


def absolute(value: int) -> int:
    """Returns Java's Math.abs with upstream's fix: the smallest integer, whose abs is negative, becomes 0."""
    return 0 if value == -SIGN else abs(value)
