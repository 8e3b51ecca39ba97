"""The number that the next message of each queue gets: what appends hand out, ahead of what is dispatched.

A number is handed out when a message is appended; its queue shows it once it is dispatched. So numbers are kept beside
the queues: they come from the queues for all that is dispatched, and from the log for the rest (`renumber`, before a
node begins to write).
"""

from collections.abc import Iterable

from tandemq.errors import StoreError
from tandemq.formats.derived import is_in_queue
from tandemq.formats.log_mark import LOG_MARK_TOPIC, LogMark, QueueNumbers, TopicDeleted, decode_mark
from tandemq.model.message import StoredMessage
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.queues import QueueTable

DELETED_MAX = 1000
"""So many deleted topics are remembered before it is looked up which of them still have queues."""


class QueueNumbering:
    """Next numbers in cells, lists of one element: an append looks its cell up once, reads it and writes it."""

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self.cells: dict[tuple[str, int], list[int]] = {}
        self._keys: dict[str, list[tuple[str, int]]] = {}
        """The keys of each topic's cells: a topic goes without a look at all the others."""
        self._deleted: set[str] = set()
        """Topics deleted by a mark whose queues may not know of it yet: they begin at 0."""

    def cell(self, topic: str, queue_id: int) -> list[int]:
        """Returns the cell of a queue, which is created if there is none; raises StoreError if its name forbids."""
        key = (topic, queue_id)
        cell = self.cells.get(key)
        if cell is None:
            queue = self._queues.table.get(key) or self._queues.create(topic, queue_id)
            if queue is None:
                raise StoreError(
                    f"queue {queue_id} of topic {topic[:100]!r} can't be created: not a name for a directory"
                )
            cell = self.cells[key] = [self.number_of(queue)]
            self._keys.setdefault(topic, []).append(key)
        return cell

    def number_of(self, queue: ConsumeQueue) -> int:
        """Returns the number that the next message of a queue gets."""
        cell = self.cells.get(queue.key)
        if cell is not None:
            return cell[0]
        return queue.count if queue.topic not in self._deleted else 0

    def renumber(self, undispatched: Iterable[StoredMessage]) -> None:
        """Forgets all numbers and takes them anew from the queues and from what is not dispatched yet."""
        self.cells.clear()
        self._keys.clear()
        self._deleted.clear()
        for message in undispatched:
            if message.topic == LOG_MARK_TOPIC and (mark := decode_mark(message.body)) is not None:
                self.apply(mark)
            if is_in_queue(message.sys_flag):
                self._raise(message.topic, message.queue_id, message.queue_offset + 1)

    def apply(self, mark: LogMark) -> None:
        """Follows a mark that was appended."""
        if isinstance(mark, TopicDeleted):
            for key in self._keys.pop(mark.topic, ()):
                del self.cells[key]
            if len(self._deleted) >= DELETED_MAX:
                self._deleted.intersection_update([topic for topic, _ in self._queues.table])
            self._deleted.add(mark.topic)
        elif isinstance(mark, QueueNumbers):
            for (topic, queue_id), number in mark.numbers.items():
                self._raise(topic, queue_id, number)

    def _raise(self, topic: str, queue_id: int, number: int) -> None:
        try:
            cell = self.cell(topic, queue_id)
        except StoreError:
            return  # in no queue: its name can't be a directory
        cell[0] = max(cell[0], number)
