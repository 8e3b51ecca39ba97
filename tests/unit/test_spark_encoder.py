"""Rows become the batch elements that RocketMQ expects; keys are deterministic; columns are checked."""

from typing import Any

import pyarrow as pa
import pytest

from tandemq.codec.batch import split_batch
from tandemq.codec.compression import decompress
from tandemq.errors import ConfigError
from tandemq.model.message import decode_properties
from tandemq.spark.encoder import Encoder, checked_columns, cuts, elements, keyed
from tandemq.spark.idempotent_key import PREFIX, producer_id, sequence
from tandemq.spark.options import SinkOptions, parse


def options(**given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": "n:1", "topic": "t", **given})


def encoded(batch: pa.RecordBatch, given: SinkOptions, first: int = 0) -> list[tuple[int, bytes, dict[str, str]]]:
    encoder = Encoder(given, checked_columns(batch.schema, given))
    found: list[tuple[int, bytes, dict[str, str]]] = []
    for _, rows in encoder.by_topic(batch):
        data, starts = elements(rows, keyed(rows, "p" * 20, PREFIX, first))
        for flag, body, properties in split_batch(data[: int(starts[-1])]):
            found.append((flag, bytes(body), decode_properties(bytes(properties))))
    return found


def test_every_column_arrives() -> None:
    """Body, keys, tags, flag, properties, delay, copies; nulls and empty strings leave nothing behind."""
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"one", b"", b"three"],
            "keys": ["k1 k2", None, ""],
            "tags": [None, "b", "c"],
            "flag": pa.array([1, None, -3], pa.int32()),
            "delay_level": pa.array([0, 3, None], pa.int32()),
            "properties": pa.array(
                [[("a", "1"), ("KEYS", "mine")], [], [("ü", "x"), ("n", None), ("e", "")]],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )
    rows = encoded(batch, options(copies="2"), first=255)
    assert [(flag, body) for flag, body, _ in rows] == [(1, b"one"), (0, b""), (-3, b"three")]
    assert rows[0][2] == {"UNIQ_KEY": f"TQ!{'p' * 20}{255:016x}", "__TQ_COPIES": "2", "KEYS": "k1 k2", "a": "1"}
    assert rows[1][2] == {"UNIQ_KEY": f"TQ!{'p' * 20}{256:016x}", "__TQ_COPIES": "2", "TAGS": "b", "DELAY": "3"}
    assert rows[2][2] == {"UNIQ_KEY": f"TQ!{'p' * 20}{257:016x}", "__TQ_COPIES": "2", "TAGS": "c", "ü": "x"}


def test_a_slice_of_a_batch_is_encoded_like_a_copy() -> None:
    """Arrow slices share buffers with an offset; map columns too."""
    maps = pa.array([[("a", str(n))] * (n % 3) for n in range(20)], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_pydict({"value": [f"v{n}" for n in range(20)], "properties": maps})
    part = batch.slice(7, 9)
    copy = pa.RecordBatch.from_pylist(part.to_pylist(), schema=batch.schema)
    assert encoded(part, options()) == encoded(copy, options())


def test_rows_are_separated_by_topic_in_their_order() -> None:
    """Without the option the column decides; with it the column is ignored."""
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "body": [b"1", b"2", b"3"]})
    given = parse(SinkOptions, {"nameserver": "n:1"})
    found = {t: r.bodies.to_pylist() for t, r in Encoder(given, checked_columns(batch.schema, given)).by_topic(batch)}
    assert found == {"a": [b"1", b"3"], "b": [b"2"]}
    assert [t for t, _ in Encoder(options(), checked_columns(batch.schema, options())).by_topic(batch)] == ["t"]


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_when_asked(method: str) -> None:
    """The flag of the send says how; small ones stay as they are."""
    given = options(compression=method, compressOver="100")
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 5000] * 3})
    ((_, rows),) = Encoder(given, checked_columns(batch.schema, given)).by_topic(batch)
    assert [decompress(body, int(rows.sys_flags[0])) for body in rows.bodies.to_pylist()] == [b"x" * 5000] * 3
    assert rows.alone.all()
    assert len(rows.bodies[0].as_py()) < 500
    small = pa.RecordBatch.from_pydict({"body": [b"x"]})
    ((_, rows),) = Encoder(given, checked_columns(small.schema, given)).by_topic(small)
    assert (rows.sys_flags.tolist(), rows.alone.tolist(), rows.bodies.to_pylist()) == ([0], [False], [b"x"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"keys": ["a"]}, "needs a column `body`"),
        ({"body": [b"a"], "colour": ["red"]}, "column 'colour' can't be written"),
        ({"body": [1]}, "column 'body' has type int64"),
        ({"body": [b"a"], "value": [b"b"]}, "mean the same"),
        ({"body": [b"a"], "queue_id": [1]}, "column 'queue_id' has type int64, it must be INT"),
    ],
)
def test_wrong_columns_are_refused_by_name(columns: dict[str, Any], message: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=message):
        checked_columns(pa.RecordBatch.from_pydict(columns).schema, options())


def test_a_null_body_and_a_missing_topic_are_errors() -> None:
    """A silent empty message would be worse."""
    with pytest.raises(ConfigError, match="`body` is null"):
        encoded(pa.RecordBatch.from_pydict({"body": [b"a", None]}), options())
    with pytest.raises(ConfigError, match="option `topic` or a column"):
        checked_columns(pa.schema([("body", pa.binary())]), parse(SinkOptions, {"nameserver": "n:1"}))


def test_what_a_source_adds_is_ignored() -> None:
    """A DataFrame read with the source can be written as it is."""
    schema = pa.schema([("body", pa.binary()), ("queue_offset", pa.int64()), ("store_host", pa.string())])
    assert checked_columns(schema, options()) == {"body": "body"}


def test_sends_are_cut_by_size_and_a_large_row_goes_alone() -> None:
    """Every row once, in order."""
    import numpy as np

    starts = np.array([0, 10, 20, 520, 530, 540])
    assert cuts(starts, 25) == [(0, 2), (2, 3), (3, 5)]


def test_keys_are_deterministic_and_rise() -> None:
    """The same place gives the same producer; a later micro-batch a higher sequence."""
    assert producer_id("q", 1, "t", "b", 0) == producer_id("q", 1, "t", "b", 0)
    assert producer_id("q", 1, "t", "b", 0) != producer_id("q", 1, "t", "b", 1)
    assert sequence(1, 0) > sequence(0, 2**32 - 1)
