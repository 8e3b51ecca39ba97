"""How messages that are not for consumers yet lie in the log: delayed, half (transactional) and op records.

Each is an ordinary record under a system topic, with the real topic and queue in its properties. Facts:
ScheduleMessageService, TransactionalMessageBridge. Upstream leaves REAL_TOPIC, REAL_QID and DELAY in the text of what
it finally delivers, so we do too: a consumer sees the same properties from either broker.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tandemq.errors import CorruptRecord
from tandemq.model.message import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_COMMIT,
    TRANSACTION_ID,
    TRANSACTION_MASK,
    UNIQUE_KEY,
)
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC

DELAY_LEVELS_DEFAULT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAY_UNKNOWN_MS = 1000
"""What upstream waits for a level it has no delay for."""
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

OP_REMOVE_TAG = "d"
OP_BODY_SIZE_MAX = 4096
"""RocketMQ 5's transactionOpMsgMaxSize: offsets are gathered into one op record up to this many bytes."""


class Enveloped(NamedTuple):
    """Where a message goes, and with which properties and sysFlag."""

    topic: str
    queue_id: int
    sys_flag: int
    properties: dict[str, str]


def parse_delay_levels(text: str = DELAY_LEVELS_DEFAULT) -> tuple[int, ...]:
    """Returns the delays in ms of levels 1, 2, …; index 0 is level 1. Raises ValueError that names the bad item."""
    delays = []
    for item in text.split():
        number, unit = item[:-1], item[-1:].lower()
        if unit not in _UNIT_MS or not number.isdecimal():
            raise ValueError(f"messageDelayLevel: {item!r} is not a number followed by s, m, h or d")
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)


def delay_level(properties: Mapping[str, str]) -> int:
    """Returns the level a message asks for, 0 for none or for something that is no number."""
    text = properties.get(DELAY, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def delivery_time(store_timestamp: int, level: int, delays_ms: tuple[int, ...]) -> int:
    """Returns when a scheduled record is due: also its tags code in the schedule topic's consume queue."""
    delay = delays_ms[level - 1] if 1 <= level <= len(delays_ms) else DELAY_UNKNOWN_MS
    return store_timestamp + delay


def to_schedule(
    topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str], level_max: int = 18
) -> Enveloped:
    """Returns a message with DELAY > 0 as it goes into the schedule topic; one queue per level."""
    level = min(delay_level(properties), level_max)
    wrapped = {**properties, DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return Enveloped(SCHEDULE_TOPIC, level - 1, sys_flag, wrapped)


def from_schedule(sys_flag: int, properties: Mapping[str, str]) -> Enveloped:
    """Returns a scheduled record that is due as it goes to where it was meant to go."""
    topic, queue_id = real_destination(properties)
    return Enveloped(topic, queue_id, sys_flag, dict(properties))


def to_half(topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str]) -> Enveloped:
    """Returns a prepared message for the half topic. Clears its transaction bits so that it is dispatched."""
    wrapped = {**properties, REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    if UNIQUE_KEY in properties:
        wrapped.setdefault(TRANSACTION_ID, properties[UNIQUE_KEY])
    return Enveloped(TRANS_HALF_TOPIC, 0, sys_flag & ~TRANSACTION_MASK, wrapped)


def from_half(sys_flag: int, properties: Mapping[str, str]) -> Enveloped:
    """Returns a half message that was committed: real topic and queue, commit type.

    Append it with the half record's physical offset as prepared_transaction_offset."""
    topic, queue_id = real_destination(properties)
    return Enveloped(topic, queue_id, sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT, dict(properties))


def real_destination(properties: Mapping[str, str]) -> tuple[str, int]:
    """Returns (topic, queue id) that a wrapped message was sent to."""
    topic, queue_text = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not topic or not queue_text.isdecimal():
        raise CorruptRecord(f"a wrapped message has {REAL_TOPIC}={topic!r} and {REAL_QUEUE_ID}={queue_text!r}")
    return topic, int(queue_text)


def op_properties() -> dict[str, str]:
    """Returns the properties of an op record: its tag says that the halves it names are decided."""
    return {TAGS: OP_REMOVE_TAG}


def encode_op_body(half_queue_offsets: Iterable[int]) -> bytes:
    """Returns RocketMQ 5's form, which 4.x writes for a single offset without the comma; both read both."""
    offsets = list(half_queue_offsets)
    if len(offsets) == 1:
        return str(offsets[0]).encode()
    return "".join(f"{offset}," for offset in offsets).encode()


def decode_op_body(body: bytes | memoryview) -> list[int]:
    """Returns the half-queue offsets that an op record declares decided."""
    items = bytes(body).split(b",")
    try:
        return [int(item) for item in items if item.strip()]
    except ValueError:
        raise CorruptRecord(f"an op record's body is no list of offsets: {bytes(body)[:60]!r}") from None
