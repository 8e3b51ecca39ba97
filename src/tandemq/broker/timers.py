"""Messages for an exact time (RocketMQ 5: TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS).

They lie in rmq_sys_wheel_timer, queue 0, with their time in TIMER_OUT_MS. What waits is a heap of (time, offset) in
memory; the log is the truth and the heap is rebuilt from it. How far deliveries have come is in the log too, as a small
record in queue 1 of the same topic, so a slave that takes over knows it without a file:

    "<read time> <from> <seen>"   every message below `from` is settled; of those below `seen`, all whose time is
                                  not after `read time` are; what lies at or above `seen` was not looked at

One progress record a second at most, and only while something is delivered. After a crash up to a second of deliveries
comes twice, none is lost. A message that waits longer than ROLL_MS is appended again before retention can take it.
"""

import asyncio
import heapq
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tandemq.broker import records
from tandemq.broker.writer import MessageWriter, WriteRefused
from tandemq.clock import Clock
from tandemq.codec.envelope import Enveloped, delay_level, real_destination
from tandemq.codec.record import parse_record
from tandemq.errors import CodecError, StoreError
from tandemq.model.message import REAL_QUEUE_ID, REAL_TOPIC, StoredMessage, encode_properties
from tandemq.model.topic import TIMER_TOPIC, topic_name_problem
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_SEC = "TIMER_DELAY_SEC"
DELAY_MS = "TIMER_DELAY_MS"
TIMER_PROPERTIES = (DELIVER_MS, DELAY_SEC, DELAY_MS)
OUT_MS = "TIMER_OUT_MS"
DEQUEUE_MS = "TIMER_DEQUEUE_MS"

MESSAGES_QUEUE = 0
PROGRESS_QUEUE = 1
BATCH_MAX = 64
READ_BATCH = 1024
READ_BYTES = 1024 * 1024
PROGRESS_SECONDS = 1.0
RETRY_SECONDS = 1.0
ROLL_MS = 24 * 3600 * 1000
"""Well below the log's usual retention of 72 hours."""


class BadTimer(ValueError):
    """A time that is no number, or further away than the broker waits."""


def asks_for_timer(properties: Mapping[str, str]) -> bool:
    """A delay level wins over a time, as upstream has it."""
    return delay_level(properties) == 0 and any(name in properties for name in TIMER_PROPERTIES)


def to_timer(
    topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str], now_ms: int, delay_max_ms: int
) -> Enveloped | None:
    """The message on its way into the timer topic; None when its time has come already. BadTimer says what is wrong."""
    due = _due(properties, now_ms)
    if due <= now_ms:
        return None
    if due - now_ms > delay_max_ms:
        raise BadTimer(
            f"timer message illegal, the delay time should not be bigger than the max delay {delay_max_ms}ms; "
            f"asked for {due - now_ms}ms"
        )
    wrapped = {**properties, OUT_MS: str(due), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return Enveloped(TIMER_TOPIC, MESSAGES_QUEUE, sys_flag, wrapped)


def _due(properties: Mapping[str, str], now_ms: int) -> int:
    for name, unit, base in ((DELAY_SEC, 1000, now_ms), (DELAY_MS, 1, now_ms), (DELIVER_MS, 1, 0)):
        if (text := properties.get(name)) is not None:
            if not text.isdecimal() or len(text) > 15:
                raise BadTimer(f"{name}={text[:40]!r} is no number of {'seconds' if unit == 1000 else 'milliseconds'}")
            return base + int(text) * unit
    raise BadTimer("the message names no time")


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """What a progress record says; see the module's head."""

    read_ms: int = 0
    settled_below: int = 0
    seen_below: int = 0

    def encode(self) -> bytes:
        return f"{self.read_ms} {self.settled_below} {self.seen_below}".encode()

    @classmethod
    def decode(cls, body: bytes) -> "TimerProgress":
        """ValueError if it is none."""
        read_ms, settled_below, seen_below = map(int, body.split())
        return cls(read_ms, settled_below, seen_below)

    def is_settled(self, queue_offset: int, due_ms: int) -> bool:
        return queue_offset < self.settled_below or (queue_offset < self.seen_below and due_ms <= self.read_ms)


class TimerHeap:
    """What waits, by time, and the lowest queue offset of it."""

    def __init__(self) -> None:
        self._by_time: list[tuple[int, int]] = []
        self._by_offset: list[int] = []
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, queue_offset: int) -> None:
        heapq.heappush(self._by_time, (due_ms, queue_offset))
        heapq.heappush(self._by_offset, queue_offset)
        self._waiting.add(queue_offset)

    def next_due(self) -> int | None:
        return self._by_time[0][0] if self._by_time else None

    def peek(self) -> tuple[int, int] | None:
        return self._by_time[0] if self._by_time else None

    def settle(self) -> None:
        """The one at the top is done with."""
        _, offset = heapq.heappop(self._by_time)
        self._waiting.discard(offset)

    def lowest_offset(self, otherwise: int) -> int:
        while self._by_offset and self._by_offset[0] not in self._waiting:
            heapq.heappop(self._by_offset)
        return self._by_offset[0] if self._by_offset else otherwise


class TimerService:
    """Delivers messages at their time. Runs only while the broker writes."""

    def __init__(self, store: MessageStore, writer: MessageWriter, clock: Clock, *, store_host: bytes) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._store_host = store_host
        self.heap = TimerHeap()
        self._next = 0
        """The next queue offset to load"""
        self._loaded = TimerProgress()
        self._written = TimerProgress()
        self._read_ms = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self.delivered = 0

    @property
    def waiting(self) -> int:
        return len(self.heap)

    @property
    def progress(self) -> TimerProgress:
        return TimerProgress(self._read_ms, self.heap.lowest_offset(self._next), self._next)

    def start(self) -> None:
        if self._task is None:
            self.heap = TimerHeap()
            self._loaded = self._written = self._last_progress()
            self._read_ms = self._loaded.read_ms
            self._next = max(self._loaded.settled_below, self._store.queue_range(TIMER_TOPIC, MESSAGES_QUEUE)[0])
            self._task = asyncio.get_running_loop().create_task(self._run(), name="timer messages")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._write_progress()

    def arrived(self, queue_id: int) -> None:
        """rmq_sys_wheel_timer got a message in this queue (the broker's dispatch says so)."""
        if queue_id == MESSAGES_QUEUE:
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
        """One bounded piece of work; returns seconds until there is more, 0 for at once, None to wait for arrivals."""
        try:
            if self._load() or self._deliver() >= BATCH_MAX:
                return 0
        except (StoreError, WriteRefused) as error:
            log.warning("timer messages wait: %s", error)
            return RETRY_SECONDS
        due = self.heap.next_due()
        return None if due is None else max(0, due - self._clock.wall_ms()) / 1000 or 0.001

    def _load(self) -> bool:
        """Puts new messages into the heap; True if there may be more."""
        first, last = self._store.queue_range(TIMER_TOPIC, MESSAGES_QUEUE)
        self._next = max(self._next, first)
        if self._next >= last:
            return False
        found = self._store.get(TIMER_TOPIC, MESSAGES_QUEUE, self._next, READ_BATCH, READ_BYTES, None)
        for message in records.messages(found.slices):
            due = out_ms(message)
            if due is None:
                continue
            # One that waits long is looked at again in time to be moved before retention takes it.
            due = min(due, message.store_timestamp + ROLL_MS)
            if not self._loaded.is_settled(message.queue_offset, due):
                self.heap.add(due, message.queue_offset)
        if found.next_offset <= self._next:
            return False
        self._next = found.next_offset
        return True

    def _deliver(self) -> int:
        now, count = self._clock.wall_ms(), 0
        while count < BATCH_MAX and (head := self.heap.peek()) is not None and head[0] <= now:
            found = self._store.get(TIMER_TOPIC, MESSAGES_QUEUE, head[1], 1, 1, None)
            if found.slices:
                self._put(parse_record(found.slices[0]), now)
            else:
                log.error("the timer message at queue offset %d is gone from the log", head[1])
            self.heap.settle()
            count += 1
        if count:
            self._read_ms = now
            self._schedule_progress()
        return count

    def _put(self, message: StoredMessage, now_ms: int) -> None:
        due = out_ms(message)
        properties = {**message.properties}
        if due is not None and due > now_ms:
            topic, queue_id = TIMER_TOPIC, MESSAGES_QUEUE
        else:
            try:
                topic, queue_id = real_destination(properties)
            except CodecError as error:
                log.error("the timer message %s is dropped: %s", message.message_id, error)
                return
            if (problem := topic_name_problem(topic)) is not None:
                log.error("the timer message %s is dropped: %s", message.message_id, problem)
                return
            del properties[REAL_TOPIC], properties[REAL_QUEUE_ID]
            properties[DEQUEUE_MS] = str(now_ms)
            self.delivered += 1
        self._append(topic, queue_id, message, encode_properties(properties))

    def _append(self, topic: str, queue_id: int, message: StoredMessage, properties: bytes) -> None:
        self._writer.append(
            topic,
            queue_id,
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            properties,
        )

    def _schedule_progress(self) -> None:
        if self._progress_timer is None:
            loop = asyncio.get_running_loop()
            self._progress_timer = loop.call_later(PROGRESS_SECONDS, self._write_progress)

    def _write_progress(self) -> None:
        if self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None
        progress = self.progress
        if progress.read_ms == self._written.read_ms:
            return
        try:
            self._writer.append(
                TIMER_TOPIC, PROGRESS_QUEUE, 0, 0, self._clock.wall_ms(), self._store_host, 0, 0, progress.encode(), b""
            )
        except (StoreError, WriteRefused) as error:
            log.warning("the progress of timer messages was not written: %s", error)
        else:
            self._written = progress

    def _last_progress(self) -> TimerProgress:
        first, last = self._store.queue_range(TIMER_TOPIC, PROGRESS_QUEUE)
        for offset in range(last - 1, max(first, last - 100) - 1, -1):
            found = self._store.get(TIMER_TOPIC, PROGRESS_QUEUE, offset, 1, 1, None)
            if found.slices:
                try:
                    return TimerProgress.decode(parse_record(found.slices[0]).body)
                except ValueError:
                    log.error("the timer progress record at queue offset %d is unreadable", offset)
        return TimerProgress()


def out_ms(message: StoredMessage) -> int | None:
    """When the message is due, None if it does not say."""
    text = message.properties.get(OUT_MS, "")
    return int(text) if text.isdecimal() and len(text) <= 15 else None
