"""The columns of `schema=kafka` that ours do not give as they are: keys and headers as bytes."""

import base64
import binascii
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.model.message import KEYS
from tandemq.spark.source.arrow_arrays import bools_in, numbers_in, of_bools, of_numbers, of_texts
from tandemq.spark.source.property_columns import PropertyTexts
from tandemq.spark.system_properties import BINARY_HEADERS, KEY_ENCODING, RESERVED

LOG_APPEND_TIME = 1
"""Kafka's number for times that the broker sets."""

_MAP = pa.map_(pa.string(), pa.string())


def kafka_keys(texts: PropertyTexts) -> pa.Array:
    """Returns the keys as bytes, decoded where the sink had to encode them."""
    keys = texts.value_of(KEYS).cast(pa.binary())
    encoded = texts.value_of(KEY_ENCODING)
    if encoded.null_count == len(encoded):
        return keys
    rows = zip(keys.to_pylist(), encoded.is_valid().to_pylist(), strict=True)
    return pa.array([_decoded(key) if is_encoded else key for key, is_encoded in rows], type=pa.binary())


def kafka_headers(texts: PropertyTexts, wanted: pa.DataType) -> pa.Array:
    """Returns the properties that are the user's as a list of headers per message; null where there are none."""
    properties = texts.as_map(_MAP)
    names, values = properties.keys, properties.items.cast(pa.binary())
    is_users = bools_in(pc.invert(pc.is_in(names, value_set=of_texts(RESERVED))))
    before = np.concatenate([[0], np.cumsum(is_users)]).astype(np.int32)
    ends = before[numbers_in(properties.offsets)]
    names, values = names.filter(of_bools(is_users)), values.filter(of_bools(is_users))
    binary = texts.value_of(BINARY_HEADERS)
    if binary.null_count != len(binary):
        values = _with_binary(names, values, ends, binary)
    inner = wanted.value_type
    pairs = pa.StructArray.from_arrays([names.cast(inner[0].type), values], fields=[inner[0], inner[1]])
    offsets = of_numbers(ends, np.append(np.diff(ends) == 0, False))
    return pa.ListArray.from_arrays(offsets, pairs, type=wanted)


def _with_binary(
    names: pa.Array, values: pa.Array, ends: "np.ndarray[tuple[int], np.dtype[np.int32]]", binary: pa.Array
) -> pa.Array:
    """Returns the values, decoded where the row says that they are base64."""
    made, known = values.to_pylist(), names.to_pylist()
    for row, text in enumerate(binary.to_pylist()):
        encoded = {unquote(name) for name in text.split(",")} if text else set()
        for index in range(ends[row], ends[row + 1]) if encoded else ():
            if known[index] in encoded:
                made[index] = _decoded(made[index])
    return pa.array(made, type=pa.binary())


def _decoded(text: bytes | None) -> bytes | None:
    """Returns the bytes of base64 text; what is none is left as it is."""
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
