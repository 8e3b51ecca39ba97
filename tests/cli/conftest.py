"""A pair that `tandemq up` started, and the program as a process."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peers.servers import free_ports

from tandemq.cli.local_cluster import LocalCluster, Node, Plan


class Cli:
    """Runs `tandemq` with an environment; NAMESRV_ADDR only where a test gives it."""

    program = (sys.executable, "-m", "tandemq")

    def __init__(self, directory: Path, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        own = {"XDG_CONFIG_HOME": str(directory / "config"), "XDG_STATE_HOME": str(directory / "state")}
        self.environment = {**kept, **own, "COLUMNS": "200", "TERM": "dumb", **environment}
        self.directory = directory

    def run(self, *arguments: str, stdin: str = "", timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
            cwd=self.directory,
        )

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, code: int = 0, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", code=code, stdin=stdin).stdout)

    def refused(self, *arguments: str, code: int = 1) -> str:
        """Returns the one sentence of a command that fails."""
        done = self(*arguments, code=code)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        return done.stderr.strip()


@pytest.fixture
def alone(tmp_path: Path) -> Cli:
    """The program on a machine where nothing runs."""
    return Cli(tmp_path)


class Pair:
    """Two name servers, a SYNC_MASTER and a SLAVE, on ports that nobody else uses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        names = free_ports(2)
        master, slave = free_ports(2, around=True)
        self.plan = Plan(
            (
                Node("namesrv-1", "namesrv", names[0]),
                Node("namesrv-2", "namesrv", names[1]),
                Node("master", "broker", master, "SYNC_MASTER", 0),
                Node("slave-1", "broker", slave, "SLAVE", 1),
            )
        )
        self.master, self.slave = f"127.0.0.1:{master}", f"127.0.0.1:{slave}"
        self.namesrv = self.plan.namesrv_address
        LocalCluster(directory, self.plan).save()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    running = Pair(tmp_path_factory.mktemp("pair"))
    cli = Cli(tmp_path_factory.mktemp("home"))
    done = cli.run("up", "--dir", str(running.directory), "--detach")
    assert done.returncode == 0, done.stderr
    try:
        yield running
    finally:
        cli.run("down", "--dir", str(running.directory))


@pytest.fixture
def cli(pair: Pair, tmp_path: Path) -> Cli:
    return Cli(tmp_path, NAMESRV_ADDR=pair.namesrv)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topic", "create", name, "--queues", "2")
    return name
