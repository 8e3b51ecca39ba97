"""Half a pair of ours with half of RocketMQ's: they follow each other across kills, byte for byte."""

import asyncio
from pathlib import Path

import pytest
from tests.peers.half_pairs import Group, RealBroker, Target, same_logs, segments
from tests.peers.programs import JAVA_VERSIONS, rocketmq_jars

from tandemq.codec.bodies import load_object
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import RemotingError
from tandemq.model.message import encode_properties
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import QUEUES, SEGMENT, SEND_V2, BrokerProcess, Load, LoadResult, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

MAX_OFFSET, PULL = 30, 11


async def sent(address: str, count: int, ok: set[int]) -> LoadResult:
    """At least `count` sends answered with one of these codes."""
    load = Load(Target(address), 4, ("",))  # type: ignore[arg-type]
    before = 0

    async def enough() -> bool:
        return sum(n for code, n in load.result.statuses.items() if code in ok) >= before + count

    await until(enough, f"{count} sends to {address} answered with {ok}: {load.result.statuses}", seconds=120)
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


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_an_empty_slave_copies_all_that_a_real_master_has_kept(version: str, tmp_path: Path) -> None:
    """A RocketMQ master sends a slave that reports 0 its last segment only; it must not come to that, neither for a log
    that begins at 0 nor for one whose first segments have expired, nor when the master's retention overtakes a slave
    that was away."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            slave = group.ours(tmp_path / "slave", "SLAVE")
            late = group.ours(tmp_path / "late", "SLAVE", brokerId="2")
            last = group.ours(tmp_path / "last", "SLAVE", brokerId="4", haSyncFromLastFile="true")
            wrong = group.ours(tmp_path / "wrong", "SLAVE", brokerId="3", mappedFileSizeCommitLog=str(2 * SEGMENT))
            try:
                await real.start()
                results = [await sent(real.address, 8000, {0})]
                slave.start()
                await same_logs(slave.store, real.store)
                await everything_readable(slave.address, results)
                slave.kill()
                results.append(await sent(real.address, 9000, {0}))
                await real.stop()
                expire(real.store, beyond=max(segments(slave.store)))
                await real.start()
                late.start()
                await same_logs(late.store, real.store)
                slave.start()
                await same_logs(slave.store, real.store)
                wrong.start()
                await until(lambda: told(wrong, f"mappedFileSizeCommitLog={SEGMENT}"), "the size to set is told")
                last.start()
                await until(lambda: told(last, "lacks ["), "what it lacks is told")
                reply = await asked(last.address, Command(PairCode.PROMOTE, {"role": "ASYNC_MASTER"}))
                assert "--accept-loss" in (reply.remark or ""), reply
            finally:
                for broker in (slave, late, wrong, last):
                    broker.kill()
                await real.stop(kill=True)

    asyncio.run(story())


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_an_observer_copies_a_real_pair_and_changes_nothing_there(version: str, tmp_path: Path) -> None:
    """Beside the master's or the slave's HA port: no route changes, no ack of the master rests on the observer."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            master = RealBroker(tmp_path / "master", version, "SYNC_MASTER", group.address)
            slave = RealBroker(tmp_path / "slave", version, "SLAVE", group.address)
            of_master = group.ours(tmp_path / "om", "SLAVE", haObserver="true", haMasterAddress=master.ha_address)
            of_slave = group.ours(tmp_path / "os", "SLAVE", haObserver="true", haMasterAddress=slave.ha_address)
            try:
                await master.start()
                await slave.start()
                results = [await sent(master.address, 9000, {0})]
                routes = await group.brokers()
                of_master.start()
                of_slave.start()
                # A real slave that came late lacks the beginning; its observer has what it has.
                followed = {of_master: master, of_slave: slave}
                for observer, real in followed.items():
                    await same_logs(observer.store, real.store)
                    observer.kill()
                results.append(await sent(master.address, 4000, {0}))
                for observer, real in followed.items():
                    observer.start()
                    await same_logs(observer.store, real.store)
                    await everything_readable(observer.address, results)
                assert await group.brokers() == routes, "an observer registers nowhere"
                await slave.stop(kill=True)
                # A real master that counted the observer would answer 0.
                results.append(await sent(master.address, 5, {10, 11, 12}))
                assert 0 not in results[-1].statuses, results[-1].statuses
            finally:
                of_master.kill()
                of_slave.kill()
                await slave.stop(kill=True)
                await master.stop(kill=True)

    asyncio.run(story())


@pytest.mark.parametrize("version", JAVA_VERSIONS)
@pytest.mark.parametrize("observer", ["false", "true"], ids=["slave", "observer"])
def test_the_tables_of_a_real_master_stay_current(version: str, observer: str, tmp_path: Path) -> None:
    """Topics, groups, consumer offsets in both directions, delay offsets; what is gone there goes here."""
    rocketmq_jars(version)

    async def story() -> None:
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            beside = {"haObserver": observer, "haMasterAddress": real.ha_address} if observer == "true" else {}
            ours = group.ours(tmp_path / "ours", "SLAVE", slaveSyncInterval="500", **beside)
            try:
                await real.start()
                await sent(real.address, 50, {0})
                ours.start()
                await make(real.address)
                await delayed(real.address)
                await tables_say(ours.address, topic="New", group="g-new", offset=30, delivered=1)
                await commit(real.address, 20)
                await tables_say(ours.address, topic="New", group="g-new", offset=20, delivered=1)
                await done(real.address, Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "New"}))
                await delayed(real.address)
                await tables_say(ours.address, topic="", group="g-new", offset=20, delivered=2)
            finally:
                ours.kill()
                await real.stop(kill=True)

    asyncio.run(story())


async def done(address: str, command: Command) -> Command:
    reply = await asked(address, command)
    reply.raise_for_code(0)
    return reply


async def make(address: str) -> None:
    """A topic, a group, and an offset of that."""
    topic = {
        "topic": "New", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    await done(address, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, topic))
    group = b'{"groupName":"g-new","retryQueueNums":1}'
    await done(address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group))
    await commit(address, 30)


async def commit(address: str, offset: int) -> None:
    fields = {"consumerGroup": "g-new", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    await done(address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields))


async def delayed(address: str) -> None:
    """A message that waits for a second."""
    header = SendHeader(
        producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0, properties=encode_properties({"DELAY": "1"}).decode(),
    )  # fmt: skip
    await done(address, Command(SEND_V2, send_ext(header, short=True), b"late"))


async def tables_say(address: str, *, topic: str, group: str, offset: int, delivered: int) -> None:
    """What our broker answers; `topic` empty: it does not know New any more."""
    place = {"consumerGroup": group, "topic": "T", "queueId": "0"}
    seen: list[object] = []

    async def current() -> bool:
        topics = load_object((await done(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG))).body, "topics")
        groups = load_object((await done(address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))).body, "g")
        delays = load_object((await done(address, Command(RequestCode.GET_ALL_DELAY_OFFSET))).body, "delays")
        told = await asked(address, Command(RequestCode.QUERY_CONSUMER_OFFSET, place))
        seen[:] = [
            "New" in topics["topicConfigTable"], group in groups["subscriptionGroupTable"],
            told.ext.get("offset"), delays["offsetTable"],
        ]  # fmt: skip
        wanted = [bool(topic), True, str(offset)]
        return seen[:3] == wanted and {str(k): int(v) for k, v in delays["offsetTable"].items()}.get("1") == delivered

    await until(current, lambda: f"the tables say {topic=} {offset=} {delivered=}: {seen}", ignoring=(RemotingError,))


def expire(store: Path, *, beyond: str) -> None:
    """Deletes the segments up to `beyond`, as retention does."""
    for path in (store / "commitlog").iterdir():
        if path.name <= beyond:
            path.unlink()


async def asked(address: str, command: Command) -> Command:
    client = RemotingClient(RemotingConfig())
    try:
        return await client.invoke(address, command, 20)
    finally:
        await client.close()


async def told(broker: BrokerProcess, text: str) -> bool:
    return text in broker.log.read_text()


def check_acknowledged(broker: BrokerProcess, result: LoadResult) -> None:
    queues = RealPair.messages(broker)
    for told in result.acknowledged:
        assert queues[told.queue_id][told.queue_offset].startswith(told.body), told
