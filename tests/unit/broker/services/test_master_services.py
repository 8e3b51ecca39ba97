"""A master's services as one: they begin where the log says that they ended, and rest with the right to write."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.master_services import MasterServices
from tandemq.formats.envelope import parse_delay_levels, to_schedule
from tandemq.formats.service_progress import ServiceProgress
from tandemq.sim.disk import MemoryDisk
from tandemq.testing.broker_parts import HOST, BrokerParts

DELAYS = parse_delay_levels()


def services_of(parts: BrokerParts) -> MasterServices:
    checkpoint: Any = SimpleNamespace(known=None)
    services = MasterServices(
        parts.store,
        parts.writer,
        parts.clock,
        parts.live,
        DelaySchedule(DELAYS, parts.clock.wall_ms),
        parts.topics,
        parts.offsets,
        parts.members,
        checkpoint,
        store_host=HOST,
    )
    parts.on_arrival = services.arrived
    return services


def delayed(parts: BrokerParts, body: bytes) -> None:
    topic, queue_id, _, properties = to_schedule("T", 1, 0, {"DELAY": "1"})
    parts.send(topic, body, queue_id, **properties)


async def due(parts: BrokerParts, services: MasterServices) -> None:
    parts.clock.advance(2)
    services.delay._wake.set()
    await parts.settle()


def test_a_successor_goes_on_where_the_log_says_that_the_services_ended() -> None:
    """Its own tables know nothing of what was delivered: without the note in the log, it would come twice."""

    async def story() -> None:
        disk = MemoryDisk()
        parts = BrokerParts(disk)
        former = services_of(parts)
        former.start()
        delayed(parts, b"first")
        await parts.settle()
        await due(parts, former)
        assert [message.body for message in parts.read("T", 1)] == [b"first"]
        await former.stop()
        await parts.settle()
        assert former.told(is_master=True) == ServiceProgress({1: 1})
        delayed(parts, b"second")
        await parts.settle()
        await due(parts, former)
        assert len(parts.read("T", 1)) == 1, "services that rest deliver nothing"

        successor = services_of(parts)
        successor.start()
        await due(parts, successor)
        assert [message.body for message in parts.read("T", 1)] == [b"first", b"second"]
        await successor.stop()

    asyncio.run(story())


def test_a_slave_knows_the_first_unsettled_half_only_from_the_log() -> None:
    async def story() -> None:
        parts = BrokerParts()
        services = services_of(parts)
        assert services.told(is_master=False) is None, "nobody has written it yet"
        assert services.told(is_master=True) == ServiceProgress(), "a master of ours keeps what it has not written"

    asyncio.run(story())


def test_the_limits_of_transaction_checks_follow_the_configuration() -> None:
    async def story() -> None:
        parts = BrokerParts(transaction_check_max=3)
        limits = services_of(parts)._check_limits()
        assert limits.check_max == 3
        assert limits.retention_ms == parts.live.store.file_reserved_hours * 3_600_000

    asyncio.run(story())
