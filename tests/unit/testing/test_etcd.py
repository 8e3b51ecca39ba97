"""Which etcd the tests take, and how its nodes know each other."""

from pathlib import Path

import pytest

from tandemq.testing.etcd import RealEtcd, etcd_program


def test_an_etcd_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEMQ_ETCD", "/opt/etcd")
    assert etcd_program() == "/opt/etcd"


def test_three_nodes_have_three_places(tmp_path: Path) -> None:
    etcd = RealEtcd(tmp_path, nodes=3)
    assert etcd.place.startswith("etcd://127.0.0.1:")
    assert len({node.port for node in etcd.nodes} | {node.peer_port for node in etcd.nodes}) == 6
