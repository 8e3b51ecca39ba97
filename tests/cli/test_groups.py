"""All cores of a machine: several groups under one supervisor, and the machine of their slaves."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.peers.servers import free_ports, is_free

from tandemq.testing.waiting import wait_until

pytestmark = pytest.mark.slow

CONF = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerGroups=2
brokerRole={role}
brokerId={number}
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
metricsPort={metrics}
storePathRootDir={directory}/store
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1024
maxIndexNum=1024
namesrvAddr={namesrv}
"""


class Machine:
    """One supervisor with two groups."""

    def __init__(self, cli: Cli, directory: Path, namesrv: str, role: str, number: int) -> None:
        directory.mkdir()
        self.log = directory / "log"
        self.port = _room_for_two()
        (self.metrics,) = free_ports(1)
        text = CONF.format(
            role=role, number=number, port=self.port, metrics=self.metrics, directory=directory, namesrv=namesrv
        )
        (directory / "broker.conf").write_text(text)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*cli.program, "broker", "-c", str(directory / "broker.conf")],
                stdout=out,
                stderr=out,
                env=cli.environment,
            )

    def ready(self) -> None:
        def served() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "2 groups boot success" in self.log.read_text()

        wait_until(served, lambda: self.log.read_text())

    def children(self) -> dict[str, int]:
        """Returns the process id of each group."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                words = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            name = next((word for word in words if word.startswith("brokerName=")), "")
            if parent == self.process.pid and name:  # one that has just ended has no words any more
                found[name.removeprefix("brokerName=")] = int(entry.name)
        return found

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _room_for_two() -> int:
    """Returns a port whose neighbours, and those ten above, are free."""

    def found() -> int:
        (port,) = free_ports(1, around=True)
        wanted = {port + shift + offset for shift in (0, 10) for offset in (-2, 0, 1, 3)}
        taken = [one for one in wanted if not is_free(one)]
        return 0 if taken or port > 65000 else port

    return wait_until(found, "room for two groups")


@contextmanager
def name_server(cli: Cli) -> Iterator[str]:
    (port,) = free_ports(1)
    command = [*cli.program, "namesrv", "--set", f"listenPort={port}", "--set", "bindAddress=127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli.environment) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def test_two_machines_of_two_groups(alone: Cli, tmp_path: Path) -> None:
    """Topics are on all groups, every group has its slave, one that is killed comes back, all stop in order."""
    with name_server(alone) as namesrv:
        cli = Cli(tmp_path, NAMESRV_ADDR=namesrv)
        masters = Machine(cli, tmp_path / "m", namesrv, "SYNC_MASTER", 0)
        slaves = Machine(cli, tmp_path / "s", namesrv, "SLAVE", 1)
        try:
            masters.ready()
            slaves.ready()
            wait_until(lambda: len(cli.json("broker", "list")) == 4, "four brokers")
            rows = cli.json("topic", "create", "orders", "--queues", "2")
            assert [row["broker"] for row in rows] == ["broker-a-0", "broker-a-1"]
            sent = wait_until(lambda: _all_copied(cli), "sends with two copies on both groups")
            assert {result["broker"] for result in sent["results"]} == {"broker-a-0", "broker-a-1"}

            scraped = masters.scrape()
            assert 'tandemq_store_writable{broker="broker-a-0"} 1' in scraped
            assert 'tandemq_store_writable{broker="broker-a-1"} 1' in scraped
            assert 'tandemq_group_up{broker="broker-a-1"} 1' in scraped

            victim = masters.children()["broker-a-1"]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: masters.children().get("broker-a-1", victim) != victim, "a new process")
            wait_until(
                lambda: 'restarts_total{broker="broker-a-1"} 1' in masters.scrape(), "the restart in the metrics"
            )
            wait_until(lambda: _all_copied(cli), "sends with two copies after the restart")
        finally:
            codes = [slaves.stop(), masters.stop()]
        assert codes == [0, 0]
        assert masters.children() == {}


def _all_copied(cli: Cli) -> object:
    done = cli.run("send", "orders", "--count", "8", "--size", "100", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_a_killed_supervisor_leaves_nobody_behind(alone: Cli, tmp_path: Path) -> None:
    machine = Machine(alone, tmp_path / "m", "", "ASYNC_MASTER", 0)
    machine.ready()
    children = machine.children()
    assert len(children) == 2
    machine.process.kill()
    machine.process.wait(10)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children.values()), "the groups to stop")


def test_a_group_that_cannot_start_stops_the_rest(alone: Cli, tmp_path: Path) -> None:
    machine = Machine(alone, tmp_path / "m", "", "SLAVE", 1)
    machine.process.kill()
    machine.process.wait(10)
    (tmp_path / "m" / "store").mkdir(exist_ok=True)
    (tmp_path / "m" / "store" / "1").write_text("a file where a store should be")
    done = alone.run("broker", "-c", str(tmp_path / "m" / "broker.conf"))
    assert done.returncode == 1
    assert "broker-a-1 ended with code 1 before it served" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_at_the_root_is_refused(alone: Cli, tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020}").write_bytes(bytes(1024))
    settings = ("--set", f"storePathRootDir={tmp_path / 'store'}", "--set", "brokerName=b")
    assert "holds the store of a single broker" in alone.refused("broker", "--groups", "2", *settings)
