"""Real processes: who opens delivers what is due and skips nothing, though tables were ahead of its log or behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tandemq.client.transaction import TransactionProducer, TransactionState
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.formats.record import parse_record, walk
from tandemq.model.message import ACK_COPIES, Message, encode_properties
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.proxy import FaultProxy
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

GROUP = "readers"
PATIENT = {"haHousekeepingInterval": "60000"}
"""A held link must not look like a dead one."""


class Story:
    """Requests to the brokers of a pair, as clients make them."""

    def __init__(self, pair: RealPair, link: FaultProxy) -> None:
        self.pair, self.link = pair, link

    async def ask(self, broker: BrokerProcess, code: int, body: bytes = b"", **ext: str) -> Command:
        return await self.pair.client.invoke(broker.address, Command(code, ext, body), 20)

    async def send(self, broker: BrokerProcess, topic: str, bodies: list[str], copies: str, **more: str) -> None:
        """Sends to queue 0; each one is acknowledged at so many copies."""
        for body in bodies:
            properties = encode_properties({ACK_COPIES: copies, **more}).decode()
            header = SendHeader(
                producerGroup="pg", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
                bornTimestamp=1, flag=0, properties=properties,
            )  # fmt: skip
            reply = await self.ask(broker, 310, body.encode(), **send_ext(header, short=True))
            assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def end(self, broker: BrokerProcess, topic: str, queue_id: int = 0) -> int:
        reply = await self.ask(broker, RequestCode.GET_MAX_OFFSET, topic=topic, queueId=str(queue_id))
        return int(reply.ext.get("offset", "0"))

    async def read(self, broker: BrokerProcess, topic: str, offset: int = 0) -> list[str]:
        """All of queue 0 from an offset on."""
        found: list[str] = []
        while True:
            reply = await self.ask(
                broker, RequestCode.PULL_MESSAGE, consumerGroup=GROUP, topic=topic, queueId="0",
                queueOffset=str(offset + len(found)), maxMsgNums="1000", sysFlag="4", commitOffset="0",
                suspendTimeoutMillis="0", subVersion="0", subscription="*",
            )  # fmt: skip
            if reply.code != ResponseCode.SUCCESS:
                return found
            data = bytes(reply.body)
            found += [parse_record(data, at, at + size).body.decode() for at, size, _ in walk(data, 0, len(data))]

    async def commit(self, broker: BrokerProcess, topic: str, offset: int) -> None:
        reply = await self.ask(
            broker, RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=GROUP, topic=topic, queueId="0", commitOffset=str(offset),
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def delay_offset(self, broker: BrokerProcess) -> int:
        """How many messages of delay level 1 the broker says it has delivered; readers may not see them yet."""
        body = bytes((await self.ask(broker, RequestCode.GET_ALL_DELAY_OFFSET)).body)
        return int(fastjson.loads(body)["offsetTable"].get(1, 0))

    async def committed(self, broker: BrokerProcess, topic: str, group: str = GROUP) -> int:
        ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
        reply = await self.ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, **ext)
        return int(reply.ext["offset"]) if reply.code == ResponseCode.SUCCESS else -1

    async def create(self, broker: BrokerProcess, topic: str, queues: int = 1) -> None:
        reply = await self.ask(
            broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102", perm="6", order="false",
            readQueueNums=str(queues), writeQueueNums=str(queues), topicFilterType="SINGLE_TAG", topicSysFlag="0",
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def knows(self, broker: BrokerProcess, topic: str) -> bool:
        return (await self.ask(broker, RequestCode.GET_TOPIC_CONFIG, topic=topic)).code == ResponseCode.SUCCESS

    async def tables_told(self) -> None:
        """Until the slave has asked for every table that its master has now, and had the answer."""
        for topic in ("told-once", "told-twice"):  # what changes with the first is asked for before the second
            await self.create(self.pair.master, topic)
            await until(lambda name=topic: self.knows(self.pair.slave, name), f"{topic} at the slave")

    async def fail_over(self, broker: BrokerProcess, *, force: bool = True) -> None:
        """The master is killed, with all that its slaves did not get."""
        self.pair.master.kill()
        self.link.refusing = True
        self.link.reset()
        for other in self.pair.brokers:
            other.resume()
        reply = await self.ask(broker, PairCode.PROMOTE, role="ASYNC_MASTER", force=str(force).lower())
        assert reply.code == ResponseCode.SUCCESS, reply.remark

        async def opened() -> bool:
            return bool((await self.pair.status(broker)).get("writable"))

        await until(opened, lambda: f"the promoted slave to open: {broker.log.read_text()[-3000:]}")


@asynccontextmanager
async def story(directory: Path, slaves: int = 1, **properties: str) -> AsyncIterator[Story]:
    """A pair in sync; the first slave's HA link goes through a proxy."""
    async with (
        RealPair(directory, slaves=slaves, properties={**PATIENT, **properties}) as pair,
        FaultProxy(pair.master.ha_address) as link,
    ):
        pair.master.start()
        pair.slave.start(haMasterAddress=link.address)
        for broker in pair.brokers[2:]:
            broker.start()
        await pair.in_sync()
        yield Story(pair, link)


def test_delays_that_only_the_dead_master_delivered_are_delivered_by_its_successor(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with story(tmp_path, messageDelayLevel="5s") as s:
            master, slave = s.pair.master, s.pair.slave
            wanted = [f"delayed-{number}" for number in range(50)]
            await s.send(master, "D", wanted, "2", DELAY="1")
            s.link.hold()
            assert await s.delay_offset(master) == 0

            async def master_delivered() -> bool:
                return await s.delay_offset(master) == len(wanted)

            async def delivered() -> bool:
                return await s.end(slave, "D") >= len(wanted)

            await until(master_delivered, "the master to deliver")
            await s.tables_told()
            await s.fail_over(slave)
            assert await s.end(slave, SCHEDULE_TOPIC) == len(wanted)
            await until(delivered, "the successor to deliver")
            assert set(await s.read(slave, "D")) == set(wanted)

    asyncio.run(scenario())


def test_delivered_delays_come_once_more_at_most_after_a_hand_over(tmp_path: Path) -> None:
    """Planned: the master says in its log how far it came before it steps down."""

    async def scenario() -> None:
        async with story(tmp_path, messageDelayLevel="1s") as s:
            master, slave = s.pair.master, s.pair.slave
            wanted = [f"delayed-{number}" for number in range(50)]
            await s.send(master, "D", wanted, "2", DELAY="1")

            async def delivered() -> bool:
                return await s.end(master, "D") >= len(wanted)

            await until(delivered, "the master to deliver")
            reply = await s.ask(slave, PairCode.PROMOTE, role="SYNC_MASTER")
            assert reply.code == ResponseCode.SUCCESS, reply.remark
            await s.send(slave, "D", ["last"], "1", DELAY="1")

            async def last_came() -> bool:
                return "last" in await s.read(slave, "D")

            await until(last_came, "a delayed message of the new master")
            assert await s.read(slave, "D") == [*wanted, "last"]

    asyncio.run(scenario())


def test_a_group_that_was_ahead_of_the_successors_log_skips_nothing_that_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with story(tmp_path) as s:
            master, slave = s.pair.master, s.pair.slave
            await s.send(master, "T", [f"both-{number}" for number in range(40)], "2")
            s.link.hold()
            await s.send(master, "T", [f"lost-{number}" for number in range(60)], "1")
            await s.commit(master, "T", 100)
            await s.tables_told()
            await s.fail_over(slave)
            wanted = [f"new-{number}" for number in range(60)]
            await s.send(slave, "T", wanted, "1")
            offset = await s.committed(slave, "T")
            assert offset <= 40
            assert (await s.read(slave, "T", max(0, offset)))[-60:] == wanted

    asyncio.run(scenario())


def test_a_half_that_only_the_dead_master_renewed_is_asked_about_by_its_successor(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
        async with story(tmp_path, **options) as s:
            master, slave = s.pair.master, s.pair.slave
            asked: list[bytes] = []
            answer = TransactionState.UNKNOWN

            async def check(message: object) -> TransactionState:
                asked.append(message.body)  # type: ignore[attr-defined]
                return answer

            async def unknown(message: Message) -> TransactionState:
                return TransactionState.UNKNOWN

            await s.create(master, "X")
            async with TransactionProducer("bank", check, namesrv=s.pair.namesrv) as producer:
                await producer.send_in_transaction(Message(topic="X", body=b"book me"), unknown)
                await s.pair.in_sync()
                s.link.hold()

                async def renewed() -> bool:
                    return await s.committed(master, TRANS_HALF_TOPIC, TRANS_GROUP) > 0

                await until(renewed, "the master to ask about the half and renew it")
                assert asked
                await s.tables_told()
                await s.fail_over(slave)
                answer = TransactionState.COMMIT

                async def committed() -> bool:
                    return await s.read(slave, "X") == ["book me"]

                await until(committed, lambda: f"the successor to ask: {slave.log.read_text()[-3000:]}")

    asyncio.run(scenario())


def test_who_takes_its_log_from_another_replica_has_its_topics_groups_and_offsets_too(tmp_path: Path) -> None:
    """One slave is stopped in its tracks while topics are made, written and read; then it is promoted."""

    async def scenario() -> None:
        async with story(tmp_path, slaves=2) as s:
            master, slave, other = s.pair.brokers
            slave.pause()
            wanted = [f"message-{number}" for number in range(200)]
            await s.send(master, "auto", wanted, "2")
            await s.create(master, "made", queues=3)
            await s.send(master, "made", wanted[:5], "2")
            await s.commit(master, "made", 3)

            async def other_has() -> bool:
                return await s.committed(other, "made") == 3 and await s.end(other, "auto") == 200

            await until(other_has, "the other slave to have all of it")
            await s.fail_over(slave, force=False)
            assert await s.read(slave, "auto") == wanted
            assert await s.read(slave, "made") == wanted[:5]
            config = await s.ask(slave, RequestCode.GET_TOPIC_CONFIG, topic="made")
            assert b'"writeQueueNums":3' in bytes(config.body)
            assert await s.committed(slave, "made") == 3
            await s.send(slave, "auto", ["more"], "1")

    asyncio.run(scenario())
