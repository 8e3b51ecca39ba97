"""A name server and a broker to test against: ours from the command line, or the real RocketMQ, both as processes."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.peers.programs import JAVA_VERSIONS, ROCKETMQ, rocketmq_jars
from tests.peers.wire import route_exists

from tandemq.testing.waiting import wait_until

# What the stories need of a broker: transactions asked about soon, SQL filters on.
STORY_PROPERTIES: dict[str, str] = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "enablePropertyFilter": "true",
}
# The real broker refuses sends that waited 200 ms for a thread: on a busy machine that is a matter of luck.
REAL_PROPERTIES: dict[str, str] = {"brokerFastFailureEnable": "false"}
START_SECONDS = 60.0
TANDEMQ = ("-m", "tandemq")


class Daemon:
    """One daemon of ours as a process: started, asked to end, or killed and started again on the same files."""

    def __init__(self, noun: str, conf: Path, port: int, program: tuple[str, ...] = TANDEMQ) -> None:
        self.noun, self.conf, self.port, self.program = noun, conf, port, program
        self.log = conf.with_suffix(".out")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [sys.executable, *self.program, self.noun, "-c", str(self.conf)]
        with open(self.log, "ab") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._process = process

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"tandemq {self.noun} ended with {process.returncode}:\n{self._said()}")
            return _answers(self.port)

        told = lambda: f"an answer of tandemq {self.noun} on {self.port}:\n{self._said()}"  # noqa: E731
        wait_until(answers, told, seconds=START_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a crash: it gets no chance to write anything more."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """It is asked to end, and has to."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


@dataclass(slots=True)
class Servers:
    """Where to reach them, and where to look when something went wrong."""

    namesrv: str
    broker: str
    directory: Path
    slave: str = ""
    pids: dict[str, int] = field(default_factory=dict)
    start_seconds: dict[str, float] = field(default_factory=dict)
    """From the start of a process to the first connection it takes."""
    daemons: dict[str, Daemon] = field(default_factory=dict)
    """Ours, to be killed and started again; the real ones are not."""

    def said(self, size: int = 3000) -> str:
        """The end of what each process wrote: for the message of a failed test."""
        logs = sorted([*self.directory.glob("*.out"), *self.directory.glob("*/out")])
        return "\n".join(f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-size:]}" for log in logs)


def free_ports(count: int = 1, *, around: bool = False) -> list[int]:
    """Ports nobody listens on; with `around`, neighbours -2 … +1 are free as well (VIP and HA ports of a broker).

    Below those of outgoing connections, so that a server that is killed and started again finds its port free.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(12_000, 32_000)
        neighbours = range(port - 2, port + 2) if around else range(port, port + 1)
        if port not in found and all(is_free(p) for p in neighbours):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def ours(
    directory: Path,
    properties: Mapping[str, str] = STORY_PROPERTIES,
    *,
    slave: bool = False,
    role: str = "ASYNC_MASTER",
    namesrv_properties: Mapping[str, str] | None = None,
    program: tuple[str, ...] = TANDEMQ,
) -> Iterator[Servers]:
    """`tandemq namesrv` and `tandemq broker` on free ports, started from property files as a user does; `program`
    is what Python runs instead of `tandemq`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (namesrv_port,), ports = free_ports(), free_ports(1 + slave, around=True)
    servers = _servers(namesrv_port, ports, directory)
    namesrv_conf = directory / "namesrv.conf"
    namesrv_conf.write_text(_properties({"listenPort": str(namesrv_port), **(namesrv_properties or {})}))
    with contextlib.ExitStack() as stack:
        _start(servers, stack, "namesrv", Daemon("namesrv", namesrv_conf, namesrv_port, program))
        for broker_id, port in enumerate(ports):
            name = "slave" if broker_id else "broker"
            settings = {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerId": str(broker_id),
                "brokerIP1": "127.0.0.1",
                "listenPort": str(port),
                "haListenPort": str(port + 1),
                "namesrvAddr": servers.namesrv,
                "brokerRole": "SLAVE" if broker_id else role,
                "storePathRootDir": str(directory / f"store-{name}"),
                **properties,
            }
            conf = directory / f"{name}.conf"
            conf.write_text(_properties(settings))
            _start(servers, stack, name, Daemon("broker", conf, port, program))
        await_route(servers)
        yield servers


def _servers(namesrv_port: int, ports: list[int], directory: Path) -> Servers:
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return Servers(f"127.0.0.1:{namesrv_port}", addresses[0], directory, slave=addresses[-1] if addresses[1:] else "")


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _start(servers: Servers, stack: contextlib.ExitStack, name: str, daemon: Daemon) -> None:
    stack.callback(daemon.stop)
    began = time.monotonic()
    daemon.start()
    servers.start_seconds[name] = time.monotonic() - began
    servers.pids[name] = daemon.pid
    servers.daemons[name] = daemon


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.3).close()
    except OSError:
        return False
    return True


def await_route(servers: Servers, topic: str = "TBW102", timeout: float = START_SECONDS) -> None:
    """Returns when the broker has registered: the name server knows a route to the topic."""
    wait_until(
        lambda: route_exists(servers.namesrv, topic), lambda: f"a route to {topic}:\n{servers.said()}", seconds=timeout
    )


@contextlib.contextmanager
def rocketmq(
    version: str,
    directory: Path,
    properties: Mapping[str, str] = STORY_PROPERTIES,
    *,
    slave: bool = False,
    role: str = "ASYNC_MASTER",
    heap: str = "1g",
) -> Iterator[Servers]:
    """The real name server and broker of that version; raises Missing where they cannot be had."""
    rocketmq_jars(version)
    (namesrv_port,), ports = free_ports(), free_ports(1 + slave, around=True)
    servers = _servers(namesrv_port, ports, directory)
    commands = {"namesrv": ["namesrv", "--dir", str(directory / "0-namesrv"), "--port", str(namesrv_port)]}
    for broker_id, port in enumerate(ports):
        name, its_role = ("slave", "SLAVE") if broker_id else ("broker", role)
        home = directory / f"{1 + broker_id}-{name}"
        command = ["broker", "--dir", str(home), "--port", str(port), "--role", its_role]
        command += ["--id", str(broker_id), "--namesrv", servers.namesrv, "--heap", heap]
        for key, value in {**REAL_PROPERTIES, **properties}.items():
            command += ["--set", f"{key}={value}"]
        commands[name] = command
    try:
        for name, command in commands.items():
            start = time.monotonic()
            subprocess.run([*ROCKETMQ, *command, "--version", version], check=True, stdout=subprocess.DEVNULL)
            servers.start_seconds[name] = time.monotonic() - start
            servers.pids[name] = int(next(directory.glob(f"*-{name}/pid")).read_text())
        await_route(servers)
        yield servers
    finally:
        subprocess.run([*ROCKETMQ, "down", "--dir", str(directory), "--kill"], check=False, stdout=subprocess.DEVNULL)


def sides() -> list[str]:
    """Ours; with TANDEMQ_PEER_BROKERS=1 (or a list of versions) also the real brokers, to see whose a difference is."""
    real = os.environ.get("TANDEMQ_PEER_BROKERS", "")
    versions = list(JAVA_VERSIONS) if real == "1" else [v for v in real.split(",") if v]
    return ["ours", *(f"rocketmq-{version}" for version in versions)]


def start(
    side: str,
    directory: Path,
    properties: Mapping[str, str] = STORY_PROPERTIES,
    *,
    slave: bool = False,
    role: str = "ASYNC_MASTER",
) -> contextlib.AbstractContextManager[Servers]:
    """The servers of one side, by its name; `role` is the master's."""
    if side == "ours":
        return ours(directory, properties, slave=slave, role=role)
    return rocketmq(side.removeprefix("rocketmq-"), directory, properties, slave=slave, role=role)
