"""Clients whose route is old: a former master, and any slave, hands their requests to the master."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.security.guarded import send

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerRole
from tandemq.codec import fastjson
from tandemq.codec.bodies import queue_json
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import ONEWAY_FLAG, Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import RemotingError
from tandemq.formats.batch import encode_batch
from tandemq.model.message import ACK_COPIES, TRANSACTION_COMMIT, parse_offset_message_id
from tandemq.model.topic import QueueRef
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.local_cluster import LocalCluster
from tandemq.testing.pair import RealPair
from tandemq.testing.waiting import until

pytestmark = pytest.mark.timeout(120)

STORED = {0, 10, 11, 12}
"""Codes of sends that were stored; all but 0 say that a copy is missing, as on a busy machine one may for a moment."""


def told(
    directory: Path, story: Callable[[Broker, Broker, RemotingClient], Awaitable[None]], **properties: str
) -> None:
    """Tells a story on a master, its slave, and a client."""

    async def main() -> None:
        async with LocalCluster(directory, properties=properties) as cluster:
            master = await cluster.add_broker(role=BrokerRole.SYNC_MASTER)
            slave = await cluster.add_broker(broker_id=1)
            await until(
                lambda: any(one.in_sync for one in master.replication.status().replicas),  # type: ignore[union-attr]
                "the slave in sync",
            )
            async with RemotingClient(RemotingConfig()) as client:
                await story(master, slave, client)

    asyncio.run(main())


def long_send(topic: str) -> Command:
    header = SendHeader(
        producerGroup="p", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0,
    )  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE, send_ext(header, short=False), b"long names")


def test_every_kind_of_send_reaches_the_master(tmp_path: Path) -> None:
    """Its answer comes back as it is, with the master's ids; the record names the client, not the slave."""

    async def story(master: Broker, slave: Broker, client: RemotingClient) -> None:
        batch = send("T", encode_batch([(0, b"a", b""), (0, b"b", b"")]))
        batch.code = RequestCode.SEND_BATCH_MESSAGE
        for number, command in enumerate((send("T", b"short names"), long_send("T"), batch)):
            reply = await client.invoke(slave.address, command, 10)
            assert (reply.code, reply.ext["queueOffset"]) == (0, str(number)), reply.remark
        assert master.store.queue_end("T", 0) == 4
        connection = await client.connection(slave.address)
        assert connection._transport is not None
        port = connection._transport.get_extra_info("sockname")[1]
        _, offset = parse_offset_message_id(reply.ext["msgId"].split(",")[0])
        stored = master.store.reader.read(offset)
        assert stored.born_host == bytes([127, 0, 0, 1]) + port.to_bytes(4, "big")
        assert slave.forwarder.forwarded == 3

    told(tmp_path, story)


def test_returned_messages_transactions_and_locks_reach_the_master(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker, client: RemotingClient) -> None:
        stored = await client.invoke(slave.address, send("T", b"x"), 10)
        _, offset = parse_offset_message_id(stored.ext["msgId"])
        ext = {"group": "g", "offset": str(offset), "delayLevel": "-1", "originTopic": "T"}
        back = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        (await client.invoke(slave.address, back, 10)).raise_for_code()
        assert master.store.queue_end("%DLQ%g", 0) == 1

        half = await client.invoke(slave.address, send("T", b"half", TRAN_MSG="true", PGROUP="p"), 10)
        end = {
            "producerGroup": "p",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": str(parse_offset_message_id(half.ext["msgId"])[1]),
            "commitOrRollback": str(TRANSACTION_COMMIT),
        }
        await client.invoke_oneway(slave.address, Command(RequestCode.END_TRANSACTION, end, flag=ONEWAY_FLAG))
        await until(lambda: master.store.queue_end("T", 0) == 2, "the committed message")

        queue = queue_json(QueueRef("T", "broker-a", 0))
        wanted = fastjson.dumps({"consumerGroup": "g", "clientId": "one", "mqSet": [queue]})
        locked = await client.invoke(slave.address, Command(RequestCode.LOCK_BATCH_MQ, {}, wanted), 10)
        assert fastjson.loads(bytes(locked.body))["lockOKMQSet"] == [queue]
        assert len(master.locks) == 1
        assert len(slave.locks) == 0
        (await client.invoke(slave.address, Command(RequestCode.UNLOCK_BATCH_MQ, {}, wanted), 10)).raise_for_code()
        assert len(master.locks) == 0

    told(tmp_path, story)


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker, client: RemotingClient) -> None:
        reply = await client.invoke(slave.address, send("T", b"x"), 10)
        assert (reply.code, reply.remark and "slave" in reply.remark) == (14, True)

    told(tmp_path, story, forwardTimeoutMillis="0")


def test_a_master_s_own_ack_rules_decide(tmp_path: Path) -> None:
    """A send that asks for more copies than there are is told so, as if it had come to the master."""

    async def story(master: Broker, slave: Broker, client: RemotingClient) -> None:
        wish = {ACK_COPIES: "5"}
        here = await client.invoke(master.address, send("T", b"x", **wish), 10)
        there = await client.invoke(slave.address, send("T", b"x", **wish), 10)
        assert here.code == there.code != 0
        assert here.remark == there.remark

    told(tmp_path, story)


def test_a_route_has_a_master_all_through_a_promotion_and_no_send_fails(tmp_path: Path) -> None:
    """One client always sends to the first master, one to the slave: neither is ever refused."""

    async def story() -> None:
        async with RealPair(tmp_path) as pair:
            for broker in pair.brokers:
                broker.start()
            await pair.in_sync()
            first, second = pair.brokers
            codes: dict[str, list[int]] = {first.address: [], second.address: []}
            masters: list[str] = []
            stopping = False

            async def sending(address: str) -> None:
                async with RemotingClient(RemotingConfig()) as client:
                    while not stopping:
                        codes[address].append((await client.invoke(address, send("T", b"0-0-x"), 10)).code)

            async def watching() -> None:
                while not stopping:
                    masters.append(pair.master_in_route())
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(work) for work in (*map(sending, codes), watching())]
            try:
                for master, slave in ((first, second), (second, first)):
                    before = {address: len(told) for address, told in codes.items()}
                    await until(lambda b=before: all(len(codes[a]) > n + 50 for a, n in b.items()), "some sends")
                    await until(lambda s=slave: _promoted(pair, s.address), "the promotion")
                    await until(lambda s=slave: pair.master_in_route() == s.address, "the route")
                    await pair.in_sync(slave, quiet=False)
                    assert not (await pair.status(master))["writable"]
            finally:
                stopping = True
                await asyncio.gather(*tasks)
            assert set(masters) == {first.address, second.address}, "there was a moment without a master"
            assert {address: set(told) - STORED for address, told in codes.items()} == {a: set() for a in codes}

    asyncio.run(story())


async def _promoted(pair: RealPair, address: str) -> bool:
    try:
        reply = await pair.client.invoke(address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
    except RemotingError:
        return False
    return reply.code == 0
