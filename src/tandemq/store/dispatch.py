"""From log to views: the only writer of consume queues and index.

Reads records in log order up to a limit, adds each to its queue and its keys to the index. A record that is not whole
yet (a slave received half of it, or the limit cuts it) waits. Records already in a queue are recognised by their
queue offset, so dispatching a part of the log again changes nothing.

The loop is written flat, on raw bytes: it runs for every message.
"""

from collections.abc import Callable, Mapping
from struct import Struct

from tandemq.codec.envelope import delay_level, delivery_time
from tandemq.codec.record import FIXED_SIZE_V4, HEAD, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SIZE_MAGIC, WHOLE_HEADS
from tandemq.errors import DiskFull
from tandemq.model.message import (
    BORN_HOST_V6,
    KEYS,
    TAGS,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIQUE_KEY,
    StoredMessage,
    decode_properties,
)
from tandemq.model.message import tags_code as code_of_tags
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store.commit_log import CommitLog
from tandemq.store.consume_queue import ENTRY, ConsumeQueue
from tandemq.store.key_hash import TopicHasher
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable, Route

_INT = Struct(">I")
_SHORT = Struct(">H")
_LONG = Struct(">q")
_TAGS = b"TAGS\x01"
_KEYS = b"KEYS\x01"
_UNIQUE_KEY = b"UNIQ_KEY\x01"
TAGS_REMEMBERED_MAX = 65536


class Dispatcher:
    """Holds the position in the log up to which the views are complete."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None, delays_ms: tuple[int, ...], position: int
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._delays_ms = delays_ms
        self._hashers: dict[str, TopicHasher] = {}
        """Shared by the queues of a topic; one for each topic of the log."""
        self._tags: dict[bytes, int] = {}
        self.position = position
        self.index_from = position
        """Records below are in the index already."""
        self.pending_size = 0
        """Bytes of queue entries that are only in memory; whoever writes them sets it back."""
        self.last_timestamp = 0
        """Store time of the last record dispatched."""
        self.problem: str | None = None
        """Why dispatch can't go on, if it can't."""
        self.skipped = 0
        """Records whose topic can't be a directory: in the log, in no queue."""
        self.restarts = False
        """The views began empty: a second message 0 of a queue means that its topic was deleted and made again."""
        self.on_gap: Callable[[ConsumeQueue, int], None] | None = None
        """Called before a hole in a queue is filled; recovery raises here to start over."""

    def run(self, limit: int, size_max: int) -> set[tuple[str, int]]:
        """Dispatches whole records below `limit`, about `size_max` bytes of them; the queues that got messages."""
        touched: set[tuple[str, int]] = set()
        log = self._log
        segment_size = log.segment_size
        self.position = max(self.position, log.first_offset)
        stop_at = min(limit, self.position + size_max)
        while self.position < stop_at and self.problem is None:
            base = log.chain.base_of(self.position)
            view = log.chain.segment(base).view
            before = self.position
            self.position = base + self._segment(view, base, before - base, min(limit - base, segment_size), touched,
                                                 min(stop_at - base, segment_size))  # fmt: skip
            if self.position == before:
                break
        return touched

    def _segment(
        self, view: memoryview, base: int, at: int, stop: int, touched: set[tuple[str, int]], enough: int
    ) -> int:
        """Dispatches within one segment from `at`; where it stopped: the segment's end after its blank."""
        head_of, int_of, short_of, long_of = HEAD.unpack_from, _INT.unpack_from, _SHORT.unpack_from, _LONG.unpack_from
        whole_heads, routes, tags_known, pack_entry = WHOLE_HEADS, self._queues.routes, self._tags, ENTRY.pack
        index_from = self.index_from if self._index is not None else 1 << 63
        hashed: list[tuple[int, int, int]] = []
        stored_at = added = 0
        while at < enough:
            if at + FIXED_SIZE_V4 > stop:
                at = self._behind_blank(view, at, stop)
                break
            size, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag = head_of(view, at)
            end = at + size
            if magic != MAGIC_V1 and magic != MAGIC_V2:
                at = self._no_record(view, base, at, stop, size, magic)
                break
            if end > stop:
                break
            tail = at + whole_heads[(sys_flag >> 4) & 3].size
            if tail >= end:
                self._refuse(base + at, f"its size of {size} is too small")
                break
            tail += int_of(view, tail - 4)[0]
            if tail + 4 > end or physical_offset != base + at:
                self._refuse(base + at, f"its body goes beyond its size of {size}, or it says {physical_offset}")
                break
            if magic == MAGIC_V1:
                topic_stop = tail + 1 + view[tail]
                topic = view[tail + 1 : topic_stop].tobytes()
            else:
                topic_stop = tail + 2 + short_of(view, tail)[0]
                topic = view[tail + 2 : topic_stop].tobytes()
            properties = view[topic_stop + 2 : end].tobytes()
            stored_at = long_of(view, at + 68 if sys_flag & BORN_HOST_V6 else at + 56)[0]
            kind = sys_flag & TRANSACTION_MASK
            queue, key, hasher = routes.get((topic, queue_id)) or self._route(topic, queue_id)

            if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
                if key[0] == SCHEDULE_TOPIC:
                    tags = self._delivery_time(properties, stored_at)
                else:
                    text = property_value(properties, _TAGS) if _TAGS in properties else b""
                    if text:
                        known = tags_known.get(text)
                        tags = self._new_tags(text) if known is None else known
                    else:
                        tags = 0
                if queue is None:
                    queue = self._new_queue(key)
                if queue is not None:
                    if queue_offset != queue.count:
                        self._out_of_step(queue, queue_offset)
                    if queue_offset == queue.count:
                        queue.tail += pack_entry(physical_offset, size, tags)
                        added += 1
                        queue.count = queue_offset = queue_offset + 1
                        if queue.next_offset < queue_offset:
                            queue.next_offset = queue_offset
                        touched.add(key)

            if physical_offset >= index_from and kind != TRANSACTION_ROLLBACK:
                unique = property_value(properties, _UNIQUE_KEY)
                keys = property_value(properties, _KEYS) if _KEYS in properties else b""
                if unique or keys:
                    if unique:
                        hashed.append((hasher.key_hash(unique), physical_offset, stored_at))
                    if keys:
                        for one in keys.split(b" "):
                            if one:
                                hashed.append((hasher.key_hash(one), physical_offset, stored_at))
            at = end
        self.pending_size += added * ENTRY.size
        if stored_at:
            self.last_timestamp = stored_at
        if hashed:
            self._put_keys(hashed)
        return at

    def _put_keys(self, hashed: list[tuple[int, int, int]]) -> None:
        index = self._index
        assert index is not None
        try:
            index.put(hashed)
        except DiskFull:
            # The records are dispatched again when there is room; those already in need not be.
            self.index_from = index.end_physical + 1
            raise

    def _no_record(self, view: memoryview, base: int, at: int, stop: int, size: int, magic: int) -> int:
        if magic == MAGIC_BLANK:
            return self._behind_blank(view, at, stop)
        if magic != 0 or size != 0:  # zeros: a slave's receive window, not filled yet
            self._refuse(base + at, f"unknown magic 0x{magic:08X}")
        return at

    def _behind_blank(self, view: memoryview, at: int, stop: int) -> int:
        """Behind a blank that lies wholly below the limit the next segment begins; anything else waits."""
        if at + 8 <= stop and stop == len(view):
            size, magic = SIZE_MAGIC.unpack_from(view, at)
            if magic == MAGIC_BLANK and at + size == len(view):
                return len(view)
        return at

    def _refuse(self, physical_offset: int, reason: str) -> None:
        self.problem = f"the record at offset {physical_offset} can't be dispatched: {reason}"

    def _route(self, raw_topic: bytes, queue_id: int) -> Route:
        """Everything the loop needs to know about a queue, remembered once the queue exists."""
        topic = raw_topic.decode("utf-8", "replace")
        hasher = self._hashers.get(topic)
        if hasher is None:
            hasher = self._hashers[topic] = TopicHasher(topic)
        key = (topic, queue_id)
        queue = self._queues.table.get(key)
        route = (queue, key, hasher)
        if queue is not None:
            self._queues.routes[raw_topic, queue_id] = route
        return route

    def _new_queue(self, key: tuple[str, int]) -> ConsumeQueue | None:
        queue = self._queues.create(*key)
        if queue is None:
            self.skipped += 1
        return queue

    def _new_tags(self, text: bytes) -> int:
        if len(self._tags) >= TAGS_REMEMBERED_MAX:
            self._tags.clear()
        code = self._tags[text] = code_of_tags(text.decode("utf-8", "replace"))
        return code

    def _delivery_time(self, properties: bytes, store_timestamp: int) -> int:
        decoded = decode_properties(properties)
        level = min(delay_level(decoded), len(self._delays_ms))
        if level > 0:
            return delivery_time(store_timestamp, level, self._delays_ms)
        return code_of_tags(decoded.get("TAGS", ""))

    def _out_of_step(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if queue_offset > queue.count:
            self._fill(queue, queue_offset)
        elif queue_offset == 0 and self.restarts:
            queue.destroy()

    def _fill(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """The queue lacks entries before this one: its history is gone, here (an empty queue) or where it came from."""
        if self.on_gap is not None:
            self.on_gap(queue, queue_offset)
        if queue.count == queue.first:
            queue.start_at(queue_offset)
        elif queue_offset - queue.count <= self._queues.file_entries:
            queue.fill_to(queue_offset)
        else:
            queue.destroy()
            queue.start_at(queue_offset)


def queue_tags_code(message: StoredMessage, delays_ms: tuple[int, ...]) -> int:
    """What the consume queue keeps of a message beside its place: the tag's hash, or when a delayed message is due."""
    if message.topic == SCHEDULE_TOPIC:
        level = min(delay_level(message.properties), len(delays_ms))
        if level > 0:
            return delivery_time(message.store_timestamp, level, delays_ms)
    return code_of_tags(message.properties.get(TAGS, ""))


def index_keys(properties: Mapping[str, str]) -> list[bytes]:
    """Keys of a message in the order the index has them: the unique one, then those of the user."""
    keys = [properties.get(UNIQUE_KEY, ""), *properties.get(KEYS, "").split(" ")]
    return [key.encode() for key in keys if key]


def property_value(properties: bytes, name: bytes) -> bytes:
    """The value of one property without decoding them all; `name` ends with its separator. Empty if there is none.

    The last one wins, as in a map: upstream's batches do repeat UNIQ_KEY. Empty values do not count.
    """
    at = properties.rfind(name)
    while at >= 0:
        if at == 0 or properties[at - 1] == 2:
            start = at + len(name)
            stop = properties.find(b"\x02", start)
            value = properties[start:stop] if stop >= 0 else properties[start:]
            if value:
                return value
        at = properties.rfind(name, 0, at)
    return b""
