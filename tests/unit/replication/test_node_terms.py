"""NodeTerms: what the operator configured, for each machine, and what a coordinator's lease makes shorter."""

from tandemq.model.ack_level import AckLevel
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.node_terms import NodeTerms


def terms(**more: int) -> NodeTerms:
    return NodeTerms(ReplicationConfig(**more), "g", "a:1", sync_flush=True, observer=True)


def test_milliseconds_become_seconds() -> None:
    node = terms(heartbeat_interval_ms=500, housekeeping_interval_ms=3000, rejoin_wait_ms=250, not_caught_up_ms=1500)
    master = node.of_master(AckLevel(2), strict=True, broker_id=3)
    assert (master.heartbeat, master.housekeeping, master.rejoin_wait, master.away_max) == (0.5, 3.0, 0.25, 1.5)
    assert (master.group, master.address, master.broker_id, master.sync_flush) == ("g", "a:1", 3, True)
    slave = node.of_slave(7)
    assert (slave.heartbeat, slave.housekeeping, slave.broker_id, slave.observer) == (0.5, 3.0, 7, True)
    assert (node.of_relay().heartbeat, node.of_relay().housekeeping) == (0.5, 3.0)


def test_where_there_is_a_lease_nobody_is_silent_for_longer() -> None:
    node = terms(heartbeat_interval_ms=5000, housekeeping_interval_ms=20_000, not_caught_up_ms=15_000)
    node.home, node.lease = "etcd:", 3.0
    master = node.of_master(AckLevel(2), strict=False, broker_id=0)
    assert master.heartbeat == 0.5
    assert master.housekeeping < 3.0
    assert master.away_max < 1.0
    assert (master.home, master.lease) == ("etcd:", 3.0)


def test_an_operator_may_let_a_master_open_without_its_replicas() -> None:
    config = ReplicationConfig(open_without_replicas=True)
    node = NodeTerms(config, "g", "a:1", sync_flush=False)
    assert not node.of_master(AckLevel(2), strict=True, broker_id=0).strict_open
    assert terms().of_master(AckLevel(2), strict=True, broker_id=0).strict_open
