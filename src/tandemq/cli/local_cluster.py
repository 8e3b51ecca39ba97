"""A whole cluster on this machine: name servers, one master and its slaves, the console, each a process of its own.

`tandemq up`, `down` and `demo` are faces of this. Everything lives under one directory and survives restarts:

    DIR/cluster.json            what runs here: names, roles, ports
    DIR/<node>/node.conf        its RocketMQ property file
    DIR/<node>/{log,pid,store/} output, process id while it runs, data
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tandemq import private
from tandemq.cli.local_etcd import ETCD_PORT, etcd_command, etcd_program
from tandemq.errors import TandemError

DEFAULT_DIRECTORY = Path("tandemq-data")
CLUSTER_FILE = "cluster.json"
KNOWN_MAX = 32
"""Directories of clusters that are remembered."""
HOST = "127.0.0.1"
NAMESRV_PORT = 9876
BROKER_PORT = 10911
CONSOLE_PORT = 8088
BROKER_PORT_STEP = 100
"""A broker takes its port, port + 1 (HA) and port - 2 (the VIP channel of old clients)."""
SEGMENT_SIZE = 128 * 1024 * 1024
"""Smaller than RocketMQ's 1 GiB: a laptop's disk is no broker's."""
READY_SECONDS = 30
STOP_SECONDS = 20


class ClusterError(TandemError):
    """The local cluster can't be started or stopped; the message names the node and its log."""


def _registry() -> Path:
    """Returns the file that remembers where clusters were started, the last one first."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(home) / "tandemq" / "clusters"


def _known_directories() -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(line) for line in _registry().read_text().splitlines() if line]
    return []


def _remember(directory: Path) -> None:
    """Lets commands in other directories find the cluster; a machine without a home does without."""
    here = directory.absolute()
    others = [known for known in _known_directories() if known != here and (known / CLUSTER_FILE).exists()]
    with contextlib.suppress(OSError):
        _registry().parent.mkdir(parents=True, exist_ok=True)
        _registry().write_text("".join(f"{path}\n" for path in [here, *others][:KNOWN_MAX]))


def running_clusters() -> "Iterator[LocalCluster]":
    """Yields the clusters of `tandemq up` whose name servers run: the one of this directory first, then the latest."""
    seen = set()
    for directory in (DEFAULT_DIRECTORY.absolute(), *_known_directories()):
        if directory in seen:
            continue
        seen.add(directory)
        try:
            cluster = LocalCluster.load(directory)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not ours, or not ours any more
        if cluster is not None and any(cluster.pid(node) is not None for node in cluster.plan.namesrvs):
            yield cluster


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the cluster."""

    name: str
    kind: str
    """`namesrv`, `broker` or `console`: the `tandemq` command that runs it; or `etcd`."""
    port: int
    role: str = ""
    broker_id: int = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Which nodes there are; saved, so that the next `up` in the same directory finds the same cluster."""

    nodes: tuple[Node, ...]
    """Name servers and brokers."""
    console: Node | None = None
    """None in directories of earlier versions."""
    coordinator: str = ""
    """haCoordinator of the brokers, which then elect their master; empty: a fixed master and slaves."""
    etcd: Node | None = None
    """The etcd that runs beside them, unless they use one that was there."""

    @property
    def processes(self) -> tuple[Node, ...]:
        """Everything that runs, in the order of starting."""
        before = () if self.etcd is None else (self.etcd,)
        return (*before, *self.nodes, *(() if self.console is None else (self.console,)))

    @property
    def namesrvs(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "namesrv")

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "broker")

    @property
    def master(self) -> Node:
        return self.brokers[0]

    @property
    def namesrv_address(self) -> str:
        return ";".join(node.address for node in self.namesrvs)


_claims: set[int] = set()
"""Ports that this process has planned; another `up` that starts at the same moment passes them over."""


def _claim(port: int) -> bool:
    """Reserves a port among the planners of this machine until this process ends.

    A node binds its port seconds after it was planned. Without a claim, two plans made in between shared a port: one
    node died, and its cluster took the answers of the other one for its own. The name lies in Linux's abstract
    namespace, so nothing is left over; elsewhere there is no claim.
    """
    if port in _claims or sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0tandemq port {port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # the kernel closes it with the process
    _claims.add(port)
    return True


def port_is_free(port: int) -> bool:
    """Returns whether nobody listens on the port and no other process plans to; it is then reserved here."""
    if not _claim(port):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _first_free(candidates: Iterator[int], offsets: tuple[int, ...], taken: set[int]) -> int:
    """Returns the first port whose whole family (port + offsets) is free and not given to another node."""
    for port in candidates:
        family = {port + offset for offset in offsets}
        if port < 65000 and not family & taken and all(map(port_is_free, family)):
            taken |= family
            return port
    raise ClusterError("no free ports were found on 127.0.0.1")


def new_plan(*, slaves: int, sync: bool) -> Plan:
    """Plans two name servers, a master and `slaves` slaves, on RocketMQ's usual ports or the next free ones."""
    taken: set[int] = set()
    nodes = []
    for number in (1, 2):
        port = _first_free(iter(range(NAMESRV_PORT, 65000)), (0,), taken)
        nodes.append(Node(f"namesrv-{number}", "namesrv", port))
    for broker_id in range(slaves + 1):
        role = "SLAVE" if broker_id else ("SYNC_MASTER" if sync else "ASYNC_MASTER")
        name = f"slave-{broker_id}" if broker_id else "master"
        port = _first_free(iter(range(BROKER_PORT, 65000, BROKER_PORT_STEP)), (0, 1, -2), taken)
        nodes.append(Node(name, "broker", port, role, broker_id))
    return Plan(tuple(nodes), new_console(taken))


def new_failover_plan(*, brokers: int, sync: bool, coordinator: str = "") -> Plan:
    """Plans name servers, brokers that elect their master, and an etcd unless one is named."""
    taken: set[int] = set()
    nodes = [
        Node(f"namesrv-{number}", "namesrv", _first_free(iter(range(NAMESRV_PORT, 65000)), (0,), taken))
        for number in (1, 2)
    ]
    role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
    for number in range(1, brokers + 1):
        port = _first_free(iter(range(BROKER_PORT, 65000, BROKER_PORT_STEP)), (0, 1, -2), taken)
        nodes.append(Node(f"broker-{number}", "broker", port, role))
    etcd = None
    if not coordinator:
        if not etcd_program():
            raise ClusterError(
                "no etcd was found: install one (Debian: apt-get install etcd-server), name its program with "
                "TANDEMQ_ETCD, or name one that runs with --etcd etcd://host:port"
            )
        etcd = Node("etcd", "etcd", _first_free(iter(range(ETCD_PORT, 65000, 2)), (0, 1), taken))
        coordinator = f"etcd://{etcd.address}"
    return Plan(tuple(nodes), new_console(taken), coordinator, etcd)


def new_console(taken: set[int] | None = None) -> Node:
    """Plans the console on its usual port or the next free one."""
    given = set() if taken is None else taken
    return Node("console", "console", _first_free(iter(range(CONSOLE_PORT, 65000)), (0,), given))


class LocalCluster:
    """The processes of one plan under one directory."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def load(cls, directory: Path) -> "LocalCluster | None":
        """Returns the cluster that an earlier `up` left in this directory, or None."""
        try:
            saved = json.loads((directory / CLUSTER_FILE).read_text())
        except FileNotFoundError:
            return None
        console, etcd = saved.get("console"), saved.get("etcd")
        nodes = tuple(Node(**node) for node in saved["nodes"])
        plan = Plan(
            nodes,
            Node(**console) if console else None,
            saved.get("coordinator", ""),
            Node(**etcd) if etcd else None,
        )
        return cls(directory, plan)

    def save(self) -> None:
        private.make_directory(self.directory)
        console = self.plan.console
        saved = {
            "nodes": [asdict(node) for node in self.plan.nodes],
            "console": asdict(console) if console is not None else None,
            "coordinator": self.plan.coordinator,
            "etcd": asdict(self.plan.etcd) if self.plan.etcd is not None else None,
        }
        text = json.dumps(saved, indent=1)
        (self.directory / CLUSTER_FILE).write_text(text)

    # --- one node -----------------------------------------------------------------------------------------------------

    def home(self, node: Node) -> Path:
        return self.directory / node.name

    def store(self, node: Node) -> Path:
        return self.home(node) / "store"

    def pid(self, node: Node) -> int | None:
        """Returns the process id of a running node, our own child or by its pid file; None if it doesn't run."""
        process = self._started.get(node.name)
        if process is not None:
            return process.pid if process.poll() is None else None
        try:
            pid = int((self.home(node) / "pid").read_text())
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return None
        mark = b"etcd" if node.kind == "etcd" else b"tandemq"
        return pid if mark in command_line else None  # the number may belong to another process by now

    def start(self, node: Node) -> None:
        """Starts the process; `until_ready` waits for it."""
        home = self.home(node)
        private.make_directory(home)
        command = [sys.executable, "-m", "tandemq", node.kind]
        if node.kind == "etcd":
            command, options = etcd_command(etcd_program(), home / "data", node.port), []
        elif node.kind == "console":
            options = ["-n", self.plan.namesrv_address, "--listen", node.address]
        else:
            private.write_text(home / "node.conf", self._properties(node))
            options = ["-c", str(home / "node.conf")]
        with (home / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we stop the nodes in order
            )
        (home / "pid").write_text(str(process.pid))
        self._started[node.name] = process

    def kill(self, node: Node) -> None:
        """Ends a node as a crash would (SIGKILL)."""
        if (pid := self.pid(node)) is not None:
            os.kill(pid, signal.SIGKILL)
        if node.name in self._started:
            self._started[node.name].wait()

    async def stop(self, node: Node) -> None:
        """Sends SIGTERM and waits; sends SIGKILL to one that doesn't go."""
        if (pid := self.pid(node)) is None:
            return
        os.kill(pid, signal.SIGTERM)
        for _ in range(STOP_SECONDS * 20):
            if self.pid(node) is None:
                break
            await asyncio.sleep(0.05)
        else:
            self.kill(node)
        (self.home(node) / "pid").unlink(missing_ok=True)

    async def until_ready(self, node: Node) -> None:
        """Returns when the node answers on its port."""
        for _ in range(READY_SECONDS * 20):
            if self.pid(node) is None:
                raise ClusterError(f"{node.name} stopped while starting:\n{self.last_words(node)}")
            try:
                _, writer = await asyncio.open_connection(HOST, node.port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            return
        raise ClusterError(
            f"{node.name} does not answer on {node.address} after {READY_SECONDS} s:\n{self.last_words(node)}"
        )

    def last_words(self, node: Node, lines: int = 8) -> str:
        """Returns the end of a node's log, for the error that quotes it."""
        path = self.home(node) / "log"
        try:
            text = path.read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            text = []
        return "\n".join(f"  {line}" for line in [*text, f"(log: {path})"])

    # --- all of them --------------------------------------------------------------------------------------------------

    def running(self) -> list[Node]:
        return [node for node in self.plan.processes if self.pid(node) is not None]

    async def start_all(self) -> None:
        """Starts name servers, then master and slaves, then the console; returns when each answers."""
        self.save()
        _remember(self.directory)
        for kind in ("etcd", "namesrv", "broker", "console"):
            fresh = [node for node in self.plan.processes if node.kind == kind and self.pid(node) is None]
            for node in fresh:
                self.start(node)
            for node in fresh:
                await self.until_ready(node)

    async def stop_all(self) -> None:
        """Stops the master first, so that its slaves have everything; name servers last."""
        console = (self.plan.console,) if self.plan.console is not None else ()
        etcd = (self.plan.etcd,) if self.plan.etcd is not None else ()
        for node in (*console, *self.plan.brokers, *self.plan.namesrvs, *etcd):
            await self.stop(node)

    @property
    def console_url(self) -> str:
        """Where to point a browser; empty without a console."""
        return f"http://{self.plan.console.address}" if self.plan.console is not None else ""

    def _properties(self, node: Node) -> str:
        home = self.home(node)
        common = {"listenPort": node.port, "bindAddress": HOST}
        if node.kind == "namesrv":
            settings = common | {"kvConfigPath": home / "kvConfig.json"}
        else:
            settings = common | {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerId": node.broker_id,
                "brokerRole": node.role,
                "brokerIP1": HOST,
                "brokerIP2": HOST,
                "namesrvAddr": self.plan.namesrv_address,
                "haListenPort": node.port + 1,
                "storePathRootDir": self.store(node),
                "slaveReadEnable": "true",
                "enablePropertyFilter": "true",  # `consume --sql` works at once; RocketMQ's default is false
                "mappedFileSizeCommitLog": SEGMENT_SIZE,
            }
            if self.plan.coordinator:  # the same file for every broker but for ports and paths
                del settings["brokerId"]
                settings["haCoordinator"] = self.plan.coordinator
        return "".join(f"{key}={value}\n" for key, value in settings.items())
