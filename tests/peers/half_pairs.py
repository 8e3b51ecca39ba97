"""Halves of pairs: real RocketMQ brokers beside ours, a name server of ours, and whether their logs are the same."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

from tests.peers.programs import ROCKETMQ
from tests.peers.servers import free_ports

from tandemq.codec.bodies import cluster_info_of, load_object
from tandemq.codec.command import Command
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.pair import HOST, SEGMENT, BrokerProcess
from tandemq.testing.waiting import until

CLUSTER_INFO = 106
SIZES = {"mappedFileSizeCommitLog": str(SEGMENT), "maxMessageSize": "65536"}


class RealBroker:
    """A broker of RocketMQ, as a process."""

    def __init__(self, directory: Path, version: str, role: str, namesrv: str, **properties: str) -> None:
        (self.port,) = free_ports(around=True)
        self.address = f"{HOST}:{self.port}"
        self.directory = directory
        self._command = [*ROCKETMQ, "broker", "--version", version, "--dir", str(directory), "--role", role]
        self._command += ["--port", str(self.port), "--id", "1" if role == "SLAVE" else "0", "--namesrv", namesrv]
        self._command += ["--heap", "512m"]
        slave_reads = {"slaveReadEnable": "true", "brokerFastFailureEnable": "false", "inSyncReplicas": "2"}
        for key, value in {**SIZES, **slave_reads, **properties}.items():
            self._command += ["--set", f"{key}={value}"]

    def become(self, role: str) -> None:
        """Has this role from its next start on."""
        self._command[self._command.index("--role") + 1] = role
        self._command[self._command.index("--id") + 1] = "1" if role == "SLAVE" else "0"

    async def start(self) -> None:
        await asyncio.to_thread(subprocess.run, self._command, check=True, stdout=subprocess.DEVNULL)

    async def stop(self, *, kill: bool = False) -> None:
        command = [*ROCKETMQ, "down", "--dir", str(self.directory), *(["--kill"] if kill else [])]
        await asyncio.to_thread(subprocess.run, command, check=False, stdout=subprocess.DEVNULL)

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def ha_address(self) -> str:
        return f"{HOST}:{self.port + 1}"


class Target:
    """What a Load sends to."""

    def __init__(self, address: str) -> None:
        self.writer_address = address


def segments(store: Path) -> dict[str, bytes]:
    """Segment files with something in them, by name; the next one is often made in advance."""
    found: dict[str, bytes] = {}
    for path in (store / "commitlog").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a slave that begins anew drops its files
            found[path.name] = path.read_bytes()
    return {name: data for name, data in found.items() if data.strip(b"\0")}


async def same_bytes(slave: Path, master: Path) -> None:
    """Whole: a slave copies all the history that its master has, which takes no more messages."""

    async def same() -> bool:
        ours = segments(slave)
        return bool(ours) and ours == segments(master)

    await until(same, "the commit logs are the same bytes")


async def same_logs(slave: Path, master: Path) -> None:
    """Likewise, of a log that has several files."""
    await same_bytes(slave, master)
    assert len(segments(slave)) >= 3, "no segment was ever rolled"


class Group:
    """A name server of ours, and whatever the story starts."""

    def __init__(self) -> None:
        self.namesrv = NameServer(NamesrvConfig(), RemotingConfig(listen_port=0, bind_address=HOST))

    async def __aenter__(self) -> "Group":
        self.address = f"{HOST}:{await self.namesrv.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.namesrv.stop()

    async def brokers(self) -> dict[str, dict[int, str]]:
        """Who is registered, by group and id."""
        client = RemotingClient(RemotingConfig())
        try:
            reply = await client.invoke(self.address, Command(CLUSTER_INFO), 5)
            groups, _ = cluster_info_of(load_object(reply.body, "clusterInfo"))
        finally:
            await client.close()
        return {name: dict(group.addresses) for name, group in groups.items()}

    def ours(self, directory: Path, role: str, **properties: str) -> BrokerProcess:
        return BrokerProcess(
            directory,
            {
                "brokerName": "broker-a",
                "brokerId": "1" if role == "SLAVE" else "0",
                "brokerRole": role,
                "namesrvAddr": self.address,
                "haHousekeepingInterval": "20000",
                "haSendHeartbeatInterval": "5000",
                **SIZES,
                **properties,
            },
        )
