"""What the benchmarks share about peers: the servers of a side for one round, and the drivers that load them."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.peers import programs, servers, wire
from tests.peers.tools import Missing

from bench.frame import Run, Side, Unavailable

SIDES = ("ours", "rocketmq-4.9.7", "rocketmq-5.3.3")
LOAD = Path(__file__).resolve().parent / "load.py"
INSTANT = LOAD.with_name("instant.py")
QUEUES = 4
DRIVER_TIMEOUT = 600


@contextlib.contextmanager
def serving(
    side: str,
    run: Run,
    *,
    slave: bool = False,
    role: str = "ASYNC_MASTER",
    properties: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[servers.Servers]:
    """Fresh servers of a side, gone with their files when the round is over; stores are empty unless `directory`
    has some.
    """
    directory = directory or run.directory / f"{side}-{run.round}"
    try:
        with servers.start(side, directory, properties or {}, slave=slave, role=role) as up:
            yield up
    except Missing as reason:
        raise Unavailable(str(reason)) from reason
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def topic(up: servers.Servers, name: str = "bench", queues: int = QUEUES) -> str:
    """A topic of that name, with its route known."""
    wire.create_topic(up.broker, name, queues)
    servers.await_route(up, name)
    return name


def sides(measure: Callable[[str, Run], Mapping[str, float]], names: tuple[str, ...] = SIDES) -> dict[str, Side]:
    """The same measurement for every side."""

    def side_of(name: str) -> Side:
        return lambda run: measure(name, run)

    return {name: side_of(name) for name in names}


def java(version: str, driver: str, *arguments: object) -> dict[str, Any]:
    """One run of a Java driver on upstream's client: the JSON it prints."""
    try:
        command, environment = programs.java(version, driver)
    except Missing as reason:
        raise Unavailable(str(reason)) from reason
    return _json([*command, *map(str, arguments)], environment)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Programs that are started meanwhile have these variables, too."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def produce(
    version: str, up: servers.Servers, topic: str, count: int, size: int, senders: int, mode: str
) -> dict[str, float]:
    """One run of the Java producer; RuntimeError unless every message was stored as the broker's role promises."""
    said = java(version, "Produce", up.namesrv, topic, count, size, senders, mode)
    if said["statuses"] != {"SEND_OK": said["count"]}:
        raise RuntimeError(f"not every message was answered with SEND_OK: {said}")
    return said


@contextlib.contextmanager
def instant(*options: str) -> Iterator[str]:
    """The address of a server that answers at once (see bench/instant.py)."""
    with subprocess.Popen(
        [sys.executable, str(INSTANT), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def program(command: list[str]) -> dict[str, Any]:
    """One run of a program of ours: the JSON it prints."""
    return _json(command, dict(os.environ))


def load(what: str, up: servers.Servers, *arguments: object, core: int | None = None) -> dict[str, Any]:
    """One run of our own generator in a process of its own, on one core if told."""
    command = [sys.executable, str(LOAD), what, "--address", up.broker, "--json", *map(str, arguments)]
    return _json(command, dict(os.environ), core)


def _json(command: list[str], environment: dict[str, str], core: int | None = None) -> dict[str, Any]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if core is not None:
        pin(process.pid, core)
    try:
        output, errors = process.communicate(timeout=DRIVER_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode != 0 or not lines:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{output[-1000:]}\n{errors[-2000:]}")
    return dict(json.loads(lines[-1]))


def pin(pid: int, core: int) -> None:
    """Every thread of a process onto one core; nothing where there is only one."""
    available = sorted(os.sched_getaffinity(0))
    chosen = available[core % len(available)]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {chosen})


def cpu_seconds(pid: int) -> float:
    """User and system time a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Memory of a process that is its own and in use: file pages of the mapped log are not counted."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0
