"""Delay levels: which scheduled messages are due, and the service that puts them where they were meant to go.

A delayed message lies in SCHEDULE_TOPIC_XXXX, one queue a level (codec.envelope). All messages of a level wait equally
long, so a queue is in order of due time and only its head matters: `DelaySchedule` keeps one offset and one due time a
level. Upstream looks at every level every 100 ms; here the service sleeps until the earliest due time and is woken when
a level that had nothing gets its first message.

At-least-once: a level's offset moves after the copy is in the log, and delayOffset.json never says more than what the
disk has of the copies. After a crash some messages come twice, none is skipped.

Messages for an exact time (TIMER_DELIVER_MS and its siblings, RocketMQ 5) are `timers.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tandemq.broker.writer import MessageWriter, WriteRefused
from tandemq.clock import Clock
from tandemq.codec import bodies
from tandemq.codec.envelope import delivery_time, from_schedule
from tandemq.codec.record import parse_record
from tandemq.errors import CodecError, StoreError
from tandemq.model.message import StoredMessage, encode_properties
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, DataVersion, topic_name_problem
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

BATCH_MAX = 64
"""Deliveries in one turn of the loop, about 3 ms: sends and pulls get their turn between batches."""
RETRY_SECONDS = 1.0
"""After a put that was refused (disk full, no longer a master): try again, upstream waits 10 s."""
MARKS_MAX = 1024


class DelaySchedule:
    """Progress of every level. Levels count from 1, as in the DELAY property; queue id = level - 1."""

    def __init__(self, delays_ms: tuple[int, ...], wall_ms: Callable[[], int]) -> None:
        self.delays_ms = delays_ms
        self._wall_ms = wall_ms
        self._offsets: dict[int, int] = {}
        """level -> queue offset of the next message to deliver"""
        self._due: dict[int, int] = {}
        """level -> when its head is due (wall ms); a level is here iff it has messages we know of"""
        self._marks: dict[int, deque[tuple[int, int]]] = {}
        """level -> (queue offset reached, physical end of the newest copy below it), oldest first"""
        self._durable: dict[int, int] = {}
        """level -> offset below which every copy is on disk: what delayOffset.json may say"""
        self.version = DataVersion(0, wall_ms(), 0)
        self.dirty = False
        self.on_change: Callable[[], None] | None = None

    @property
    def levels(self) -> range:
        return range(1, len(self.delays_ms) + 1)

    def offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def due_at(self, level: int, store_timestamp: int, now_ms: int) -> int:
        """When a message is due; one further ahead than its level's whole delay (a clock went back) is due now."""
        due = delivery_time(store_timestamp, level, self.delays_ms)
        return now_ms if due > now_ms + self.delays_ms[level - 1] else due

    def head_is(self, level: int, due_ms: int) -> None:
        """The message at the level's offset is due then."""
        self._due[level] = due_ms

    def head_is_unknown(self, level: int) -> None:
        """The level has nothing, or something new whose due time must be read."""
        self._due.pop(level, None)

    def knows_head(self, level: int) -> bool:
        return level in self._due

    def due_levels(self, now_ms: int) -> list[int]:
        """Levels whose head is due, the longest overdue first."""
        return sorted((level for level, due in self._due.items() if due <= now_ms), key=self._due.__getitem__)

    def next_due(self) -> int | None:
        """The earliest due time of all heads (wall ms)."""
        return min(self._due.values(), default=None)

    def move_to(self, level: int, offset: int, copy_end: int) -> None:
        """Everything below `offset` is in the log again, the newest copy ending at the physical offset `copy_end`."""
        self._offsets[level] = offset
        self.head_is_unknown(level)
        marks = self._marks.setdefault(level, deque())
        if len(marks) >= MARKS_MAX or (marks and marks[-1][1] == copy_end):
            marks.pop()  # a coarser mark is still true: it only becomes durable later
        marks.append((offset, copy_end))
        self.version = self.version.next(self._wall_ms())
        self.dirty = True
        if self.on_change is not None:
            self.on_change()

    def flushed(self, physical_offset: int) -> None:
        """The log is on disk up to here: the offsets whose copies lie below may be saved."""
        for level, marks in self._marks.items():
            while marks and marks[0][1] <= physical_offset:
                self._durable[level] = marks.popleft()[0]

    def snapshot(self, *, durable: bool = False) -> dict[str, Any]:
        """The shape of delayOffset.json (`durable`) and of GET_ALL_DELAY_OFFSET; write it with unquoted keys."""
        offsets = self._durable if durable else self._offsets
        return {
            "dataVersion": bodies.data_version_json(self.version),
            "offsetTable": dict(sorted(offsets.items())),
        }

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """From delayOffset.json, or from the master; levels beyond ours are kept for a longer messageDelayLevel."""
        table = bodies.int_map_of(snapshot.get("offsetTable"), "offsetTable")
        self._offsets = {level: int(offset) for level, offset in table.items() if level > 0 and int(offset) >= 0}
        self._durable = dict(self._offsets)
        self._due.clear()
        self._marks.clear()
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])


class DelayService:
    """Delivers what is due. Runs only while the broker writes: start() on becoming master, stop() on leaving."""

    def __init__(self, schedule: DelaySchedule, store: MessageStore, writer: MessageWriter, clock: Clock) -> None:
        self.schedule = schedule
        self._store = store
        self._writer = writer
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.delivered = 0

    def start(self) -> None:
        if self._task is None:
            for level in self.schedule.levels:
                self.schedule.head_is_unknown(level)
            self._task = asyncio.get_running_loop().create_task(self._run(), name="delayed messages")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def arrived(self, queue_id: int) -> None:
        """SCHEDULE_TOPIC_XXXX got a message in this queue (the broker's dispatch says so)."""
        if not self.schedule.knows_head(queue_id + 1):
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause = self._round()
            if pause == 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _round(self) -> float | None:
        """Delivers up to BATCH_MAX due messages; returns seconds until the next is due, None to wait for arrivals."""
        schedule = self.schedule
        for level in schedule.levels:
            if not schedule.knows_head(level):
                self._look(level)
        now = self._clock.wall_ms()
        budget = BATCH_MAX
        for level in schedule.due_levels(now):
            try:
                budget -= self._deliver(level, now, budget)
            except (StoreError, WriteRefused) as error:
                log.warning("delay level %d stays at offset %d: %s", level, schedule.offset(level), error)
                return RETRY_SECONDS
            if budget <= 0:
                return 0
        due = schedule.next_due()
        return None if due is None else max(0, due - self._clock.wall_ms()) / 1000

    def _look(self, level: int) -> None:
        """Finds the due time of the level's head, if it has one."""
        message = self._read(level)
        if message is not None:
            due = self.schedule.due_at(level, message.store_timestamp, self._clock.wall_ms())
            self.schedule.head_is(level, due)

    def _deliver(self, level: int, now_ms: int, budget: int) -> int:
        """Puts due messages of one level in order; returns how many."""
        count = 0
        while count < budget:
            message = self._read(level)
            if message is None:
                self.schedule.head_is_unknown(level)
                break
            due = self.schedule.due_at(level, message.store_timestamp, now_ms)
            if due > now_ms:
                self.schedule.head_is(level, due)
                break
            end = self._put(message)
            self.schedule.move_to(level, message.queue_offset + 1, end)
            count += 1
        else:
            self._look(level)
        return count

    def _put(self, message: StoredMessage) -> int:
        """The message again, under its own topic; returns the physical end of the copy."""
        try:
            topic, queue_id, sys_flag, properties = from_schedule(message.sys_flag, message.properties)
        except CodecError as error:
            log.error("the scheduled message %s is dropped: %s", message.message_id, error)
            return message.physical_offset
        problem = topic_name_problem(topic)
        if problem is not None or topic == TRANS_HALF_TOPIC:
            log.error("the scheduled message %s is dropped: %s", message.message_id, problem or "it is for " + topic)
            return message.physical_offset
        appended = self._writer.append(
            topic,
            queue_id,
            message.flag,
            sys_flag,
            message.born_timestamp,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            encode_properties(properties),
        )
        self.delivered += 1
        return appended.physical_offset + appended.size

    def _read(self, level: int) -> StoredMessage | None:
        """The message at the level's offset; jumps over what retention deleted or nobody can read."""
        queue_id = level - 1
        while True:
            offset = self.schedule.offset(level)
            first, last = self._store.queue_range(SCHEDULE_TOPIC, queue_id)
            if offset >= last:
                # Beyond the end: the log was cut or the file is of another store. Never go back over delivered ones.
                return None
            if offset < first:
                log.warning("delay level %d: messages from %d to %d are gone from the log", level, offset, first)
                self.schedule.move_to(level, first, self._store.first_offset)
                continue
            found = self._store.get(SCHEDULE_TOPIC, queue_id, offset, 1, 1, None)
            if not found.slices:
                if found.next_offset <= offset:
                    return None
                self.schedule.move_to(level, found.next_offset, self._store.first_offset)
                continue
            return parse_record(found.slices[0])
