"""What the views keep of a record: its tags code in the consume queue, its keys in the index.

The rules, for one record at a time; `derived_arrays` applies them to many at once.

- Every record has an entry in the queue that it names, unless it is a prepared or rolled-back transaction.
- The entry's tags code is the Java hash of TAGS; of a delayed message in the schedule topic, the time when it is due.
- The index has UNIQ_KEY and each word of KEYS, in this order, unless the record is a rolled-back transaction.
- Of a property that occurs more than once the last value that is not empty counts.
"""

from collections.abc import Iterator

from tandemq.formats.envelope import delay_level, delivery_time
from tandemq.model.message import (
    KEYS,
    TAGS,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIQUE_KEY,
    decode_properties,
    tags_code,
)
from tandemq.model.topic import SCHEDULE_TOPIC

NAME_END = 1
VALUE_END = 2
TAGS_NAME = TAGS.encode() + bytes((NAME_END,))
KEYS_NAME = KEYS.encode() + bytes((NAME_END,))
UNIQUE_KEY_NAME = UNIQUE_KEY.encode() + bytes((NAME_END,))
_END = bytes((VALUE_END,))


def is_in_queue(sys_flag: int) -> bool:
    """Returns whether a record with this sysFlag has an entry in a consume queue."""
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def is_in_index(sys_flag: int) -> bool:
    """Returns whether the keys of a record with this sysFlag are in the index."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


def property_value(properties: bytes, name: bytes) -> bytes:
    """Returns the value of one property, empty if there is none, without decoding them all.

    `name` ends with its separator.
    """
    start, stop = property_place(properties, name)
    return properties[start:stop]


def property_place(properties: bytes, name: bytes) -> tuple[int, int]:
    """Returns where the value of one property begins and ends; (0, 0) if there is none."""
    at = properties.rfind(name)
    while at >= 0:
        if at == 0 or properties[at - 1] == VALUE_END:
            start = at + len(name)
            stop = properties.find(_END, start)
            if stop < 0:
                stop = len(properties)
            if stop > start:
                return start, stop
        at = properties.rfind(name, 0, at)
    return 0, 0


def index_keys(properties: bytes) -> Iterator[bytes]:
    """Yields the keys of a message in the order in which the index has them."""
    unique = property_value(properties, UNIQUE_KEY_NAME)
    if unique:
        yield unique
    for key in property_value(properties, KEYS_NAME).split(b" "):
        if key:
            yield key


def queue_tags_code(topic: str, properties: bytes, stored_at: int, delays_ms: tuple[int, ...]) -> int:
    """Returns the tags code of a record's queue entry."""
    due = delivery_time_of(topic, properties, stored_at, delays_ms)
    return tags_code(property_value(properties, TAGS_NAME).decode("utf-8", "replace")) if due is None else due


def delivery_time_of(topic: str, properties: bytes, stored_at: int, delays_ms: tuple[int, ...]) -> int | None:
    """Returns when a delayed message of the schedule topic is due; None if the record is no such message."""
    if topic == SCHEDULE_TOPIC:
        level = min(delay_level(decode_properties(properties)), len(delays_ms))
        if level > 0:
            return delivery_time(stored_at, level, delays_ms)
    return None
