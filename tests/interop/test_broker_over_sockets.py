"""A whole broker and its name servers in one loop, asked over TCP as clients ask."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tandemq.broker.broker import Broker
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import ConnectFailed, RemotingError
from tandemq.formats.record import parse_record, walk
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.local_cluster import HOST, LocalCluster
from tandemq.testing.waiting import until

SEND_V2, PULL, HEARTBEAT, ROUTE = 310, 11, 34, 105


class Client:
    """Requests to one cluster; a test's hands."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.pushed: asyncio.Queue[Command] = asyncio.Queue()
        self.remoting = RemotingClient(RemotingConfig(), {40: self._push})

    def _push(self, connection: Any, command: Command) -> None:
        self.pushed.put_nowait(command)

    async def ask(self, address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.remoting.invoke(address, Command(code, ext, body), 10)

    async def send(self, broker: Broker, body: bytes = b"x", topic: str = "T", **fields: Any) -> Command:
        header = SendHeader(
            **{
                "producerGroup": "pg", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, **fields,
            }
        )  # fmt: skip
        return await self.ask(broker.address, SEND_V2, send_ext(header, short=True), body)

    async def pull(self, broker: Broker, offset: int = 0, topic: str = "T", **ext: str) -> Command:
        fields = {
            "consumerGroup": "g", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
            **ext,
        }  # fmt: skip
        return await self.ask(broker.address, PULL, fields)

    async def heartbeat(self, broker: Broker, client_id: str, group: str = "g") -> Command:
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }  # fmt: skip
        body = json.dumps({"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}).encode()
        return await self.ask(broker.address, HEARTBEAT, None, body)


def run(tmp_path: Path, story: Callable[[LocalCluster, Client], Awaitable[None]], name_servers: int = 1) -> None:
    async def main() -> None:
        async with LocalCluster(tmp_path, name_servers=name_servers) as cluster:
            client = Client(cluster)
            try:
                async with asyncio.timeout(60):
                    await story(cluster, client)
            finally:
                await client.remoting.close()

    asyncio.run(main())


def bodies(reply: Command) -> list[bytes]:
    data = bytes(reply.body)
    return [parse_record(data, start, start + size).body for start, size, _ in walk(data, 0, len(data))]


def test_a_new_topic_is_routable_at_once(tmp_path: Path) -> None:
    """The name servers learn it in the same turn, not at the next registration."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        assert (await client.send(broker)).code == 0
        for address in cluster.namesrv_address.split(";"):

            async def routable(address: str = address) -> bool:
                return (await client.ask(address, ROUTE, {"topic": "T"})).code == 0

            await until(routable)

    run(tmp_path, story, name_servers=2)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Messages, topics, groups and offsets; in files that upstream's broker reads too."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        for number in range(5):
            await client.send(broker, b"m%d" % number)
        await client.heartbeat(broker, "c")
        update = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "3"}
        assert (await client.ask(broker.address, 15, update)).code == 0
        broker = await cluster.restart(broker)
        query = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
        assert (await client.ask(broker.address, 14, query)).ext == {"offset": "3"}
        assert bodies(await client.pull(broker, 3)) == [b"m3", b"m4"]
        assert "%RETRY%g" in broker.topics
        assert broker.groups.get("g") is not None

    run(tmp_path, story)


def test_a_dead_name_server_blocks_nobody(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        cluster._name_server_ports.append(1)  # nobody listens there
        broker = await asyncio.wait_for(start_without_waiting(cluster), 5)
        assert await broker.registration.wait_registered(0.2) is False
        assert len(broker.registration.registered_with) == 1
        assert (await client.send(broker)).code == 0

    async def start_without_waiting(cluster: LocalCluster) -> Broker:
        broker = cluster._build("broker-a", 0, None, {})
        cluster.brokers.append(broker)
        await broker.start()
        await until(lambda: bool(broker.registration.registered_with))
        return broker

    run(tmp_path, story)


def test_a_name_server_that_comes_back_knows_the_broker_again(tmp_path: Path) -> None:
    """Its connection was lost, so the broker does not wait for its 30 s."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        old = cluster.name_servers.pop()
        port = cluster._name_server_ports[0]
        await old.stop()
        await until(lambda: not broker.registration.registered_with)
        from tandemq.namesrv.config import NamesrvConfig
        from tandemq.namesrv.server import NameServer

        again = NameServer(NamesrvConfig(), RemotingConfig(listen_port=port, bind_address=HOST))
        await again.start()
        cluster.name_servers.append(again)
        await until(lambda: bool(broker.registration.registered_with), "the registration")
        assert (await client.ask(cluster.namesrv_address, ROUTE, {"topic": "TBW102"})).code == 0

    run(tmp_path, story)


def test_a_broker_that_stops_leaves_the_name_servers(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        await broker.stop()
        assert (await client.ask(cluster.namesrv_address, ROUTE, {"topic": "TBW102"})).code == 17
        with pytest.raises(RemotingError):
            await client.send(broker)

    run(tmp_path, story)


def test_a_parked_pull_gets_its_message_and_the_rest_of_a_group_hears_of_a_lost_member(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        await client.send(broker, b"first")
        waiting = asyncio.create_task(client.pull(broker, 1, sysFlag="6", suspendTimeoutMillis="15000"))
        await until(lambda: len(broker.pulls.parked) == 1)
        await client.send(broker, b"second")
        assert bodies(await waiting) == [b"second"]

        other = Client(cluster)
        await client.heartbeat(broker, "stays")
        await other.heartbeat(broker, "goes")
        await other.remoting.close()
        told = await client.pushed.get()
        assert told.ext == {"consumerGroup": "g"}
        await until(lambda: broker.members.counts() == (0, 1))

    run(tmp_path, story)


def test_old_java_clients_send_to_the_vip_port_and_can_not_pull_there(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        vip = f"{HOST}:{broker.port - 2}"
        assert (await client.ask(vip, 30, {"topic": "T", "queueId": "0"})).ext == {"offset": "0"}
        assert (await client.ask(vip, PULL, {})).code == 3

    run(tmp_path, story)


def test_without_a_vip_port(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker(properties={"vipPortEnable": "false"})
        with pytest.raises(ConnectFailed):
            await client.ask(f"{HOST}:{broker.port - 2}", 30, {})

    run(tmp_path, story)


def test_an_unknown_request_gets_upstreams_answer_and_keeps_the_connection(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        reply = await client.ask(broker.address, 999_999)
        assert (reply.code, reply.remark) == (3, " request type 999999 not supported")
        assert (await client.ask(broker.address, 10, {"topic": "T"})).code == 1
        assert (await client.send(broker)).code == 0
        assert len(broker.server.connections) == 1

    run(tmp_path, story)


def test_sync_flush_answers_after_the_disk_and_readers_see_nothing_earlier(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker(properties={"flushDiskType": "SYNC_FLUSH"})
        replies = await asyncio.gather(*(client.send(broker, b"m%d" % n) for n in range(50)))
        assert {reply.code for reply in replies} == {0}
        assert broker.store.flushed == broker.store.appended
        await until(lambda: broker.store.dispatched == broker.store.appended)
        assert broker.store.reader.queue_range("T", 0)[1] == 50

    run(tmp_path, story)


def test_a_lonely_sync_master_says_so_at_once(tmp_path: Path) -> None:
    """Not after the timeout: nobody is there who could confirm."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        from tandemq.broker.config import BrokerRole

        broker = await cluster.add_broker(role=BrokerRole.SYNC_MASTER, properties={"slaveTimeout": "60000"})
        reply = await client.send(broker)
        assert reply.code == 11
        assert "no slave" in (reply.remark or "")
        assert reply.ext["msgId"]

    run(tmp_path, story)


def test_administration(tmp_path: Path) -> None:
    """Topics and groups as mqadmin changes them; path-like names never reach the file system."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        topic = {
            "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+tandemq.copies=2",
        }  # fmt: skip
        assert (await client.ask(broker.address, 17, topic)).code == 0
        saved = json.loads((broker.root / "config" / "topics.json").read_text())
        assert saved["topicConfigTable"]["Orders"]["readQueueNums"] == 3
        shown = json.loads(bytes((await client.ask(broker.address, 351, {"topic": "Orders"})).body))
        assert shown["attributes"] == {"tandemq.copies": "2"}
        for name in ("../../evil", "a/b", "TBW102", "x" * 200):
            reply = await client.ask(broker.address, 17, {**topic, "topic": name})
            assert reply.code == 29, name
        assert (await client.ask(broker.address, 215, {"topic": "../config"})).code == 29
        assert (await client.ask(broker.address, 215, {"topic": "Orders"})).code == 0
        assert (await client.ask(broker.address, 351, {"topic": "Orders"})).code == 17

        group = json.dumps({"groupName": "g1", "retryMaxTimes": 2}).encode()
        assert (await client.ask(broker.address, 200, None, group)).code == 0
        shown = json.loads(bytes((await client.ask(broker.address, 352, {"group": "g1"})).body))
        assert shown["retryMaxTimes"] == 2
        assert (await client.ask(broker.address, 207, {"groupName": "g1"})).code == 0
        assert (await client.ask(broker.address, 207, {"groupName": "TOOLS_CONSUMER"})).code == 29

    run(tmp_path, story)


def test_slaves_get_whole_tables_or_pages(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        whole = json.loads(bytes((await client.ask(broker.address, 21)).body))
        names = sorted(whole["topicConfigTable"])
        version = json.dumps(whole["dataVersion"])
        paged: list[str] = []
        while True:
            ext = {"topicSeq": str(len(paged)), "maxTopicNum": "5", "dataVersion": version}
            reply = await client.ask(broker.address, 21, ext)
            page = json.loads(bytes(reply.body))["topicConfigTable"]
            if not page:
                break
            assert reply.ext["totalTopicNum"] == str(len(names))
            paged += page
        assert paged == names
        other = await client.ask(broker.address, 21, {"topicSeq": "5", "dataVersion": '{"counter":99}'})
        assert sorted(json.loads(bytes(other.body))["topicConfigTable"]) == names

    run(tmp_path, story)


def test_a_started_broker_has_what_upstream_has(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker()
        assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster_REPLY_TOPIC", "broker-a"} <= set(broker.topics.all())
        assert "TOOLS_CONSUMER" in broker.groups

    run(tmp_path, story)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_accepted_is_finished_before_the_broker_stops(tmp_path: Path, flush: str) -> None:
    """Every send in flight gets an answer that is true, or none; what was answered OK is there afterwards."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        broker = await cluster.add_broker(properties={"flushDiskType": flush})
        stored: list[int] = []
        refused: list[int] = []

        async def sender(number: int) -> None:
            for turn in range(1000):
                try:
                    reply = await client.send(broker, b"%d-%d" % (number, turn))
                except RemotingError:
                    return
                if reply.code != 0:
                    refused.append(reply.code)
                    return
                stored.append(int(reply.ext["queueOffset"]))

        senders = [asyncio.create_task(sender(number)) for number in range(16)]
        await until(lambda: len(stored) > 200)
        again = await cluster.restart(broker)
        await asyncio.gather(*senders)
        assert len(set(stored)) == len(stored)
        assert set(refused) <= {14}
        low, high = again.store.reader.queue_range("T", 0)
        assert low == 0
        assert set(stored) <= set(range(high))
        assert again.store.recovered is not None
        assert not (broker.root / "config" / "topics.json.tmp").exists()

    run(tmp_path, story)


def test_a_promoted_slave_writes_and_registers_as_master(tmp_path: Path) -> None:
    """What the broker does itself; who may be promoted is replication's to decide."""

    async def story(cluster: LocalCluster, client: Client) -> None:
        from tandemq.broker.config import BrokerRole

        broker = await cluster.add_broker("broker-a", 1)
        assert (await client.send(broker, topic="TBW102")).code == 14
        await broker.change_role(BrokerRole.ASYNC_MASTER, 0)
        broker.allow_writes()
        assert (await client.send(broker)).code == 0

        async def is_master() -> bool:
            reply = await client.ask(cluster.namesrv_address, ROUTE, {"topic": "T"})
            return reply.code == 0 and json.loads(bytes(reply.body))["brokerDatas"][0]["brokerAddrs"] == {
                "0": broker.address
            }

        await until(is_master)
        await broker.change_role(BrokerRole.SLAVE, 1)
        assert (await client.send(broker)).code == 14

    run(tmp_path, story)


ACCOUNTS = """
accounts:
- accessKey: thebroker
  secretKey: secret-of-broker
  admin: true
- accessKey: producer
  secretKey: secret-of-producer
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - T=PUB
"""


def test_with_access_control_the_broker_signs_and_clients_must(tmp_path: Path) -> None:
    """The broker's own account registers it; a client without one is refused, one without permission too."""
    from tandemq.broker.config import BrokerConfig
    from tandemq.namesrv.config import NamesrvConfig
    from tandemq.namesrv.server import NameServer

    async def main() -> None:
        accounts = tmp_path / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        local = RemotingConfig(
            listen_port=0,
            bind_address=HOST,
            acl_enable=True,
            acl_file=str(accounts),
            access_key="thebroker",
            secret_key="secret-of-broker",
        )
        async with NameServer(NamesrvConfig(), local) as server:
            config = BrokerConfig(
                broker_name="broker-a",
                broker_ip1=HOST,
                namesrv_addr=f"{HOST}:{server.remoting.port}",
                store_path_root_dir=str(tmp_path / "store"),
            )
            async with Broker(config, remoting_config=local) as broker:
                assert await broker.registration.wait_registered(10)
                header = SendHeader(
                    producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0,
                    sysFlag=0, bornTimestamp=1, flag=0,
                )  # fmt: skip
                other = SendHeader(
                    producerGroup="pg", topic="U", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0,
                    sysFlag=0, bornTimestamp=1, flag=0,
                )  # fmt: skip
                signed = RemotingConfig(access_key="producer", secret_key="secret-of-producer")
                for remoting, wanted, code in (
                    (RemotingConfig(), header, 16),
                    (signed, header, 0),
                    (signed, other, 16),
                    (RemotingConfig(access_key="producer", secret_key="guessed-wrong"), header, 16),
                ):
                    async with RemotingClient(remoting) as client:
                        command = Command(SEND_V2, send_ext(wanted, short=True), b"x")
                        assert (await client.invoke(broker.address, command, 10)).code == code

    asyncio.run(main())
