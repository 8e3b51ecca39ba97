"""Where the oldest message lies that is in the log only to be delivered later: retention keeps it.

Asked of the log and the tables, not of the services, so that a slave, whose services rest, keeps the same messages.
"""

from collections.abc import Iterator

from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.timer_heap import TimerProgress
from tandemq.broker.services.timers import MESSAGES_QUEUE, PROGRESS_QUEUE
from tandemq.formats.record import parse_record
from tandemq.formats.service_progress import ServiceProgress
from tandemq.formats.timer_checkpoint import WAIT_MAX_MS, TimerCheckpoint
from tandemq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from tandemq.store.message_store import MessageStore
from tandemq.store.reader import Reader


def first_waiting(
    store: MessageStore, schedule: DelaySchedule, told: ServiceProgress | None, timers: TimerCheckpoint | None = None
) -> int | None:
    """Returns the physical offset of the oldest message that waits, None if none does.

    `told` is how far the services had come by the log that readers see, None where nobody checks half messages.
    What was delivered since then still waits: that copy may be cut, and then this node alone would lack the original.
    `timers`: how far a RocketMQ broker had come with those.
    """
    return min(_waiting(store.reader, schedule, told, timers), default=None)


def _waiting(
    reader: Reader, schedule: DelaySchedule, told: ServiceProgress | None, timers: TimerCheckpoint | None
) -> Iterator[int]:
    for level in schedule.levels:
        offset = schedule.offset(level)
        if told is not None:
            offset = min(offset, told.delay.get(level, 0))
        yield from _position(reader, SCHEDULE_TOPIC, level - 1, offset)
    yield from _position(reader, TIMER_TOPIC, MESSAGES_QUEUE, max(_settled_timers(reader), _wheeled(reader, timers)))
    if told is not None:
        yield from _position(reader, TRANS_HALF_TOPIC, 0, told.half)


def _position(reader: Reader, topic: str, queue_id: int, offset: int) -> Iterator[int]:
    """Yields where a queue's message lies, nothing if the queue has none there or later."""
    first, last = reader.queue_range(topic, queue_id)
    if (offset := max(offset, first)) < last:
        found = reader.get(topic, queue_id, offset, 1, 1, None)
        if found.slices:
            yield parse_record(found.slices[0]).physical_offset


def _wheeled(reader: Reader, timers: TimerCheckpoint | None) -> int:
    """Returns below which queue offset a RocketMQ broker has delivered all timer messages, or appended them again.

    Which ones wait it does not tell; none of them was stored longer ago than that.
    """
    if timers is None:
        return 0
    stored = reader.search_by_time(TIMER_TOPIC, MESSAGES_QUEUE, timers.read_ms - WAIT_MAX_MS)
    return min(stored, timers.seen_below)


def _settled_timers(reader: Reader) -> int:
    """Returns below which queue offset all timer messages were delivered."""
    first, last = reader.queue_range(TIMER_TOPIC, PROGRESS_QUEUE)
    if first < last and (found := reader.get(TIMER_TOPIC, PROGRESS_QUEUE, last - 1, 1, 1, None)).slices:
        try:
            return TimerProgress.decode(parse_record(found.slices[0]).body).settled_below
        except ValueError:
            pass
    return 0
