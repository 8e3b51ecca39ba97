"""The numbers of `tandemq demo --failover`; tests/cli plays it whole."""

from pathlib import Path

from tandemq.cli.demo_failover import Sent, node_at
from tandemq.cli.local_cluster import LocalCluster, Node, Plan


def test_what_the_producer_knows_begins_empty() -> None:
    sent = Sent()
    sent.numbers().add(1)
    assert sent.acknowledged == {1}


def test_a_broker_is_found_by_its_address() -> None:
    brokers = (Node("broker-1", "broker", 10911, "SYNC_MASTER"), Node("broker-2", "broker", 11011, "SYNC_MASTER"))
    cluster = LocalCluster(Path("x"), Plan(brokers, coordinator="etcd://127.0.0.1:2379"))
    assert node_at(cluster, "127.0.0.1:11011").name == "broker-2"
