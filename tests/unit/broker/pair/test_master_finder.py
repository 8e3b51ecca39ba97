"""Whom a slave follows: who was announced, registered or configured, and what asking them says."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import GROUP, HERE, OTHER, FakeCore, FakeSlave

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.master_finder import DISCOVERY_FAILURES_MAX, MasterFinder
from tandemq.broker.registration import Registered
from tandemq.replication.metadata import KeyWanted
from tandemq.replication.slave import MasterPlace, NotFollowable

THIRD = "10.0.0.3:10911"
OURS = {"tandemqHa": "1", "tandemqGroup": GROUP, "masterHaAddress": "10.0.0.2:10912"}


def finder_of(core: Any) -> MasterFinder:
    return MasterFinder(core)


def registered(address: str, ha_address: str = "") -> Registered:
    return Registered(server="ns:9876", master_address=address, ha_address=ha_address, order_topics=frozenset())


def test_a_registered_master_of_ours_is_asked_where_its_ha_port_is() -> None:
    core = FakeCore()
    finder = finder_of(core)
    finder.registered(registered(OTHER))
    core.network.brokers[OTHER] = OURS
    assert asyncio.run(finder.find()) == MasterPlace("10.0.0.2:10912", True, GROUP)
    assert finder.is_ours
    assert finder.metadata_place() == (OTHER, True)
    assert finder.reigning_address() == OTHER


def test_nobody_is_followed_while_nobody_is_known() -> None:
    core = FakeCore()
    finder = finder_of(core)
    assert asyncio.run(finder.find()) is None
    assert finder.metadata_place() is None
    core.names = {0: OTHER}
    core.network.brokers[OTHER] = OURS
    assert asyncio.run(finder.find()) == MasterPlace("10.0.0.2:10912", True, GROUP), "name servers know it by now"


def test_an_announcement_is_newer_than_what_name_servers_say() -> None:
    core = FakeCore()
    core.node.slave = FakeSlave()
    finder = finder_of(core)
    finder.registered(registered(OTHER))
    finder.announced("10.0.0.3:10912", THIRD)
    assert finder.address == THIRD
    assert core.node.slave.reconnected == 1
    core.network.brokers[THIRD] = OURS
    assert asyncio.run(finder.find()) == MasterPlace("10.0.0.3:10912", True, GROUP)


def test_a_session_that_stands_with_the_one_announced_is_kept() -> None:
    core = FakeCore()
    core.node.is_following = True
    core.node.slave = FakeSlave(place=SimpleNamespace(ha_address="10.0.0.2:10912"))
    finder = finder_of(core)
    finder.announced("10.0.0.2:10912", OTHER)
    assert core.node.slave.reconnected == 0
    finder.announced("10.0.0.3:10912", THIRD)
    assert core.node.slave.reconnected == 1


@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.SLAVE])
def test_a_master_and_ones_own_word_are_not_announcements(role: BrokerRole) -> None:
    finder = finder_of(FakeCore(role))
    finder.announced("10.0.0.1:10912", HERE if role is BrokerRole.SLAVE else OTHER)
    assert finder.address == ""


def test_a_changed_registration_ends_no_session_that_stands() -> None:
    core = FakeCore()
    core.node.slave = FakeSlave()
    finder = finder_of(core)
    core.node.is_following = True
    finder.registered(registered(OTHER))
    assert core.node.slave.looked == 0
    core.node.is_following = False
    finder.registered(registered(THIRD))
    assert core.node.slave.looked == 1
    finder.registered(registered(HERE))
    assert finder.address == THIRD, "an older registration of this broker itself names nobody"


def test_one_that_became_a_slave_is_left_for_whom_it_follows() -> None:
    core = FakeCore()
    finder = finder_of(core)
    finder.registered(registered(OTHER))
    core.network.brokers[OTHER] = {"tandemqRole": "slave", "tandemqFollows": THIRD}
    with pytest.raises(NotFollowable, match=f"is a slave itself, which follows {THIRD}"):
        asyncio.run(finder.find())
    assert finder.address == THIRD


def test_a_silent_broker_port_is_asked_some_times_before_classic_is_spoken_to_the_ha_port_given() -> None:
    core = FakeCore()
    core.live.replication.ha_master_address = "10.0.0.2:10912"
    finder = finder_of(core)
    finder.registered(registered(OTHER))

    async def ask() -> None:
        for _ in range(DISCOVERY_FAILURES_MAX):
            with pytest.raises(OSError, match="does not answer"):
                await finder.find()
        assert await finder.find() == MasterPlace("10.0.0.2:10912", False, address=OTHER)

    asyncio.run(ask())


def test_a_master_that_wants_the_key_is_ours_and_not_followed_without_an_ha_address() -> None:
    core = FakeCore()
    finder = finder_of(core)
    finder.registered(registered(OTHER))
    core.network.brokers[OTHER] = KeyWanted("haSharedKey")
    with pytest.raises(NotFollowable):
        asyncio.run(finder.find())
    finder.registered(registered(OTHER, "10.0.0.2:10912"))
    assert asyncio.run(finder.find()) == MasterPlace("10.0.0.2:10912", True)


def test_rocketmqs_master_is_followed_in_its_own_language() -> None:
    core = FakeCore()
    finder = finder_of(core)
    finder.registered(registered(OTHER, "10.0.0.2:10912"))
    core.network.brokers[OTHER] = {}
    assert asyncio.run(finder.find()) == MasterPlace("10.0.0.2:10912", False, address=OTHER)
    assert finder.reigning_address() == "", "what clients send is not given to one that was only registered"


def test_an_observer_follows_whom_it_was_told_even_a_slave() -> None:
    core = FakeCore()
    core.live.broker.observer = True
    core.live.replication.ha_master_address = "10.0.0.2:10912"
    finder = finder_of(core)
    core.network.brokers[finder.address] = {"tandemqRole": "slave", "tandemqEpochId": "e", "tandemqGroup": GROUP}
    found = asyncio.run(finder.find())
    assert found is not None
    assert (found.ha_address, found.group) == ("10.0.0.2:10912", GROUP)
    assert finder.reigning_address() == ""


def test_with_a_coordinator_its_holder_is_followed() -> None:
    core = FakeCore()
    core.failover = SimpleNamespace(holder_address=OTHER, register=SimpleNamespace(holder=f"{OTHER}#b"))
    core.node.slave = FakeSlave()
    finder = finder_of(core)
    assert (finder.address, finder.reigning_address()) == (OTHER, OTHER)
    finder.follow(OTHER)
    assert core.node.slave.reconnected == 1
    finder.follow("")
    assert core.node.slave.reconnected == 1, "nobody holds it"


def test_the_ha_port_is_that_of_the_session_or_the_one_beside_the_broker_port() -> None:
    core = FakeCore()
    finder = finder_of(core)
    assert finder.ha_port_of(OTHER) == 10912
    core.node.slave = FakeSlave(place=SimpleNamespace(ha_address="10.0.0.2:12345"))
    assert finder.ha_port_of(OTHER) == 12345
