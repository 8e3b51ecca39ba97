"""A run of records in the log, and which of them dispatch can add to their queues at once.

The derivation itself is formats/derived_arrays. A run ends before the first record that is damaged, that is a mark, or
that its queue does not expect: that one is for dispatch to treat by itself, so the outcome never depends on which way a
record went.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tandemq.formats.derived_arrays import Derived
from tandemq.formats.log_mark import LOG_MARK_TOPIC
from tandemq.formats.record import SIZE_MAGIC
from tandemq.formats.record_fields import Fields
from tandemq.formats.record_starts import hop
from tandemq.store.consume_queue import ConsumeQueue

_MARK_TOPIC = LOG_MARK_TOPIC.encode()
ROWS_MIN = 48
"""Fewer records are not worth the rest of the work, once their positions are known."""
ROWS_MAX = 4096
"""About so many are read at once: with more their arrays no longer stay in the processor's cache."""

Array = npt.NDArray[Any]


class RecordRun:
    """Records of one segment that follow each other. Call `add_to_queues` first: it decides where the run stops."""

    def __init__(self, fields: Fields, delays_ms: tuple[int, ...]) -> None:
        self._fields = fields
        self._derived = Derived(fields, delays_ms)
        self._count = len(fields)

    @classmethod
    def read(
        cls, view: memoryview, base: int, at: int, stop: int, enough: int, delays_ms: tuple[int, ...]
    ) -> "RecordRun | None":
        """Returns the whole records that begin in [at, enough) and end at or below `stop`, None if they are few."""
        enough = min(enough, at + ROWS_MAX * SIZE_MAGIC.unpack_from(view, at)[0])
        positions = hop(view, at, enough, stop).positions
        if len(positions) < ROWS_MIN:
            return None
        fields = Fields(view, positions)
        broken = fields.broken()
        run = cls(fields.selected(slice(min(broken))) if broken else fields, delays_ms)
        misplaced = run._derived.physical != run._fields.positions + base
        if misplaced.any():
            run._count = int(misplaced.argmax())
        return run if run._count >= ROWS_MIN else None

    def by_queue(self, queue_of: Callable[[bytes, int], ConsumeQueue | None]) -> list[tuple[ConsumeQueue, bytes]]:
        """Returns the entries that each queue gets; ends the run before the first record that is not expected."""
        derived, groups = self._derived, []
        for topic, queue_id, rows in derived.by_queue():
            queue = queue_of(topic, queue_id) if topic != _MARK_TOPIC else None
            if queue is None:
                self._end_at(rows[0])
                continue
            numbers = derived.queue_offsets[rows]
            expected = np.arange(queue.count, queue.count + len(rows))
            if numbers.tobytes() != expected.tobytes():  # with few rows that is cheaper than comparing arrays
                self._end_at(rows[(numbers != expected).argmax()])
            groups.append((queue, rows))
        entries = derived.entries()
        if self._count < len(entries):
            groups = [(queue, rows[: np.searchsorted(rows, self._count)]) for queue, rows in groups]
        return [(queue, entries[rows].tobytes()) for queue, rows in groups if len(rows)]

    def _end_at(self, row: int) -> None:
        self._count = min(self._count, int(row))

    @property
    def count(self) -> int:
        """Returns how many records the run has."""
        return self._count

    @property
    def stop(self) -> int:
        """Returns where the run ends in the segment."""
        last = self._count - 1
        return int(self._fields.positions[last]) + int(self._fields.size[last])

    @property
    def last_timestamp(self) -> int:
        """Returns the store time of the last record."""
        return int(self._derived.stored_at[self._count - 1])

    def keys(self, index_from: int) -> tuple[Array, Array, Array]:
        """Returns hashes, physical offsets and store times of the keys of messages at or above an offset."""
        hashes, rows = self._derived.index_keys()
        start = int(np.searchsorted(self._derived.physical, index_from))
        wanted = slice(*np.searchsorted(rows, (start, self._count)).tolist())
        rows = rows[wanted]
        return hashes[wanted], self._derived.physical[rows], self._derived.stored_at[rows]
