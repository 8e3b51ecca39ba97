"""The hash by which the index finds `topic#key`: abs of Java's String.hashCode, without a Python step per character.

The hash is a polynomial in 31, so h(a + b) = h(a) * 31^len(b) + h(b). Keys that matter (UNIQ_KEY, order numbers)
share long prefixes and end in a counter: the hash of the prefix and of every four-character ending is remembered.
Tables are bounded.
"""

from operator import mul

from tandemq.model.message import java_hash

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_P4 = 31**4 & _MASK
PREFIXES_MAX = 8192
ENDINGS_MAX = 1 << 17

_powers: dict[int, tuple[int, ...]] = {}
_endings: dict[bytes, int] = {}


def _polynomial(text: bytes) -> int:
    """Unsigned hash of ASCII text, a C loop instead of a Python one."""
    size = len(text)
    powers = _powers.get(size)
    if powers is None:
        powers = tuple(pow(31, size - 1 - i, 1 << 32) for i in range(size))
        if size < 1024:
            _powers[size] = powers
    total: int = sum(map(mul, text, powers))
    return total & _MASK


def _ending(text: bytes) -> int:
    if len(_endings) >= ENDINGS_MAX:
        _endings.clear()
    value = _endings[text] = _polynomial(text)
    return value


class TopicHasher:
    """Key hashes of one topic."""

    __slots__ = ("_prefixes", "_start", "_topic")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._start = java_hash(topic + "#") & _MASK
        self._prefixes: dict[bytes, int] = {}

    def key_hash(self, key: bytes) -> int:
        """What the index file stores for `topic#key`; key as UTF-8."""
        prefix = self._prefixes.get(key[:-4])
        if prefix is None:
            if len(key) < 4 or not key[:-4].isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            prefix = self._prefix(key[:-4])
        ending = _endings.get(key[-4:])
        if ending is None:
            if len(key) < 4 or not key.isascii():
                return absolute(java_hash(f"{self._topic}#{key.decode('utf-8', 'replace')}"))
            ending = _ending(key[-4:])
        value = (prefix + ending) & _MASK
        return value if value < _SIGN else (_SIGN * 2 - value) & 0x7FFFFFFF

    def _prefix(self, head: bytes) -> int:
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
        start = self._start * pow(31, len(head), 1 << 32) + _polynomial(head)
        value = self._prefixes[head] = start * _P4 & _MASK
        return value


def absolute(value: int) -> int:
    """Java's Math.abs with upstream's fix: the smallest integer, whose abs is negative, becomes 0."""
    return 0 if value == -_SIGN else abs(value)
