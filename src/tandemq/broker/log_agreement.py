"""Keeps a broker's tables true of its log: the log decides which topics there are and how far a group can have come."""

import logging
from collections.abc import Iterable

from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

NAMED_MAX = 10
"""Offsets that are named in one line of the log."""


class LogAgreement:
    """Corrects topics and offsets after a start, a cut or a new reign, and follows deletions that the log tells of."""

    def __init__(self, store: MessageStore, topics: TopicTable, offsets: OffsetTable, stats: BrokerStats) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._stats = stats

    def begin(self) -> None:
        """Tells what opening the store found, and does what it says to the tables."""
        recovered = self._store.recovered
        if recovered is not None and recovered.problem:
            log.warning("queues and index were built anew from the log: %s", recovered.problem)
        for topic in recovered.deleted_topics if recovered is not None else ():
            if self._has_offsets_beyond(topic):  # the last process died before it saved that they are gone
                self._offsets.remove_topic(topic)
        self._store.on_topic_deleted = self._topic_deleted
        self.restore()

    def restore(self) -> None:
        """Makes the tables true of this log: no group is beyond it, no topic in it is unknown."""
        taken_back = self._offsets.clamp(self._store.queue_end)
        if taken_back:
            some = ", ".join(f"{group} on {topic}-{queue_id}" for topic, group, queue_id in taken_back[:NAMED_MAX])
            log.warning(
                "%d offsets of groups were beyond the end of their queues; they are there now, so that nothing to come "
                "is skipped: %s",
                len(taken_back),
                some,
            )
        self.adopt(self._store.reader.queues_with_messages())

    def adopt(self, queues: Iterable[tuple[str, int]]) -> None:
        """Adopts topics that only the log knows."""
        for topic in self._topics.adopt(queues):
            log.warning("topic %s has messages in the log and was not known here: it is taken in", topic)

    def _has_offsets_beyond(self, topic: str) -> bool:
        """Returns whether a group's offset on a topic lies beyond the end of its queue."""
        return any(
            offset > self._store.reader.queue_range(topic, queue_id)[1]
            for group in self._offsets.groups_of(topic)
            for queue_id, offset in self._offsets.of(group, topic).items()
        )

    def _topic_deleted(self, topic: str) -> None:
        """Follows the log, which says that a topic was deleted. A master has done so when it was asked to."""
        if not self._topics.log_says_deleted(topic):
            self._offsets.remove_topic(topic)
            self._stats.forget_topic(topic)
