"""`tandemq up`, `down` and `demo`, as a stranger would use them: the real binary, real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.cli.local_cluster import LocalCluster, Node, Plan, new_plan


def tandemq(*arguments: str, namesrv: str = "", timeout: float = 120) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb", "NAMESRV_ADDR": namesrv}
    return subprocess.run(
        [sys.executable, "-m", "tandemq", *arguments], capture_output=True, text=True, env=environment, timeout=timeout
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("up")
    done = tandemq("up", "--dir", str(directory), "--detach", "--json")
    assert done.returncode == 0, done.stderr
    try:
        yield directory, json.loads(done.stdout)
    finally:
        tandemq("down", "--dir", str(directory))


@pytest.mark.slow
def test_up_send_consume_status(cluster: tuple[Path, dict[str, Any]]) -> None:
    """The README's tour: a message is acknowledged by two copies, read back, and the pair is in sync."""
    _, told = cluster
    sent = tandemq("send", "orders", "hello tandem", "--json", namesrv=told["namesrv"])
    assert sent.returncode == 0, sent.stderr
    assert "SEND_OK" in sent.stdout
    read = tandemq("consume", "orders", "--from", "earliest", "--json", namesrv=told["namesrv"])
    assert "hello tandem" in read.stdout
    status = tandemq("ha", "status", namesrv=told["namesrv"])
    assert status.returncode == 0, status.stderr
    assert "in sync" in status.stdout


@pytest.mark.slow
def test_a_second_up_in_the_same_directory_is_refused(cluster: tuple[Path, dict[str, Any]]) -> None:
    directory, _ = cluster
    done = tandemq("up", "--dir", str(directory), "--detach")
    assert done.returncode == 1
    assert "already run" in done.stderr


@pytest.mark.slow
def test_data_survives_a_killed_master_down_and_up(cluster: tuple[Path, dict[str, Any]]) -> None:
    """kill -9, down, up: what was acknowledged is there."""
    directory, told = cluster
    assert tandemq("send", "survivors", "one", namesrv=told["namesrv"]).returncode == 0
    os.kill(int((directory / "master" / "pid").read_text()), signal.SIGKILL)
    assert tandemq("down", "--dir", str(directory)).returncode == 0
    again = tandemq("up", "--dir", str(directory), "--detach", "--json")
    assert again.returncode == 0, again.stderr
    read = tandemq("consume", "survivors", "--from", "earliest", namesrv=json.loads(again.stdout)["namesrv"])
    assert "one" in read.stdout


@pytest.mark.slow
def test_the_demo_loses_nothing() -> None:
    """The whole story, headless: the master is killed in mid-flow and nothing acknowledged is lost."""
    done = tandemq("demo", "--seconds", "2", "--no-spark", "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["acknowledged"] > 0
    assert set(outcome["lost"].values()) == {0}


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_ends_with_spark_on_the_replica() -> None:
    """The last act: Spark reads the slave's files with no broker running."""
    done = tandemq("demo", "--seconds", "1", timeout=280)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout.split("Spark reads")[1]


def test_a_plan_gives_every_node_ports_of_its_own() -> None:
    """Neither HA nor VIP port of one broker is another node's."""
    plan = new_plan(slaves=3, sync=True)
    ports = [node.port for node in plan.namesrvs]
    ports += [node.port + offset for node in plan.brokers for offset in (-2, 0, 1)]
    assert len(ports) == len(set(ports))
    assert [node.role for node in plan.brokers] == ["SYNC_MASTER", "SLAVE", "SLAVE", "SLAVE"]


def test_two_plans_made_at_the_same_moment_share_no_port() -> None:
    """Nothing listens yet on what another process has planned."""
    program = (
        "import sys; from tandemq.cli.local_cluster import new_plan\n"
        "print(*(node.port for node in new_plan(slaves=1, sync=True).processes), flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        theirs = set(map(int, other.stdout.readline().split()))
        ours = {node.port for node in new_plan(slaves=1, sync=True).processes}
    finally:
        other.communicate("")
    assert len(theirs) == 5
    assert not theirs & ours


def test_a_saved_plan_is_found_again(tmp_path: Path) -> None:
    plan = Plan((Node("namesrv-1", "namesrv", 9876), Node("master", "broker", 10911, "SYNC_MASTER")))
    LocalCluster(tmp_path, plan).save()
    found = LocalCluster.load(tmp_path)
    assert found is not None
    assert found.plan == plan
    assert found.running() == []


def test_a_stale_pid_file_is_no_running_node(tmp_path: Path) -> None:
    """The number may belong to another program by now."""
    plan = Plan((Node("master", "broker", 10911, "SYNC_MASTER"),))
    (tmp_path / "master").mkdir()
    (tmp_path / "master" / "pid").write_text("1")  # init, never a broker
    assert LocalCluster(tmp_path, plan).running() == []
