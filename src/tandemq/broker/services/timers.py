"""Delivers messages for an exact time (RocketMQ 5: TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS).

They lie in rmq_sys_wheel_timer, queue 0, with their time in TIMER_OUT_MS. What waits is a heap of (time, offset) in
memory (`timer_heap.py`), rebuilt from the log. How far deliveries have come is in the log too, as a small record in
queue 1 of the same topic, so that a slave that takes over knows it without a file:

    "<read time> <from> <seen>"   every message below `from` is settled; of those below `seen`, all whose time is
                                  not after `read time` are; messages at or above `seen` were not read yet

There is at most one progress record a second, and only while something is delivered. What was delivered after the last
one, before a crash or by a RocketMQ broker, is found in the log (`timer_copies.py`), so it does not come twice. How far
a RocketMQ 5 broker had come (`formats/timer_checkpoint.py`) only spares looking at all of it. A message that waits
longer than ROLL_MS is appended again before retention can take it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tandemq.broker.new_message import NewMessage
from tandemq.broker.services.rounds import in_rounds
from tandemq.broker.services.timer_copies import CLOCK_SLACK_MS, OUT_MS, DeliveredCopies, Superseded, rolled
from tandemq.broker.services.timer_heap import TimerHeap, TimerProgress
from tandemq.broker.services.timer_times import out_ms, times_in
from tandemq.broker.services.undeliverable import Undeliverable
from tandemq.broker.warm_log import WarmLog
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.errors import CodecError, InvalidRequest, MessageTooLarge, StoreError, TandemError
from tandemq.formats.envelope import Enveloped, delay_level, real_destination
from tandemq.formats.record import PROPERTIES_MAX, parse_record
from tandemq.formats.timer_checkpoint import TimerCheckpoint
from tandemq.formats.timer_wheel import Waiting, encode_timer_log, slot_of
from tandemq.model.message import REAL_QUEUE_ID, REAL_TOPIC, StoredMessage, encode_properties
from tandemq.model.topic import TIMER_TOPIC, topic_name_problem
from tandemq.store.message_store import MessageStore
from tandemq.store.results import GetResult

log = logging.getLogger(__name__)

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_SEC = "TIMER_DELAY_SEC"
DELAY_MS = "TIMER_DELAY_MS"
TIMER_PROPERTIES = (DELIVER_MS, DELAY_SEC, DELAY_MS)
DEQUEUE_MS = "TIMER_DEQUEUE_MS"

MESSAGES_QUEUE = 0
PROGRESS_QUEUE = 1
BATCH_MAX = 64
READ_BATCH = 1024
READ_BYTES = 1024 * 1024
PROGRESS_SECONDS = 1.0
RETRY_SECONDS = 1.0
PAUSE_MAX = 1.0
"""Times are wall times, pauses are not: a clock that is set, or a machine that slept, is noticed within a second."""
ROLL_MS = 24 * 3600 * 1000
"""Well below the log's usual retention of 72 hours. Where that is shorter, retention keeps what waits."""


HANDED_BACK_MAX = 100_000
"""Each is read once when the broker stops, in a second for so many; RocketMQ delivers what is due again if there are
more."""


class TimersLeft(NamedTuple):
    """What a RocketMQ broker needs beside the log."""

    units: bytes
    """Of the timer log."""
    checkpoint: TimerCheckpoint


class BadTimer(InvalidRequest):
    """The time is no number, or further away than the broker waits."""


def asks_for_timer(properties: Mapping[str, str]) -> bool:
    """Returns whether the message has a time; a delay level wins over a time, as upstream has it."""
    return delay_level(properties) == 0 and any(name in properties for name in TIMER_PROPERTIES)


def to_timer(
    topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str], now_ms: int, delay_max_ms: int
) -> Enveloped | None:
    """Returns the message wrapped for the timer topic, None when its time has come. Raises BadTimer."""
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


class _Cold(TandemError):
    """What is to be read is being brought into memory."""


class TimerService:
    """Runs only while the broker writes."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        clock: Clock,
        *,
        store_host: bytes,
        checkpoint: Callable[[], TimerCheckpoint | None] = lambda: None,
    ) -> None:
        """`checkpoint`: how far a RocketMQ broker had come, None if none says so."""
        self.undeliverable = Undeliverable(writer)
        self._checkpoint = checkpoint
        self._store = store
        self._writer = writer
        self._clock = clock
        self._store_host = store_host
        self.warm_log: WarmLog | None = None
        """Brings what is on disk only into memory first; without it a read may wait for the disk."""
        self._warmed = -1
        """Where in the log it was asked to last."""
        self.heap = TimerHeap()
        self._next = 0
        """The next queue offset to load"""
        self._loaded = TimerProgress()
        self._told = TimerProgress()
        """What a RocketMQ broker said."""
        self._written = TimerProgress()
        self._began_ms = 0
        self._copies = DeliveredCopies(store)
        self._superseded = Superseded()
        self._read_ms = 0
        self._seen = 0
        """What was loaded when all of it that was due at `_read_ms` had been delivered."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self.delivered = 0

    @property
    def waiting(self) -> int:
        return len(self.heap)

    @property
    def progress(self) -> TimerProgress:
        return TimerProgress(self._read_ms, self.heap.lowest_offset(self._next), self._seen)

    def start(self) -> None:
        if self._task is None:
            self.heap = TimerHeap()
            self._loaded = self._written = self._last_progress()
            self._told = told_progress(self._checkpoint())
            newest = max(self._loaded, self._told, key=lambda progress: progress.read_ms)
            self._read_ms, self._seen = newest.read_ms, newest.seen_below
            self._began_ms = self._clock.wall_ms()
            self._copies, self._superseded = DeliveredCopies(self._store), Superseded()
            self._next = max(self._loaded.settled_below, self._store.reader.queue_range(TIMER_TOPIC, MESSAGES_QUEUE)[0])
            self._task = asyncio.get_running_loop().create_task(
                in_rounds(self._wake, self._round), name="timer messages"
            )

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._write_progress()

    def left(self) -> TimersLeft | None:
        """Returns what a RocketMQ broker needs to go on here, once this has stopped; None where it needs nothing."""
        if not self._next or len(self.heap) > HANDED_BACK_MAX:
            return None
        now, newest = self._clock.wall_ms(), self._place(self._next - 1, 0)
        places = (self._place(offset, due) for offset, due in self.heap.in_order())
        units = encode_timer_log([place for place in places if place is not None], newest, now)
        below = self._next
        told = TimerCheckpoint(read_ms=slot_of(now), seen_below=below, in_log_below=below, version=now)
        return TimersLeft(units, told)

    def _place(self, queue_offset: int, due_ms: int) -> Waiting | None:
        place = self._store.reader.place(TIMER_TOPIC, MESSAGES_QUEUE, queue_offset)
        if place is None:
            return None
        out = out_ms(parse_record(self._store.slice(*place)))
        return Waiting(due_ms, *place, is_far=out is not None and out > due_ms)

    def arrived(self, queue_id: int) -> None:
        """Learns that rmq_sys_wheel_timer has a new message in this queue."""
        if queue_id == MESSAGES_QUEUE:
            self._wake.set()

    def _round(self) -> float | None:
        """Does a bounded piece of work; returns the seconds until there is more, None when nothing is known to wait."""
        try:
            if self._load() or self._look_for_copies() or self._deliver() >= BATCH_MAX:
                return 0
        except _Cold:
            return None
        except (StoreError, WriteRefused) as error:
            log.warning("timer messages wait: %s", error)
            return RETRY_SECONDS
        due = self.heap.next_due()
        return None if due is None else min(PAUSE_MAX, max(0, due - self._clock.wall_ms()) / 1000) or 0.001

    def _load(self) -> bool:
        """Puts new messages into the heap; returns whether there may be more."""
        first, last = self._store.reader.queue_range(TIMER_TOPIC, MESSAGES_QUEUE)
        self._next = max(self._next, first)
        if self._next >= last:
            return False
        found = self._read(self._next, READ_BATCH, READ_BYTES)
        # A message that waits long comes up early enough to be appended again before retention takes it.
        times = times_in(
            found.slices,
            wait_max_ms=ROLL_MS,
            overdue_ms=self._began_ms,
            is_settled=self._is_settled if self._next < self._settled_to else None,
        )
        self.heap.add_many(times.waiting)
        for message in times.marked:
            self._superseded.note(message)
        for message, comes_up in times.overdue:
            self._copies.ask(message, comes_up)
        if found.next_offset <= self._next:
            return False
        self._next = found.next_offset
        return True

    @property
    def _settled_to(self) -> int:
        """Above this offset nothing is known to be settled."""
        return max(max(known.settled_below, known.seen_below) for known in (self._loaded, self._told))

    def _is_settled(self, queue_offset: int, due_ms: int) -> bool:
        return self._loaded.is_settled(queue_offset, due_ms) or self._told.is_settled(queue_offset, due_ms)

    def _read(self, offset: int, count_max: int, bytes_max: int) -> GetResult:
        """Returns messages if they may be in memory; has them read and raises _Cold else: the next round finds them."""
        found = self._store.reader.get(TIMER_TOPIC, MESSAGES_QUEUE, offset, count_max, bytes_max, None)
        first, last = found.first_physical_offset, found.last_physical_offset
        if self.warm_log is None or not found.slices or first == self._warmed or self.warm_log.is_warm(first, last):
            return found
        self._warmed = first
        if self.warm_log.soon(found.slices, first, last, self._wake.set):
            raise _Cold
        return found

    def _look_for_copies(self) -> bool:
        """Takes out what the log says was delivered; returns whether there is more to look at."""
        delivered = self._copies.step()
        for queue_offset in delivered or ():
            self.heap.discard(queue_offset)
        if delivered is None and self._copies.found:
            log.info("%d timer messages were delivered before this start", self._copies.found)
            self._copies.found = 0
        return delivered is not None

    def _deliver(self) -> int:
        now, count, cold = self._clock.wall_ms(), 0, None
        while count < BATCH_MAX and (head := self.heap.peek()) is not None and head[0] <= now:
            try:
                found = self._read(head[1], 1, 1)
            except _Cold as error:
                cold = error
                break
            if found.slices:
                self._put(parse_record(found.slices[0]), now)
            else:
                log.error("the timer message at queue offset %d is gone from the log", head[1])
            self.heap.settle()
            count += 1
        if count:
            # Both together: after the clock was set back, what arrives may be due before the old time, and waits.
            head = self.heap.peek()
            self._read_ms, self._seen = (now if head is None else min(now, head[0] - 1)), self._next
            self._schedule_progress()
        if cold is not None:
            raise cold
        return count

    def _put(self, message: StoredMessage, now_ms: int) -> None:
        """Appends the message under its own topic, or under the timer topic once more when its time has not come."""
        if self._superseded.holds(message):
            return
        due = out_ms(message)
        properties = {**message.properties}
        topic, queue_id = TIMER_TOPIC, MESSAGES_QUEUE
        if due is not None and due > now_ms:
            properties = rolled(properties)
        else:
            try:
                topic, queue_id = real_destination(properties)
            except CodecError as error:
                self.undeliverable.keep(message, str(error))
                return
            if (problem := topic_name_problem(topic)) is not None:
                self.undeliverable.keep(message, problem)
                return
            del properties[REAL_TOPIC], properties[REAL_QUEUE_ID]
            properties[DEQUEUE_MS] = str(now_ms)
            if len(encode_properties(properties)) > PROPERTIES_MAX:
                del properties[DEQUEUE_MS]  # it only informs; without it the copy is shorter than the original
        try:
            self._writer.append(NewMessage.copy_of(message, Enveloped(topic, queue_id, message.sys_flag, properties)))
        except MessageTooLarge as error:
            self.undeliverable.keep(message, str(error))
            return
        self.delivered += topic != TIMER_TOPIC

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
                NewMessage(
                    topic=TIMER_TOPIC,
                    queue_id=PROGRESS_QUEUE,
                    body=progress.encode(),
                    properties={},
                    born_timestamp=self._clock.wall_ms(),
                    born_host=self._store_host,
                )
            )
        except (StoreError, WriteRefused) as error:
            log.warning("the progress of timer messages was not written: %s", error)
        else:
            self._written = progress

    def _last_progress(self) -> TimerProgress:
        """Returns what the log says last; at a start that is also what readers may not see yet."""
        found: TimerProgress | None = None
        for message in self._store.undispatched():
            if message.topic == TIMER_TOPIC and message.queue_id == PROGRESS_QUEUE:
                with contextlib.suppress(ValueError):
                    found = TimerProgress.decode(message.body)
        return found or self._dispatched_progress()

    def _dispatched_progress(self) -> TimerProgress:
        first, last = self._store.reader.queue_range(TIMER_TOPIC, PROGRESS_QUEUE)
        for offset in range(last - 1, max(first, last - 100) - 1, -1):
            found = self._store.reader.get(TIMER_TOPIC, PROGRESS_QUEUE, offset, 1, 1, None)
            if found.slices:
                try:
                    return TimerProgress.decode(parse_record(found.slices[0]).body)
                except ValueError:
                    log.error("the timer progress record at queue offset %d is unreadable", offset)
        return TimerProgress()


def told_progress(checkpoint: TimerCheckpoint | None) -> TimerProgress:
    """Returns what is certain by a checkpoint: it may be ahead of a log that lost its tail, so the last minute is
    looked up."""
    if checkpoint is None:
        return TimerProgress()
    return TimerProgress(max(0, checkpoint.read_ms - 1 - CLOCK_SLACK_MS), 0, checkpoint.seen_below)
