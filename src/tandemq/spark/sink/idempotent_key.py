"""The deterministic key of a message that a sink writes: who wrote it, and which row it was.

    UNIQ_KEY = prefix + 20 hex digits + sequence (16 hex digits: micro-batch number << 32 | row in its partition)

A repeat of the same rows makes the same keys, so consumers can drop repeats.

    at_least_once   prefix "TQ:" and a digest of sink and partition: the same key wherever the row is sent
    exactly_once    prefix "TQ!" and a digest of sink, partition and queue: our broker remembers the last message of
                    each and stores no repeat (`broker.idempotence`); the queue of a row is agreed before (`ledger`)
"""

import hashlib

PREFIX = "TQ:"
CHECKED_PREFIX = "TQ!"
DIGITS = 20
ROW_BITS = 32
ROWS_MAX = 1 << ROW_BITS
"""Rows of one partition in one micro-batch."""

IDEMPOTENT = "__TQ_IDEMPOTENT"
"""The property of a send that our broker checks: see `claim`."""


def digest(*parts: str | int) -> str:
    """Returns 20 hex digits that stand for these parts."""
    text = "\0".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=DIGITS // 2).hexdigest()


def writer_id(sink: str, partition: int) -> str:
    return digest(sink, partition)


def producer_id(sink: str, partition: int, topic: str, broker: str, queue_id: int) -> str:
    return digest(sink, partition, topic, broker, queue_id)


def sequence(batch: int, row: int) -> int:
    return batch << ROW_BITS | row


def claim(
    producer: str, before: int | None, first: int, last: int, messages: int, since_ms: int = 0, *, keeps: bool = False
) -> str:
    """Returns the property by which a send asks not to be stored twice.

    `before` is the sequence of the producer's message before these in the same micro-batch, None if there is none;
    `since_ms` is when the write began, as the broker's clock told it, 0 if it has just begun; `keeps` accepts another
    body that is stored under the same key.
    """
    text = "-" if before is None else f"{before:x}"
    keep = ":keep" if keeps else ""
    return f"{IDEMPOTENT}\x01{producer}:{text}:{first:x}:{last:x}:{messages}:{since_ms}{keep}\x02"
