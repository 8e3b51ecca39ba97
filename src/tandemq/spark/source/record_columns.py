"""The fields of many records as Arrow columns: byte ranges of the log gathered without an object per message."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq.formats.record_fields import Fields
from tandemq.spark.source.arrow_arrays import of_numbers

_SPAN_MAX = (1 << 31) - 1
"""Bytes that offsets of 32 bits reach."""


class ArrowFields(Fields):
    """Fields whose bytes can be gathered into columns."""

    def gather(self, at: npt.NDArray[np.int64], size: npt.NDArray[Any]) -> pa.Array:
        """Returns the byte ranges as one BinaryArray, copied by Arrow in one go.

        The ranges are the odd elements of an array that spans the buffer without a gap (gap, range, gap, ..., gap),
        which needs ascending ranges; `take` then gathers them. It reserves as many bytes as so many average elements
        have, and copies all again when these are too few: the outer gaps are as large as it takes to be enough.
        """
        count = len(at)
        if not count:
            return pa.nulls(0, pa.binary())
        first, end = int(at[0]), int(at[-1]) + int(size[-1])
        spare = max(0, min((2 * count + 1) * (int(size.sum()) // count + 1), _SPAN_MAX) - (end - first))
        after = min(spare, len(self.view) - end)
        base = first - min(spare - after, first)
        offsets = np.empty(2 * count + 2, dtype=np.int32)
        offsets[0] = 0
        offsets[1:-1:2] = at - base
        np.add(offsets[1:-1:2], size, out=offsets[2::2], casting="unsafe")
        offsets[-1] = end + after - base
        data = pa.py_buffer(self.buffer).slice(base)
        spans = pa.Array.from_buffers(pa.binary(), 2 * count + 1, [None, pa.py_buffer(offsets), data])
        return spans.take(of_numbers(np.arange(1, 2 * count + 1, 2, dtype=np.int32)))

    def topic_column(self) -> pa.Array:
        """Returns the topics, dictionary-encoded."""
        return self.gather(self.topic_at, self.topic_size).dictionary_encode()

    def property_texts(self) -> pa.Array:
        """Returns the texts of the properties."""
        return self.gather(self.properties_at, self.properties_size)
