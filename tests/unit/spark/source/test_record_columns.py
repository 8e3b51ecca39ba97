"""Byte ranges of a buffer gathered into an Arrow column."""

import random

import numpy as np
import pytest

from tandemq.spark.source.record_columns import ArrowFields


@pytest.mark.parametrize("before", [0, 3, 5000])
@pytest.mark.parametrize("behind", [0, 3, 5000])
@pytest.mark.parametrize("sizes", [[0], [7], [0, 0, 0], [1, 900, 0, 5, 900], [400] * 20])
def test_ranges_are_gathered_wherever_they_lie_in_the_buffer(before: int, behind: int, sizes: list[int]) -> None:
    rng = random.Random(before + behind)
    parts = [rng.randbytes(size) for size in sizes]
    gaps = [bytes(rng.randrange(9)) for _ in sizes[1:]]
    buffer, at = bytes(before), []
    for part, gap in zip(parts, [*gaps, b""], strict=True):
        at.append(len(buffer))
        buffer += part + gap
    fields = ArrowFields(buffer + bytes(behind), np.empty(0, dtype=np.int64))
    assert fields.gather(np.array(at), np.array(sizes, dtype=np.int32)).to_pylist() == parts
