"""Delivers delayed messages: puts those whose delay is over where they were meant to go.

Upstream checks every level every 100 ms; this service sleeps until the earliest due time and is woken when a level that
had nothing gets its first message (`delay_schedule.py`).

Delivery is at least once: a level's offset moves after the copy is in the log, and delayOffset.json never names an
offset whose copies the disk does not have. After a crash some messages come twice, none is skipped.

Messages for an exact time (TIMER_DELIVER_MS and its siblings, RocketMQ 5) are in `timers.py`.
"""

import asyncio
import logging
from collections.abc import Callable

from tandemq.broker.new_message import NewMessage
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.rounds import in_rounds
from tandemq.broker.services.undeliverable import Undeliverable
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.errors import CodecError, MessageTooLarge, StoreError
from tandemq.formats.envelope import from_schedule
from tandemq.formats.record import parse_record
from tandemq.model.message import StoredMessage
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, topic_name_problem
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

BATCH_MAX = 64
"""Deliveries in one turn of the loop, about 3 ms; sends and pulls are served between two turns."""
RETRY_SECONDS = 1.0
"""Pause after a refused put (disk full, no longer a master); upstream waits 10 s."""
PAUSE_MAX = 1.0
"""Due times are wall times, pauses are not: a clock that is set, or a machine that slept, is noticed in a second."""


class DelayService:
    """Runs only while the broker writes: `start` when it becomes master, `stop` when it no longer is."""

    def __init__(self, schedule: DelaySchedule, store: MessageStore, writer: MessageWriter, clock: Clock) -> None:
        self.schedule = schedule
        self.undeliverable = Undeliverable(writer)
        self._store = store
        self._writer = writer
        self._clock = clock
        self.on_progress: Callable[[], None] = lambda: None
        """Told when levels have moved on."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.delivered = 0

    def start(self) -> None:
        if self._task is None:
            self.cover_waiting()
            for level in self.schedule.levels:
                self.schedule.head_is_unknown(level)
            self._task = asyncio.get_running_loop().create_task(
                in_rounds(self._wake, self._round), name="delayed messages"
            )

    def cover_waiting(self) -> None:
        """Finds messages in levels that messageDelayLevel no longer has: they are delivered and retained, too."""
        schedule, reader = self.schedule, self._store.reader
        for topic, queue_id in reader.queues():
            level = queue_id + 1
            if topic != SCHEDULE_TOPIC or level <= len(schedule.delays_ms):
                continue
            if (waiting := reader.queue_range(topic, queue_id)[1] - schedule.offset(level)) > 0:
                schedule.cover(level)
                log.warning(
                    "messageDelayLevel has %d levels, but %d messages wait in level %d: they wait as long as the last",
                    len(schedule.delays_ms),
                    waiting,
                    level,
                )

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def arrived(self, queue_id: int) -> None:
        """Learns that SCHEDULE_TOPIC_XXXX has a new message in this queue."""
        if not self.schedule.knows_head(queue_id + 1):
            self._wake.set()

    def _round(self) -> float | None:
        """Delivers up to BATCH_MAX due messages.

        Returns the seconds until the next one is due, None when nothing is known to wait.
        """
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
        return None if due is None else min(PAUSE_MAX, max(0, due - self._clock.wall_ms()) / 1000)

    def _look(self, level: int) -> None:
        """Reads the due time of the level's head, if it has one."""
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
        if count:
            self.on_progress()
        return count

    def _put(self, message: StoredMessage) -> int:
        """Appends the message again under its own topic; returns the physical end of the copy."""
        try:
            place = from_schedule(message.sys_flag, message.properties)
        except CodecError as error:
            return self.undeliverable.keep(message, str(error))
        problem = topic_name_problem(place.topic)
        if problem is not None or place.topic == TRANS_HALF_TOPIC:
            return self.undeliverable.keep(message, problem or f"it is for {place.topic}")
        try:
            appended = self._writer.append(NewMessage.copy_of(message, place))
        except MessageTooLarge as error:
            return self.undeliverable.keep(message, str(error))
        self.delivered += 1
        return appended.physical_offset + appended.size

    def _read(self, level: int) -> StoredMessage | None:
        """Returns the message at the level's offset; passes what retention deleted or nobody can read."""
        queue_id = level - 1
        while True:
            offset = self.schedule.offset(level)
            first, last = self._store.reader.queue_range(SCHEDULE_TOPIC, queue_id)
            if offset >= last:
                # Past the end the log was cut, or the file belongs to another store. Delivered messages stay delivered.
                return None
            if offset < first:
                log.warning("delay level %d: messages from %d to %d are gone from the log", level, offset, first)
                self.schedule.move_to(level, first, self._store.first_offset)
                continue
            found = self._store.reader.get(SCHEDULE_TOPIC, queue_id, offset, 1, 1, None)
            if not found.slices:
                if found.next_offset <= offset:
                    return None
                self.schedule.move_to(level, found.next_offset, self._store.first_offset)
                continue
            return parse_record(found.slices[0])
