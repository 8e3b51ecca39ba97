"""The delay service on a memory disk: who is delivered when, and what a restart does."""

import asyncio

import pytest

from tandemq.broker.services.delay import DelayService
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.undeliverable import UNDELIVERABLE_TOPIC
from tandemq.formats.envelope import parse_delay_levels, to_schedule
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.testing.broker_parts import BrokerParts

DELAYS = parse_delay_levels()


def _service(parts: BrokerParts, schedule: DelaySchedule | None = None) -> DelayService:
    service = DelayService(
        schedule or DelaySchedule(DELAYS, parts.clock.wall_ms), parts.store, parts.writer, parts.clock
    )

    def arrived(queues: set[tuple[str, int]]) -> None:
        for topic, queue_id in queues:
            if topic == SCHEDULE_TOPIC:
                service.arrived(queue_id)

    parts.on_arrival = arrived
    return service


def _delayed(parts: BrokerParts, level: int, body: bytes) -> None:
    topic, queue_id, _, properties = to_schedule("T", 1, 0, {"DELAY": str(level), "KEYS": body.decode()})
    parts.send(topic, body, queue_id, **properties)


def test_messages_come_when_due_and_not_before() -> None:
    """Each level on its own time; the copy has the real topic and queue and keeps its properties."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _delayed(parts, 2, b"five")
        _delayed(parts, 1, b"one")
        await parts.settle()
        assert service.schedule.next_due() == parts.clock.wall_ms() + 1000
        parts.clock.advance(1)
        service._wake.set()
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"one"]
        parts.clock.advance(4)
        service._wake.set()
        await parts.settle()
        copy = parts.read("T", 1)[1]
        assert copy.body == b"five"
        assert copy.properties["REAL_TOPIC"] == "T"
        assert copy.properties["KEYS"] == "five"
        assert service.schedule.snapshot()["offsetTable"] == {1: 1, 2: 1}
        assert service.delivered == 2
        await service.stop()

    asyncio.run(story())


def test_an_arrival_wakes_a_sleeping_service_by_itself() -> None:
    """No polling: a message that is due at once (a clock that went back) is delivered on arrival."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        await parts.settle()
        assert service.schedule.next_due() is None
        parts.clock.jump_wall(3_600_000)
        _delayed(parts, 1, b"late")
        parts.clock.jump_wall(-3_600_000)
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"late"]
        await service.stop()

    asyncio.run(story())


def test_a_restart_goes_on_where_the_saved_offset_says() -> None:
    """What was delivered and saved does not come again; what was not saved does."""

    async def story() -> None:
        parts = BrokerParts()
        for n in range(3):
            _delayed(parts, 1, b"%d" % n)
        await parts.settle()
        parts.clock.advance(2)
        schedule = DelaySchedule(DELAYS, parts.clock.wall_ms)
        schedule.load({"offsetTable": {"1": 2}})
        service = _service(parts, schedule)
        service.start()
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"2"]
        await service.stop()

    asyncio.run(story())


def test_messages_of_a_level_that_was_taken_away_are_delivered_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        parts = BrokerParts()
        _delayed(parts, 4, b"long")
        await parts.settle()
        service = _service(parts, DelaySchedule(parse_delay_levels("1s 5s"), parts.clock.wall_ms))
        service.start()
        await parts.settle()
        parts.clock.advance(5)
        service._wake.set()
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"long"]
        await service.stop()

    asyncio.run(story())
    assert "has 2 levels, but 1 messages wait in level 4" in caplog.text


def test_a_refused_put_keeps_the_offset() -> None:
    """A broker that may not write any more delivers nothing and loses nothing."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        _delayed(parts, 1, b"kept")
        await parts.settle()
        parts.clock.advance(2)
        parts.writer.gate.refuse("a slave")
        assert service._round() == 1.0
        assert service.schedule.offset(1) == 0
        parts.writer.gate.allow()
        service._round()
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"kept"]

    asyncio.run(story())


def test_a_forged_destination_becomes_a_dead_letter() -> None:
    """A record whose real topic is no topic name never reaches the file system; the queue behind it goes on."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        for topic in ("../../etc", "RMQ_SYS_TRANS_HALF_TOPIC", ""):
            parts.send(SCHEDULE_TOPIC, b"bad", 0, DELAY="1", REAL_TOPIC=topic, REAL_QID="0")
        _delayed(parts, 1, b"good")
        await parts.settle()
        parts.clock.advance(2)
        service._round()
        await parts.settle()
        assert [m.body for m in parts.read("T", 1)] == [b"good"]
        assert {topic for topic, _ in parts.store.reader.queues()} == {SCHEDULE_TOPIC, "T", UNDELIVERABLE_TOPIC}

    asyncio.run(story())


def test_many_due_messages_are_delivered_in_batches() -> None:
    """The loop gets its turn between batches; order within a level is kept."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        for n in range(600):
            _delayed(parts, 1, b"%d" % n)
        await parts.settle()
        parts.clock.advance(2)
        rounds = 0
        while service._round() == 0:
            rounds += 1
        await parts.settle()
        assert rounds >= 2
        assert [m.body for m in parts.read("T", 1)] == [b"%d" % n for n in range(600)]

    asyncio.run(story())
