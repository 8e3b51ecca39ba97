"""Partitions of a group with a real etcd, each node in a network namespace: packets vanish, nobody is told."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.testing.etcd import etcd_program
from tandemq.testing.failover_group import FailoverGroup
from tandemq.testing.namespaces import Machines, namespaces_work
from tandemq.testing.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(not etcd_program(), reason="no etcd on this machine: Debian's package is etcd-server"),
    pytest.mark.skipif(not namespaces_work(), reason="this process may not make network namespaces"),
]


@pytest.fixture
def machines() -> Iterator[Machines]:
    with Machines(("etcd", "0", "1", "2")) as made:
        yield made


def number_of(group: FailoverGroup, broker: Any) -> str:
    return str(group.brokers.index(broker))


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(lambda slaves: ["etcd"], id="from etcd"),
        pytest.param(lambda slaves: ["etcd", *slaves], id="from all but the producer"),
    ],
)
def test_a_master_that_is_cut_off_from_etcd_is_replaced(
    tmp_path: Path, machines: Machines, others: Callable[[list[str]], list[str]]
) -> None:
    """Producers that still reach it get no acknowledgement that another master does not know of."""

    async def story() -> None:
        properties = {"forwardTimeoutMillis": "0"}  # so that each broker answers for itself
        async with FailoverGroup(tmp_path, machines=machines, properties=properties) as group:
            old = await group.up()
            load = group.load()
            await load.reached(200)
            slaves = [str(number) for number in range(3) if str(number) != number_of(group, old)]
            for other in others(slaves):
                machines.cut(number_of(group, old), other)

            async def deposed() -> bool:
                """The producer still reaches it: it says that it takes no messages."""
                return (await group.status(old)).get("writable") is False

            await until(deposed, group._logs)
            new = await group.reigning(besides=old)
            await load.reached(len(load.result.acknowledged) + 200)
            machines.heal()
            await group.follows(old, new)
            await group.all_in_sync()
            await group.check_all(await load.stop())

    asyncio.run(story())


def test_a_master_that_is_cut_off_from_its_slaves_reigns_on_at_one_copy_and_loses_nothing(
    tmp_path: Path, machines: Machines
) -> None:
    """It renews its lease, so nobody else is elected; what wants two copies is told that there are none."""

    async def story() -> None:
        async with FailoverGroup(tmp_path, machines=machines) as group:
            master = await group.up()
            load = group.load()
            await load.reached(200)
            for number in range(3):
                if str(number) != number_of(group, master):
                    machines.cut(number_of(group, master), str(number))

            async def alone() -> bool:
                register = (await group.status(master)).get("register") or {}
                return len(register.get("in_sync", ())) == 1

            await until(alone, group._logs)
            await until(lambda: load.result.statuses.get(11, 0) > 0, group._logs)  # SLAVE_NOT_AVAILABLE: stored
            assert await group.reigning() is master
            machines.heal()
            await group.all_in_sync()
            await load.reached(len(load.result.acknowledged) + 200)
            await group.check_all(await load.stop())

    asyncio.run(story())
