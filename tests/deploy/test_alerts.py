"""A real Prometheus scrapes a pair, and each alert fires when its fault is made.

The rules are those of deploy/, with every duration divided by sixty, so that minutes become seconds, and with lower
thresholds where a test could not reach the real ones in seconds.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.peers.servers import free_ports
from tests.peers.tools import Missing, need

from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "tandemq.rules.yml"
LOWER = {
    "TandemQReplicaLag": ("> 30", "> 1"),
    "TandemQConsumerLag": ("> 10000", "> 10"),
    "TandemQPendingAcks": ("> 100", "> 10"),
    "TandemQSlowAcks": ("> 0.5", "> 0.05"),
    "TandemQGroupRestarts": ("> 2", "> 0"),
}
"""What a test can't reach in seconds: alert -> (its threshold, ours)."""
OF_THIS_MACHINE = {"TandemQDiskFilling", "TandemQDiskAlmostFull"}
"""They may fire at any time, because the disk of this machine is full."""


def hurried_rules() -> dict[str, Any]:
    """Returns the rules with minutes as seconds."""
    text = re.sub(r"\b(\d+)([md])\b", lambda match: f"{match[1]}s" if match[2] == "m" else "2s", RULES.read_text())
    text = re.sub(r"\[(\d+)s\]", lambda match: f"[{max(5, int(match[1]))}s]", text)
    rules: dict[str, Any] = yaml.safe_load(text)
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] in LOWER:
            old, new = LOWER[rule["alert"]]
            assert old in rule["expr"]
            rule["expr"] = rule["expr"].replace(old, new)
    return rules


class Daemon:
    """One `tandemq` process that can be killed, paused and started again."""

    def __init__(self, directory: Path, noun: str, name: str, **settings: object) -> None:
        self.name = name
        self.metrics = free_ports(1)[0]
        self.port = int(str(settings.get("listenPort", 0)))
        self.home = directory / name
        self.home.mkdir()
        self.environment = dict(os.environ)
        lines = {"metricsPort": self.metrics, "bindAddress": "127.0.0.1", **settings}
        (self.home / "conf").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.command = [sys.executable, "-m", "tandemq", noun, "-c", str(self.home / "conf")]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class World:
    """Two name servers, a pair, and Prometheus."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(2)
        master, slave = free_ports(2, around=True)
        self.namesrv = ";".join(f"127.0.0.1:{port}" for port in ports)
        common = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "mappedFileSizeCommitLog": 1 << 24,
            "slaveTimeout": 10_000,
            "haReconnectWaitMax": 200,
        }
        self.namesrvs = [
            Daemon(directory, "namesrv", f"n{number}", listenPort=port) for number, port in enumerate(ports)
        ]
        self.master = Daemon(
            directory, "broker", "m", brokerRole="SYNC_MASTER", listenPort=master,
            storePathRootDir=directory / "m" / "s", **common,
        )  # fmt: skip
        self.slave = Daemon(
            directory, "broker", "s", brokerRole="SLAVE", brokerId=1, listenPort=slave,
            storePathRootDir=directory / "s" / "s", **common,
        )  # fmt: skip
        self.daemons = [*self.namesrvs, self.master, self.slave]
        self.port = free_ports(1)[0]
        self.targets: dict[str, list[Daemon]] = {"broker": [self.master, self.slave], "namesrv": self.namesrvs}
        self.prometheus: subprocess.Popen[bytes] | None = None

    def write_targets(self) -> None:
        """Prometheus reads these files again when they change."""
        for job, daemons in self.targets.items():
            labels = {"broker": "broker-a"} if job == "broker" else {}
            groups = [{"targets": [f"127.0.0.1:{daemon.metrics}" for daemon in daemons], "labels": labels}]
            (self.directory / f"{job}.json.new").write_text(json.dumps(groups))
            (self.directory / f"{job}.json.new").replace(self.directory / f"{job}.json")

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": f"tandemq-{job}",
                    "honor_labels": True,
                    "file_sd_configs": [{"files": [f"{job}.json"], "refresh_interval": "1s"}],
                }
                for job in self.targets
            ],
        }
        (self.directory / "rules.yml").write_text(yaml.safe_dump(hurried_rules()))
        (self.directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.write_targets()
        options = [
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self.directory / "prometheus.log").open("wb") as log:
            self.prometheus = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log, cwd=self.directory)

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
        if self.prometheus is not None:
            self.prometheus.terminate()
            self.prometheus.wait(30)

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[str]:
        try:
            alerts = self.ask("alerts")["alerts"]
        except OSError:
            return set()
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def fires(self, *names: str) -> None:
        wait_until(lambda: set(names) <= self.firing(), lambda: f"{names}, had {sorted(self.firing())}", seconds=90)

    def is_quiet(self) -> None:
        def quiet() -> bool:
            up = [sample["value"][1] for sample in self.ask("query?query=up")["result"]]
            return up.count("1") == len(self.daemons) == len(up) and not self.firing() - OF_THIS_MACHINE

        wait_until(quiet, lambda: f"no alert, had {sorted(self.firing())}", seconds=90, ignoring=(OSError,))

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "NAMESRV_ADDR": self.namesrv}
        command = [sys.executable, "-m", "tandemq", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        need("prometheus")
    except Missing as reason:
        pytest.skip(str(reason))
    found = World(tmp_path_factory.mktemp("alerts"))
    found.start()
    try:
        found.is_quiet()
        yield found
    finally:
        found.stop()


MADE: dict[str, set[str]] = {}
"""Test -> the alerts it makes: all of them together are all there are."""


def makes(*names: str) -> Any:
    def mark(test: Any) -> Any:
        MADE[test.__name__] = set(names)
        return test

    return mark


def test_every_alert_is_made_by_some_test() -> None:
    everything = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    assert set().union(*MADE.values()) == everything


@contextmanager
def sending(world: World, topic: str, count: int) -> Iterator[None]:
    """Messages are sent as long as this lasts."""
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            world.cli("send", topic, "--count", str(count), "--size", "100", "--timeout", "30")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


@makes("TandemQPendingAcks", "TandemQReplicaLag", "TandemQNotInSync")
def test_a_slave_that_hangs(world: World) -> None:
    world.cli("topic", "create", "orders", "--queues", "2")
    world.slave.signal(signal.SIGSTOP)
    try:
        with sending(world, "orders", 2000):
            for name in ("TandemQPendingAcks", "TandemQReplicaLag", "TandemQNotInSync"):
                world.fires(name)
    finally:
        world.slave.signal(signal.SIGCONT)
    world.is_quiet()


@makes("TandemQSlowAcks")
def test_a_slave_that_is_slow(world: World) -> None:
    """It stands still for most of the time."""
    world.cli("topic", "create", "orders", "--queues", "2")
    stop = threading.Event()

    def slow_down() -> None:
        while not stop.is_set():
            world.slave.signal(signal.SIGSTOP)
            stop.wait(0.2)
            world.slave.signal(signal.SIGCONT)
            stop.wait(0.02)

    brake = threading.Thread(target=slow_down)
    brake.start()
    try:
        with sending(world, "orders", 200):
            world.fires("TandemQSlowAcks")
    finally:
        stop.set()
        brake.join()
    world.is_quiet()


@makes("TandemQDown", "TandemQBrokerMissing", "TandemQNotInSync")
def test_a_slave_that_dies(world: World) -> None:
    world.slave.kill()
    world.fires("TandemQDown", "TandemQBrokerMissing", "TandemQNotInSync")
    world.slave.start()
    world.is_quiet()


@makes("TandemQNameServerMissing")
def test_a_name_server_that_dies(world: World) -> None:
    world.namesrvs[1].kill()
    world.fires("TandemQNameServerMissing")
    world.namesrvs[1].start()
    world.is_quiet()


@makes("TandemQNoWriter", "TandemQSlaveNotFollowing", "TandemQMasterWaits")
def test_a_master_that_dies_and_returns_without_its_slave(world: World) -> None:
    world.master.kill()
    world.fires("TandemQNoWriter", "TandemQSlaveNotFollowing")
    world.slave.kill()
    world.master.start()
    world.fires("TandemQMasterWaits")
    world.slave.start()
    world.is_quiet()


@makes("TandemQConsumerLag")
def test_a_consumer_that_falls_behind(world: World) -> None:
    world.cli("topic", "create", "lagging", "--queues", "1")
    world.cli("send", "lagging", "first")
    world.cli("consume", "lagging", "--group", "slow", "--limit", "1")
    with sending(world, "lagging", 50):
        world.fires("TandemQConsumerLag")
    world.cli("group", "reset", "slow", "lagging", "--to", "latest")
    world.is_quiet()


@makes("TandemQTwoWriters", "TandemQVersionsDiffer")
def test_a_second_master_of_another_version(world: World) -> None:
    """A broker by itself, scraped as if it belonged to the group, says that it is version 0.0.1."""
    (port,) = free_ports(1, around=True)
    stranger = Daemon(
        world.directory, "broker", "x", brokerName="broker-x", brokerIP1="127.0.0.1", listenPort=port,
        storePathRootDir=world.directory / "x" / "s",
    )  # fmt: skip
    (stranger.home / "sitecustomize.py").write_text("import tandemq\ntandemq.__version__ = '0.0.1'\n")
    stranger.environment["PYTHONPATH"] = str(stranger.home)
    world.daemons.append(stranger)
    world.targets["broker"].append(stranger)
    stranger.start()
    world.write_targets()
    world.fires("TandemQTwoWriters", "TandemQVersionsDiffer")
    stranger.kill()
    world.targets["broker"].remove(stranger)
    world.daemons.remove(stranger)
    world.write_targets()
    world.is_quiet()


def has_scraped(world: World, machine: Daemon) -> bool:
    """A counter must have been seen before it grows: Prometheus knows no increase from nothing."""
    query = f'query?query=tandemq_group_restarts_total{{instance="127.0.0.1:{machine.metrics}"}}'
    return len(world.ask(query)["result"]) == 2


@makes("TandemQGroupRestarts")
def test_a_group_that_ends_again_and_again(world: World) -> None:
    port = free_ports(1, around=True)[0]
    machine = Daemon(
        world.directory, "broker", "g", brokerGroups=2, brokerName="broker-g", brokerIP1="127.0.0.1", listenPort=port,
        storePathRootDir=world.directory / "g" / "s", mappedFileSizeCommitLog=1 << 20,
    )  # fmt: skip
    world.daemons.append(machine)
    world.targets["broker"].append(machine)
    machine.start()
    world.write_targets()
    try:

        def child() -> int:
            assert machine.process is not None
            listed = Path(f"/proc/{machine.process.pid}/task/{machine.process.pid}/children").read_text().split()
            return int(listed[0]) if len(listed) == 2 else 0

        wait_until(lambda: "2 groups boot success" in (machine.home / "log").read_text(), "two groups")
        wait_until(lambda: has_scraped(world, machine), "the first scrape of the supervisor")
        os.kill(wait_until(child, "both groups"), signal.SIGKILL)
        world.fires("TandemQGroupRestarts")
    finally:
        machine.signal(signal.SIGTERM)
        assert machine.process is not None
        machine.process.wait(60)
        machine.process = None
        world.targets["broker"].remove(machine)
        world.daemons.remove(machine)
        world.write_targets()
    world.is_quiet()


@makes("TandemQStoreNotWritable", "TandemQDiskFilling", "TandemQDiskAlmostFull")
def test_a_full_disk_makes_its_alerts(world: World, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small tmpfs can't be mounted here: needs root")
    (port,) = free_ports(1, around=True)
    full = Daemon(
        world.directory, "broker", "f", brokerName="broker-f", brokerIP1="127.0.0.1", listenPort=port,
        storePathRootDir=small / "s", mappedFileSizeCommitLog=1 << 20, maxHashSlotNum=1024, maxIndexNum=1024,
    )  # fmt: skip
    world.daemons.append(full)
    world.targets["broker"].append(full)
    try:
        full.start()
        world.write_targets()
        log = full.home / "log"
        wait_until(lambda: "boot success" in log.read_text(), log.read_text)
        (small / "ballast").write_bytes(bytes(29 << 20))
        world.fires("TandemQDiskFilling", "TandemQDiskAlmostFull", "TandemQStoreNotWritable")
    finally:
        full.kill()
        subprocess.run(["umount", "-l", str(small)], check=False)
        world.targets["broker"].remove(full)
        world.daemons.remove(full)
        world.write_targets()
    world.is_quiet()


@makes("TandemQBytesCut")
def test_a_tail_that_nobody_confirmed_is_cut(world: World) -> None:
    """The master wrote alone, died, and finds its slave promoted: the last test, as roles stay swapped."""
    assert world.cli("send", "orders", "both have it").returncode == 0
    world.slave.kill()
    assert world.cli("send", "orders", "nobody else has it", "--copies", "1").returncode == 0
    world.master.kill()
    world.slave.start()
    slave = f"127.0.0.1:{world.slave.port}"
    wait_until(lambda: slave in world.cli("ha", "status").stdout, "a slave that is registered", seconds=60)
    done = world.cli("broker", "promote", slave, "--accept-loss")
    assert done.returncode == 0, done.stderr
    world.master.start()
    world.fires("TandemQBytesCut")
