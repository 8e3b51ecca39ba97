"""Property texts to columns: the map, and single properties such as TAGS and KEYS, without a Python object per message.

The texts of a batch lie one after the other in one buffer. In the form that every official client writes,

    name 0x01 value 0x02 name 0x01 value 0x02 ...

the separators alternate through the whole buffer, so names and values are every other token, cut by one pass of numpy
and gathered by Arrow. Texts of another form (separator missing, empty value, duplicate name, bytes that are no UTF-8)
are first rewritten one by one by the same rules as `model.message.decode_properties`; then the fast way is right again.
A value with a separator inside can't be rewritten: then the whole batch goes through Python dicts.
"""

import os
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.model.message import decode_properties, encode_properties
from tandemq.spark.source.arrow_arrays import numbers_in, of_bools, of_bytes, of_numbers

_NAME_END, _VALUE_END = 1, 2
_MIX, _MIX_LONG = (np.uint64(int.from_bytes(os.urandom(8), "big") | 1) for _ in range(2))
"""Random, so that nobody can craft names that are taken for others."""
_PAD = 8
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [0xFFFFFFFFFFFFFFFF], dtype=np.uint64)


class PropertyTexts:
    """The property texts of a batch of messages, brought into the regular form."""

    def __init__(self, texts: pa.Array) -> None:
        """`texts`: a BinaryArray without nulls that starts at offset 0 of its buffers (the result of a `take`)."""
        self.count = len(texts)
        self._texts = _with_last_separator(texts)
        self._cut()
        self._dicts: list[dict[str, str]] | None = None
        # Each pass repairs every row it names for good; the second sees what broken separators hid from the first.
        while self._dicts is None and len(bad := self._irregular_rows()):
            self._rewrite(bad)
            self._cut()

    def _cut(self) -> None:
        """Finds all separators: `marks`, and how many texts' tokens come before each text."""
        self._offsets, self._text = _parts(self._texts)
        marks = np.flatnonzero(self._text <= _VALUE_END)
        kinds = self._text[marks]
        if len(kinds) and not kinds.all():
            marks, kinds = marks[kinds > 0], kinds[kinds > 0]  # a NUL is an ordinary character
        self._marks, self._kinds = marks.astype(np.int32), kinds
        for stale in ("hashes", "_padded", "_repeated_names", "_shapes", "_shape_samples", "_value_spans"):
            self.__dict__.pop(stale, None)
        self._mark_rows = self._marks_before()

    def _marks_before(self) -> npt.NDArray[np.int32]:
        """Returns how many marks come before each text, and in all.

        Texts of one producer have equally many: no search then.
        """
        marks = self._marks
        each, rest = divmod(len(marks), self.count) if self.count else (0, 0)
        self._even = each > 0 and not rest and bool((marks[each - 1 :: each] == self._offsets[1:] - 1).all())
        if self._even:
            return np.arange(0, len(marks) + 1, each, dtype=np.int32)
        return np.searchsorted(marks, self._offsets).astype(np.int32)

    def _irregular_rows(self) -> npt.NDArray[np.int64]:
        """Returns rows that must be rewritten before tokens can be read off."""
        marks, kinds = self._marks, self._kinds
        regular = (
            len(marks) % 2 == 0
            and bool((kinds[0::2] == _NAME_END).all())
            and bool((kinds[1::2] == _VALUE_END).all())
            and not (self._mark_rows & 1).any()
        )
        if not regular:
            return self._rows_with_bad_separators(kinds)
        rows = (self._rows_with_empty_tokens(), self._rows_with_duplicates(), self._rows_not_utf8())
        return np.unique(np.concatenate(rows))

    def _rows_with_bad_separators(self, kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Tests each text by itself, because the alternation is broken somewhere.

        Its marks alternate, its count is even.
        """
        first = np.repeat(self._mark_rows[:-1], np.diff(self._mark_rows))
        expected = np.where((np.arange(len(kinds)) - first) % 2 == 0, _NAME_END, _VALUE_END)
        wrong = np.flatnonzero(kinds != expected)
        odd = np.flatnonzero(np.diff(self._mark_rows) % 2 == 1)
        rows = np.searchsorted(self._mark_rows, wrong, side="right") - 1
        # With every text suspect of empty values or duplicates too, rewriting all that are not plainly fine is
        # simplest.
        return np.unique(np.concatenate([rows, odd, self._rows_short()]))

    def _rows_short(self) -> npt.NDArray[np.int64]:
        adjacent = np.flatnonzero(np.diff(self._marks) == 1) + 1
        return np.searchsorted(self._mark_rows, adjacent, side="right") - 1

    def _rewrite(self, rows: npt.NDArray[np.int64]) -> None:
        texts = self._texts.to_pylist()
        for row in rows.tolist():
            properties = decode_properties(texts[row])
            if any("\x01" in value for value in properties.values()):
                self._dicts = [decode_properties(text) for text in texts]
                return
            texts[row] = encode_properties(properties)
        self._texts = pa.array(texts, type=pa.binary())

    def _rows_with_empty_tokens(self) -> npt.NDArray[np.int64]:
        """Texts follow one another, so a token goes from mark to mark, whosesoever they are."""
        marks = self._marks
        empty = np.flatnonzero(marks[1:] - marks[:-1] == 1) + 1
        if len(marks) and marks[0] == 0:
            empty = np.append(0, empty)
        return self._rows_of(empty // 2)

    def _rows_of(self, pairs: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._pair_rows, pairs, side="right") - 1

    @property
    def _pair_rows(self) -> npt.NDArray[np.int32]:
        """Pairs before each text, and the total: the offsets of the map column."""
        return self._mark_rows >> 1

    def _name_hashes(self) -> npt.NDArray[np.uint64]:
        """Returns a number per name: equal names have equal numbers; other names nearly never do."""
        stops = self._marks[0::2].astype(np.int64)
        starts = np.empty_like(stops)
        if len(stops):
            starts[0] = 0
            starts[1:] = self._marks[1:-1:2] + 1
        lengths = stops - starts
        head = self._words_at(starts + _PAD) & _MASKS[np.minimum(lengths, 8)]
        hashes: npt.NDArray[np.uint64] = head * _MIX + lengths.astype(np.uint64)
        long = np.flatnonzero(lengths > 8)
        if len(long):
            hashes[long] ^= self._words_at(stops[long]) * _MIX_LONG  # the last 8 bytes: the pad makes up for them
        return hashes

    @cached_property
    def _padded(self) -> npt.NDArray[np.uint8]:
        """Returns the texts with room for a word that begins before them or ends after them."""
        size = len(self._text)
        padded = np.zeros((size + 3 * _PAD) // 8 * 8, dtype=np.uint8)
        padded[_PAD : size + _PAD] = self._text
        return padded

    def _words_at(self, at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Returns the 8 bytes at each place, from two aligned reads.

        Numpy's own unaligned gather is several times slower.
        """
        words = self._padded.view("<u8")
        low, bits = at >> 3, ((at & 7) << 3).astype(np.uint64)
        # A shift by 64 is undefined, so the upper part goes by 63 - bits and then by one more.
        found: npt.NDArray[np.uint64] = (words[low] >> bits) | (
            words[low + 1] << (np.uint64(63) - bits) << np.uint64(1)
        )
        return found

    def _rows_with_duplicates(self) -> npt.NDArray[np.int64]:
        """Rows whose names may repeat. Messages of one producer share a *shape*, so one row of each shape is
        looked at.
        """
        shapes = self._shapes
        if shapes is None:
            return np.empty(0, dtype=np.int64)
        suspects = []
        for shape, row in enumerate(self._shape_samples.tolist()):
            names = self._names_of(row)
            if len(set(names)) != len(names):
                suspects.append(np.flatnonzero(shapes == shape))
        return np.concatenate(suspects) if suspects else np.empty(0, dtype=np.int64)

    def _names_of(self, row: int) -> list[bytes]:
        marks = self._marks[self._mark_rows[row] : self._mark_rows[row + 1]].tolist()
        starts = [int(self._offsets[row]), *(mark + 1 for mark in marks[1::2])]
        return [self._text[start:stop].tobytes() for start, stop in zip(starts, marks[0::2], strict=False)]

    def _rows_not_utf8(self) -> npt.NDArray[np.int64]:
        if not len(self._text) or self._text.max() < 0x80:
            return np.empty(0, dtype=np.int64)
        try:
            self._texts.cast(pa.string())
        except pa.ArrowInvalid:
            return np.array([i for i, text in enumerate(self._texts.to_pylist()) if not _is_utf8(text)], dtype=np.int64)
        return np.empty(0, dtype=np.int64)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return self._name_hashes()

    @cached_property
    def _shapes(self) -> npt.NDArray[np.int32] | None:
        """Number of each text's shape: its names in their order."""
        if not len(self._marks):
            return None
        offsets = self._pair_rows
        if self._names_are_all_the_same():
            return np.zeros(self.count, dtype=np.int32)
        sums = np.zeros(len(self.hashes) + 1, dtype=np.uint64)
        place = np.arange(len(self.hashes), dtype=np.uint64) - np.repeat(offsets[:-1], np.diff(offsets)).astype(
            np.uint64
        )
        np.cumsum(self.hashes * (place * np.uint64(2) + np.uint64(3)), out=sums[1:])
        shape = sums[offsets[1:]] - sums[offsets[:-1]]
        return numbers_in(of_numbers(shape).dictionary_encode().indices)

    def _names_are_all_the_same(self) -> bool:
        """Returns whether all texts have the names of the first, as those of one producer nearly always do."""
        if not self._even or len(self._marks) % (2 * self.count):
            return False
        return _have_same_content(self._names(), self._repeated_names)

    def _names(self) -> pa.Array:
        """Returns all names, one after the other."""
        offsets = np.append(np.int32(0), self._marks)
        offsets[2::2] += 1
        spans = _spans(offsets, self._text)
        return spans.take(of_numbers(np.arange(0, len(self._marks), 2, dtype=np.int32)))

    @cached_property
    def _shape_samples(self) -> npt.NDArray[np.int64]:
        """One row of each shape."""
        assert self._shapes is not None
        return np.unique(self._shapes, return_index=True)[1]

    @cached_property
    def _value_spans(self) -> pa.Array:
        """value, what lies between, value, ...: elements to take from, not copied; pair n has its value at 2 n."""
        offsets = self._marks.copy()
        offsets[0::2] += 1
        return _spans(offsets, self._text)

    @property
    def _has_one_shape(self) -> bool:
        return self._shapes is not None and len(self._shape_samples) == 1

    @cached_property
    def _repeated_names(self) -> pa.Array:
        """The names when all texts have the same: those of the first, over and over."""
        each = int(self._pair_rows[1])
        ends, text = _parts(of_bytes(self._names_of(0)))
        size = len(text)
        offsets = np.empty(each * self.count + 1, dtype=np.int32)
        offsets[0] = 0
        starts = np.arange(self.count, dtype=np.int32) * size
        np.add(starts[:, None], ends[1:], out=offsets[1:].reshape(self.count, each))
        repeated = np.tile(text, self.count)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(repeated)]
        return pa.Array.from_buffers(pa.string(), each * self.count, buffers)

    def as_map(self, wanted: pa.DataType) -> pa.Array:
        """Returns the map column."""
        if self._dicts is not None:
            return pa.array([list(properties.items()) for properties in self._dicts], type=wanted)
        names = self._repeated_names if self._has_one_shape else self._names()
        values = self._value_spans.take(of_numbers(np.arange(0, len(self._marks), 2, dtype=np.int32)))
        return pa.MapArray.from_arrays(of_numbers(self._pair_rows), names, values, type=wanted)

    def value_of(self, name: str) -> pa.Array:
        """Returns one property of every message as a string column; null where it is missing."""
        if self._dicts is not None:
            return pa.array([properties.get(name) for properties in self._dicts], type=pa.string())
        if self._shapes is None:
            return pa.nulls(self.count, pa.string())
        wanted = name.encode()
        places = []
        for row in self._shape_samples.tolist():
            names = self._names_of(row)
            places.append(names.index(wanted) if wanted in names else -1)
        if places == [-1]:
            return pa.nulls(self.count, pa.string())
        if len(places) == 1:
            return self._value_spans.take(of_numbers((self._pair_rows[:-1] + np.int32(places[0])) * 2))
        at = np.array(places, dtype=np.int64)[self._shapes]
        return self._value_spans.take(of_numbers((self._pair_rows[:-1] + at) * 2, at < 0))


def _with_last_separator(texts: pa.Array) -> pa.Array:
    """Adds the last separator to texts that lack it: some clients leave it out."""
    if not len(texts):
        return texts
    offsets, text = _parts(texts)
    if not len(text):
        return texts
    last = text[np.maximum(offsets[1:], 1) - 1]
    lacking = (last != _VALUE_END) & (offsets[1:] > offsets[:-1])
    if not lacking.any():
        return texts
    joined = pc.binary_join_element_wise(texts, b"\x02", b"")
    return pc.if_else(of_bools(lacking), joined, texts)


def _have_same_content(one: pa.Array, other: pa.Array) -> bool:
    """Returns whether two string columns without nulls are equal; by their buffers, which is quickest."""
    (offsets, text), (other_offsets, other_text) = _parts(one), _parts(other)
    return np.array_equal(offsets, other_offsets) and np.array_equal(text, other_text)


def _spans(offsets: npt.NDArray[np.int32], text: npt.NDArray[np.uint8]) -> pa.Array:
    """Returns the text cut at the offsets, as strings that share its memory."""
    return pa.Array.from_buffers(
        pa.string(), max(0, len(offsets) - 1), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def _parts(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns offsets and bytes of a string or binary column that starts at offset 0 of its buffers."""
    _, offsets_buffer, data = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(texts) + 1)
    size = int(offsets[-1])
    return offsets, np.frombuffer(data, dtype=np.uint8, count=size) if size else np.empty(0, dtype=np.uint8)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
