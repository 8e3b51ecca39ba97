"""Where rows go depends on their place and wishes alone."""

import numpy as np
import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.model.topic import QueueRef
from tandemq.spark.sink.placement import SPAN, by_key, by_queue_id, in_turns


def rows(start: int, stop: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(start, stop, dtype=np.int64)


def test_rows_fill_all_queues_in_turns() -> None:
    chosen = in_turns(rows(0, SPAN * 8), 4, partition=0, batch=0)
    assert np.bincount(chosen).tolist() == [SPAN * 2] * 4


def test_small_micro_batches_and_partitions_begin_at_different_queues() -> None:
    """A stream of single rows must not fill queue 0 alone."""
    assert {int(in_turns(rows(0, 1), 4, 0, batch)[0]) for batch in range(4)} == {0, 1, 2, 3}
    assert {int(in_turns(rows(0, 1), 4, partition, 0)[0]) for partition in range(4)} == {0, 1, 2, 3}


def test_the_size_of_arrow_batches_does_not_matter() -> None:
    whole = in_turns(rows(0, 1000), 3, 2, 5)
    pieces = [in_turns(rows(start, start + 10), 3, 2, 5) for start in range(0, 1000, 10)]
    assert np.concatenate(pieces).tolist() == whole.tolist()


def test_a_key_always_goes_to_its_queue_and_null_takes_its_turn() -> None:
    """Hashes are Java's, so that RocketMQ's own SelectMessageQueueByHash finds the same queue."""
    keys = pa.array(["user", None, "user", "other"])
    turns = np.array([3, 3, 3, 3], dtype=np.int64)
    chosen = by_key(keys, turns, 4)
    assert chosen[0] == chosen[2] == abs(3599307) % 4  # "user".hashCode()
    assert chosen[1] == 3
    assert by_key(pa.array([None], pa.string()), turns[:1], 4).tolist() == [3]


def test_a_queue_number_is_taken_from_the_first_group_that_has_it() -> None:
    queues = tuple(QueueRef("t", broker, n) for broker, count in (("a", 1), ("b", 3)) for n in range(count))
    wished = np.array([0, 2, -1], dtype=np.int64)
    assert by_queue_id(wished, np.array([9, 9, 1], dtype=np.int64), queues).tolist() == [0, 3, 1]
    with pytest.raises(ConfigError, match="'t' has no queue 3; it has 0 to 2"):
        by_queue_id(np.array([3], dtype=np.int64), np.array([0], dtype=np.int64), queues)
