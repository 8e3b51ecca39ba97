"""Finds in the log which timer messages were delivered already.

Whoever delivers appends the message under its own topic. So the log tells what was delivered, also by a broker that
died before it could note it, and by RocketMQ, whose notes (the wheel's files) never come with the log. A message whose
time had passed when the service started is looked for in the queue that it belongs to, from its time on; a copy has its
time, its unique key, its birth and its body. RocketMQ, and ours, append a message that waits long under the timer topic
once more (TIMER_ROLL_TIMES): the newest of these counts.
"""

import logging
from collections.abc import Iterable, Mapping

from tandemq.broker.record_slices import messages_of
from tandemq.errors import CodecError
from tandemq.formats.envelope import real_destination
from tandemq.model.message import REAL_TOPIC, UNIQUE_KEY, StoredMessage
from tandemq.model.topic import TIMER_TOPIC
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

OUT_MS = "TIMER_OUT_MS"
ROLL_TIMES = "TIMER_ROLL_TIMES"
RECALLED = "TIMER_DEL_UNIQKEY"
"""Of a marker that recalls another timer message, which it names: RocketMQ delivers neither."""

READ_BATCH = 512
READ_BYTES = 1 << 20
CLOCK_SLACK_MS = 60_000
"""A copy is stored at its time or later; a clock that was set back meanwhile says otherwise."""

Identity = tuple[str, str, str, int, int]
Queue = tuple[str, int]


def identity(topic: str, message: StoredMessage) -> Identity:
    """Returns what a message and its copies have in common."""
    properties = message.properties
    return (
        topic, properties.get(UNIQUE_KEY, ""), properties.get(OUT_MS, ""), message.born_timestamp, message.body_crc,
    )  # fmt: skip


class DeliveredCopies:
    """The search: `ask` about messages, then `step` until it returns None."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._asked: dict[Identity, list[tuple[int, int]]] = {}
        """Identity -> (physical offset, queue offset) of each message asked about, in the order of the log"""
        self._from: dict[Queue, int] = {}
        """Queue -> the earliest time of a message that belongs there"""
        self._next: dict[Queue, int] = {}
        self.found = 0

    def ask(self, message: StoredMessage, due_ms: int) -> None:
        """Asks about a message of the timer topic."""
        properties = message.properties
        try:
            queue = real_destination(properties)
        except CodecError:
            return  # it can't be delivered
        key, place = identity(queue[0], message), (message.physical_offset, message.queue_offset)
        if ROLL_TIMES in properties and UNIQUE_KEY in properties:
            self._asked[key] = [place]  # those before it are superseded
        else:
            self._asked.setdefault(key, []).append(place)
        self._from[queue] = min(due_ms, self._from.get(queue, due_ms))

    def step(self) -> list[int] | None:
        """Looks at some more of the log; returns which were delivered (queue offsets), None when all was looked at."""
        if not self._from and not self._next:
            self._asked.clear()
            return None
        if not self._next:
            return self._begin()
        queue, start = next(iter(self._next.items()))
        last = self._store.reader.queue_range(*queue)[1]
        found = self._store.reader.get(*queue, start, READ_BATCH, READ_BYTES, None) if start < last else None
        if found is None or found.next_offset <= start:
            del self._next[queue]
            return []
        self._next[queue] = found.next_offset
        return self._matches(messages_of(found.slices))

    def _begin(self) -> list[int]:
        """Finds where to look in each queue. Examines at once what readers may not see yet."""
        reader = self._store.reader
        for (topic, queue_id), due_ms in self._from.items():
            self._next[topic, queue_id] = reader.search_by_time(topic, queue_id, due_ms - CLOCK_SLACK_MS)
        self._from.clear()
        return self._matches(self._store.undispatched())

    def _matches(self, messages: Iterable[StoredMessage]) -> list[int]:
        delivered = []
        for message in messages:
            if OUT_MS not in message.properties or message.topic == TIMER_TOPIC:
                continue
            asked = self._asked.get(identity(message.topic, message))
            if asked and asked[0][0] < message.physical_offset:
                delivered.append(asked.pop(0)[1])
        self.found += len(delivered)
        return delivered


class Superseded:
    """Which waiting messages are not to be delivered: those that were appended again, and those that were recalled."""

    def __init__(self) -> None:
        self._rolled: dict[Identity, int] = {}
        """Identity -> queue offset of the newest"""
        self._recalled: dict[str, int] = {}
        """Unique key, with the topic before it or not -> queue offset of the marker"""

    def note(self, message: StoredMessage) -> None:
        """Learns of a message that waits."""
        properties = message.properties
        if ROLL_TIMES in properties and UNIQUE_KEY in properties:
            key = identity(properties.get(REAL_TOPIC, ""), message)
            self._rolled[key] = max(message.queue_offset, self._rolled.get(key, 0))
        if recalled := properties.get(RECALLED):
            self._recalled[recalled] = message.queue_offset

    def holds(self, message: StoredMessage) -> bool:
        """Returns whether this message is not to be delivered; asked once for each, when its time has come."""
        properties = message.properties
        if (marker := properties.get(RECALLED)) is not None:
            if self._recalled.get(marker) == message.queue_offset:
                del self._recalled[marker]
            return True
        key, topic = properties.get(UNIQUE_KEY), properties.get(REAL_TOPIC, "")
        if key is None:
            return False
        if self._rolled:
            newest = self._rolled.get(name := identity(topic, message), -1)
            if newest > message.queue_offset:
                return True
            if newest == message.queue_offset:
                del self._rolled[name]
        return key in self._recalled or f"{topic}+{key}" in self._recalled


def rolled(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a message that is appended under the timer topic once more."""
    times = properties.get(ROLL_TIMES, "")
    return {**properties, ROLL_TIMES: str(int(times) + 1 if times.isdecimal() and len(times) < 10 else 1)}
