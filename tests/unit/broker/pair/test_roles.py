"""Which role a broker plays, under which id."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import HERE, FakeCore, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.roles import Roles
from tandemq.codec.ha_register import Member


class Finder:
    successor = ""
    is_told = False
    find = None

    def __init__(self) -> None:
        self.forgot: list[str] = []

    def forget(self, registered: str = "") -> None:
        self.forgot.append(registered)
        self.is_told = bool(registered)


def roles_of(core: Any, finder: Any = None) -> Roles:
    return Roles(core, finder or Finder())


@pytest.mark.parametrize(
    ("file", "is_holder", "plays"),
    [
        (BrokerRole.SYNC_MASTER, False, BrokerRole.SLAVE),
        (BrokerRole.SLAVE, True, BrokerRole.ASYNC_MASTER),
        (BrokerRole.SLAVE, False, BrokerRole.SLAVE),
        (BrokerRole.SYNC_MASTER, True, BrokerRole.SYNC_MASTER),
    ],
)
def test_the_register_decides_and_the_file_is_the_first_wish(
    file: BrokerRole, is_holder: bool, plays: BrokerRole
) -> None:
    core = FakeCore(file)
    core.node.note(register=register_of())
    core.node.note(role="ASYNC_MASTER")
    core.node.is_holder = is_holder
    roles_of(core).take_that_of_register()
    assert core.broker.role is plays
    wanted = {(BrokerRole.SYNC_MASTER, False): ["starts-as-slave"], (BrokerRole.SLAVE, True): ["starts-as-master"]}
    assert core.node.counted == wanted.get((file, is_holder), [])


def test_without_a_register_the_file_decides() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    roles_of(core).take_that_of_register()
    assert core.broker.did == []


def test_a_broker_that_was_not_given_its_registers_coordinator_never_reigns() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.note(register=register_of(home="etcd"))
    roles_of(core).take_that_of_register()
    assert core.broker.role is BrokerRole.SLAVE
    assert "haCoordinator is empty" in core.homeless


def test_a_master_asks_for_the_reign_before_it_takes_messages() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    asyncio.run(roles_of(core).be_master())
    assert "takes no messages yet" in str(core.broker.writer.gate.refusal)
    assert core.node.did == ["master"]


def test_a_slave_without_an_id_takes_one_that_is_free() -> None:
    core = FakeCore()
    core.slave_id = 0
    assert asyncio.run(roles_of(core).take_slave_id()) == 7
    core.slave_id = 2
    assert asyncio.run(roles_of(core).take_slave_id()) == 2


def test_one_that_was_deposed_follows_its_successor() -> None:
    core, finder = FakeCore(BrokerRole.SYNC_MASTER), Finder()
    finder.successor = "10.0.0.9:1"
    asyncio.run(roles_of(core, finder).step_aside())
    assert (core.broker.role, core.node.did, finder.forgot) == (BrokerRole.SLAVE, ["slave"], ["10.0.0.9:1"])
    assert core.broker.did == ["SLAVE 1", "release"]
    assert finder.successor == ""


def test_with_a_coordinator_name_servers_are_told_when_it_follows() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.failover = SimpleNamespace()
    asyncio.run(roles_of(core).step_aside())
    assert core.broker.registration.is_resting
    assert core.broker.did == ["SLAVE 1"]


def test_the_id_that_the_register_gives_is_taken() -> None:
    core = FakeCore()
    member = Member("10.0.0.3:10911#c", "10.0.0.3:10911", 4)
    core.node.note(replica=member.replica, register=register_of(others=(member,)))

    async def scenario() -> None:
        roles = roles_of(core)
        roles.recorded()
        await core.settle()
        roles.recorded()
        await core.settle()

    asyncio.run(scenario())
    assert core.slave_id == 4
    assert core.broker.did == ["SLAVE 4"], "once"


def test_a_candidate_leaves_readers_and_name_servers_alone() -> None:
    core = FakeCore()
    asyncio.run(roles_of(core).become_candidate(BrokerRole.SYNC_MASTER, None, ordered=True))
    assert core.node.did == ["leave", "master"]
    assert core.broker.registration.is_resting
    assert core.broker.address == HERE
