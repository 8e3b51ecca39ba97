"""Which queue each row goes to: a function of the row's place and wishes, and of the list of queues. Pure.

A row's place is its micro-batch, its partition and its number in there. Rows without a wish fill the queues in turns,
`SPAN` rows at a time; which queue begins depends on partition and micro-batch, so that small micro-batches fill all
queues too. Neither the sizes of sends nor the sizes of Arrow batches have a say, so a repeat places rows alike.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tandemq.errors import ConfigError
from tandemq.model.message import java_hash
from tandemq.model.topic import QueueRef

SPAN = 64
"""Rows in a row that go to the same queue. They come together again in one send per Arrow batch and queue."""

Numbers = npt.NDArray[np.int64]


def in_turns(rows: Numbers, queues: int, partition: int, batch: int) -> Numbers:
    """Returns the index of each row's queue, for rows without a wish."""
    return (rows // SPAN + partition + batch) % queues


def by_key(keys: Any, otherwise: Numbers, queues: int) -> Numbers:
    """Returns the index of the queue that each sharding key (an Arrow array) belongs to; `otherwise` where it is null.

    As RocketMQ's SelectMessageQueueByHash: the same key always goes to the same queue.
    """
    encoded = keys.dictionary_encode()
    hashes = [_hash(key) % queues for key in encoded.dictionary.to_pylist()]
    if not hashes:
        return otherwise
    known = np.asarray(encoded.indices.is_valid())
    numbers = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
    return np.where(known, np.array(hashes, dtype=np.int64)[numbers], otherwise)


def _hash(key: str | bytes) -> int:
    """Returns Java's hash of the text; bytes are taken for the characters of the same numbers."""
    return abs(java_hash(key if isinstance(key, str) else key.decode("latin-1")))


def by_partition(wished: Numbers, otherwise: Numbers, queues: tuple[QueueRef, ...]) -> Numbers:
    """Returns the index of each row's queue among all queues of the topic; `otherwise` where that is negative."""
    largest = int(wished.max(initial=-1))
    if largest >= len(queues):
        raise ConfigError(
            f"column `partition`: {queues[0].topic!r} has no partition {largest}; it has 0 to {len(queues) - 1}"
        )
    return np.where(wished >= 0, wished, otherwise)


def by_queue_id(wished: Numbers, otherwise: Numbers, queues: tuple[QueueRef, ...]) -> Numbers:
    """Returns the index of the queue with the number that each row wishes; `otherwise` where that is negative.

    With several broker groups, the first one that has a queue of this number gets the row.
    """
    chosen = otherwise.copy()
    for number in np.unique(wished).tolist():
        if number < 0:
            continue
        index = next((index for index, queue in enumerate(queues) if queue.queue_id == number), None)
        if index is None:
            known = sorted({queue.queue_id for queue in queues})
            raise ConfigError(
                f"column `queue_id`: {queues[0].topic!r} has no queue {number}; it has {known[0]} to {known[-1]}"
            )
        chosen[wished == number] = index
    return chosen
