"""A real etcd for tests and tools: one or three nodes, of the `etcd` of this machine or of another, killed at will.

async with RealEtcd(tmp_path) as etcd:
    properties = {"haCoordinator": etcd.place}
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tandemq.broker.addresses import free_port
from tandemq.coordination.endpoints import parse_place
from tandemq.coordination.etcd import EtcdClient
from tandemq.errors import CoordinatorError
from tandemq.testing.dying import die_with_parent
from tandemq.testing.waiting import until

HOST = "127.0.0.1"


def etcd_program() -> str:
    """Returns the path of etcd on this machine; empty if there is none."""
    return os.environ.get("TANDEMQ_ETCD") or shutil.which("etcd") or ""


class EtcdNode:
    def __init__(
        self, directory: Path, name: str, host: str = HOST, prefix: Sequence[str] = (), program: str = ""
    ) -> None:
        self.name = name
        self._program = program or etcd_program()
        self.host = host
        self._prefix = prefix
        self.port = free_port(HOST)
        self.peer_port = free_port(HOST)
        self.data = directory / name
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def peer_url(self) -> str:
        return f"{self.name}=http://{self.host}:{self.peer_port}"

    def start(self, cluster: str) -> None:
        """Starts it; returns at once."""
        client, peer = f"http://{self.host}:{self.port}", f"http://{self.host}:{self.peer_port}"
        command = [*self._prefix, self._program, "--name", self.name, "--data-dir", str(self.data)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", cluster, "--unsafe-no-fsync"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kills with SIGKILL, also a process that is stopped by a signal."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class RealEtcd:
    def __init__(
        self, directory: Path, *, nodes: int = 1, host: str = HOST, prefix: Sequence[str] = (), program: str = ""
    ) -> None:
        """`prefix`: goes before the command, for one that runs elsewhere.  `program`: another etcd."""
        directory.mkdir(parents=True, exist_ok=True)
        self.nodes = [EtcdNode(directory, f"etcd-{number}", host, prefix, program) for number in range(nodes)]

    @property
    def place(self) -> str:
        """What haCoordinator is set to."""
        return "etcd://" + ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    async def __aenter__(self) -> "RealEtcd":
        self.start()
        await self.answers()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts those that don't run."""
        cluster = ",".join(node.peer_url for node in self.nodes)
        for node in self.nodes:
            if node.process is None:
                node.start(cluster)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        """Sends SIGSTOP: connections stand, nobody answers."""
        for node in self.nodes:
            node.signal(signal.SIGSTOP)

    def resume(self) -> None:
        for node in self.nodes:
            node.signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Loses everything it knew."""
        self.kill()
        for node in self.nodes:
            shutil.rmtree(node.data, ignore_errors=True)

    def client(self, *, timeout: float = 2.0) -> EtcdClient:
        return EtcdClient(parse_place(self.place), timeout=timeout)

    async def answers(self, seconds: float = 30.0) -> None:
        """Waits until it has a leader and answers."""
        client = self.client()

        async def read() -> bool:
            await client.read("/")
            return True

        try:
            await until(
                read, lambda: self.nodes[0].log.read_text()[-2000:], seconds=seconds, ignoring=(CoordinatorError,)
            )
        finally:
            client.close()
            await asyncio.sleep(0)
