"""A promotion by an operator's order: refused with what to do before anybody is disturbed, or carried out."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import OTHER, FakeCore, FakeMaster, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.promotion import Promotion
from tandemq.broker.pair.reign import RoleVerdict, Seen, Step, View
from tandemq.codec.ha_register import Member
from tandemq.errors import ReplicationError
from tandemq.replication.mastership.core import Phase
from tandemq.sim.clock import ManualClock


class HurryingClock(ManualClock):
    """A second passes with every look at it."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


class Group:
    """A slave to be promoted, and the master that hands over, or does not."""

    def __init__(self) -> None:
        self.core = FakeCore()
        self.core.node.note(in_sync=frozenset({self.core.node.record.replica}))
        self.handed_over = f"{OTHER}#b"
        self.may_go_on = asyncio.Event()

    async def ask_master(self, accept_loss: bool) -> str:
        self.core.broker.did.append("asked the master")
        return self.handed_over

    async def be_master(self, ask: frozenset[str], *, ordered: bool) -> None:
        await self.core.node.be_master(ask=ask, ordered=ordered)

    async def announce(self) -> None:
        self.core.broker.did.append("announced")

    def promote(self, *, accept_loss: bool = False) -> str:
        core: Any = self.core
        rivals: Any = SimpleNamespace(announce=self.announce, may_go_on=self.may_go_on)
        roles: Any = SimpleNamespace(be_master=self.be_master)
        handing_over: Any = SimpleNamespace(ask_master=self.ask_master)
        promotion = Promotion(core, rivals, roles, handing_over)
        return asyncio.run(promotion.promote(BrokerRole.SYNC_MASTER, accept_loss))


def test_a_slave_in_sync_takes_over_and_keeps_its_id_for_later() -> None:
    group = Group()
    assert "is the master now" in group.promote()
    assert group.core.broker.did == ["asked the master", "SYNC_MASTER 0", "announced"]
    assert group.core.node.did == ["leave", "master", "remember SYNC_MASTER"]
    assert group.core.slave_id == 1
    assert group.core.predecessor == f"{OTHER}#b"


def test_a_silent_member_is_named_and_nothing_is_changed() -> None:
    group = Group()
    group.core.node.note(register=register_of(others=(Member("10.0.0.3:10911#c", "10.0.0.3:10911", 2),)))
    with pytest.raises(ReplicationError, match=r"10\.0\.0\.3:10911#c"):
        group.promote()
    assert group.core.broker.did == []
    assert group.core.node.counted == ["promotion-refused"]
    assert "could not hear 10.0.0.3:10911#c" in group.promote(accept_loss=True)


def test_a_pair_needs_no_word_from_its_dead_master() -> None:
    group = Group()
    group.core.node.note(register=register_of())
    group.handed_over = ""
    assert "is the master now" in group.promote()


def test_one_that_was_not_in_sync_is_refused() -> None:
    group = Group()
    group.core.node.note(in_sync=frozenset())
    group.core.node.note(history=SimpleNamespace(epochs=("one",)))
    with pytest.raises(ReplicationError, match="was not in sync"):
        group.promote()


def test_a_copy_that_began_with_the_last_file_is_refused() -> None:
    group = Group()
    group.core.node.note(lacks=(0, 4096))
    with pytest.raises(ReplicationError, match=r"lacks \[0, 4096\)"):
        group.promote()


def test_an_observer_is_promoted_only_where_that_is_meant() -> None:
    group = Group()
    group.core.live.broker.observer = True
    with pytest.raises(ReplicationError, match="is an observer"):
        group.promote()


def test_a_broker_without_its_coordinator_is_refused() -> None:
    group = Group()
    group.core.node.note(register=register_of(home="etcd"))
    group.core.homeless = "haCoordinator is empty"
    with pytest.raises(ReplicationError, match="haCoordinator is empty"):
        group.promote()


def test_one_that_can_not_be_heard_in_time_ends_the_promotion() -> None:
    group = Group()
    group.core.node.note(register=register_of())
    group.core.node.opens = False
    group.core.node.waiting_for = ["10.0.0.3:10911#c"]

    group.core.broker.clock = HurryingClock()

    async def be_master(ask: frozenset[str], *, ordered: bool) -> None:
        group.core.node.master = FakeMaster(SimpleNamespace(phase=Phase.ASKING))

    group.be_master = be_master  # type: ignore[method-assign]
    with pytest.raises(ReplicationError, match=r"10\.0\.0\.3:10911#c could not be heard in time"):
        group.promote()
    assert group.core.node.master is not None
    assert group.core.node.master.orders == ["the promotion was given up"]
    assert group.core.predecessor == ""


def test_a_master_that_waits_goes_on_only_when_a_loss_is_accepted() -> None:
    group = Group()
    group.core.broker.role = BrokerRole.SYNC_MASTER
    group.core.waits = RoleVerdict(Step.WAIT, "10.0.0.2:10911 does not answer")
    with pytest.raises(ReplicationError, match=r"does not answer; use --accept-loss"):
        group.promote()
    assert "goes on unless" in group.promote(accept_loss=True)
    assert group.may_go_on.is_set()


def test_a_master_that_asks_is_allowed_to_open_and_the_group_is_looked_for() -> None:
    group = Group()
    core = group.core
    core.broker.role = BrokerRole.SYNC_MASTER
    core.node.waiting_for = ["x#1"]
    core.node.master = FakeMaster(SimpleNamespace(phase=Phase.DEPOSED))
    core.view = View(seen=[Seen(address=OTHER, group_id="g")])
    with pytest.raises(ReplicationError, match="waits for x#1"):
        group.promote()
    assert "goes on without x#1" in group.promote(accept_loss=True)
    assert core.node.master.allowed == [False], "the group lives"


def test_an_open_master_says_so() -> None:
    group = Group()
    group.core.broker.role, group.core.node.is_open = BrokerRole.SYNC_MASTER, True
    assert "already is the master" in group.promote()
