"""An orderly hand-over, from both sides."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import OTHER, FakeCore, FakeMaster, FakeSlave, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.handing_over import DRAIN_SECONDS, HandingOver
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplicationError
from tandemq.replication.metadata import PairCode
from tandemq.replication.slave_state import SlaveState


def handing_over(core: Any) -> HandingOver:
    finder: Any = SimpleNamespace(address=OTHER)
    return HandingOver(core, finder)


def follower() -> FakeCore:
    core = FakeCore()
    core.node.is_following = True
    state = SlaveState.__new__(SlaveState)
    state.core = SimpleNamespace(master=f"{OTHER}#b")  # type: ignore[assignment]
    core.node.slave = FakeSlave(state=state)
    core.node.note(register=register_of())
    core.network.brokers[OTHER] = {"tandemqNow": "1000"}
    return core


def test_an_order_says_its_epoch_and_until_when_it_is_meant() -> None:
    core = follower()
    assert asyncio.run(handing_over(core).ask_master(False)) == f"{OTHER}#b"
    address, order = core.network.told[-1]
    assert (address, order.code) == (OTHER, PairCode.DEMOTE)
    assert (order.ext["epoch"], order.ext["brokerId"]) == ("3", "1")
    assert int(order.ext["expiresAt"]) > 1000 + DRAIN_SECONDS * 1000, "by the master's own clock"


def test_a_master_that_does_not_hand_over_stops_a_promotion_unless_a_loss_is_accepted() -> None:
    core = follower()
    core.network.replies[PairCode.DEMOTE] = Command(ResponseCode.SYSTEM_ERROR, remark="busy")
    with pytest.raises(ReplicationError, match=r"did not hand over: .*busy"):
        asyncio.run(handing_over(core).ask_master(False))
    assert asyncio.run(handing_over(core).ask_master(True)) == ""


def test_nobody_is_asked_by_one_that_follows_nobody() -> None:
    core = follower()
    core.node.is_following = False
    assert asyncio.run(handing_over(core).ask_master(False)) == ""
    assert core.network.told == []


def test_a_master_drains_before_it_steps_down() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master = FakeMaster()
    text = asyncio.run(handing_over(core).step_down(2))
    assert "steps down" in text
    assert core.broker.did == ["rest services", "answered", "forbid writes"]
    assert core.node.did == ["drained"]
    assert core.node.master.orders == ["the operator demotes it"]
    assert core.slave_id == 2


def test_one_whose_slaves_do_not_get_everything_reigns_on() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master, core.node.is_open = FakeMaster(), True

    async def drained(seconds: float) -> None:
        raise ReplicationError("a slave lags")

    core.node.drained = drained  # type: ignore[method-assign]
    with pytest.raises(ReplicationError, match="a slave lags"):
        asyncio.run(handing_over(core).step_down(2))
    assert core.broker.did[-1] == "allow writes"
    assert core.node.master.orders == []


def test_a_slave_has_nothing_to_hand_over() -> None:
    assert "is a slave" in asyncio.run(handing_over(FakeCore()).step_down(0))
