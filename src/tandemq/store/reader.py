"""Reading by physical offset, by queue offset, by time and by key: from the views to slices of the log."""

from collections.abc import Callable, Iterable, Iterator

from tandemq.errors import CodecError, CorruptRecord, OffsetOutOfRange, StoreError
from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.queue_entry import ENTRY, FILLER_SIZE, search
from tandemq.formats.record import parse_record, store_timestamp
from tandemq.model.message import KEYS, UNIQUE_KEY, StoredMessage
from tandemq.store.commit_log import CommitLog
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable
from tandemq.store.results import GetResult, GetStatus

QUERY_CANDIDATES_MAX = 4096
"""Index entries one query looks at: a hash shared by a million messages must not stop the broker."""
QUERY_SIZE_MAX = 8 << 20
"""Bytes of the records that one query reads, for the same reason; the first is read whatever it has."""


class Reader:
    """Reads the log and its views, writes neither. Nothing at or above `readable_limit()` is shown."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        query_count_max: int,
        readable_limit: Callable[[], int],
    ) -> None:
        self._log = log
        self._queues = queues.table
        self._index = index
        self._query_count_max = query_count_max
        self._readable_limit = readable_limit

    # -- reading by physical offset

    def read(self, physical_offset: int, limit: int | None = None) -> StoredMessage:
        """Returns one message. Raises OffsetOutOfRange above the limit, CorruptRecord if no record starts there."""
        message = parse_record(self.read_raw(physical_offset, limit))
        if message.physical_offset != physical_offset:
            raise CorruptRecord(
                f"no record starts at offset {physical_offset}: what is there says {message.physical_offset}"
            )
        return message

    def read_raw(self, physical_offset: int, limit: int | None = None) -> memoryview:
        """Returns the bytes of one record; errors as in `read`."""
        return self._log.record(physical_offset, self._readable_limit() if limit is None else limit)

    def walk(self, start: int | None = None) -> Iterator[StoredMessage]:
        """Yields every readable message whose record begins at or after a physical offset, in log order."""
        first = self._log.first_offset
        position = first if start is None else max(start, first)
        segment_start = max(position - position % self._log.segment_size, first)
        for message in self._log.messages(segment_start, self._readable_limit()):
            if message.physical_offset >= position:
                yield message

    # -- reading by queue offset

    def queues(self) -> Iterable[tuple[str, int]]:
        return self._queues.keys()

    def queues_with_messages(self) -> list[tuple[str, int]]:
        """Returns the queues that have something to read, without a look into their files where memory tells."""
        first = self._log.first_offset
        return [key for key, queue in self._queues.items() if queue.has_messages(first)]

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min, max): [min, max) can be read; (0, 0) for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0, 0
        return queue.min_offset(self._log.first_offset), queue.count

    def place(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Returns physical offset and size of a message, None if the queue does not have it."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset(self._log.first_offset) <= queue_offset < queue.count:
            return None
        physical_offset, size, _ = queue.entry(queue_offset)
        return None if size == FILLER_SIZE else (physical_offset, size)

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None = None,
        scan_max: int = 800,
    ) -> GetResult:
        """Returns up to `max_count` messages from a queue offset on, as slices of the log; one at least, if any."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0, 0, 0)
        first = self._log.first_offset
        lowest, highest = queue.min_offset(first), queue.count
        status, correct = _range_problem(queue_offset, lowest, highest)
        if status is not None:
            return GetResult(status, [], correct, lowest, highest, 0, 0)
        # Without a filter no more entries are read than messages are wanted.
        raw = queue.entries(queue_offset, max_count if match is None else max(scan_max, max_count))
        runs: list[list[int]] = []
        """[start, stop) in the log of neighbouring records"""
        count = total = last_end = 0
        segment_size = self._log.segment_size
        status = GetStatus.NO_MATCHED_MESSAGE
        position = queue_offset
        for physical_offset, size, tags in ENTRY.iter_unpack(raw):
            if physical_offset < first or size == FILLER_SIZE:
                status = GetStatus.MESSAGE_WAS_REMOVING
            elif match is None or match(tags):
                if count and (count >= max_count or total + size > max_bytes):
                    break
                if runs and runs[-1][1] == physical_offset and physical_offset % segment_size:
                    runs[-1][1] += size
                else:
                    runs.append([physical_offset, physical_offset + size])
                count += 1
                total += size
            last_end = physical_offset + size if size != FILLER_SIZE else last_end
            position += 1
        if position == queue_offset:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, [], queue_offset + 1, lowest, highest, 0, 0)
        try:
            slices = self._log.slices(runs)
        except OffsetOutOfRange as error:
            raise StoreError(
                f"consumequeue/{topic}/{queue_id} is damaged, one of its entries {queue_offset} to {position - 1} "
                f"points outside the log ({error}): build queues and index anew with "
                "`tandemq store rebuild --online HOST:PORT`"
            ) from error
        if count:
            status = GetStatus.FOUND
        return GetResult(status, slices, position, lowest, highest, count, last_end, runs[0][0] if runs else 0)

    def search_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Returns the first queue offset stored at or after a time; with `upper`, the last stored at or before it."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        lowest, highest = queue.min_offset(self._log.first_offset), queue.count
        earliest = timestamp_ms + upper
        after, found = search(
            lowest, highest, queue.skip_fillers, lambda index: self._store_time(queue, index) >= earliest
        )
        return max(lowest, after - 1) if upper else found

    def _store_time(self, queue: ConsumeQueue, index: int) -> int:
        physical_offset, size, _ = queue.entry(index)
        if size == FILLER_SIZE:
            return 0
        return store_timestamp(self._log.slice(physical_offset, size), 0)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns when the message at a queue offset was stored (ms), -1 if it is not there."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset(self._log.first_offset) <= queue_offset < queue.count:
            return -1
        return self._store_time(queue, queue_offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Returns the store time of the oldest message of a queue, -1 if it has none."""
        return self.store_time(topic, queue_id, self.queue_range(topic, queue_id)[0])

    # -- reading by key

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        """Returns the messages of a topic with this key (KEYS or UNIQ_KEY) stored in the time range, newest first."""
        if self._index is None:
            return []
        max_count = min(max_count, self._query_count_max)
        key_hash = TopicHasher(topic).key_hash(key.encode())
        found: list[StoredMessage] = []
        seen: set[int] = set()
        size = 0
        for looked_at, physical_offset in enumerate(self._index.find(key_hash, begin_ms, end_ms)):
            if len(found) >= max_count or looked_at >= QUERY_CANDIDATES_MAX:
                break
            if physical_offset in seen or not self._log.first_offset <= physical_offset < self._readable_limit():
                continue
            seen.add(physical_offset)
            try:
                message = self.read(physical_offset)
            except (CodecError, OffsetOutOfRange):
                continue  # an index entry is a hint, the log decides
            size += message.size
            if size > QUERY_SIZE_MAX and len(seen) > 1:
                break
            keys = [message.properties.get(UNIQUE_KEY), *message.properties.get(KEYS, "").split(" ")]
            if message.topic == topic and key in keys and begin_ms <= message.store_timestamp <= end_ms:
                found.append(message)
        return found


def _range_problem(queue_offset: int, lowest: int, highest: int) -> tuple[GetStatus | None, int]:
    """Returns (status, where to read instead) when an offset is outside the queue, as upstream corrects it."""
    if highest == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if queue_offset < lowest:
        return GetStatus.OFFSET_TOO_SMALL, lowest
    if queue_offset == highest:
        return GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > highest:
        return GetStatus.OFFSET_OVERFLOW_BADLY, highest
    return None, queue_offset
