"""Arrow arrays from numpy's and Python's, and back, by their buffers.

`pa.array`, `pa.scalar` and `np.asarray` of an Arrow array ask whether they were given something of pandas, and import
it for that: a fifth of a second before the first row of every new worker. These need not ask.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def of_numbers(values: npt.NDArray[Any], absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Returns the numbers without copying them; null where `absent` is true."""
    valid = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, data])


def of_bools(values: npt.NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def of_texts(values: Sequence[str]) -> pa.Array:
    return of_bytes([value.encode() for value in values], pa.string())


def of_bytes(values: Sequence[bytes], type_: pa.DataType | None = None) -> pa.Array:
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(type_ or pa.binary(), len(values), buffers)


def repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(of_texts([text])[0], count)


def numbers_in(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the numbers of an array without nulls; they are not copied and can't be written to."""
    dtype = array.type.to_pandas_dtype()
    return np.frombuffer(array.buffers()[1], dtype=dtype)[array.offset : array.offset + len(array)]


def bools_in(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns the truth values of an array; null is false."""
    found = _bits(array.buffers()[1], array)
    valid = array.buffers()[0]
    return found if valid is None else found & _bits(valid, array)


def _bits(buffer: pa.Buffer, array: pa.Array) -> npt.NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), bitorder="little", count=array.offset + len(array))
    return bits[array.offset :].astype(bool)
