"""What waits in the log to be delivered is not taken by retention, whatever its age."""

import asyncio
import dataclasses

from tandemq.broker.services.delay import DelayService
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.timers import TimerService, to_timer
from tandemq.broker.waiting_messages import first_waiting
from tandemq.formats.envelope import parse_delay_levels, to_schedule
from tandemq.formats.service_progress import ServiceProgress
from tandemq.formats.timer_checkpoint import WAIT_MAX_MS, TimerCheckpoint
from tandemq.model.topic import TRANS_HALF_TOPIC
from tandemq.store.config import StoreConfig
from tandemq.testing.broker_parts import HOST, STORE, BrokerParts

SMALL = dataclasses.replace(STORE, commit_log_segment_size=8192, file_reserved_hours=12)
HOUR = 3600


class Waiting:
    """A broker with a delayed message of twenty hours or a timer, and a log that has long outgrown it."""

    def __init__(self, config: StoreConfig = SMALL) -> None:
        self.parts = BrokerParts(store_config=config)
        self.schedule = DelaySchedule(parse_delay_levels("1s 20h"), self.parts.clock.wall_ms)
        self.delay = DelayService(self.schedule, self.parts.store, self.parts.writer, self.parts.clock)
        self.timers = TimerService(self.parts.store, self.parts.writer, self.parts.clock, store_host=HOST)

    def retain(self, half_offset: int | None = None, timers: TimerCheckpoint | None = None) -> int:
        store = self.parts.store
        told = None if half_offset is None else ServiceProgress(dict(self.schedule.offsets), half_offset)
        return store.retain(None, True, store.append_mark, first_waiting(store, self.schedule, told, timers))

    async def grow(self) -> None:
        """Thirteen hours and many segments later."""
        for _ in range(60):
            self.parts.send("other", bytes(500))
        await self.parts.settle()
        self.parts.store.flush_all()
        self.parts.clock.advance(13 * HOUR)

    async def delivered(self) -> list[bytes]:
        for service in (self.delay, self.timers):
            service.start()
            service._wake.set()
        await self.parts.settle()
        for service in (self.delay, self.timers):
            await service.stop()
        await self.parts.settle()
        return [message.body for message in self.parts.read("T")]


def test_a_timer_that_waits_longer_than_files_are_kept_is_delivered() -> None:
    async def story() -> None:
        waiting = Waiting()
        parts = waiting.parts
        wrapped = to_timer("T", 0, 0, {"TIMER_DELAY_SEC": str(20 * HOUR)}, parts.clock.wall_ms(), 1 << 40)
        assert wrapped is not None
        parts.send(wrapped.topic, b"timer", wrapped.queue_id, **wrapped.properties)
        await waiting.grow()
        assert waiting.retain() == 0
        parts.clock.advance(8 * HOUR)
        assert await waiting.delivered() == [b"timer"]
        parts.store.flush_all()
        parts.clock.advance(13 * HOUR)
        assert waiting.retain() > 0

    asyncio.run(story())


def test_a_delay_longer_than_files_are_kept_is_delivered() -> None:
    async def story() -> None:
        waiting = Waiting()
        parts = waiting.parts
        topic, queue_id, _, properties = to_schedule("T", 0, 0, {"DELAY": "2"})
        parts.send(topic, b"delayed", queue_id, **properties)
        await waiting.grow()
        assert waiting.retain() == 0
        parts.clock.advance(8 * HOUR)
        assert await waiting.delivered() == [b"delayed"]
        assert waiting.retain() > 0

    asyncio.run(story())


def test_an_undecided_half_message_stays() -> None:
    async def story() -> None:
        waiting = Waiting()
        waiting.parts.send(TRANS_HALF_TOPIC, b"half")
        await waiting.grow()
        assert waiting.retain(half_offset=0) == 0
        assert waiting.retain(half_offset=1) > 0

    asyncio.run(story())


def test_timers_that_rocketmq_delivered_do_not_keep_the_log() -> None:
    """It writes no progress into the log; none of its messages waits that was stored more than three days ago."""

    async def story() -> None:
        waiting = Waiting()
        parts = waiting.parts
        wrapped = to_timer("T", 0, 0, {"TIMER_DELAY_SEC": str(20 * HOUR)}, parts.clock.wall_ms(), 1 << 40)
        assert wrapped is not None
        stored = parts.clock.wall_ms()
        parts.send(wrapped.topic, b"timer", wrapped.queue_id, **wrapped.properties)
        await waiting.grow()
        told = TimerCheckpoint(read_ms=stored + WAIT_MAX_MS, seen_below=1)
        assert waiting.retain(timers=told) == 0
        assert waiting.retain(timers=dataclasses.replace(told, read_ms=told.read_ms + 1, seen_below=0)) == 0
        assert waiting.retain(timers=dataclasses.replace(told, read_ms=told.read_ms + 1)) > 0

    asyncio.run(story())


def test_a_delayed_message_stays_until_readers_see_its_copy() -> None:
    """A seed of the simulator: the master alone had the copy, and a crash would have taken both."""

    async def story() -> None:
        waiting = Waiting()
        parts = waiting.parts
        wrapped = to_schedule("T", 0, 0, {"DELAY": "1"}, 2)
        original = parts.send(wrapped.topic, b"delayed", wrapped.queue_id, **wrapped.properties)
        await waiting.grow()
        waiting.schedule.move_to(1, 1, parts.store.appended)
        assert first_waiting(parts.store, waiting.schedule, ServiceProgress()) == original.physical_offset
        assert first_waiting(parts.store, waiting.schedule, ServiceProgress({1: 1})) is None

    asyncio.run(story())
