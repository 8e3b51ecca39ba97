"""`tandemq up --failover`, the operator's commands for elections, and the demo, as a person meets them."""

import json
from pathlib import Path

import pytest

from tandemq.cli.local_etcd import etcd_program
from tandemq.testing.waiting import wait_until

from .conftest import Cli

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(not etcd_program(), reason="no etcd on this machine: Debian's package is etcd-server"),
]


def test_up_status_switch_pause_and_down(alone: Cli, tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    told = alone.run("up", "--failover", "--dir", directory, "--detach", "--json", timeout=120)
    assert told.returncode == 0, told.stderr
    cli = Cli(tmp_path, NAMESRV_ADDR=json.loads(told.stdout)["namesrv"])
    try:
        wait_until(
            lambda: cli("ha", "status").stdout.count("may be elected") == 2,
            lambda: f"two that may be elected\n{cli('ha', 'status').stdout}",
        )
        shown = cli("ha", "status").stdout
        assert "2 slaves in sync" in shown
        assert "coordinator: etcd://127.0.0.1:" in shown
        slave = next(node["address"] for node in cli.json("ha", "status") if node["role"] == "slave")
        assert f"{slave} is the master now" in cli("ha", "switch", slave).stdout
        assert "paused" in cli("ha", "pause").stdout
        shown = cli("ha", "status").stdout
        assert "elections are paused; an operator chose the master" in shown
        assert f"election: {slave} reigns" in shown
        assert "go on" in cli("ha", "resume").stdout
        assert "SEND_OK" in cli("send", "orders", "hello", "--copies", "2").stdout
    finally:
        down = alone.run("down", "--dir", directory, timeout=120)
    assert "etcd" in down.stdout
    again = alone.run("up", "--dir", directory, "--detach", timeout=60)
    assert again.returncode == 1
    assert "--failover" in again.stderr


def test_the_demo_kills_a_master_and_loses_nothing(alone: Cli) -> None:
    done = alone.run("demo", "--failover", "--seconds", "1", "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["acknowledged"] > 0
    assert outcome["lost"] == 0
    assert outcome["gapMs"] > 0
