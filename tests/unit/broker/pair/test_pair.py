"""The composition of a pair: what the broker tells reaches the part whose matter it is."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import OTHER, FakeBroker, FakeNode, FakeSlave, Network

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.pair import Pair
from tandemq.broker.pair.tables import NEVER
from tandemq.broker.registration import Registered
from tandemq.replication.slave_state import SlaveState


def pair_of(role: BrokerRole) -> tuple[Pair, Any]:
    broker: Any = FakeBroker(role, Network())
    pair = Pair(broker)
    node: Any = FakeNode()
    pair._core.node = node
    return pair, node


def registered() -> Registered:
    return Registered(server="ns:9876", master_address=OTHER, ha_address="", order_topics=frozenset())


def test_a_name_servers_answer_tells_a_slave_whom_to_follow() -> None:
    pair, _ = pair_of(BrokerRole.SLAVE)
    pair.registered(registered())
    assert pair._finder.address == OTHER


@pytest.mark.parametrize("is_coordinated", [True, False])
def test_it_tells_a_master_or_a_coordinated_broker_nothing_about_whom_to_follow(is_coordinated: bool) -> None:
    pair, _ = pair_of(BrokerRole.SLAVE if is_coordinated else BrokerRole.SYNC_MASTER)
    if is_coordinated:
        failover: Any = SimpleNamespace(holder_address="")
        pair._core.failover = failover
    pair.registered(registered())
    assert pair._finder.address == ""


def test_a_table_is_true_at_what_readers_see_of_a_log_that_agrees_with_the_masters() -> None:
    pair, node = pair_of(BrokerRole.SLAVE)
    store: Any = pair.broker.store
    store.dispatched = 512
    node.slave = FakeSlave(state=SlaveState.__new__(SlaveState))
    assert pair._reached() == NEVER, "it is not known yet whether the two agree"
    node.is_following = True
    assert pair._reached() == 512
    node.is_following, node.slave = False, FakeSlave(state="classic")
    assert pair._reached() == 512, "a RocketMQ master has no history to compare"


def test_a_cut_takes_back_what_tables_were_true_at() -> None:
    pair, _ = pair_of(BrokerRole.SLAVE)
    broker: Any = pair.broker
    broker.log_was_cut = lambda: broker.did.append("cut")
    pair.tables.true_at = 900
    pair._log_was_cut()
    assert pair.tables_true_at() == broker.store.appended
    assert broker.did == ["cut"]
