"""Delays, timers and transactions across power cuts: what was on disk when it was promised is delivered.

Each run is random operations with cuts in between, on a disk that forgets what was not synced and tears what was half
written; the seed in the test's name replays it. What may happen twice is named; nothing may be lost, and a message that
was rolled back is never seen.
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tandemq.broker.handlers.transactions import TransactionHandlers
from tandemq.broker.services.delay import DelayService
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.half_check import CheckLimits
from tandemq.broker.services.timers import TimerService, to_timer
from tandemq.broker.services.transactions import TransactionService
from tandemq.codec import fastjson
from tandemq.codec.command import Command
from tandemq.formats.envelope import parse_delay_levels, to_half, to_schedule
from tandemq.formats.record import parse_record
from tandemq.model.topic import TRANS_HALF_TOPIC
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.testing.broker_parts import HOST, STORE, BrokerParts, FakeConnection

DELAYS = parse_delay_levels("1s 5s 10s")
LAZY = replace(STORE, flush_views_interval_ms=3_600_000)
"""Nothing is flushed but by `flush`: the service must not rely on luck."""
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 25))]


class Node:
    """A broker's parts that can lose power; `promised` are messages whose send was on disk."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.disk = CrashableDisk()
        self.sent: dict[bytes, int] = {}
        """body -> physical end, until it is flushed or lost"""
        self.promised: set[bytes] = set()
        self.open()

    def open(self) -> None:
        self.parts = BrokerParts(self.disk, self.clock, LAZY)
        self.started()

    def started(self) -> None:
        """The services of a new process."""

    def flush(self) -> None:
        self.parts.store.flush_once()
        self.promised |= {body for body, end in self.sent.items() if end <= self.parts.store.flushed}
        self.sent = {body: end for body, end in self.sent.items() if body not in self.promised}

    def cut(self) -> None:
        """The process and the page cache are gone."""
        self.sent.clear()
        self.disk = self.disk.after_crash(self.random)
        self.open()

    def note(self, body: bytes, appended: Any) -> None:
        self.sent[body] = appended.physical_offset + appended.size

    def delivered(self) -> list[bytes]:
        return [message.body for message in self.parts.read("T")]


class DelayNode(Node):
    saved = b'{"offsetTable":{}}'

    def started(self) -> None:
        schedule = DelaySchedule(DELAYS, self.clock.wall_ms)
        schedule.load(fastjson.loads(self.saved))
        self.service = DelayService(schedule, self.parts.store, self.parts.writer, self.clock)

    def save(self) -> None:
        """delayOffset.json as the broker writes it: durable itself, and never ahead of the copies."""
        self.service.schedule.flushed(self.parts.store.flushed)
        self.saved = fastjson.dumps_pretty(self.service.schedule.snapshot(durable=True))

    def send(self, number: int) -> None:
        body = b"%d" % number
        level = self.random.randint(1, 3)
        topic, queue_id, _, properties = to_schedule("T", 0, 0, {"DELAY": str(level)})
        self.note(body, self.parts.send(topic, body, queue_id, **properties))

    async def work(self) -> None:
        self.service._round()
        await self.parts.settle()


class TimerNode(Node):
    def started(self) -> None:
        self.service = TimerService(self.parts.store, self.parts.writer, self.clock, store_host=HOST)
        self.service._loaded = self.service._written = self.service._last_progress()
        self.service._read_ms = self.service._loaded.read_ms
        self.service._next = self.service._loaded.settled_below

    def save(self) -> None:
        self.service._write_progress()

    def send(self, number: int) -> None:
        body = b"%d" % number
        delay = str(self.random.randint(1, 20_000))
        wrapped = to_timer("T", 0, 0, {"TIMER_DELAY_MS": delay}, self.clock.wall_ms(), 10**9)
        assert wrapped is not None
        self.note(body, self.parts.send(wrapped.topic, body, wrapped.queue_id, **wrapped.properties))

    async def work(self) -> None:
        while self.service._round() == 0:
            pass
        await self.parts.settle()


@pytest.mark.parametrize("kind", [DelayNode, TimerNode])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promised_delay_is_delivered(kind: type[DelayNode] | type[TimerNode], seed: int) -> None:
    """At least once, in spite of any number of cuts; nothing that was never sent appears."""

    async def story() -> None:
        node = kind(seed)
        for number in range(150):
            pick = node.random.random()
            if pick < 0.5:
                node.send(number)
            elif pick < 0.7:
                node.clock.advance(node.random.random() * 5)
                await node.work()
            elif pick < 0.82:
                node.flush()
            elif pick < 0.94:
                node.save()
            else:
                node.cut()
            await node.parts.settle()
        node.cut()
        await node.parts.settle()
        for _ in range(10):
            node.clock.advance(5)
            await node.work()
        assert node.promised <= set(node.delivered())
        assert node.promised

    asyncio.run(story())


class TransactionNode(Node):
    """The producer knows what it decided; it answers questions by that, and by nothing else."""

    def __init__(self, seed: int) -> None:
        self.decisions: dict[bytes, str] = {}
        self.offsets: dict[str, Any] = {}
        super().__init__(seed)

    def started(self) -> None:
        parts = self.parts
        parts.offsets.load(self.offsets)
        self.producer = FakeConnection()
        parts.members.register_producer("pg", self.producer, "client", "JAVA", 407, 0.0)  # type: ignore[arg-type]
        self.service = TransactionService(
            parts.store, parts.writer, parts.offsets, parts.members, self.clock,
            limits=lambda: CheckLimits(6000, 1000, 10**12),
            interval_ms=lambda: 10**6,
            store_host=HOST,
            broker_name="broker-a",
            ensure_topic=lambda topic: parts.topics.create_internal(topic, 1),
        )  # fmt: skip
        self.service.start()
        self.handlers = TransactionHandlers(
            parts.live, parts.store, parts.writer, self.service, parts.stats, self.clock, is_slave=lambda: False
        )

    def save(self) -> None:
        """consumerOffset.json is saved whatever the log's flush has reached: progress may be ahead of the disk."""
        self.offsets = self.parts.offsets.snapshot()

    def half(self, number: int) -> None:
        body = b"%d" % number
        self.decisions[body] = self.random.choice(("8", "12"))
        topic, queue_id, _, properties = to_half("T", 0, 4, {"PGROUP": "pg", "UNIQ_KEY": body.decode()})
        appended = self.parts.send(topic, body, queue_id, **properties)
        self.note(body, appended)
        if self.random.random() < 0.6:
            self.end(body, appended.queue_offset, appended.physical_offset)

    def end(self, body: bytes, queue_offset: int, physical_offset: int, *, check: bool = False) -> None:
        ext = {
            "producerGroup": "pg",
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(physical_offset),
            "commitOrRollback": self.decisions[body],
            "fromTransactionCheck": "true" if check else "false",
        }
        self.handlers.end(self.producer, Command(37, ext))  # type: ignore[arg-type]

    async def check(self) -> None:
        await self.service.check()
        await self.parts.settle()
        for question in self.producer.sent:
            ext, half = question.ext, parse_record(question.body)
            if self.random.random() < 0.8:
                self.end(half.body, int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"]), check=True)
        self.producer.sent.clear()
        await self.parts.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promised_half_ends_as_its_producer_decided(seed: int) -> None:
    """Committed ones are delivered, at least once; rolled-back ones never; in the end nothing waits any more."""

    async def story() -> None:
        node = TransactionNode(seed)
        for number in range(120):
            pick = node.random.random()
            if pick < 0.5:
                node.half(number)
            elif pick < 0.7:
                node.clock.advance(node.random.random() * 10)
                await node.check()
            elif pick < 0.82:
                node.flush()
            elif pick < 0.94:
                node.save()
            else:
                await node.service.stop()
                node.cut()
            await node.parts.settle()
        node.flush()
        for _ in range(40):
            node.clock.advance(7)
            await node.check()
        committed = {body for body in node.promised if node.decisions[body] == "8"}
        delivered = set(node.delivered())
        assert committed <= delivered
        assert all(node.decisions[body] == "8" for body in delivered)
        assert node.service.ledger.half_offset == node.parts.store.reader.queue_range(TRANS_HALF_TOPIC, 0)[1]
        assert node.service.ledger._renewed == {}
        await node.service.stop()

    asyncio.run(story())


def test_saved_progress_is_never_ahead_of_the_log() -> None:
    """The half was appended again and passed over; the offset is saved, then power fails before the copy is on disk."""

    async def story() -> None:
        node = TransactionNode(0)
        node.decisions[b"1"] = "8"
        topic, queue_id, _, properties = to_half("T", 0, 4, {"PGROUP": "pg", "UNIQ_KEY": "1"})
        node.note(b"1", node.parts.send(topic, b"1", queue_id, **properties))
        await node.parts.settle()
        node.flush()
        node.clock.advance(7)
        await node.service.check()
        node.save()
        await node.service.stop()
        node.sent.clear()
        node.disk = node.disk.after_crash()
        node.open()
        node.random.seed(1)
        for _ in range(10):
            node.clock.advance(7)
            await node.check()
        assert node.delivered() == [b"1"]
        await node.service.stop()

    asyncio.run(story())
