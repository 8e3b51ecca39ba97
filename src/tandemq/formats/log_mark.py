"""Marks: small records in the log by which a TandemQ master says something about queues at that position.

A mark is an ordinary record in queue 0 of the system topic `LOG_MARK_TOPIC`; its body is a JSON object:

    {"kind": "topic-deleted", "topic": "T"}
        From here on the topic is another one: its queues are gone, and the next message of each has number 0.
    {"kind": "queue-numbers", "queues": {"T": {"0": 100}}}
        The next message of queue 0 of T has number 100. Written for queues of which the log holds no message any more,
        because nothing else in the log tells where their numbers go on.

Queue 1 of the topic holds another kind, `service_progress.py`.

Whoever derives queues from the log (a slave, recovery, a rebuild, Spark's reindex) so comes to the same queues. A
RocketMQ broker that follows or opens the log takes a mark for a message of a topic that nobody reads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

LOG_MARK_TOPIC = "rmq_sys_TANDEMQ_MARKS"
BODY_SIZE_MAX = 32 << 10
"""Numbers of many queues are spread over several marks of about this size."""
_QUEUE_OVERHEAD = 24
"""Bytes that the number of a queue takes at most, beside its topic's name."""

QueueKey: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The queues of a topic are gone."""

    topic: str


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """The numbers that the next messages of some queues have."""

    numbers: dict[QueueKey, int] = field(default_factory=dict)


LogMark: TypeAlias = TopicDeleted | QueueNumbers


def encode_mark(mark: LogMark) -> bytes:
    """Returns the body of a mark's record."""
    if isinstance(mark, TopicDeleted):
        return msgspec.json.encode({"kind": "topic-deleted", "topic": mark.topic})
    return msgspec.json.encode({"kind": "queue-numbers", "queues": by_topic(mark.numbers)})


def decode_mark(body: bytes | memoryview) -> LogMark | None:
    """Returns the mark that a record's body holds; None for a kind that this version does not know."""
    try:
        content: Any = msgspec.json.decode(body)
        if content["kind"] == "topic-deleted" and isinstance(content["topic"], str):
            return TopicDeleted(content["topic"])
        if content["kind"] == "queue-numbers":
            return QueueNumbers(from_topics(content["queues"]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        pass
    return None


def marks_of(numbers: Iterable[tuple[QueueKey, int]], size_max: int = BODY_SIZE_MAX) -> Iterator[QueueNumbers]:
    """Yields marks for these queues, none much larger than `size_max`."""
    some: dict[QueueKey, int] = {}
    size = 0
    for key, number in numbers:
        more = len(key[0].encode()) + _QUEUE_OVERHEAD
        if some and size + more > size_max:
            yield QueueNumbers(some)
            some, size = {}, 0
        some[key] = number
        size += more
    if some:
        yield QueueNumbers(some)


def by_topic(numbers: dict[QueueKey, int]) -> dict[str, dict[str, int]]:
    """Returns numbers of queues as a JSON object: topic, then queue id."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), number in numbers.items():
        found.setdefault(topic, {})[str(queue_id)] = number
    return found


def from_topics(topics: dict[str, dict[str, int]]) -> dict[QueueKey, int]:
    """Returns what `by_topic` made an object of; raises ValueError for numbers that no queue can have."""
    found = {}
    for topic, queues in topics.items():
        for queue_id, number in queues.items():
            if not isinstance(number, int) or number < 0:
                raise ValueError(f"queue {queue_id} of {topic}: {number!r} is no number of a message")
            found[topic, int(queue_id)] = number
    return found
