"""From log to views: the only writer of consume queues and index of an open store.

Records are taken in log order up to a limit; each is added to its queue, and its keys to the index, by the rules of
formats/derived. A record that is not whole yet (a slave received half of it, or the limit cuts it) waits. Records
already in a queue are recognised by their queue offset, so dispatching a part of the log again changes nothing.

There are three ways with the same outcome. Where much log waits, records are taken many at a time (record_runs). The
loop for all others is written flat, on raw bytes: messages of one producer differ in little but their unique key, and
what follows from the text around it (topic, tags) is looked up at once. Whatever is not such a plain record goes the
general way, `_other_record`.
"""

from collections.abc import Callable
from operator import attrgetter
from struct import Struct
from typing import Any, TypeAlias

from tandemq.errors import DiskFull
from tandemq.formats.derived import (
    KEYS_NAME,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    delivery_time_of,
    index_keys,
    is_in_index,
    is_in_queue,
    property_value,
)
from tandemq.formats.key_hash import ENDINGS, HEADS, MASK, POWERS, SIGN, SIZE_MAX
from tandemq.formats.log_mark import LOG_MARK_TOPIC, LogMark, QueueNumbers, TopicDeleted, decode_mark
from tandemq.formats.queue_entry import ENTRY, ENTRY_SIZE
from tandemq.formats.record import (
    FIXED_SIZE_V4,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NOT_PLAIN,
    PLAIN_HEAD,
    SIZE_MAGIC,
    WHOLE_HEADS,
    store_timestamp,
)
from tandemq.model.message import tags_code as code_of_tags
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store.commit_log import CommitLog
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable, Route, Template

_INT = Struct(">I")
_SHORT = Struct(">H")
_END = b"\x02"
_NO_KEYS, _KEYS_FIRST, _KEYS_LATER = range(3)
"""Where a message has keys of the user: nowhere, before its unique key (upstream's Java client), after it (ours)."""
# Names of this module are looked up as fast as local ones, and need not be set up for a call with one message.
_head_of, _HEAD_SIZE = PLAIN_HEAD.unpack_from, PLAIN_HEAD.size
_pack_entry = ENTRY.pack
_key_head, _key_ending = HEADS.get, ENDINGS.get
_key_of = attrgetter("key")
_NEVER_PLAIN = (SCHEDULE_TOPIC, LOG_MARK_TOPIC)
TAGS_REMEMBERED_MAX = 65536
TEMPLATES_MAX = 16384
TEMPLATE_SIZE_MAX = 1024
"""Longer texts are not remembered: bounds the memory of all templates to 16 MiB."""
MANY_SIZE_MIN = 32 << 10
"""Less log than this is dispatched record by record."""
MANY_ROWS_MIN = 256
"""So are fewer records than this, told by the size of the first: what arrays cost before they save anything."""
MANY_SIZE_MAX = 4 << 20
KeyBatch: TypeAlias = tuple[list[int], list[int], list[int]]
"""Keys on their way to the index, in log order: hashes, physical offsets and store times of their messages."""


class LogDispatcher:
    """Holds the position in the log up to which the views are complete."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None, delays_ms: tuple[int, ...], position: int
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._delays_ms = delays_ms
        self._tags: dict[bytes, int] = {}
        self._one_by_one_left, self._one_by_one_size = 0, MANY_SIZE_MIN
        """Where a run of records ended early, so much log is taken one by one, twice as much each time in a row."""
        self._touched: dict[ConsumeQueue, None] = {}
        """Queues that got messages, in that order; a run that a full disk ended leaves them to the next one to tell."""
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
        self.on_topic_deleted: Callable[[str], None] | None = None
        """Told when the log says that a topic was deleted, after its queues are gone."""

    def run(self, limit: int, size_max: int) -> list[tuple[str, int]]:
        """Dispatches whole records below `limit`, about `size_max` bytes. Returns the queues that got messages."""
        chain = self._log.chain
        segment_size, bases = chain.segment_size, chain.bases
        if bases and self.position < bases[0]:
            self.position = bases[0]
        stop_at = self.position + size_max
        if stop_at > limit:
            stop_at = limit
        while self.position < stop_at and self.problem is None:
            before = self.position
            base = before - before % segment_size
            stop, enough = limit - base, stop_at - base
            if stop > segment_size:
                stop, enough = segment_size, min(enough, segment_size)
            self.position = base + self._part(chain.segment(base).view, base, before - base, stop, enough)
            if self.position == before:
                break
        touched = list(map(_key_of, self._touched))
        self._touched.clear()
        return touched

    def _part(self, view: memoryview, base: int, at: int, stop: int, enough: int) -> int:
        """Dispatches within one segment from `at`, many at a time where that pays; where it stopped."""
        if enough - at < MANY_SIZE_MIN or enough - at < MANY_ROWS_MIN * _INT.unpack_from(view, at)[0]:
            return self._one_by_one(view, base, at, stop, enough)
        if self._one_by_one_left <= 0:
            reached = self._many(view, base, at, stop, min(enough, at + MANY_SIZE_MAX))
            if reached - at >= MANY_SIZE_MIN:
                self._one_by_one_size = MANY_SIZE_MIN
                return reached
            at = reached
            self._one_by_one_left = self._one_by_one_size
            self._one_by_one_size = min(2 * self._one_by_one_size, MANY_SIZE_MAX)
        reached = self._one_by_one(view, base, at, stop, min(enough, at + self._one_by_one_left))
        self._one_by_one_left -= reached - at
        return reached

    def _many(self, view: memoryview, base: int, at: int, stop: int, enough: int) -> int:
        """Dispatches whole records up to the first that its queue does not expect. Returns where that one begins."""
        # Numpy takes a tenth of a second to load: not before it is used.
        from tandemq.store.record_runs import RecordRun

        run = RecordRun.read(view, base, at, stop, enough, self._delays_ms)
        if run is None:
            return at
        added = run.by_queue(self._queue)
        if not run.count:
            return at
        for queue, entries in added:
            queue.tail += entries
            queue.count += len(entries) // ENTRY_SIZE
            self._touched[queue] = None
            self.pending_size += len(entries)
        if run.last_timestamp:
            self.last_timestamp = run.last_timestamp
        if self._index is not None:
            keys = run.keys(self.index_from)
            if len(keys[0]):
                self._put_keys(self._index.put_arrays, keys)
        return run.stop

    def _one_by_one(self, view: memoryview, base: int, at: int, stop: int, enough: int) -> int:
        """Dispatches within one segment from `at`; where it stopped: the segment's end after its blank."""
        template_of, touched = self._queues.templates.get, self._touched
        index_from = self.index_from if self._index is not None else 1 << 63
        keys: KeyBatch = ([], [], [])
        hashes, offsets, times = keys
        added = timestamp = 0
        user_keys, layout = b"", _NO_KEYS
        stop_heads = stop - (FIXED_SIZE_V4 - 1)
        if stop_heads > enough:
            stop_heads = enough
        while at < stop_heads:
            size, magic, queue_id, queue_offset, physical_offset, sys_flag, stored_at, body_size = _head_of(view, at)
            end = at + size
            tail = at + _HEAD_SIZE + body_size
            if magic == MAGIC_V1 and not sys_flag & NOT_PLAIN and tail + 4 <= end <= stop:
                before, _, behind = view[tail:end].tobytes().partition(UNIQUE_KEY_NAME)
                unique, _, behind = behind.partition(_END)
                if layout == _NO_KEYS:
                    template = template_of((len(unique), before, behind))
                elif layout == _KEYS_FIRST:
                    start, _, rest = before.partition(KEYS_NAME)
                    user_keys, _, rest = rest.partition(_END)
                    template = template_of((len(unique), start, rest, behind)) if user_keys else None
                else:
                    start, _, rest = behind.partition(KEYS_NAME)
                    user_keys, _, rest = rest.partition(_END)
                    template = template_of((len(unique), before, start, rest)) if user_keys else None
                if template is None:  # not laid out as the one before this, or new
                    template, user_keys, layout = self._template(len(unique), before, behind)
                if template is not None:
                    queue_of, tags, hash_start, hasher = template
                    queue = queue_of(queue_id)
                    if queue is not None and queue.count == queue_offset and physical_offset == base + at:
                        queue.tail += _pack_entry(physical_offset, size, tags)
                        queue.count = queue_offset + 1
                        touched[queue] = None
                        added += 1
                        if unique and physical_offset >= index_from:
                            head, ending = _key_head(unique[:-4]), _key_ending(unique[-4:])
                            if head is None or ending is None:
                                hashes.append(hasher.key_hash(unique))
                            else:
                                value = (hash_start + head + ending) & MASK
                                hashes.append(value if value < SIGN else (SIGN + SIGN - value) & 0x7FFFFFFF)
                            offsets.append(physical_offset)
                            times.append(stored_at)
                        if user_keys and physical_offset >= index_from:
                            if b" " in user_keys:
                                for one in user_keys.split(b" "):
                                    if one:
                                        _add(keys, hasher.key_hash(one), physical_offset, stored_at)
                            else:
                                head, ending = _key_head(user_keys[:-4]), _key_ending(user_keys[-4:])
                                if head is None or ending is None:
                                    hashes.append(hasher.key_hash(user_keys))
                                else:
                                    value = (hasher.seed * POWERS[len(user_keys)] + head + ending) & MASK
                                    hashes.append(value if value < SIGN else (SIGN + SIGN - value) & 0x7FFFFFFF)
                                offsets.append(physical_offset)
                                times.append(stored_at)
                        timestamp = stored_at
                        at = end
                        continue
            if timestamp:
                self.last_timestamp = timestamp
                timestamp = 0
            reached = self._other_record(view, base, at, stop, index_from, keys)
            if reached == at:
                break
            at = reached
        if stop_heads <= at < enough:
            at = self._behind_blank(view, at, stop)
        self.pending_size += added * ENTRY_SIZE
        if timestamp:
            self.last_timestamp = timestamp
        if hashes and self._index is not None:
            self._put_keys(self._index.put, keys)
        return at

    def _other_record(self, view: memoryview, base: int, at: int, stop: int, index_from: int, keys: KeyBatch) -> int:
        """Dispatches one record of any kind, or steps over the blank; where it ends, or `at` if it has to wait."""
        size, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag = HEAD.unpack_from(view, at)
        end: int = at + size
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return self._no_record(view, base, at, stop, size, magic)
        if end > stop:
            return at
        tail = at + WHOLE_HEADS[(sys_flag >> 4) & 3].size
        if tail >= end:
            self._refuse(base + at, f"its size of {size} is too small")
            return at
        body_at = tail
        tail += _INT.unpack_from(view, tail - 4)[0]
        if tail + 4 > end or physical_offset != base + at:
            self._refuse(base + at, f"its body goes beyond its size of {size}, or it says {physical_offset}")
            return at
        text = view[tail:end].tobytes()
        topic_at = 1 if magic == MAGIC_V1 else 2
        topic_stop = topic_at + int.from_bytes(text[:topic_at], "big")
        topic, properties = text[topic_at:topic_stop], text[topic_stop + 2 :]
        stored_at = store_timestamp(view, at, sys_flag)
        route = self._queues.routes.get(topic) or self._route(topic)
        if is_in_queue(sys_flag):
            queue = route.queues.get(queue_id) or self._queue(topic, queue_id)
            if queue is None:
                self.skipped += 1
            else:
                if queue_offset != queue.count:
                    self._out_of_step(queue, queue_offset)
                if queue_offset == queue.count:
                    tags = delivery_time_of(route.topic, properties, stored_at, self._delays_ms)
                    if tags is None:
                        tags = self._tags_code(property_value(properties, TAGS_NAME))
                    queue.tail += ENTRY.pack(physical_offset, size, tags)
                    self.pending_size += ENTRY_SIZE
                    queue.count = queue_offset + 1
                    self._touched[queue] = None

        if physical_offset >= index_from and is_in_index(sys_flag):
            for key in index_keys(properties):
                _add(keys, route.hasher.key_hash(key), physical_offset, stored_at)
        if stored_at:
            self.last_timestamp = stored_at
        if route.topic == LOG_MARK_TOPIC and (mark := decode_mark(view[body_at:tail])) is not None:
            self._follow(mark, physical_offset)
        return end

    def _follow(self, mark: LogMark, physical_offset: int) -> None:
        """Does to the queues what a mark in the log says."""
        if isinstance(mark, TopicDeleted):
            self._touched = {queue: None for queue in self._touched if queue.topic != mark.topic}
            self._queues.delete_topic(mark.topic, physical_offset)
            if self.on_topic_deleted is not None:
                self.on_topic_deleted(mark.topic)
        elif isinstance(mark, QueueNumbers):
            for (topic, queue_id), number in mark.numbers.items():
                queue = self._queue(topic.encode(), queue_id)
                if queue is not None:
                    queue.mentioned_at = physical_offset
                    if queue.count < number:
                        self._fill(queue, number)
                        self._touched[queue] = None

    def _template(self, unique_size: int, before: bytes, behind: bytes) -> tuple[Template | None, bytes, int]:
        """Returns (what the text before and after a record's unique key says, the user's keys, where those are).

        None if the record is unusual.

        The user's keys differ from message to message too: what is remembered is the text around them.
        """
        start, found, rest = before.partition(KEYS_NAME)
        layout = _KEYS_FIRST
        if found:
            keys, _, rest = rest.partition(_END)
            parts: tuple[bytes, ...] = (start, rest, behind)
        else:
            start, found, rest = behind.partition(KEYS_NAME)
            keys, _, rest = rest.partition(_END)
            parts, layout = ((before, start, rest), _KEYS_LATER) if found else ((before, behind), _NO_KEYS)
        template = self._queues.templates.get((unique_size, *parts)) or self._new_template(unique_size, parts)
        return template, keys, layout

    def _new_template(self, unique_size: int, parts: tuple[bytes, ...]) -> Template | None:
        """Makes a template of a record without unique key and keys, which both stood where a property begins."""
        first, second, text = parts[0], parts[1], b"".join(parts)
        topic_stop = 1 + first[0] if first else 0
        if (
            len(text) > TEMPLATE_SIZE_MAX
            or len(first) < topic_stop + 2
            or (len(first) > topic_stop + 2 and first[-1] != 2)
            or (len(parts) > 2 and second and second[-1] != 2)
            or text.find(KEYS_NAME) >= 0
            or text.find(UNIQUE_KEY_NAME) >= 0
            or unique_size > SIZE_MAX
        ):
            return None
        topic = first[1:topic_stop]
        route = self._queues.routes.get(topic) or self._route(topic)
        if route.topic in _NEVER_PLAIN:
            return None
        tags = self._tags_code(property_value(text[topic_stop + 2 :], TAGS_NAME))
        if len(self._queues.templates) >= TEMPLATES_MAX:
            self._queues.templates.clear()
        template = Template(route.queues.get, tags, route.hasher.start(unique_size), route.hasher)
        self._queues.templates[unique_size, *parts] = template
        return template

    def _put_keys(self, put: Callable[[Any, Any, Any], None], keys: tuple[Any, Any, Any]) -> None:
        index = self._index
        assert index is not None
        try:
            put(*keys)
        except DiskFull:
            # The records are dispatched again when there is room; those already in need not be, but the last of them
            # may lack some of its keys.
            last = index.end_physical
            if last >= keys[1][0]:
                index.cut(last)
                self.index_from = last
            raise

    def _no_record(self, view: memoryview, base: int, at: int, stop: int, size: int, magic: int) -> int:
        if magic == MAGIC_BLANK:
            return self._behind_blank(view, at, stop)
        if magic != 0 or size != 0:  # zeros: a slave's receive window, not filled yet
            self._refuse(base + at, f"unknown magic 0x{magic:08X}")
        return at

    def _behind_blank(self, view: memoryview, at: int, stop: int) -> int:
        """Skips a blank that lies wholly below the limit, to where the next segment begins; anything else waits."""
        if at + 8 <= stop and stop == len(view):
            size, magic = SIZE_MAGIC.unpack_from(view, at)
            if magic == MAGIC_BLANK and at + size == len(view):
                return len(view)
        return at

    def _refuse(self, physical_offset: int, reason: str) -> None:
        self.problem = f"the record at offset {physical_offset} can't be dispatched: {reason}"

    def _route(self, raw_topic: bytes) -> Route:
        route = self._queues.routes[raw_topic] = Route(raw_topic.decode("utf-8", "replace"))
        return route

    def _queue(self, raw_topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """Finds or makes a queue. Returns None if its topic can't be a directory."""
        route = self._queues.routes.get(raw_topic) or self._route(raw_topic)
        queue = route.queues.get(queue_id)
        if queue is None:
            queue = self._queues.table.get((route.topic, queue_id)) or self._queues.create(route.topic, queue_id)
            if queue is not None:
                route.queues[queue_id] = queue
        return queue

    def _tags_code(self, text: bytes) -> int:
        if not text:
            return 0
        code = self._tags.get(text)
        if code is None:
            if len(self._tags) >= TAGS_REMEMBERED_MAX:
                self._tags.clear()
            code = self._tags[text] = code_of_tags(text.decode("utf-8", "replace"))
        return code

    def _out_of_step(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if queue_offset > queue.count:
            self._fill(queue, queue_offset)
        elif queue_offset == 0 and self.restarts:
            queue.destroy()

    def _fill(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Fills a queue that lacks entries before this one: their history is gone, here or where it came from."""
        if self.on_gap is not None:
            self.on_gap(queue, queue_offset)
        self._queues.advance(queue, queue_offset)


def _add(keys: KeyBatch, key_hash: int, physical_offset: int, stored_at: int) -> None:
    keys[0].append(key_hash)
    keys[1].append(physical_offset)
    keys[2].append(stored_at)
