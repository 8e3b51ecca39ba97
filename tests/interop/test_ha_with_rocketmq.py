"""Half a pair of ours with half of RocketMQ's: they follow each other across kills, byte for byte."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.peers.programs import JAVA_VERSIONS, ROCKETMQ, rocketmq_jars
from tests.peers.servers import free_ports

from tandemq.codec.command import Command
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.pair import HOST, QUEUES, SEGMENT, BrokerProcess, Load, LoadResult, RealPair

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

MAX_OFFSET, PULL = 30, 11
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

    async def start(self) -> None:
        await asyncio.to_thread(subprocess.run, self._command, check=True, stdout=subprocess.DEVNULL)

    async def stop(self, *, kill: bool = False) -> None:
        command = [*ROCKETMQ, "down", "--dir", str(self.directory), *(["--kill"] if kill else [])]
        await asyncio.to_thread(subprocess.run, command, check=False, stdout=subprocess.DEVNULL)

    @property
    def store(self) -> Path:
        return self.directory / "store"


class Target:
    """What a Load sends to."""

    def __init__(self, address: str) -> None:
        self.writer_address = address


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 60.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.1)


def segments(store: Path) -> dict[str, bytes]:
    """Segment files with something in them, by name; the next one is often made in advance."""
    found = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    return {name: data for name, data in found.items() if data.strip(b"\0")}


async def same_logs(slave: Path, master: Path) -> None:
    """From the slave's first segment on: a RocketMQ master starts an empty slave at its last one."""

    async def same() -> bool:
        ours, theirs = segments(slave), segments(master)
        return bool(ours) and ours == {name: data for name, data in theirs.items() if name >= min(ours)}

    await until(same, "the commit logs are the same bytes")
    assert len(segments(slave)) >= 3, "no segment was ever rolled"


async def sent(address: str, count: int, ok: set[int]) -> LoadResult:
    """At least `count` sends answered with one of these codes."""
    load = Load(Target(address), 4, ("",))  # type: ignore[arg-type]
    before = 0

    async def enough() -> bool:
        return sum(n for code, n in load.result.statuses.items() if code in ok) >= before + count

    await until(enough, f"{count} sends to {address} answered with {ok}: {load.result.statuses}", 120)
    return await load.stop()


async def everything_readable(address: str, results: list[LoadResult]) -> None:
    """A slave alone serves every acknowledged message."""
    client = RemotingClient(RemotingConfig())
    try:
        for queue_id in range(QUEUES):
            highest = max(
                (a.queue_offset for r in results for a in r.acknowledged if a.queue_id == queue_id), default=-1
            )

            async def there(queue_id: int = queue_id, highest: int = highest) -> bool:
                reply = await client.invoke(address, Command(MAX_OFFSET, {"topic": "T", "queueId": str(queue_id)}), 5)
                return int(reply.ext["offset"]) > highest

            await until(there, f"queue {queue_id} of {address} reaches {highest}")
            fields = {
                "consumerGroup": "g", "topic": "T", "queueId": str(queue_id), "queueOffset": str(max(highest, 0)),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
                "subscription": "*",
            }  # fmt: skip

            async def readable(fields: dict[str, str] = fields) -> bool:
                # The topic itself arrives with the metadata, which a slave of RocketMQ asks for every 10 s.
                reply = await client.invoke(address, Command(PULL, dict(fields)), 10)
                return reply.code == 0 and len(reply.body) > 0

            if highest >= 0:
                await until(readable, f"queue {queue_id} of {address} can be read at {highest}")
    finally:
        await client.close()


class Group:
    """A name server of ours, and whatever the story starts."""

    def __init__(self) -> None:
        self.namesrv = NameServer(NamesrvConfig(), RemotingConfig(listen_port=0, bind_address=HOST))

    async def __aenter__(self) -> "Group":
        self.address = f"{HOST}:{await self.namesrv.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.namesrv.stop()

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


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_a_real_slave_follows_our_master_through_kills(version: str, tmp_path: Path) -> None:
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            master = group.ours(tmp_path / "master", "SYNC_MASTER")
            # A 5.3.3 slave follows only the HA address in the name server's registration reply.
            real = RealBroker(tmp_path / "real", version, "SLAVE", group.address)
            try:
                master.start()
                await real.start()
                results = [await sent(master.address, 2000, {0})]
                await real.stop(kill=True)
                results.append(await sent(master.address, 500, {11}))
                await real.start()
                results.append(await sent(master.address, 2000, {0}))
                master.kill()
                master.start()
                results.append(await sent(master.address, 2000, {0}))
                await same_logs(real.store, master.store)
                for result in results:
                    check_acknowledged(master, result)
                await everything_readable(real.address, results)  # with the topic, which comes by the next poll
                master.kill()
                await everything_readable(real.address, results)
            finally:
                master.kill()
                await real.stop(kill=True)

    asyncio.run(story())


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_our_slave_follows_a_real_master_through_kills(version: str, tmp_path: Path) -> None:
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "SYNC_MASTER", group.address)
            slave = group.ours(tmp_path / "slave", "SLAVE")
            try:
                await real.start()
                slave.start()
                results = [await sent(real.address, 2000, {0})]
                slave.kill()
                results.append(await sent(real.address, 20, {0, 11, 12}))
                slave.start()
                results.append(await sent(real.address, 2000, {0}))
                await same_logs(slave.store, real.store)
                await everything_readable(slave.address, results)  # with the topic, which comes by the next poll
                await real.stop(kill=True)
                await everything_readable(slave.address, results)
                await real.start()
                results.append(await sent(real.address, 2000, {0}))
                await same_logs(slave.store, real.store)
                await real.stop(kill=True)
                await everything_readable(slave.address, results)
            finally:
                slave.kill()
                await real.stop(kill=True)

    asyncio.run(story())


def check_acknowledged(broker: BrokerProcess, result: LoadResult) -> None:
    queues = RealPair.messages(broker)
    for told in result.acknowledged:
        assert queues[told.queue_id][told.queue_offset].startswith(told.body), told
