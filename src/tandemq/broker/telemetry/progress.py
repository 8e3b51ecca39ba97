"""How full queues are and how far groups have read them, for administrators and metrics.

It reads tables and store and changes nothing. The time of a message costs reading its record, so times are read only
where an answer needs them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.clock import Clock
from tandemq.codec import bodies
from tandemq.codec.fastjson import ObjectKey
from tandemq.model.topic import QueueRef, TopicConfig
from tandemq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Lag:
    """One group on one queue (upstream's OffsetWrapper)."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    """Store time of the newest message consumed, 0 when nothing was."""

    @property
    def behind(self) -> int:
        return max(0, self.broker_offset - self.consumer_offset)


class GroupLag(NamedTuple):
    """How many messages of a topic a group has not consumed."""

    topic: str
    group: str
    behind: int


class Progress:
    """What the tables and the store say together."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        members: Members,
        stats: BrokerStats,
        clock: Clock,
        broker_name: str,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._clock = clock
        self._broker_name = broker_name

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns when the message at a queue offset was stored (ms), 0 if it is not there."""
        return max(0, self._store.reader.store_time(topic, queue_id, queue_offset))

    def queue(self, topic: str, queue_id: int) -> QueueRef:
        return QueueRef(topic, self._broker_name, queue_id)

    def topic_stats(self, config: TopicConfig) -> Iterator[tuple[ObjectKey, dict[str, Any]]]:
        """Yields the entries of a topic's TopicStatsTable."""
        topic = config.name
        for queue_id in range(max(config.write_queues, config.read_queues)):
            first, last = self._store.reader.queue_range(topic, queue_id)
            found = {
                "lastUpdateTimestamp": self.stored_at(topic, queue_id, last - 1),
                "maxOffset": last,
                "minOffset": first,
            }
            yield bodies.queue_key(self.queue(topic, queue_id)), found

    def topic_tps(self, topic: str) -> float:
        """Returns how many messages a second the topic gets."""
        return self._stats.topic_put_tps(topic, self._clock.monotonic())

    def topics_of(self, group: str, topic: str, topic_list: Iterable[str] = ()) -> list[str]:
        """Returns the topics that an answer about a group covers: those asked for, else all that it still reads."""
        listed = [name for name in topic_list if name]
        if listed:
            return listed
        asked = [topic] if topic else self._offsets.topics_of(group)
        live = self._members.consumer_group(group)
        if live is None or not live.subscriptions:
            return asked
        return [name for name in asked if name in live.subscriptions]

    def lags(self, group: str, topic: str) -> Iterator[tuple[QueueRef, Lag]]:
        """Yields where the group stands on every read queue of a topic; nothing for an unknown topic."""
        config = self._topics.get(topic)
        for queue_id in range(config.read_queues if config is not None else 0):
            consumed = max(0, self._offsets.query(group, topic, queue_id))
            last = self._store.reader.queue_range(topic, queue_id)[1]
            at = self.stored_at(topic, queue_id, consumed - 1)
            yield self.queue(topic, queue_id), Lag(last, consumed, at)

    def group_lags(self) -> Iterator[GroupLag]:
        """Yields every group on every topic it has offsets of. The tables may change between two of them."""
        queue_range = self._store.reader.queue_range
        for (topic, group), queues in list(self._offsets.all().items()):
            behind = sum(max(0, queue_range(topic, queue)[1] - offset) for queue, offset in queues.items())
            yield GroupLag(topic, group, behind)

    def consume_stats(self, group: str, topics: Iterable[str]) -> Iterator[tuple[ObjectKey, dict[str, Any]]]:
        """Yields the entries of a group's ConsumeStats over some topics."""
        for topic in topics:
            for queue, lag in self.lags(group, topic):
                found = {
                    "brokerOffset": lag.broker_offset,
                    "consumerOffset": lag.consumer_offset,
                    "lastTimestamp": lag.last_timestamp,
                    "pullOffset": lag.consumer_offset,
                }
                yield bodies.queue_key(queue), found

    def consume_tps(self, group: str, topics: Iterable[str]) -> float:
        """Returns how many messages of some topics a group gets a second."""
        now = self._clock.monotonic()
        return sum(self._stats.group_get_tps(topic, group, now) for topic in topics)

    def time_span(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        """Returns a QueueTimeSpan: the times of the oldest, the newest and the last consumed message of a queue."""
        first, last = self._store.reader.queue_range(topic, queue_id)
        oldest = self._store.reader.earliest_store_time(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        delay = 0
        if 0 <= consumed < last:
            delay = self._clock.wall_ms() - self.stored_at(topic, queue_id, max(consumed, first))
        return {
            "consumeTimeStamp": self.stored_at(topic, queue_id, consumed - 1) if consumed > 0 else oldest,
            "delayTime": delay,
            "maxTimeStamp": self.stored_at(topic, queue_id, last - 1),
            "messageQueue": bodies.queue_json(self.queue(topic, queue_id)),
            "minTimeStamp": oldest,
        }
