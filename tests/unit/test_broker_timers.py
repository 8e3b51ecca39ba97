"""Timer messages: delivered at their time, once, also across restarts and without files."""

import asyncio

import pytest

from tandemq.broker.timers import BadTimer, TimerHeap, TimerProgress, TimerService, asks_for_timer, to_timer
from tandemq.model.topic import TIMER_TOPIC
from tandemq.testing.broker_parts import HOST, BrokerParts

NOW = 1_700_000_000_000
DAY = 24 * 3600


def _service(parts: BrokerParts) -> TimerService:
    service = TimerService(parts.store, parts.writer, parts.clock, store_host=HOST)

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


def test_the_heap_knows_time_and_lowest_offset() -> None:
    """Order by time; the lowest waiting offset moves when that one is settled."""
    heap = TimerHeap()
    for due, offset in ((30, 0), (10, 1), (20, 2)):
        heap.add(due, offset)
    assert (heap.next_due(), heap.lowest_offset(9), len(heap)) == (10, 0, 3)
    heap.settle()
    heap.settle()
    assert (heap.peek(), heap.lowest_offset(9)) == ((30, 0), 0)
    heap.settle()
    assert (heap.next_due(), heap.lowest_offset(9)) == (None, 9)


def test_progress_reads_back() -> None:
    """Settled: below the first offset, or looked at and due by then."""
    progress = TimerProgress.decode(TimerProgress(100, 5, 9).encode())
    assert progress.is_settled(4, 999)
    assert progress.is_settled(7, 100)
    assert not progress.is_settled(7, 101)
    assert not progress.is_settled(9, 1)


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


def test_a_crash_before_the_progress_record_repeats_but_loses_nothing() -> None:
    """At-least-once."""

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
        assert await _advance(parts, again, 0) == [b"a", b"a"]
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
