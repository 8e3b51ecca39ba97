"""The deterministic key of a message that a sink writes: who wrote it, and the how-manyeth it was.

    UNIQ_KEY = "TQ!" + producer (20 hex digits) + sequence (16 hex digits)

The producer is a digest of sink, partition, topic, broker and queue, so one producer writes one queue; the sequence
rises with every message: micro-batch number << 32 | row. A repeat of the same rows makes the same keys: consumers can
drop repeats, and our broker can refuse them (`broker.idempotence`), because both are read off the log itself.
"""

import hashlib

PREFIX = "TQ!"
PRODUCER_DIGITS = 20
SEQUENCE_DIGITS = 16
ROW_BITS = 32


def producer_id(sink: str, partition: int, topic: str, broker: str, queue_id: int) -> str:
    text = "\0".join((sink, str(partition), topic, broker, str(queue_id)))
    return hashlib.blake2b(text.encode(), digest_size=PRODUCER_DIGITS // 2).hexdigest()


def sequence(batch: int, row: int) -> int:
    return batch << ROW_BITS | row
