"""Java's String.hashCode over a column of strings: one pass of numpy over all bytes.

For ASCII the hash of a string of n bytes is the sum of byte[i] * 31^(n-1-i), modulo 2^32. Strings with other characters
(Java hashes UTF-16 units) go through `model.message.java_hash` one by one.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tandemq.model.message import java_hash


def java_hashes(strings: pa.Array) -> npt.NDArray[np.uint32]:
    """Unsigned 32-bit hashes of a string column without nulls."""
    strings = pa.concat_arrays([strings])
    count = len(strings)
    if not count:
        return np.empty(0, dtype=np.uint32)
    _, offsets_buffer, data = strings.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=count + 1).astype(np.int64)
    size = int(offsets[-1])
    hashes = np.zeros(count, dtype=np.uint32)
    if not size:
        return hashes
    units = np.frombuffer(data, dtype=np.uint8, count=size)
    lengths = np.diff(offsets)
    powers = _powers(int(lengths.max()))
    place = np.repeat(offsets[1:] - 1, lengths) - np.arange(size)
    filled = np.flatnonzero(lengths)
    hashes[filled] = np.add.reduceat(units.astype(np.uint32) * powers[place], offsets[filled])
    if units.max() >= 0x80:
        strange = np.unique(np.searchsorted(offsets, np.flatnonzero(units >= 0x80), side="right") - 1)
        for index in strange.tolist():
            hashes[index] = java_hash(strings[index].as_py()) & 0xFFFFFFFF
    return hashes


def _powers(count: int) -> npt.NDArray[np.uint32]:
    powers = np.ones(max(1, count), dtype=np.uint32)
    if count > 1:
        powers[1:] = np.multiply.accumulate(np.full(count - 1, 31, dtype=np.uint32), dtype=np.uint32)
    return powers


def power_of_31(exponents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """31^n modulo 2^32 for each n."""
    return _powers(int(exponents.max()) + 1)[exponents] if len(exponents) else np.empty(0, dtype=np.uint32)
