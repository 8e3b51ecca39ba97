"""`tandemq ha status` and `ha wait` against a pair whose nodes die, come back and run out of disk."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peers.servers import free_ports

from tandemq.cli.local_cluster import LocalCluster, Node
from tandemq.testing.waiting import wait_until

from .conftest import Cli, Pair

pytestmark = pytest.mark.slow


class Group:
    """A pair of our own, so that its nodes may be killed."""

    def __init__(self, directory: Path) -> None:
        self.pair = Pair(directory / "pair")
        self.cluster = LocalCluster(self.pair.directory, self.pair.plan)
        self.master, self.slave = self.pair.plan.brokers
        self.cli = Cli(directory, NAMESRV_ADDR=self.pair.namesrv)

    def log(self, node: Node) -> str:
        return (self.cluster.home(node) / "log").read_text()

    def status(self, code: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cli.json("ha", "status", code=code)
        return found

    def reaches(self, code: int) -> None:
        wait_until(lambda: self.cli.run("ha", "status").returncode == code, f"exit code {code}", seconds=30)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    found = Group(tmp_path_factory.mktemp("group"))
    for node in found.pair.plan.nodes:
        found.cluster.start(node)
    try:
        yield found
    finally:
        for node in found.pair.plan.nodes:
            found.cluster.kill(node)


def test_a_healthy_pair(group: Group) -> None:
    group.cli("ha", "wait", "--in-sync", "--writable", "--timeout", "20")
    group.cli("send", "orders", "--count", "500", "--size", "1000")
    narrow = Cli(group.cli.directory, NAMESRV_ADDR=group.pair.namesrv, COLUMNS="80")
    lines = narrow("ha", "status").stdout.splitlines()
    assert lines[0] == "broker-a: healthy, 1 slave in sync"
    assert max(map(len, lines)) <= 80
    assert {group.pair.master, group.pair.slave} <= set(" ".join(lines).split())
    assert [node["role"] for node in group.status(0)] == ["master", "slave"]


def test_usage_errors_and_errors_have_codes_of_their_own(group: Group, alone: Cli) -> None:
    group.cli("ha", "status", "--bogus", code=2)
    assert "say what to wait for" in group.cli("ha", "wait", code=2).stderr
    alone("ha", "status", "-n", "127.0.0.1:1", code=1)
    alone("ha", "wait", "--writable", "--timeout", "0.3", "-n", "127.0.0.1:1", code=1)
    assert "not registered" in group.cli("ha", "status", "-b", "broker-x", code=4).stderr
    assert "broker-x" in group.cli.refused("ha", "wait", "--writable", "--timeout", "0", "-b", "broker-x")


def test_asked_by_address(group: Group) -> None:
    assert group.cli.json("ha", "status", "-a", group.pair.slave)[0]["phase"] == "following"
    name_server = group.pair.namesrv.partition(";")[0]
    assert f"{name_server} is a name server, not a broker" in group.cli.refused("ha", "status", "-a", name_server)
    assert "does not answer" in group.cli("ha", "status", "-a", "127.0.0.1:1", code=4).stdout


def test_watching_shows_what_changes_and_ends_with_the_last_code(group: Group) -> None:
    command = [*group.cli.program, "ha", "status", "--watch", "--interval", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=group.cli.environment) as watcher:
        assert watcher.stdout is not None
        assert [json.loads(watcher.stdout.readline())["code"] for _ in range(2)] == [0, 0]
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=20)
        assert watcher.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small tmpfs can't be mounted here: needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk_is_a_state_with_a_reason_and_a_line_each_way(alone: Cli, small_disk: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1, around=True)
    settings = {
        "listenPort": port, "brokerIP1": "127.0.0.1", "storePathRootDir": small_disk / "s", "maxIndexNum": 1024,
        "mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1024, "cleanResourceInterval": 100,
    }  # fmt: skip
    command = [*alone.program, "broker", *(f"--set={key}={value}" for key, value in settings.items())]
    log, address = tmp_path / "log", f"127.0.0.1:{port}"

    def reaches(code: int) -> None:
        wait_until(lambda: alone.run("ha", "status", "-a", address).returncode == code, f"code {code}", seconds=30)

    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as broker:
        try:
            reaches(0)
            (small_disk / "ballast").write_bytes(bytes(29 << 20))
            reaches(4)
            done = alone("ha", "status", "-a", address, code=4)
            assert " disk full " in done.stdout
            assert "[disk-full]" in done.stderr
            (master,) = alone.json("ha", "status", "-a", address, code=4)
            assert (master["phase"], master["reason"], master["writable"]) == ("disk full", "disk-full", False)
            assert "above diskSpaceWarningLevelRatio" in master["refusal"]
            (small_disk / "ballast").unlink()
            reaches(0)
        finally:
            broker.kill()
    lines = [line for line in log.read_text().splitlines() if "takes " in line]
    assert [("no messages" in line, "again" in line) for line in lines] == [(True, False), (False, True)]


def test_a_slave_that_is_gone_keeps_its_lag_and_gets_an_age(group: Group) -> None:
    group.cluster.kill(group.slave)
    group.reaches(3)
    group.cli("send", "orders", "while it is away", "--copies", "1")
    master = group.status(3)[0]
    (slave,) = master["replicas"]
    assert slave["address"] == group.pair.slave
    assert slave["lag_bytes"] == master["end"] - slave["received"] > 0
    wait_until(lambda: group.status(3)[0]["replicas"][0]["lag_ms"] >= 1000, "a lag that grows", seconds=20)
    done = group.cli("ha", "status", code=3)
    assert done.stdout.splitlines()[0] == f"broker-a: not in sync: {group.pair.slave}"
    assert "[connection-lost]," in done.stderr
    assert " s ago." in done.stderr
    assert "not in sync" in group.cli.refused("ha", "wait", "--in-sync", "--timeout", "0.2")
    group.cli("ha", "wait", "--writable", "--timeout", "1")


def test_no_writer_while_the_master_is_dead(group: Group) -> None:
    group.cluster.kill(group.master)
    group.reaches(4)
    group.cluster.start(group.slave)
    wait_until(
        lambda: group.pair.slave in group.cli.run("ha", "status").stdout, "a slave that is registered", seconds=30
    )
    assert "no writer" in group.cli.refused("ha", "wait", "--writable", "--timeout", "0.5")
    group.cluster.start(group.master)
    group.cli("ha", "wait", "--in-sync", "--writable", "--timeout", "30")
    group.reaches(0)


def test_a_slave_that_is_gone_falls_behind_though_another_follows(alone: Cli, tmp_path: Path) -> None:
    """What the group confirms without it is not taken for something that it has."""
    told = alone.json("up", "--detach", "--slaves", "2", "--dir", str(tmp_path / "three"))
    cli = Cli(tmp_path, NAMESRV_ADDR=told["namesrv"])
    cluster = LocalCluster.load(tmp_path / "three")
    assert cluster is not None
    try:
        cli("ha", "wait", "--in-sync", "--writable", "--timeout", "20")
        cli("send", "orders", "--count", "10", "--size", "1000")
        gone = cluster.plan.brokers[2]
        cluster.kill(gone)
        wait_until(lambda: _replica(cli, gone.address)["state"] == "away", "the master notes that it is gone")
        had = _replica(cli, gone.address)["received"]
        cli("send", "orders", "--count", "10", "--size", "1000")
        now = _replica(cli, gone.address)
        assert now["received"] == had
        assert now["lag_bytes"] > 10_000
    finally:
        alone("down", "--dir", str(tmp_path / "three"))


def _replica(cli: Cli, address: str) -> dict[str, Any]:
    """What the master says of one of its slaves."""
    (master,) = (node for node in json.loads(cli.run("ha", "status", "--json").stdout) if node["role"] == "master")
    found: dict[str, Any] = next(one for one in master["replicas"] if one["address"] == address)
    return found
