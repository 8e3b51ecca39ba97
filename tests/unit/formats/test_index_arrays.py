"""Keys put as arrays make the bytes that putting them one by one makes."""

import random

import numpy as np
import pytest

from tandemq.formats.index_arrays import put_some
from tandemq.formats.index_file import IndexFile, file_size


@pytest.mark.parametrize("slots", [1, 7, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_arrays_and_lists_agree(slots: int, seed: int) -> None:
    """Whatever shares a slot, in steps of any length, until the file is full."""
    rng = random.Random(seed)
    entries = 300
    keys = [(rng.randrange(1 << 31), number * 50, 1_000_000 + number * rng.choice((0, 700))) for number in range(299)]
    contents = []
    for arrays in (False, True):
        content = bytearray(file_size(slots, entries))
        file = IndexFile(memoryview(content), slots, entries, lambda stop: 1 << 60)
        done = 0
        while done < len(keys):
            part = keys[done : done + rng.choice((1, 5, 100))]
            columns = [list(column) for column in zip(*part, strict=True)]
            here = 0
            while here < len(part):
                if arrays:
                    here = put_some(file, *(np.array(column, dtype=np.int64) for column in columns), here)
                else:
                    here = file.put_some(*columns, here)
            done += len(part)
        assert file.count == entries
        contents.append(content)
    assert contents[0] == contents[1]
