"""Timer messages: delivered at their time, once, also across restarts and without files."""

import asyncio
import dataclasses
from collections.abc import Callable

import pytest

from tandemq.broker.new_message import NewMessage
from tandemq.broker.services.timers import BATCH_MAX, BadTimer, TimerService, asks_for_timer, to_timer
from tandemq.broker.services.undeliverable import UNDELIVERABLE_TOPIC
from tandemq.errors import MessageTooLarge
from tandemq.formats.record import PROPERTIES_MAX
from tandemq.formats.timer_checkpoint import TimerCheckpoint
from tandemq.model.message import StoredMessage, encode_properties
from tandemq.model.topic import TIMER_TOPIC
from tandemq.testing.broker_parts import HOST, BrokerParts

NOW = 1_700_000_000_000
DAY = 24 * 3600


def _service(parts: BrokerParts, checkpoint: TimerCheckpoint | None = None) -> TimerService:
    service = TimerService(parts.store, parts.writer, parts.clock, store_host=HOST, checkpoint=lambda: checkpoint)

    def arrived(queues: set[tuple[str, int]]) -> None:
        for topic, queue_id in queues:
            if topic == TIMER_TOPIC:
                service.arrived(queue_id)

    parts.on_arrival = arrived
    return service


def _timed(parts: BrokerParts, seconds: int, body: bytes) -> None:
    wrapped = to_timer("T", 1, 0, {"TIMER_DELAY_SEC": str(seconds)}, parts.clock.wall_ms(), 30 * DAY * 1000)
    assert wrapped is not None
    parts.send(wrapped.topic, body, wrapped.queue_id, **wrapped.properties)


async def _advance(parts: BrokerParts, service: TimerService, seconds: float) -> list[bytes]:
    parts.clock.advance(seconds)
    service._wake.set()
    await parts.settle()
    return [message.body for message in parts.read("T", 1)]


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELIVER_MS": str(NOW + 5)}, NOW + 5),
        ({"TIMER_DELAY_MS": "5"}, NOW + 5),
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "1"}, NOW + 5000),
        ({"TIMER_DELIVER_MS": str(NOW - 5)}, None),
    ],
)
def test_the_three_ways_to_name_a_time(properties: dict[str, str], due: int | None) -> None:
    """Seconds win over milliseconds, those over a date; a past date is no timer at all."""
    wrapped = to_timer("T", 3, 0, properties, NOW, 1_000_000)
    assert (wrapped and int(wrapped.properties["TIMER_OUT_MS"])) == due
    if wrapped is not None:
        assert (wrapped.properties["REAL_TOPIC"], wrapped.properties["REAL_QID"]) == ("T", "3")


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELAY_SEC": "9999999"}, {"TIMER_DELAY_MS": "-1"}, {"TIMER_DELIVER_MS": "x"}]
)
def test_bad_times_are_refused(properties: dict[str, str]) -> None:
    """Too far ahead, negative or no number."""
    with pytest.raises(BadTimer):
        to_timer("T", 0, 0, properties, NOW, 3 * DAY * 1000)


def test_a_delay_level_wins() -> None:
    """As upstream: a message with a level is a level's message."""
    assert asks_for_timer({"TIMER_DELAY_SEC": "1"})
    assert not asks_for_timer({"TIMER_DELAY_SEC": "1", "DELAY": "2"})
    assert not asks_for_timer({})


def test_messages_come_in_order_of_their_times() -> None:
    """Whatever the order of sending; the copy has lost the envelope."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _timed(parts, 20, b"second")
        _timed(parts, 10, b"first")
        await parts.settle()
        assert service.waiting == 2
        assert await _advance(parts, service, 9.9) == []
        assert await _advance(parts, service, 0.1) == [b"first"]
        assert await _advance(parts, service, 10) == [b"first", b"second"]
        copy = parts.read("T", 1)[0]
        assert "REAL_TOPIC" not in copy.properties
        assert service.waiting == 0
        await service.stop()

    asyncio.run(story())


def test_a_restart_delivers_what_waited_and_nothing_again() -> None:
    """The progress record in the log is all that the next master needs."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        for seconds in (30, 10, 50):
            _timed(parts, seconds, b"%d" % seconds)
        await parts.settle()
        assert await _advance(parts, service, 35) == [b"10", b"30"]
        await service.stop()
        await parts.settle()
        again = _service(parts)
        again.start()
        await parts.settle()
        assert again.waiting == 1
        assert await _advance(parts, again, 15) == [b"10", b"30", b"50"]
        await again.stop()

    asyncio.run(story())


def test_a_crash_before_the_progress_record_repeats_nothing() -> None:
    """The log has the copy: a message that was delivered is not delivered again."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _timed(parts, 10, b"a")
        await parts.settle()
        assert await _advance(parts, service, 11) == [b"a"]
        assert service._task is not None
        service._task.cancel()
        if service._progress_timer is not None:
            service._progress_timer.cancel()
        again = _service(parts)
        again.start()
        await parts.settle()
        assert await _advance(parts, again, 0) == [b"a"]
        assert again.waiting == 0
        await again.stop()

    asyncio.run(story())


def test_long_waits_are_carried_along_before_retention_takes_them() -> None:
    """A message for next week is appended again every day; it still comes once, at its time."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _timed(parts, 60 * 3600, b"far")
        await parts.settle()
        assert await _advance(parts, service, DAY) == []
        assert len(parts.read(TIMER_TOPIC, 0)) == 2
        await service.stop()
        await parts.settle()
        again = _service(parts)
        again.start()
        await parts.settle()
        assert again.waiting == 1
        assert await _advance(parts, again, DAY) == []
        assert await _advance(parts, again, 12 * 3600) == [b"far"]
        await again.stop()

    asyncio.run(story())


def test_a_message_with_properties_at_the_limit_is_delivered_and_holds_nobody_up() -> None:
    """What the delivery would add is left out when there is no room for it."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        properties = {"TIMER_DELAY_SEC": "10", "fill": ""}
        wrapped = to_timer("T", 1, 0, properties, parts.clock.wall_ms(), DAY * 1000)
        assert wrapped is not None
        room = PROPERTIES_MAX - len(encode_properties(wrapped.properties))
        parts.send(wrapped.topic, b"long", wrapped.queue_id, **{**wrapped.properties, "fill": "x" * room})
        _timed(parts, 20, b"next")
        await parts.settle()
        assert await _advance(parts, service, 10) == [b"long"]
        assert await _advance(parts, service, 10) == [b"long", b"next"]
        await service.stop()

    asyncio.run(story())


def test_what_can_not_be_delivered_becomes_a_dead_letter_with_the_reason() -> None:
    """It was acknowledged, so it is kept; the rest goes on."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        wrapped = to_timer("no/name", 1, 0, {"TIMER_DELAY_SEC": "10"}, parts.clock.wall_ms(), DAY * 1000)
        assert wrapped is not None
        parts.send(wrapped.topic, b"lost?", wrapped.queue_id, **wrapped.properties)
        _timed(parts, 11, b"next")
        await parts.settle()
        assert await _advance(parts, service, 12) == [b"next"]
        (letter,) = parts.read(UNDELIVERABLE_TOPIC)
        assert letter.body == b"lost?"
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == "no/name"
        assert "no/name" in letter.properties["TANDEMQ_REASON"]
        await service.stop()

    asyncio.run(story())


def test_a_message_larger_than_a_limit_that_was_lowered_is_delivered() -> None:
    """The limit is for clients; this message was taken before."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _timed(parts, 10, b"x" * 500)
        _timed(parts, 11, b"next")
        await parts.settle()
        parts.store.config = dataclasses.replace(parts.store.config, message_size_max=100)
        assert await _advance(parts, service, 12) == [b"x" * 500, b"next"]
        with pytest.raises(MessageTooLarge):
            parts.send("T", b"x" * 500)
        await service.stop()

    asyncio.run(story())


async def _crash(parts: BrokerParts, service: TimerService) -> TimerService:
    """The next service on the same log: the last one wrote its progress and died."""
    service._write_progress()
    assert service._task is not None
    service._task.cancel()
    await parts.settle()
    again = _service(parts)
    again.start()
    await parts.settle()
    return again


def test_a_clock_set_back_and_a_crash_lose_no_message() -> None:
    """What arrives after the clock was set back is due before the time of the last delivery."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        service.start()
        _timed(parts, 10, b"early")
        await parts.settle()
        assert await _advance(parts, service, 60) == [b"early"]
        parts.clock.jump_wall(-40_000)
        _timed(parts, 20, b"late")
        await parts.settle()
        again = await _crash(parts, service)
        assert again.waiting == 1
        assert await _advance(parts, again, 20) == [b"early", b"late"]
        await again.stop()

    asyncio.run(story())


def test_a_crash_between_two_batches_loses_nothing() -> None:
    """The progress names no time at which something that is due still waits."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        for number in range(3 * BATCH_MAX):
            _timed(parts, 10, b"%d" % number)
        await parts.settle()
        parts.clock.advance(11)
        while service._load():
            pass
        assert service._deliver() == BATCH_MAX
        service._write_progress()
        await parts.settle()
        again = _service(parts)
        again.start()
        assert len(set(await _advance(parts, again, 0))) == 3 * BATCH_MAX
        await again.stop()

    asyncio.run(story())


def test_a_pause_is_never_longer_than_a_second() -> None:
    """Times are on the wall clock, which somebody may set forward during the pause."""

    async def story() -> None:
        parts = BrokerParts()
        service = _service(parts)
        _timed(parts, 3600, b"a")
        await parts.settle()
        while service._load():
            pass
        assert service._round() == 1.0

    asyncio.run(story())


class RocketMQ:
    """What a RocketMQ 5 broker leaves in its log: times cut to seconds, copies, messages that it appended again."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def timed(self, seconds: int, body: bytes, **more: str) -> dict[str, str]:
        """A message for so many seconds from now; returns its properties, which its copies keep."""
        out_ms = (self._parts.clock.wall_ms() // 1000 + seconds) * 1000
        properties = {"UNIQ_KEY": body.decode(), "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "1"}
        self._parts.send(TIMER_TOPIC, body, 0, **{**properties, **more})
        return properties

    def delivered(self, body: bytes, properties: dict[str, str], born: int) -> None:
        kept = {name: value for name, value in properties.items() if not name.startswith("REAL_")}
        self._parts.writer.append(
            NewMessage(
                topic="T", queue_id=1, body=body, born_timestamp=born, born_host=HOST,
                properties={**kept, "TIMER_DEQUEUE_MS": str(self._parts.clock.wall_ms())},
            )
        )  # fmt: skip


def test_what_a_rocketmq_broker_delivered_is_not_delivered_again() -> None:
    """Its log has the copies, whether or not its checkpoint came along; what it did not deliver comes now."""

    async def story(checkpoint: bool) -> None:
        parts = BrokerParts()
        real = RocketMQ(parts)
        born = parts.clock.wall_ms()
        first = real.timed(100, b"first")
        real.timed(110, b"not yet")
        real.timed(500, b"late")
        parts.clock.advance(101)
        real.delivered(b"first", first, born)
        parts.clock.advance(300)
        await parts.settle()
        told = TimerCheckpoint(read_ms=born + 102_000, seen_below=3) if checkpoint else None
        service = _service(parts, told)
        service.start()
        assert await _advance(parts, service, 0) == [b"first", b"not yet"]
        assert service.waiting == 1
        assert await _advance(parts, service, 100) == [b"first", b"not yet", b"late"]
        await service.stop()

    for checkpoint in (True, False):
        asyncio.run(story(checkpoint))


def test_a_checkpoint_spares_the_search_below_it() -> None:
    """What it says was delivered more than a minute before is not looked for: the log may have it no more."""

    async def story() -> None:
        parts = BrokerParts()
        real = RocketMQ(parts)
        real.timed(10, b"long ago")
        await parts.settle()
        parts.clock.advance(200)
        now = parts.clock.wall_ms()
        service = _service(parts, TimerCheckpoint(read_ms=now, seen_below=1))
        service.start()
        assert await _advance(parts, service, 0) == []
        assert service.waiting == 0
        await service.stop()

    asyncio.run(story())


def test_a_message_that_rocketmq_appended_again_comes_once() -> None:
    """It rolls what waits long; the newest record counts."""

    async def story() -> None:
        parts = BrokerParts()
        real = RocketMQ(parts)
        real.timed(100, b"rolled")
        real.timed(100, b"rolled", TIMER_ROLL_TIMES="1")
        await parts.settle()
        service = _service(parts)
        service.start()
        await parts.settle()
        assert await _advance(parts, service, 101) == [b"rolled"]
        await service.stop()

    asyncio.run(story())


def test_a_rolled_message_that_was_delivered_does_not_come_again() -> None:
    async def story() -> None:
        parts = BrokerParts()
        real = RocketMQ(parts)
        born = parts.clock.wall_ms()
        properties = real.timed(100, b"rolled")
        real.timed(100, b"rolled", TIMER_ROLL_TIMES="1")
        parts.clock.advance(101)
        real.delivered(b"rolled", properties, born)
        await parts.settle()
        service = _service(parts)
        service.start()
        assert await _advance(parts, service, 0) == [b"rolled"]
        await service.stop()

    asyncio.run(story())


def test_a_message_that_was_recalled_does_not_come() -> None:
    """RocketMQ marks it by a message that names it: neither is delivered."""

    async def story() -> None:
        parts = BrokerParts()
        real = RocketMQ(parts)
        real.timed(100, b"recalled")
        real.timed(100, b"marker", TIMER_DEL_UNIQKEY="T+recalled")
        real.timed(100, b"other")
        await parts.settle()
        service = _service(parts)
        service.start()
        await parts.settle()
        assert await _advance(parts, service, 101) == [b"other"]
        await service.stop()

    asyncio.run(story())


def test_two_messages_alike_are_both_delivered() -> None:
    """Without a unique key a copy stands for one of them only."""

    async def story() -> None:
        parts = BrokerParts()
        born = parts.clock.wall_ms()
        real = RocketMQ(parts)
        for _ in range(2):
            _timed(parts, 10, b"same")
        parts.clock.advance(11)
        (found,) = {message.properties["TIMER_OUT_MS"] for message in await _waiting(parts)}
        real.delivered(b"same", {"TIMER_OUT_MS": found}, born)
        await parts.settle()
        service = _service(parts)
        service.start()
        assert await _advance(parts, service, 0) == [b"same", b"same"]
        await service.stop()

    asyncio.run(story())


async def _waiting(parts: BrokerParts) -> list[StoredMessage]:
    await parts.settle()
    return parts.read(TIMER_TOPIC, 0)


def test_what_is_on_disk_only_is_read_by_a_worker_first() -> None:
    """A service that starts with a million timers must not stop the loop at every page of an old log."""

    class Cold:
        def __init__(self) -> None:
            self.asked: list[tuple[int, int]] = []
            self.then: list[Callable[[], None]] = []

        def is_warm(self, first: int, last: int) -> bool:
            return False

        def soon(self, slices: list[memoryview], first: int, last: int, then: Callable[[], None]) -> bool:
            self.asked.append((first, last))
            self.then.append(then)
            return True

    async def story() -> None:
        parts = BrokerParts()
        service, cold = _service(parts), Cold()
        service.warm_log = cold  # type: ignore[assignment]
        _timed(parts, 10, b"one")
        await parts.settle()
        service.start()
        await parts.settle()
        assert (service.waiting, len(cold.asked)) == (0, 1)
        cold.then.pop()()
        await parts.settle()
        assert (service.waiting, len(cold.asked)) == (1, 1)
        assert await _advance(parts, service, 10) == [b"one"]
        await service.stop()

    asyncio.run(story())
