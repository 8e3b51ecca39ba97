"""Columns to the text of properties: `name 0x01 value 0x02` per property, without a Python object per message.

Names and values must not hold the separators. Keys and headers may be any bytes, as in Kafka: what is no plain text is
written as base64 and marked (`system_properties`).
"""

import base64
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.errors import ConfigError
from tandemq.model.message import KEYS
from tandemq.spark.system_properties import BASE64, BINARY_HEADERS, KEY_ENCODING, RESERVED

_SEPARATORS = ("\x01", "\x02")


def named(name: str, values: pa.Array, column: str) -> pa.Array:
    """Returns the text of one property per row, nothing where the value is null or empty."""
    texts = values.cast(pa.binary())
    _check_separators(texts, column)
    made = pc.binary_join_element_wise(f"{name}\x01".encode(), texts, b"\x02", b"")
    empty = pc.equal(pc.binary_length(texts), 0)
    return pc.if_else(pc.fill_null(empty, True), pa.scalar(b"", pa.binary()), pc.fill_null(made, b""))


def key_texts(values: pa.Array) -> list[pa.Array]:
    """Returns the texts of KEYS; with those of a second property where keys are no text."""
    if pa.types.is_string(values.type):
        return [named(KEYS, values, "keys")]
    if _is_plain(values):
        return [named(KEYS, values, "keys")]
    rows = values.to_pylist()
    odd = [value is not None and not _is_plain_value(value) for value in rows]
    encoded = [base64.b64encode(v) if is_odd else v for v, is_odd in zip(rows, odd, strict=True)]
    marks = pa.array([BASE64 if is_odd else None for is_odd in odd], type=pa.string())
    return [named(KEYS, pa.array(encoded, type=pa.binary()), "keys"), named(KEY_ENCODING, marks, "keys")]


def map_texts(column: pa.Array) -> pa.Array:
    """Returns the text of each row's map, without reserved names and without null and empty values."""
    column = pa.concat_arrays([column])  # own offsets: a slice's would start anywhere
    names, values = column.keys, column.items
    keep = pc.and_(pc.invert(pc.is_in(names, value_set=pa.array(RESERVED))), pc.is_valid(values))
    keep = pc.and_(keep, pc.fill_null(pc.greater(pc.binary_length(values), 0), False))
    offsets = np.asarray(column.offsets)
    return _joined(names, values.cast(pa.binary()), np.asarray(keep), offsets - offsets[0], "properties")


def header_texts(column: pa.Array) -> list[pa.Array]:
    """Returns the texts of each row's headers; with those of a second property where values are no text."""
    column = pa.concat_arrays([column])
    offsets = np.asarray(column.offsets)
    offsets = offsets - offsets[0]
    pairs = column.flatten()
    names, values = pairs.field(0), pairs.field(1).cast(pa.binary())
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))[: len(names)]
    _check_names(names, rows)
    keep = np.asarray(pc.fill_null(pc.greater(pc.binary_length(values), 0), False))
    if _is_plain(values):
        return [_joined(names, values, keep, offsets, "headers")]
    found = values.to_pylist()
    odd = [value is not None and not _is_plain_value(value) for value in found]
    encoded = [base64.b64encode(v) if is_odd else v for v, is_odd in zip(found, odd, strict=True)]
    marks: list[list[str]] = [[] for _ in range(len(column))]
    for row, name, is_odd in zip(rows.tolist(), names.to_pylist(), odd, strict=True):
        if is_odd:
            marks[row].append(quote(name, safe=""))
    marked = pa.array([",".join(mark) or None for mark in marks], type=pa.string())
    texts = _joined(names, pa.array(encoded, type=pa.binary()), keep, offsets, "headers")
    return [texts, named(BINARY_HEADERS, marked, "headers")]


def _check_names(names: pa.Array, rows: npt.NDArray[np.int64]) -> None:
    """Refuses a header that would vanish: a message has each property once, and some names are RocketMQ's own."""
    if names.null_count:
        raise ConfigError("column `headers`: a header has no name")
    taken = names.filter(pc.is_in(names, value_set=pa.array(RESERVED)))
    if len(taken):
        raise ConfigError(f"column `headers`: {taken[0].as_py()!r} is a property that RocketMQ sets itself: rename it")
    encoded = names.dictionary_encode()
    places = rows * max(1, len(encoded.dictionary)) + np.asarray(encoded.indices)
    if len(np.unique(places)) != len(places):
        order = np.argsort(places, kind="stable")
        twice = order[1:][np.diff(places[order]) == 0][0]
        raise ConfigError(
            f"column `headers`: {names[int(twice)].as_py()!r} is there twice; RocketMQ keeps one value of each property"
        )


def _joined(
    names: pa.Array, values: pa.Array, keep: npt.NDArray[Any], offsets: npt.NDArray[Any], column: str
) -> pa.Array:
    """Returns the texts of the kept pairs, row by row; `offsets` says which pairs are a row's."""
    counts = np.concatenate([[0], np.cumsum(keep.astype(np.int64))])
    names, values = names.filter(pa.array(keep)).cast(pa.binary()), values.filter(pa.array(keep))
    _check_separators(names, column)
    _check_separators(values, column)
    pairs = pc.binary_join_element_wise(names, values, b"\x01")
    pairs = pa.concat_arrays([pc.binary_join_element_wise(pairs, b"", b"\x02")])
    _, starts, data = pairs.buffers()
    ends = np.frombuffer(starts, dtype=np.int32, count=len(pairs) + 1) if len(pairs) else np.zeros(1, dtype=np.int32)
    rows = ends[counts[offsets]].astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(rows), pa.py_buffer(b"") if data is None else data]
    )


def _check_separators(texts: pa.Array, column: str) -> None:
    for separator in _SEPARATORS:
        hits = pc.match_substring(texts, separator)
        if pc.any(hits).as_py():
            text = texts.filter(pc.fill_null(hits, False))[0].as_py()
            raise ConfigError(
                f"column `{column}`: {text!r} holds {separator!r}, which separates properties in RocketMQ's messages"
            )


def _is_plain(values: pa.Array) -> bool:
    """Returns whether all values are text without separators."""
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return not any(pc.any(pc.match_substring(texts, separator)).as_py() for separator in _SEPARATORS)


def _is_plain_value(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return not any(separator in text for separator in _SEPARATORS)
