"""A group for failover has the same file on every broker."""

from pathlib import Path

from tandemq.testing.failover_group import FailoverGroup


def test_a_group_knows_how_many_etcd_nodes_it_has(tmp_path: Path) -> None:
    assert len(FailoverGroup(tmp_path, etcd_nodes=3).etcd.nodes) == 3
