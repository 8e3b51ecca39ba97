"""A master and the others: what it does about what it sees, is told, and tells."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.broker.pair.parts import GROUP, OTHER, FakeCore, FakeMaster, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.pair.reign import Seen, View
from tandemq.broker.pair.rivals import LOOK_AGAIN_SECONDS, Rivals
from tandemq.replication.metadata import PairCode

REIGNS = {"tandemqHa": "1", "tandemqPhase": "open", "tandemqEpoch": "9", "tandemqEpochId": "z", "tandemqGroup": GROUP}


class Finder:
    successor = ""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []

    def announced_by_candidate(self, ha_address: str, address: str, *, is_ours: bool) -> None:
        self.heard.append((address, is_ours))


def rivals_of(core: Any, finder: Any) -> Rivals:
    facts: Any = SimpleNamespace(ha_facts=lambda: HaFacts(ha_address="h", master_flush_offset=0, extra=dict(REIGNS)))
    return Rivals(core, finder, facts)


def master() -> FakeCore:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master, core.node.is_open = FakeMaster(), True
    return core


def test_a_master_that_is_told_of_a_newer_reign_ends_its_own() -> None:
    core, finder = master(), Finder()
    asyncio.run(rivals_of(core, finder).heard({**REIGNS, "masterAddress": OTHER}))
    assert core.node.master is not None
    assert len(core.node.master.orders) == 1
    assert finder.successor == OTHER


def test_an_outdated_master_is_told_to_step_down() -> None:
    core = master()
    core.node.note(register=register_of(holder=core.node.record.replica, epoch=5))
    core.view = View(seen=[Seen(address=OTHER, is_master=True, is_open=True, group_id="g", register=(4, 1))])

    async def scenario() -> None:
        core.broker.clock.advance(LOOK_AGAIN_SECONDS)
        rivals = rivals_of(core, Finder())
        rivals.look_soon()
        rivals.look_soon()
        assert len(core.tasks) == 1, "one look with a registration is enough"
        await core.settle()

    asyncio.run(scenario())
    assert [(address, command.code) for address, command in core.network.told] == [(OTHER, PairCode.ANNOUNCE)]
    assert core.node.counted == ["met-an-outdated-master"]


def test_nobody_looks_around_before_the_start_is_done() -> None:
    core = master()
    core.is_starting = True
    core.broker.clock.advance(LOOK_AGAIN_SECONDS)
    rivals_of(core, Finder()).look_soon()
    assert core.tasks == {}


def test_a_slave_takes_an_announcement_unless_it_is_older_than_what_it_follows() -> None:
    core, finder = FakeCore(), Finder()
    rivals = rivals_of(core, finder)
    asyncio.run(rivals.heard({**REIGNS, "masterAddress": OTHER}))
    assert finder.heard == [(OTHER, False)]
    core.node.note(register=register_of(epoch=5))
    core.node.is_following = True
    older = {**REIGNS, "masterAddress": OTHER, "tandemqGroupId": "g", "tandemqRegister": "4.9"}
    asyncio.run(rivals.heard(older))
    assert len(finder.heard) == 1
    core.node.is_following = False
    asyncio.run(rivals.heard(older))
    assert len(finder.heard) == 2, "one that follows nobody listens to everybody"


def test_with_a_coordinator_a_master_leaves_it_to_the_failover() -> None:
    core, told = master(), []
    core.failover = SimpleNamespace(announced=told.append)
    asyncio.run(rivals_of(core, Finder()).heard({**REIGNS, "masterAddress": OTHER}))
    assert len(told) == 1
    assert core.node.master is not None
    assert core.node.master.orders == []


def test_a_new_reign_is_announced_to_all_that_are_known_and_a_silent_one_delays_nobody() -> None:
    core = master()
    core.names = {1: "10.0.0.3:10911", 0: core.broker.address}
    asyncio.run(rivals_of(core, Finder()).announce())
    assert sorted(address for address, _ in core.network.told) == [OTHER, "10.0.0.3:10911"]
