"""The three ways from RocketMQ to TandemQ, and back, under a running Java producer and a running Java consumer.

What the producer was told is stored reaches the consumer, whichever broker has it by then. How often a message reaches
it twice is counted: a client that loses its broker may be given again what it had not committed.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.peers import programs
from tests.peers.half_pairs import SIZES, Group, RealBroker, same_bytes, segments
from tests.peers.programs import rocketmq_jars

from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError, ReplyError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

VERSIONS = os.environ.get("TANDEMQ_PEER_MIGRATIONS", "4.9.7").split(",")
"""Each takes minutes, so a run has one; 5.3.3 and 5.5.0 are asked for by name."""
CLEAN = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
PHASE = 500
"""Messages that the consumer is given between two steps."""
SIZE = 1000


class Clients:
    """A producer that sends one message after the other, a consumer, and what both were told."""

    def __init__(self, version: str, namesrv: str) -> None:
        self._version, self._namesrv = version, namesrv
        self._processes: list[asyncio.subprocess.Process] = []
        self.acknowledged: set[str] = set()
        self.failed: Counter[str] = Counter()
        self.consumed: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Clients"]:
        await self._start("Witness", "T", "GID_witness", told=self._witnessed)
        await self._start("Steady", "T", "keys=k", f"size={SIZE}", "timeout=3000", told=self._sent)
        try:
            yield self
        finally:
            for process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*(process.wait() for process in self._processes))

    async def _start(self, driver: str, *arguments: str, told: Callable[[str], None]) -> None:
        command, environment = programs.java(self._version, driver)
        process = await asyncio.create_subprocess_exec(
            *command, self._namesrv, *arguments,
            env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self._processes.append(process)
        self._reading = asyncio.create_task(self._read(process, told))

    async def _read(self, process: asyncio.subprocess.Process, told: Callable[[str], None]) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told(line.decode().strip())

    def _sent(self, line: str) -> None:
        kind, _, _, rest = f"{line} ".split(" ", 3)
        if kind == "ok":
            self.acknowledged.add(rest.strip())
        else:
            self.failed[rest.strip()[:60]] += 1

    def _witnessed(self, line: str) -> None:
        if line.startswith("k"):
            self.consumed[line] += 1

    async def go_on(self, step: str) -> None:
        """Waits until both have come on by so many messages, and the consumer has what was acknowledged before."""
        before, goal = set(self.acknowledged), len(self.acknowledged) + PHASE

        async def moved() -> bool:
            return len(self.acknowledged) >= goal and before <= self.consumed.keys()

        await until(moved, lambda: f"clients go on {step}: {self.told()}", seconds=150)

    async def ended(self) -> None:
        """The producer is stopped; the consumer has all that it was told is stored."""
        self._processes[1].kill()
        await self._processes[1].wait()
        await until(lambda: self.acknowledged <= self.consumed.keys(), lambda: f"all: {self.told()}", seconds=90)

    def told(self) -> str:
        lost = self.acknowledged - self.consumed.keys()
        return (
            f"acknowledged {len(self.acknowledged)}, consumed {len(self.consumed)}, not consumed {len(lost)} "
            f"({sorted(lost)[:3]}), given twice {self.repeated}, failed {dict(self.failed.most_common(4))}"
        )

    @property
    def repeated(self) -> int:
        return sum(self.consumed.values()) - len(self.consumed)


async def asked(address: str, code: int, ext: dict[str, str], body: bytes = b"", seconds: float = 20.0) -> None:
    """One request of an operator, which must succeed."""
    client = RemotingClient(RemotingConfig())
    try:
        (await client.invoke(address, Command(code, ext, body), seconds)).raise_for_code(ResponseCode.SUCCESS)
    finally:
        await client.close()


async def takes(address: str, code: int, ext: dict[str, str], body: bytes = b"") -> None:
    """Likewise, of a broker that may still be starting."""

    async def done() -> bool:
        try:
            await asked(address, code, ext, body)
        except (RemotingError, ReplyError):
            return False
        return True

    await until(done, f"{address} carries out {code}")


async def made(address: str) -> None:
    """The topic exists at that broker."""
    fields = {
        "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    await takes(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


async def read_only(address: str) -> None:
    """It takes no more messages; consumers read on."""
    await asked(address, RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n")


def newest(store: Path) -> str:
    return max(segments(store), default="")


def knows_topic(broker: RealBroker) -> bool:
    path = broker.store / "config" / "topics.json"
    return path.exists() and '"T"' in path.read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_in_place_and_back(version: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = BrokerProcess(
                tmp_path / "ours",
                {**CLEAN, **SIZES, "brokerName": "broker-a", "namesrvAddr": group.address,
                 "listenPort": str(real.port), "storePathRootDir": str(real.store)},
            )  # fmt: skip
            try:
                await real.start()
                await made(real.address)
                async with Clients(version, group.address).running() as clients:
                    await clients.go_on("with RocketMQ")
                    await real.stop()
                    ours.start()
                    await clients.go_on("with TandemQ")
                    await asyncio.to_thread(ours.stop)
                    await real.start()
                    await clients.go_on("with RocketMQ again")
                    await clients.ended()
            finally:
                ours.kill()
                await real.stop(kill=True)
            record_property("clients", clients.told())
            print(f"in place, {version}: {clients.told()}")

    asyncio.run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_by_slave_and_back(version: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """The old master takes no more messages, the slave gets the rest and is promoted; then the same the other way."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = group.ours(tmp_path / "ours", "SLAVE", slaveSyncInterval="1000")
            back = RealBroker(tmp_path / "back", version, "SLAVE", group.address)
            try:
                await real.start()
                await made(real.address)
                async with Clients(version, group.address).running() as clients:
                    await clients.go_on("with RocketMQ")
                    ours.start()
                    await until(lambda: newest(ours.store) == newest(real.store), "the slave has come close")
                    await read_only(real.address)
                    await same_bytes(ours.store, real.store)
                    await real.stop()
                    await takes(ours.address, PairCode.PROMOTE, {"role": "ASYNC_MASTER"})
                    await clients.go_on("with TandemQ")

                    await back.start()
                    await read_only(ours.address)
                    await same_bytes(back.store, ours.store)
                    await until(lambda: knows_topic(back), "the RocketMQ slave has asked for topics")
                    await asyncio.to_thread(ours.stop)
                    await back.stop()
                    back.become("ASYNC_MASTER")
                    await back.start()
                    await clients.go_on("with RocketMQ again")
                    await clients.ended()
            finally:
                ours.kill()
                await real.stop(kill=True)
                await back.stop(kill=True)
            record_property("clients", clients.told())
            print(f"by slave, {version}: {clients.told()}")

    asyncio.run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_side_by_side_and_back(version: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """A new group takes over the writing, the old one is drained and stopped; then the same the other way."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = group.ours(tmp_path / "ours", "ASYNC_MASTER", brokerName="broker-b")
            wipe = RequestCode.WIPE_WRITE_PERM_OF_BROKER
            try:
                await real.start()
                await made(real.address)
                async with Clients(version, group.address).running() as clients:
                    await clients.go_on("with RocketMQ")
                    ours.start()
                    await made(ours.address)
                    await clients.go_on("with both")
                    await asked(group.address, wipe, {"brokerName": "broker-a"})
                    await clients.go_on("with TandemQ alone")
                    await real.stop()
                    await clients.go_on("without RocketMQ")
                    await real.start()
                    await clients.go_on("with both again")
                    await asked(group.address, wipe, {"brokerName": "broker-b"})
                    await clients.go_on("with RocketMQ alone")
                    await asyncio.to_thread(ours.stop)
                    await clients.go_on("without TandemQ")
                    await clients.ended()
            finally:
                ours.kill()
                await real.stop(kill=True)
            record_property("clients", clients.told())
            print(f"side by side, {version}: {clients.told()}")

    asyncio.run(story())
