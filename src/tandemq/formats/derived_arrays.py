"""What many records add to the views, as arrays: queue entries and index keys by the rules of `derived`.

One derivation for all who need it: the broker's dispatch (of its own messages and of what a master sends), recovery,
and the parallel rebuild on Spark. It takes any mix of records whose lengths add up (`Fields.broken` tells) and changes
nothing; whoever drives it knows the queues and writes the files.

Property texts are laid one after the other. Messages of one producer differ in little but their keys: where all texts
have the same names and separators in the same places, the first one tells where the values lie. Else one pass finds
where names end, and the few names that matter are told by the bytes before that. Values are hashed together, all of one
length at a time; those that are not ASCII go through `model.message.java_hash` one by one.
"""

from functools import cached_property, lru_cache
from itertools import pairwise
from sys import byteorder
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tandemq.formats import queue_entry
from tandemq.formats.derived import (
    KEYS_NAME,
    NAME_END,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    VALUE_END,
    delivery_time_of,
    property_place,
)
from tandemq.formats.record import PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT
from tandemq.formats.record_fields import Fields, blocks_at, groups_of_one_size
from tandemq.model.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, java_hash, tags_code
from tandemq.model.topic import SCHEDULE_TOPIC

Array: TypeAlias = npt.NDArray[Any]
QUEUE_ENTRY = np.dtype(list(queue_entry.COLUMNS))
_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_SIGN = np.uint32(0x80000000)
_NOT_ASCII = 0x80
_SPACE = 0x20
_SHORT_MAX = 0xFFFF
_WORD = 4
"""Names are compared in pieces of this size; those that matter have 4 or 8 bytes."""


class QueueRows(NamedTuple):
    """The records of one queue, ascending."""

    topic: bytes
    queue_id: int
    rows: Array


class IndexKeys(NamedTuple):
    """Index keys in log order: the hash of each, and the record it belongs to."""

    hashes: Array
    rows: Array


class Derived:
    """What the records of `fields` add to the views. Rows are records, in the order of `fields`."""

    def __init__(self, fields: Fields, delays_ms: tuple[int, ...]) -> None:
        self._fields = fields
        self._delays_ms = delays_ms
        self.physical = fields.int64(PHYSICAL_OFFSET_AT)
        self.stored_at = fields.store_timestamp()
        self.queue_ids = fields.int32(QUEUE_ID_AT)
        self.queue_offsets = fields.int64(QUEUE_OFFSET_AT)
        transaction = fields.sys_flag & TRANSACTION_MASK
        self._transaction = transaction if transaction.any() else None
        """The kind of each record, if any is part of a transaction."""

    @cached_property
    def _texts(self) -> "_Texts":
        return _Texts(self._fields)

    # -- queues

    def by_queue(self) -> list[QueueRows]:
        """Returns the records of each queue; prepared and rolled-back transactions are in none."""
        topics, topic_of = self._fields.topics
        keys = topic_of << 32 | self.queue_ids
        few = len(topics) == 1 and keys.max(initial=0) <= _SHORT_MAX and keys.min(initial=0) >= 0
        order = np.argsort(keys.astype(np.uint16) if few else keys, kind="stable")  # short numbers are sorted by radix
        if self._transaction is not None:
            kind = self._transaction[order]
            order = order[(kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)]
        keys = keys[order]
        bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(order)]
        groups = [order[start:stop] for start, stop in pairwise(bounds) if stop > start]
        return [QueueRows(topics[topic_of[rows[0]]], int(self.queue_ids[rows[0]]), rows) for rows in groups]

    def entries(self) -> Array:
        """Returns a queue entry for each record, also for those that are in no queue."""
        entries = np.empty(len(self._fields), dtype=QUEUE_ENTRY)
        entries["offset"] = self.physical
        entries["size"] = self._fields.size
        entries["tags"] = self._tags_codes()
        return entries

    def _tags_codes(self) -> Array:
        common = self._texts.common_value(TAGS_NAME)
        if common is not None:
            codes = np.full(len(self._fields), tags_code(common.decode("utf-8", "replace")), dtype=np.int64)
        else:
            codes = np.zeros(len(self._fields), dtype=np.int64)
            values = self._texts.values_of(TAGS_NAME)
            codes[values.rows] = self._texts.hashes(values)[0].view(np.int32)
        topics, topic_of = self._fields.topics
        if _SCHEDULE_TOPIC in topics:
            for row in np.flatnonzero(topic_of == topics.index(_SCHEDULE_TOPIC)).tolist():
                text = self._fields.properties(row)
                due = delivery_time_of(SCHEDULE_TOPIC, text, int(self.stored_at[row]), self._delays_ms)
                codes[row] = codes[row] if due is None else due
        return codes

    # -- keys

    def index_keys(self) -> IndexKeys:
        """Returns the index keys: of each message UNIQ_KEY, then each word of KEYS."""
        texts = self._texts
        values, words = texts.values_of(UNIQUE_KEY_NAME), texts.words(texts.values_of(KEYS_NAME))
        if len(words.rows):
            values = _Values(*(np.concatenate(both) for both in zip(values, words, strict=True)))
        hashes, lengths = texts.hashes(values)
        topics, topic_of = self._fields.topics
        seeds = np.array(list(map(_seed, topics)), dtype=np.uint32)
        powers = _powers_of_31(int(lengths.max(initial=0)))
        hashes += seeds[topic_of[values.rows]] * powers[lengths]
        # Java's Math.abs with upstream's fix: the smallest integer, whose abs is negative, becomes 0.
        hashes = np.where(hashes < _SIGN, hashes, (np.uint32(0) - hashes) & ~_SIGN)
        rows = values.rows
        if (np.diff(rows) < 0).any():
            # A stable sort by record leaves the unique key before the words, and the words in their order.
            order = np.argsort(rows, kind="stable")
            rows, hashes = rows[order], hashes[order]
        if self._transaction is not None:
            kept = self._transaction[rows] != TRANSACTION_ROLLBACK
            rows, hashes = rows[kept], hashes[kept]
        return IndexKeys(hashes, rows)


class _Values(NamedTuple):
    """Where values of properties lie in the array of all texts, and to which records they belong."""

    starts: Array
    stops: Array
    rows: Array


class _Texts:
    """The property texts of all records in one array, those of one size after each other."""

    def __init__(self, fields: Fields) -> None:
        order, groups = groups_of_one_size(fields.properties_size)
        at = fields.properties_at[order]
        parts = [blocks_at(fields.view, at[start:stop], size) for start, stop, size in groups]
        text = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.uint8), *parts])
        self._text = text
        self._rows = order
        """The record of each text."""
        self._sizes = fields.properties_size
        self._size = groups[0][2] if len(groups) == 1 else 0
        """The size of every text, if they all have the same."""
        self._is_ascii = int(text.max(initial=0)) < _NOT_ASCII

    @cached_property
    def _differs(self) -> Array:
        """Returns at which places texts of one size differ from the first one."""
        texts = self._text.reshape(-1, self._size)
        return np.asarray((texts != texts[0]).any(axis=0))

    @cached_property
    def _pattern(self) -> bytes | None:
        """Returns the first text if all texts have their names and separators where it has them, else None."""
        if not self._size:
            return None
        texts, differs = self._text.reshape(-1, self._size), self._differs
        first = texts[0].tobytes()
        in_value, at = bytearray(self._size), 0
        for piece in first.split(bytes((VALUE_END,))):
            value_size = len(piece.partition(bytes((NAME_END,)))[2])
            at += len(piece)
            in_value[at - value_size : at] = b"\1" * value_size
            at += 1
        columns = np.flatnonzero(differs)
        if (differs > np.frombuffer(in_value, dtype=np.bool_)).any():
            return None
        return first if int(texts[:, columns].min(initial=0xFF)) > VALUE_END else None

    def common_value(self, name: bytes) -> bytes | None:
        """Returns the value that all texts have, empty if they have none; None if they may differ in it."""
        if self._pattern is None:
            return None
        start, stop = property_place(self._pattern, name)
        return None if self._differs[start:stop].any() else self._pattern[start:stop]

    def values_of(self, name: bytes) -> _Values:
        """Returns the last value that is not empty of each text that has one; `name` ends with its separator."""
        if self._pattern is None:
            return self._names.values_of(name)
        start, stop = property_place(self._pattern, name)
        starts = np.arange(start, len(self._text), self._size) if stop else np.empty(0, dtype=np.int64)
        return _Values(starts, starts + (stop - start), self._rows[: len(starts)])

    @cached_property
    def _names(self) -> "_Names":
        return _Names(self._text, self._rows, np.append(0, np.cumsum(self._sizes[self._rows])))

    def words(self, values: _Values) -> _Values:
        """Returns each word of the values, which spaces separate."""
        spaces = np.flatnonzero(self._text == _SPACE)
        if not len(values.starts) or not len(spaces):
            return values
        owner = np.searchsorted(values.starts, spaces, side="right") - 1
        inside = (owner >= 0) & (spaces < values.stops[owner])
        spaces, owner = spaces[inside], owner[inside]
        # The values are ascending and apart: so are their words, and sorted starts and stops belong together.
        starts = np.sort(np.concatenate((values.starts, spaces + 1)))
        stops = np.sort(np.concatenate((values.stops, spaces)))
        rows = values.rows[np.searchsorted(values.starts, starts, side="right") - 1]
        filled = stops > starts
        return _Values(starts[filled], stops[filled], rows[filled])

    def hashes(self, values: _Values) -> tuple[Array, Array]:
        """Returns Java's hash of each value as an unsigned number, and each length as Java counts it."""
        lengths = values.stops - values.starts
        order, groups = groups_of_one_size(lengths)
        hashes = np.empty(len(lengths), dtype=np.uint32)
        for start, stop, size in groups:
            rows = order[start:stop]
            units = blocks_at(self._text, values.starts[rows], size).reshape(-1, size)
            powers = _powers_of_31(size)[size - 1 :: -1] if size else np.empty(0, dtype=np.uint32)
            # Not `@`: for whole numbers it takes twice as long.
            hashes[rows] = np.einsum("ij,j->i", units.astype(np.uint32), np.ascontiguousarray(powers))
        if not self._is_ascii:
            self._hash_one_by_one(values, hashes, lengths)
        return hashes, lengths

    def _hash_one_by_one(self, values: _Values, hashes: Array, lengths: Array) -> None:
        """Corrects the hashes and lengths of values that are not ASCII: Java hashes units of UTF-16."""
        strange = np.flatnonzero(self._text & _NOT_ASCII)
        after = np.append(strange, len(self._text))[np.searchsorted(strange, values.starts)]
        for row in np.flatnonzero(after < values.stops).tolist():
            value = self._text[values.starts[row] : values.stops[row]].tobytes().decode("utf-8", "replace")
            hashes[row] = java_hash(value) & 0xFFFFFFFF
            lengths[row] = len(value.encode("utf-16-le", "surrogatepass")) // 2


class _Names:
    """Where names end in texts of any kind, and with which four bytes."""

    def __init__(self, text: Array, rows: Array, bounds: Array) -> None:
        self._text, self._rows, self._bounds = text, rows, bounds
        self._words_at = np.ndarray(max(0, len(text) - _WORD + 1), dtype=np.uint32, buffer=text.data, strides=1)
        marks = np.flatnonzero(text <= VALUE_END)
        kinds = text[marks]
        names = np.flatnonzero(kinds == NAME_END)
        names = names[np.searchsorted(marks[names], _WORD) :]
        self._ends = marks[names]
        self._last_words = self._words_at[self._ends - _WORD]
        self._value_ends = self._ends_after(marks, kinds, names)

    def _ends_after(self, marks: Array, kinds: Array, names: Array) -> Array:
        """Returns where the value after each name ends: at the next separator of values, or with all texts."""
        marks, kinds = np.append(marks, len(self._text)), np.append(kinds, VALUE_END)
        if (kinds[names + 1] == VALUE_END).all():
            return np.asarray(marks[names + 1])
        ends = marks[kinds == VALUE_END]  # a separator of names, or a zero byte, is an ordinary part of a value
        return np.asarray(ends[np.searchsorted(ends, marks[names])])

    def values_of(self, name: bytes) -> _Values:
        """Returns the last value that is not empty of each text that has one."""
        size = len(name) - 1
        found = np.flatnonzero(self._last_words == _as_word(name, size - _WORD))
        ends = self._ends[found]
        for at in range(0, size - _WORD, _WORD):
            same = (ends >= size) & (self._words_at[ends - size + at] == _as_word(name, at))
            found, ends = found[same], ends[same]
        owner = np.searchsorted(self._bounds, ends, side="right") - 1
        before, starts, first = ends - size, ends + 1, self._bounds[owner]
        stops = np.minimum(self._value_ends[found], self._bounds[owner + 1])
        good = (before == first) | (before > first) & (self._text[before - 1] == VALUE_END)
        good &= stops > starts
        if not good.all():
            starts, stops, owner = starts[good], stops[good], owner[good]
        repeats = np.diff(owner) == 0
        if repeats.any():
            last = np.append(~repeats, True)
            starts, stops, owner = starts[last], stops[last], owner[last]
        return _Values(starts, stops, self._rows[owner])


@lru_cache(maxsize=4096)
def _seed(topic: bytes) -> int:
    """Returns the hash of what comes before every key of a topic."""
    return java_hash(topic.decode("utf-8", "replace") + "#") & 0xFFFFFFFF


def _as_word(name: bytes, at: int) -> int:
    """Returns four bytes of a name as the machine reads them."""
    return int.from_bytes(name[at : at + _WORD], byteorder)


def _powers_of_31(exponent_max: int) -> Array:
    """Returns 31^0, 31^1, … 31^exponent_max modulo 2^32."""
    global _powers
    if exponent_max >= len(_powers):
        factors = np.full(2 * exponent_max + 1, 31, dtype=np.uint32)
        factors[0] = 1
        _powers = np.multiply.accumulate(factors, dtype=np.uint32)
    return _powers


_powers = np.array([1], dtype=np.uint32)
