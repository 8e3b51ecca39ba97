"""When the work that an append leaves behind is done: at once for those who wait, a little later otherwise."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker import writer
from tandemq.broker.new_message import NewMessage
from tandemq.broker.writer import MessageWriter, Queues
from tandemq.errors import DiskFull
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.waiting import until

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


class Bench:
    """A writer, and who waits for what it does."""

    def __init__(self) -> None:
        clock = self.clock = ManualClock()
        self.awaited = False
        self.turns = 0
        self.arrived: list[Queues] = []
        small = StoreConfig(commit_log_segment_size=1 << 20, index_slots=64, index_entries=64)
        self.store = MessageStore.open(Path("/s"), small, clock=clock, disk=MemoryDisk(), store_host=HOST)
        self.writer = MessageWriter(
            self.store,
            AckQueue(),
            clock,
            asyncio.get_running_loop(),
            level=AckLevel(1),
            sync_flush=False,
            flush_timeout_ms=5000,
            copies_timeout_ms=3000,
            pending_max=1000,
            on_arrival=self.arrived.append,
            is_awaited=lambda: self.awaited,
        )
        self.writer.on_turn = self._turn

    def _turn(self) -> None:
        self.turns += 1

    def append(self) -> int:
        appended = self.writer.append(
            NewMessage(topic="T", queue_id=0, body=b"x", properties={}, born_timestamp=0, born_host=HOST)
        )
        return appended.physical_offset + appended.size

    async def turn(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put off while more is sent stays put off."""
    monkeypatch.setattr(writer, "PUT_OFF_MAX", 3600.0)


def test_a_parked_pull_gets_its_message_at_the_end_of_the_turn() -> None:
    async def story() -> None:
        bench = Bench()
        bench.awaited = True
        bench.append()
        await bench.turn()
        assert bench.arrived == [{("T", 0)}]
        assert bench.turns == 1

    asyncio.run(story())


def test_what_nobody_waits_for_is_shared_by_several_turns(endless: None) -> None:
    async def story() -> None:
        bench = Bench()
        for _ in range(3):
            bench.append()
            await bench.turn()
        assert bench.arrived == []
        bench.writer.catch_up()
        assert bench.arrived == [{("T", 0)}]
        assert bench.store.reader.queue_range("T", 0) == (0, 3)
        assert bench.turns == 1

    asyncio.run(story())


def test_what_was_put_off_comes_by_itself() -> None:
    async def story() -> None:
        bench = Bench()
        bench.append()
        async with asyncio.timeout(10):
            while not bench.arrived:  # nobody to be told by
                await bench.turn()
        assert bench.store.dispatched == bench.store.appended

    asyncio.run(story())


def test_what_was_put_off_is_done_as_soon_as_nothing_more_is_sent(endless: None) -> None:
    """No timer: the loop looked at its sockets once in between and found nothing to read."""

    async def story() -> None:
        bench = Bench()
        bench.append()
        await bench.turn()
        bench.append()  # came with the sockets that the loop looked at: more may follow
        await bench.turn()
        assert bench.arrived == []
        await bench.turn()
        assert bench.arrived == [{("T", 0)}]
        assert bench.store.dispatched == bench.store.appended
        assert bench.turns == 1

    asyncio.run(story())


def test_who_sends_without_a_pause_does_not_put_it_off_for_ever() -> None:
    async def story() -> None:
        bench = Bench()
        for _ in range(10):
            bench.append()
            await bench.turn()
        assert bench.arrived == []
        bench.clock.advance(writer.PUT_OFF_MAX)
        bench.append()
        await bench.turn()
        assert bench.arrived == [{("T", 0)}]

    asyncio.run(story())


@pytest.mark.parametrize("is_awaited", [False, True])
def test_views_without_room_disturb_nobody_and_come_when_there_is(
    is_awaited: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk under the index ended in tracebacks of the loop, and nobody asked for flushes that sends wait for."""
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.0)

    async def story() -> None:
        bench = Bench()
        broken: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
        bench.awaited = is_awaited
        asked: list[int] = []
        bench.writer._flush_wanted = bench.append()
        monkeypatch.setattr(bench.store, "when_flushed", lambda offset, done: asked.append(offset))
        with monkeypatch.context() as full:
            full.setattr(bench.store._dispatcher, "run", _no_room)
            for _ in range(10):
                await bench.turn()
            bench.writer.catch_up()
        assert asked == [bench.store.appended]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        await until(lambda: bool(bench.arrived), "the message")
        assert not broken

    asyncio.run(story())


def _no_room(limit: int, size: int) -> set[tuple[str, int]]:
    raise DiskFull("no room for index/1")


def test_much_that_was_put_off_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SLICE_SIZE", 1)

    async def story() -> None:
        bench = Bench()
        for _ in range(5):
            bench.append()
        reached = {bench.store.dispatched}
        async with asyncio.timeout(10):
            while bench.store.dispatched < bench.store.appended:
                await bench.turn()
                reached.add(bench.store.dispatched)
        assert len(reached) == 6, "a record in each turn, others in between"

    asyncio.run(story())


def test_whoever_asks_sees_all_of_it_in_one_go(endless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SLICE_SIZE", 1)

    async def story() -> None:
        bench = Bench()
        for _ in range(5):
            bench.append()
        bench.writer.catch_up()
        assert bench.store.reader.queue_range("T", 0) == (0, 5)

    asyncio.run(story())


def test_a_send_that_waits_for_its_ack_does_not_wait_for_the_timer(endless: None) -> None:
    async def story() -> None:
        bench = Bench()
        end = bench.append()  # put off
        outcome: list[PutStatus] = []
        bench.writer.when_acknowledged(end, AckLevel(1, durable=True), lambda status, reason: outcome.append(status))
        await bench.turn()
        assert bench.turns == 1
        assert bench.arrived == []  # nobody reads: dispatch may still wait
        bench.writer.stop("the end")
        assert outcome == [PutStatus.SERVICE_NOT_AVAILABLE]

    asyncio.run(story())


def test_before_it_stops_everything_is_in_the_queues() -> None:
    async def story() -> None:
        bench = Bench()
        bench.append()
        await bench.writer.drained(1)
        bench.writer.stop("the end")
        assert bench.store.dispatched == bench.store.appended
        bench.writer.schedule_dispatch()  # a slave's last bytes: the store is closed before a timer would come
        assert bench.writer._later is None

    asyncio.run(story())
