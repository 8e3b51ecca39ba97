"""What a broker tells of its replication."""

from types import SimpleNamespace
from typing import Any

from tests.unit.broker.pair.parts import GROUP, OTHER, FakeCore, FakeMaster, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.facts import PairFacts


def facts_of(core: Any) -> PairFacts:
    finder: Any = SimpleNamespace(address=OTHER)
    return PairFacts(core, finder)


def test_a_slave_tells_whom_it_follows_and_which_register_it_knows() -> None:
    core = FakeCore()
    core.node.is_following = True
    core.node.note(register=register_of())
    found = facts_of(core).ha_facts()
    assert found.ha_address == "10.0.0.1:10912"
    assert found.extra["tandemqRole"] == "slave"
    assert (found.extra["tandemqFollows"], found.extra["tandemqGroup"]) == (OTHER, GROUP)
    assert (found.extra["tandemqRegister"], found.extra["tandemqHolder"]) == ("3.1", f"{OTHER}#b")


def test_a_master_tells_its_phase_and_its_epoch() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master, core.node.phase, core.node.ha_port = FakeMaster(), "open", 12345
    found = facts_of(core).ha_facts()
    assert (found.extra["tandemqHa"], found.extra["tandemqPhase"]) == ("1", "open")
    assert found.ha_address == "10.0.0.1:12345"
    assert "tandemqRole" not in found.extra


def test_rocketmqs_own_question_is_answered_in_its_shape() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master = FakeMaster()
    core.node.replicas = [
        SimpleNamespace(peer="10.0.0.2:4", received=600, lag_bytes=100, in_sync=True, rate=7.9),
        SimpleNamespace(peer="", received=0, lag_bytes=0, in_sync=False, rate=0.0),
    ]
    found = facts_of(core).ha_status()
    assert (found["master"], found["masterCommitLogMaxOffset"], found["inSyncSlaveNums"]) == (True, 700, 1)
    [connection] = found["haConnectionInfo"]
    assert (connection["slaveAckOffset"], connection["transferredByteInSecond"]) == (600, 7)
