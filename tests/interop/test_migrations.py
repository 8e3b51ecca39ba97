"""The three ways from RocketMQ to TandemQ, and back, with producers that go on: nothing acknowledged is lost."""

import asyncio
from pathlib import Path

import pytest
from tests.peers.half_pairs import SIZES, Group, RealBroker, Target, same_logs
from tests.peers.programs import JAVA_VERSIONS, rocketmq_jars

from tandemq.client import ClientConfig, ConsumeFrom, Message, Producer, PullConsumer
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import NoRoute, RemotingError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, Load, LoadResult, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

CLEAN = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}


async def asked(address: str, code: int, ext: dict[str, str], body: bytes = b"", seconds: float = 20.0) -> None:
    """One request of an operator, which must succeed."""
    client = RemotingClient(RemotingConfig())
    try:
        (await client.invoke(address, Command(code, ext, body), seconds)).raise_for_code(ResponseCode.SUCCESS)
    finally:
        await client.close()


def is_all_there(store: Path, result: LoadResult) -> None:
    """Every acknowledged message stands in the log at the place that its producer was told."""
    queues = RealPair.messages(BrokerFiles(store))  # type: ignore[arg-type]
    for told in result.acknowledged:
        assert queues[told.queue_id][told.queue_offset].startswith(told.body), f"acknowledged but lost: {told}"


class BrokerFiles:
    def __init__(self, store: Path) -> None:
        self.store = store


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_in_place_and_back(version: str, tmp_path: Path) -> None:
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = BrokerProcess(
                tmp_path / "ours",
                {**CLEAN, **SIZES, "brokerName": "broker-a", "namesrvAddr": group.address,
                 "listenPort": str(real.port), "storePathRootDir": str(real.store)},
            )  # fmt: skip
            load = Load(Target(real.address), 4, ("",))  # type: ignore[arg-type]
            try:
                await real.start()
                await load.reached(2000)
                await real.stop()
                ours.start()
                await load.reached(5000)
                ours.stop()
                await real.start()
                await load.reached(7000)
            finally:
                result = await load.stop()
                ours.kill()
                await real.stop()
            is_all_there(real.store, result)

    asyncio.run(story())


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_by_slave(version: str, tmp_path: Path) -> None:
    """The old master takes no more messages, the slave gets the rest and is promoted; producers retry meanwhile."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = group.ours(tmp_path / "ours", "SLAVE")
            target = Target(real.address)
            load = Load(target, 4, ("",))  # type: ignore[arg-type]
            try:
                await real.start()
                await load.reached(2000)
                ours.start()
                await load.reached(6000)
                await asked(real.address, RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n")
                await same_logs(ours.store, real.store)
                await real.stop()
                await asked(ours.address, PairCode.PROMOTE, {"role": "ASYNC_MASTER"})
                target.writer_address = ours.address
                await load.reached(8000)
                assert (await group.brokers())["broker-a"] == {0: ours.address}
            finally:
                result = await load.stop()
                ours.stop()
                await real.stop(kill=True)
            is_all_there(ours.store, result)

    asyncio.run(story())


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_side_by_side(version: str, tmp_path: Path) -> None:
    """A new group takes over the writing; consumers drain the old one and go on with the new one."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = group.ours(tmp_path / "ours", "ASYNC_MASTER", brokerName="broker-b")
            try:
                await real.start()
                await made(real.address)
                sent = await moved(group.address, ours)
                await drained(group.address, sent)
            finally:
                ours.kill()
                await real.stop(kill=True)

    asyncio.run(story())


async def moved(namesrv: str, ours: BrokerProcess) -> set[str]:
    """Sends all the time, while the new group comes and the old one is taken out; returns the bodies."""
    sent: set[str] = set()
    async with Producer("p", namesrv=namesrv, config=ClientConfig(route_interval_ms=500)) as producer:

        async def written_to() -> set[str]:
            places = set()
            for _ in range(16):
                body = f"m{len(sent)}"
                places.add((await producer.send(Message(topic="T", body=body.encode()))).queue.broker_name)
                sent.add(body)
            return places

        async def only_the_old() -> bool:
            try:
                return await written_to() == {"broker-a"}
            except NoRoute:
                return False  # it registers its topic a moment later

        await until(only_the_old, "the old group is written to")
        ours.start()
        await made(ours.address)

        async def both() -> bool:
            return await written_to() == {"broker-a", "broker-b"}

        async def only_the_new() -> bool:
            return await written_to() == {"broker-b"}

        await until(both, "both groups are written to")
        await asked(namesrv, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
        await until(only_the_new, "only the new group is written to")
    return sent


async def made(address: str) -> None:
    """The topic exists at that broker, which may still be starting."""
    fields = {
        "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip

    async def answers() -> bool:
        try:
            await asked(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        except RemotingError:
            return False
        return True

    await until(answers, f"{address} makes the topic")


async def drained(namesrv: str, sent: set[str]) -> None:
    got: list[str] = []
    consumer = PullConsumer("g", namesrv=namesrv, config=ClientConfig(consume_from=ConsumeFrom.FIRST_OFFSET))
    consumer.subscribe("T")
    async with consumer:

        async def everything() -> bool:
            got.extend(message.body.decode() for message in await consumer.poll(timeout_ms=500))
            return set(got) >= sent

        await until(everything, "every message of both groups is consumed")
    assert len(got) == len(set(got)), "a message was consumed twice"
