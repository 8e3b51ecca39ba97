"""Rows become the batch elements that RocketMQ expects; keys are deterministic; columns are checked."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.formats.batch import split_batch
from tandemq.formats.compression import decompress
from tandemq.model.message import decode_properties
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.encoder import Elements, Encoder, elements, keys
from tandemq.spark.sink.idempotent_key import CHECKED_PREFIX
from tandemq.spark.sink.writable_columns import checked_columns


def options(**given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": "n:1", "topic": "t", **given})


def encoded(batch: pa.RecordBatch, given: SinkOptions, first: int = 0) -> list[tuple[int, bytes, dict[str, str]]]:
    encoder = Encoder(given, checked_columns(batch.schema, given))
    found: list[tuple[int, bytes, dict[str, str]]] = []
    for _, rows in encoder.by_topic(batch, first):
        which = np.zeros(len(rows), dtype=np.int64)
        made = elements(rows, keys(CHECKED_PREFIX, ["p" * 20], which, rows.numbers))
        for flag, body, properties in split_batch(made.taken(np.arange(len(rows)))):
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
    found = {
        t: r.bodies.to_pylist() for t, r in Encoder(given, checked_columns(batch.schema, given)).by_topic(batch, 0)
    }
    assert found == {"a": [b"1", b"3"], "b": [b"2"]}
    assert [t for t, _ in Encoder(options(), checked_columns(batch.schema, options())).by_topic(batch, 0)] == ["t"]


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_when_asked(method: str) -> None:
    """The flag of the send says how; small ones stay as they are."""
    given = options(compression=method, compressOver="100")
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 5000] * 3})
    ((_, rows),) = Encoder(given, checked_columns(batch.schema, given)).by_topic(batch, 0)
    assert [decompress(body, int(rows.sys_flags[0])) for body in rows.bodies.to_pylist()] == [b"x" * 5000] * 3
    assert rows.alone.all()
    assert len(rows.bodies[0].as_py()) < 500
    small = pa.RecordBatch.from_pydict({"body": [b"x"]})
    ((_, rows),) = Encoder(given, checked_columns(small.schema, given)).by_topic(small, 0)
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


def test_a_topic_that_no_broker_takes_is_an_error_that_names_it() -> None:
    """Before anything is sent: a broker would refuse it again and again."""
    batch = pa.RecordBatch.from_pydict({"topic": ["good", "bad topic!"], "body": [b"1", b"2"]})
    given = parse(SinkOptions, {"nameserver": "n:1"})
    with pytest.raises(ConfigError, match=r"column `topic`: .*bad topic!"):
        list(Encoder(given, checked_columns(batch.schema, given)).by_topic(batch, 0))


def test_rows_keep_their_numbers_when_they_are_separated() -> None:
    """The number of a row in its partition is its identity."""
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "body": [b"1", b"2", b"3"]})
    given = parse(SinkOptions, {"nameserver": "n:1"})
    encoder = Encoder(given, checked_columns(batch.schema, given))
    assert {topic: rows.numbers.tolist() for topic, rows in encoder.by_topic(batch, 100)} == {
        "a": [100, 102],
        "b": [101],
    }


def made(*sizes: int) -> Elements:
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Elements(memoryview(bytes(n % 251 for n in range(int(starts[-1])))), starts)


def test_sends_are_cut_by_size_and_a_large_row_goes_alone() -> None:
    """Every row once, in order."""
    groups = made(10, 10, 500, 10, 10).cuts(np.arange(5), 25)
    assert [group.tolist() for group in groups] == [[0, 1], [2], [3, 4]]
    scattered = made(10, 10, 500, 10, 10).cuts(np.array([0, 3, 4]), 20)
    assert [group.tolist() for group in scattered] == [[0, 3], [4]]


def test_a_send_is_put_together_from_the_rows_of_one_queue() -> None:
    """Runs of neighbours are taken as one slice."""
    some = made(3, 3, 3, 3)
    assert some.taken(np.array([0, 1, 3])) == bytes([0, 1, 2, 3, 4, 5, 9, 10, 11])
    assert some.taken(np.array([2])) == bytes([6, 7, 8])


def test_every_row_gets_the_key_of_its_producer() -> None:
    """Producers by row, sequences with gaps."""
    found = keys("TQ!", ["a" * 20, "b" * 20], np.array([1, 0]), np.array([7, (3 << 32) | 255]))
    assert found.to_pylist() == [
        f"UNIQ_KEY\x01TQ!{'b' * 20}{7:016x}\x02".encode(),
        f"UNIQ_KEY\x01TQ!{'a' * 20}{(3 << 32) | 255:016x}\x02".encode(),
    ]


def test_the_properties_of_one_row_are_found_again() -> None:
    """For messages that are sent one by one."""
    batch = pa.RecordBatch.from_pydict({"body": [b"one", b"two!"], "tags": ["x", "y"]})
    ((_, rows),) = Encoder(options(), checked_columns(batch.schema, options())).by_topic(batch, 0)
    unique = keys("TQ!", ["a" * 20], np.zeros(2, dtype=np.int64), rows.numbers)
    assert elements(rows, unique).properties(1) == f"UNIQ_KEY\x01TQ!{'a' * 20}{1:016x}\x02TAGS\x01y\x02"
