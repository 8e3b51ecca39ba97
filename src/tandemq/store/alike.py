"""Many plain records at once: what dispatch derives from them, as arrays instead of a step per record.

Messages of one producer differ in body and keys; what else their text says is the same for all of the same length. So
records are grouped by the length of their text, compared with the first of their group everywhere but in the keys, and
the keys of a whole group are hashed together.

A run ends before the first record that is not plain, whose text is unusual, or whose queue does not expect it: that one
is for dispatch to treat alone, so the outcome never depends on which way a record went. Nothing is changed here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tandemq.codec.record import (
    FIXED_SIZE_V4,
    MAGIC_AT,
    MAGIC_V1,
    NOT_PLAIN,
    PHYSICAL_OFFSET_AT,
    PLAIN_HEAD,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.key_hash import POWERS
from tandemq.store.queues import KeyPlaces, Template

Array: TypeAlias = npt.NDArray[Any]
TemplateOf: TypeAlias = Callable[[bytes], tuple[Template, KeyPlaces] | None]
"""What the text of a record (topic and properties) means, and where its keys lie; None if it is unusual."""

ROWS_MIN = 32
"""Fewer records are not worth the preparations."""
TEXT_SIZE_MAX = 2048
TEMPLATES_MAX = 64
"""Kinds of text in one run."""
_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_HEAD = PLAIN_HEAD.size
_BODY_SIZE_AT = _HEAD - 4
_SIZE = Struct(">I")
_SIGN = np.uint32(0x80000000)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of records adds to the views."""

    stop: int
    """Where it ends in the segment."""
    last_timestamp: int
    queues: list[tuple[ConsumeQueue, int, bytes]]
    """(queue, entries, the same packed)."""
    hashes: Array
    """Of all keys, in log order; the physical offsets and store times of their messages beside them."""
    offsets: Array
    times: Array


def plain_run(view: memoryview, base: int, at: int, stop: int, enough: int, template_of: TemplateOf) -> Run | None:
    """The plain records that begin in [at, enough) and end at or below `stop`; None if they are few."""
    positions = _positions(view, at, stop, enough)
    if len(positions) < ROWS_MIN:
        return None
    records = _Records(view, base, positions)
    cut = records.read_texts(_first_false(records.are_plain), template_of)
    if cut < ROWS_MIN:
        return None
    groups, cut = records.by_queue(cut)
    if cut < ROWS_MIN:
        return None
    return Run(
        stop=int(positions[cut - 1] + records.size[cut - 1]),
        last_timestamp=int(records.stored_at[cut - 1]),
        queues=records.entries(groups, cut),
        **records.keys(cut),
    )


def _positions(view: memoryview, at: int, stop: int, enough: int) -> Array:
    found: list[int] = []
    size_at, last = _SIZE.unpack_from, min(enough, stop - FIXED_SIZE_V4 + 1)
    while at < last:
        (size,) = size_at(view, at)
        end = at + size
        if size < FIXED_SIZE_V4 or end > stop:
            break
        found.append(at)
        at = end
    return np.array(found, dtype=np.int64)


def _first_false(flags: Array) -> int:
    return len(flags) if flags.all() else int(flags.argmin())


class _Records:
    """The records at some positions, and what has been found out about them."""

    def __init__(self, view: memoryview, base: int, positions: Array) -> None:
        self._buffer = np.frombuffer(view, dtype=np.uint8)
        self._positions = positions
        words = self._blocks(positions, _HEAD).view(">u4").astype(np.uint32)
        self.size = words[:, 0].astype(np.int64)
        self._queue_ids = words[:, QUEUE_ID_AT // 4].astype(np.int64)
        self._queue_offsets = _long(words, QUEUE_OFFSET_AT)
        self._physical = _long(words, PHYSICAL_OFFSET_AT)
        self.stored_at = _long(words, STORE_TIMESTAMP_AT)
        self._text_at = positions + _HEAD + words[:, _BODY_SIZE_AT // 4]
        self._text_size = positions + self.size - self._text_at
        self.are_plain = (
            (words[:, MAGIC_AT // 4] == MAGIC_V1)
            & (words[:, SYS_FLAG_AT // 4] & NOT_PLAIN == 0)
            & (self._physical == base + positions)
            & (self._text_size >= 4)
            & (self._text_size <= TEXT_SIZE_MAX)
        )
        self._templates: list[Template] = []
        self._template = np.zeros(len(positions), dtype=np.int64)
        self._hashes = np.zeros((len(positions), 2), dtype=np.uint32)
        """Of the unique key and of the user's."""
        self._has_key = np.zeros((len(positions), 2), dtype=np.bool_)

    def _blocks(self, at: Array, size: int) -> Array:
        """`size` bytes from each place, a row each."""
        shape = (len(self._buffer) - size + 1,)
        blocks: Array = np.ndarray(shape, dtype=f"V{size}", buffer=self._buffer.data, strides=(1,))
        return blocks[at].view(np.uint8).reshape(len(at), size)

    # -- texts and keys

    def read_texts(self, cut: int, template_of: TemplateOf) -> int:
        """Finds templates and key hashes of the first `cut` records; how many of them are all right."""
        sizes = self._text_size[:cut]
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            texts = self._blocks(self._text_at[rows], size)
            while len(rows) and rows[0] < cut:
                found = template_of(texts[0].tobytes()) if len(self._templates) < TEMPLATES_MAX else None
                if found is None:
                    cut = int(rows[0])
                    break
                same, good = self._read_alike(rows, texts, *found)
                if not good.all():
                    cut = min(cut, int(rows[same][good.argmin()]))
                rows, texts = rows[~same], texts[~same]
        return cut

    def _read_alike(self, rows: Array, texts: Array, template: Template, places: KeyPlaces) -> tuple[Array, Array]:
        """(which texts are as the first but for their keys, whether the keys of those are such as are hashed here)"""
        equal = texts == texts[0]
        for start, stop in places:
            equal[:, start:stop] = True
        same = equal.all(axis=1)
        if not same.all():
            rows, texts = rows[same], texts[same]
        good = np.ones(len(rows), dtype=np.bool_)
        for which, (start, stop) in enumerate(places):
            if start == stop:
                continue
            keys = texts[:, start:stop]
            good &= ((keys > 0x20) & (keys < 0x7F)).all(axis=1)
            powers = np.array(POWERS[stop - start - 1 :: -1], dtype=np.uint32)
            self._hashes[rows, which] = keys.astype(np.uint32) @ powers + np.uint32(template.hasher.start(stop - start))
            self._has_key[rows, which] = True
        self._template[rows] = len(self._templates)
        self._templates.append(template)
        return same, good

    def keys(self, cut: int) -> dict[str, Array]:
        has_key, hashes = self._has_key[:cut], self._hashes[:cut]
        per_message = has_key.sum(axis=1)
        values = hashes[has_key]
        return {
            "hashes": np.where(values < _SIGN, values, (np.uint32(0) - values) & np.uint32(0x7FFFFFFF)),
            "offsets": np.repeat(self._physical[:cut], per_message),
            "times": np.repeat(self.stored_at[:cut], per_message),
        }

    # -- queues

    def by_queue(self, cut: int) -> tuple[list[tuple[ConsumeQueue, Array]], int]:
        """(each queue with its records, how many records their queues expect as they are)"""
        topics: dict[int, int] = {}
        topic_of = np.array([topics.setdefault(id(one.hasher), len(topics)) for one in self._templates], dtype=np.int64)
        keys = topic_of[self._template[:cut]] << 32 | self._queue_ids[:cut]
        order = np.argsort(keys, kind="stable")
        groups = []
        for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            first = int(rows[0])
            queue = self._templates[self._template[first]].queue_of(int(self._queue_ids[first]))
            if queue is None:
                cut = min(cut, first)
                continue
            expected = self._queue_offsets[rows] == np.arange(queue.count, queue.count + len(rows))
            if not expected.all():
                cut = min(cut, int(rows[expected.argmin()]))
            groups.append((queue, rows))
        return groups, cut

    def entries(self, groups: list[tuple[ConsumeQueue, Array]], cut: int) -> list[tuple[ConsumeQueue, int, bytes]]:
        tags = np.array([template.tags for template in self._templates], dtype=np.int64)
        entries = np.empty(cut, dtype=_ENTRY)
        entries["offset"] = self._physical[:cut]
        entries["size"] = self.size[:cut]
        entries["tags"] = tags[self._template[:cut]]
        found = []
        for queue, rows in groups:
            rows = rows[: np.searchsorted(rows, cut)]
            if len(rows):
                found.append((queue, len(rows), entries[rows].tobytes()))
        return found


def _long(words: Array, at: int) -> Array:
    return words[:, at // 4].astype(np.int64) << 32 | words[:, at // 4 + 1]
