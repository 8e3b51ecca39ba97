"""The hash by which the index finds `topic#key`: abs of Java's String.hashCode, without a Python step per character.

The hash is a polynomial in 31, so h(a + b) = h(a) * 31^len(b) + h(b). Keys that matter (UNIQ_KEY, order numbers)
share long prefixes and end in a counter: the hash of the prefix and of every four-character ending is remembered.
Tables are bounded.
"""

from operator import mul

from tandemq.model.message import java_hash

MASK = 0xFFFFFFFF
SIGN = 0x80000000
_P4 = 31**4 & MASK
PREFIXES_MAX = 8192
ENDINGS_MAX = 1 << 17

ENDINGS: dict[bytes, int] = {}
"""Hashes of four-character endings; dispatch looks here itself."""
_powers: dict[int, tuple[int, ...]] = {}


def _polynomial(text: bytes) -> int:
    """Unsigned hash of ASCII text, a C loop instead of a Python one."""
    size = len(text)
    powers = _powers.get(size)
    if powers is None:
        powers = tuple(pow(31, size - 1 - i, 1 << 32) for i in range(size))
        if size < 1024:
            _powers[size] = powers
    total: int = sum(map(mul, text, powers))
    return total & MASK


def _ending(text: bytes) -> int:
    if len(ENDINGS) >= ENDINGS_MAX:
        ENDINGS.clear()
    a, b, c, d = text
    value = ENDINGS[text] = ((a * 31 + b) * 31 + c) * 31 + d
    return value


class TopicHasher:
    """Key hashes of one topic."""

    __slots__ = ("_start", "_topic", "prefixes")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._start = java_hash(topic + "#") & MASK
        self.prefixes: dict[bytes, int] = {}
        """Hashes of `topic#` and all of a key but its last four characters, ready for an ending to be added."""

    def key_hash(self, key: bytes) -> int:
        """What the index file stores for `topic#key`; key as UTF-8."""
        prefix = self.prefixes.get(key[:-4])
        if prefix is None:
            if len(key) < 4 or not key[:-4].isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            prefix = self._prefix(key[:-4])
        ending = ENDINGS.get(key[-4:])
        if ending is None:
            if len(key) < 4 or not key.isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            ending = _ending(key[-4:])
        value = (prefix + ending) & MASK
        return value if value < SIGN else (SIGN * 2 - value) & 0x7FFFFFFF

    def _prefix(self, head: bytes) -> int:
        """A unique key has its time before its counter: a new prefix is mostly a known one with another ending."""
        if len(self.prefixes) >= PREFIXES_MAX - 1:
            self.prefixes.clear()
        if len(head) < 4:
            return self._new_prefix(head)
        shorter = self.prefixes.get(head[:-4])
        if shorter is None:
            shorter = self._new_prefix(head[:-4])
        ending = ENDINGS.get(head[-4:])
        if ending is None:
            ending = _ending(head[-4:])
        value = self.prefixes[head] = (shorter + ending) * _P4 & MASK
        return value

    def _new_prefix(self, head: bytes) -> int:
        start = self._start * pow(31, len(head), 1 << 32) + _polynomial(head)
        value = self.prefixes[head] = start * _P4 & MASK
        return value


def absolute(value: int) -> int:
    """Java's Math.abs with upstream's fix: the smallest integer, whose abs is negative, becomes 0."""
    return 0 if value == -SIGN else abs(value)
