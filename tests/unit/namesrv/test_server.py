"""A whole name server over real sockets: what clients, brokers and operators see."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode as Code
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.register import body_crc, encode_registration
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.waiting import until

TOPICS = [TopicConfig(name="t1"), TopicConfig(name="t2")]
VERSION = DataVersion(0, 100, 1)
Ask = Callable[..., Awaitable[Command]]
REMOTING = RemotingConfig(listen_port=0, bind_address="127.0.0.1")


def serve(story: Callable[[NameServer, Ask, str], Awaitable[None]], config: NamesrvConfig | None = None) -> None:
    async def whole() -> None:
        async with NameServer(config or NamesrvConfig(), REMOTING) as server, RemotingClient(REMOTING) as client:
            address = f"127.0.0.1:{server.remoting.port}"

            async def ask(
                code: int, ext: dict[str, str] | None = None, body: bytes = b"", version: int = 407
            ) -> Command:
                return await client.invoke(address, Command(code, ext or {}, body, version=version), 5.0)

            await story(server, ask, address)

    asyncio.run(whole())


def registration(broker_id: int = 0, **changes: str) -> dict[str, str]:
    address = f"10.0.0.{broker_id}:10911"
    return {
        "brokerName": "a",
        "brokerAddr": address,
        "clusterName": "c",
        "haServerAddr": address[:-5] + "10912",
        "brokerId": str(broker_id),
        **changes,
    }


async def register(ask: Ask, broker_id: int = 0, **changes: str) -> Command:
    body = encode_registration(TOPICS, VERSION)
    ext = registration(broker_id, bodyCrc32=str(body_crc(body)), compressed="false", **changes)
    return await ask(Code.REGISTER_BROKER, ext, body)


def test_register_look_up_unregister() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        assert (await register(ask)).ext == {}
        slave = await register(ask, 1)
        assert slave.ext == {"haServerAddr": "10.0.0.0:10912", "masterAddr": "10.0.0.0:10911"}
        quoted = bytes((await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})).body)
        assert b'"brokerAddrs":{"0":"10.0.0.0:10911","1":"10.0.0.1:10911"}' in quoted
        old = bytes((await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"}, version=400)).body)
        assert b'"brokerAddrs":{0:"10.0.0.0:10911",1:"10.0.0.1:10911"}' in old
        standard = {"topic": "t1", "acceptStandardJsonOnly": "true"}
        assert bytes((await ask(Code.GET_ROUTEINFO_BY_TOPIC, standard, version=63)).body) == quoted
        assert (await ask(Code.UNREGISTER_BROKER, registration(0))).code == 0
        route = bodies.topic_route_of(fastjson.loads((await ask(105, {"topic": "t1"})).body))
        assert route.groups[0].addresses == {1: "10.0.0.1:10911"}
        assert (await ask(Code.UNREGISTER_BROKER, registration(1))).code == 0
        gone = await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST
        assert "No topic route info in name server for the topic: t1" in (gone.remark or "")

    serve(story)


def test_lists_and_cluster_info() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        await register(ask)
        info = await ask(Code.GET_BROKER_CLUSTER_INFO)
        assert b'"brokerAddrs":{0:"10.0.0.0:10911"}' in bytes(info.body)
        assert bodies.cluster_info_of(fastjson.loads(info.body))[1] == {"c": ("a",)}
        for code, ext, expected in (
            (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, ["t1", "t2"]),
            (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}, ["t1", "t2"]),
            (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}, ["c", "a"]),
            (Code.GET_UNIT_TOPIC_LIST, {}, []),
        ):
            assert fastjson.loads((await ask(code, ext)).body)["topicList"] == expected
        members = await ask(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "c", "brokerName": "a"})
        assert bytes(members.body) == (
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.0:10911"},"brokerName":"a","cluster":"c"}}'
        )
        assert (await ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})).ext == {"wipeTopicCount": "2"}
        assert (await ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"})).ext == {"addTopicCount": "2"}
        assert (await ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "t1"})).code == 0
        assert (await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})).code == 17
        again = b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
        assert (await ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "t1"}, again)).code == 0
        assert (await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})).code == 0

    serve(story)


def test_data_version_query_and_heartbeat() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        same = fastjson.dumps(bodies.data_version_json(VERSION))
        unknown = await ask(Code.QUERY_DATA_VERSION, registration(), same)
        assert (unknown.ext, bytes(unknown.body)) == ({"changed": "true"}, b"")
        await register(ask)
        known = await ask(Code.QUERY_DATA_VERSION, registration(), same)
        assert (known.ext, fastjson.loads(known.body)["counter"]) == ({"changed": "false"}, 1)
        other = fastjson.dumps(bodies.data_version_json(DataVersion(0, 100, 2)))
        assert (await ask(Code.QUERY_DATA_VERSION, registration(), other)).ext == {"changed": "true"}
        assert (await ask(Code.BROKER_HEARTBEAT, registration())).code == 0

    serve(story)


def test_a_dropped_connection_removes_its_broker_at_once() -> None:
    async def story(server: NameServer, ask: Ask, address: str) -> None:
        async with RemotingClient(REMOTING) as other:
            body = encode_registration(TOPICS, VERSION)
            await other.invoke(address, Command(Code.REGISTER_BROKER, registration(), body), 5.0)
            assert (await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})).code == 0
        await until(lambda: not server.routes.live())
        assert (await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})).code == 17

    serve(story)


def test_a_silent_broker_expires_by_itself() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        await register(ask, heartbeatTimeoutMillis="30")
        await until(lambda: not server.routes.live())

    serve(story)


def test_key_values_and_order_topics(tmp_path: Path) -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t1", "value": "a:4"}
        assert (await ask(Code.PUT_KV_CONFIG, put)).code == 0
        assert (await ask(Code.GET_KV_CONFIG, put)).ext == {"value": "a:4"}
        answer = await register(ask)
        assert fastjson.loads(answer.body) == {"table": {"t1": "a:4"}}
        route = await ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t1"})
        assert fastjson.loads(route.body)["orderTopicConf"] == "a:4"
        assert fastjson.loads((await ask(219, {"namespace": "ORDER_TOPIC_CONFIG"})).body) == {"table": {"t1": "a:4"}}
        assert (await ask(Code.DELETE_KV_CONFIG, put)).code == 0
        assert "orderTopicConf" not in fastjson.loads((await ask(105, {"topic": "t1"})).body)
        missing = await ask(Code.GET_KV_CONFIG, put)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: t1")
        assert (await ask(219, {"namespace": "nope"})).code == 22
        assert (await ask(Code.PUT_KV_CONFIG, {"namespace": "x"})).code == 1

    config = NamesrvConfig(kv_config_path=str(tmp_path / "kvConfig.json"), order_message_enable=True)
    serve(story, config)


def test_only_tunables_change_at_run_time(tmp_path: Path) -> None:
    """CVE-2023-37582: a path set at run time and then written to. Nothing of a mixed request sticks."""
    before = str(tmp_path / "kvConfig.json")

    async def story(server: NameServer, ask: Ask, _: str) -> None:
        ok = await ask(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\nbrokerTimeoutMillis=5000\n")
        assert ok.code == 0
        assert (server.handlers.config.order_message_enable, server.handlers.config.broker_timeout_ms) == (True, 5000)
        for body in (
            b"kvConfigPath=/tmp/evil",
            b"configStorePath=/etc/cron.d/evil\nproductEnvName=test\\nkey",
            b"configStorePathName=x",
            b"rocketmqHome=/tmp",
            b"orderMessageEnable=false\nkvConfigPath=/tmp/evil",
            b"metricsAddress=0.0.0.0",
            b"listenPort=1",
            b"kv\\u0043onfigPath=/tmp/evil",
        ):
            assert (await ask(Code.UPDATE_NAMESRV_CONFIG, body=body)).code == ResponseCode.NO_PERMISSION, body
        assert (await ask(Code.UPDATE_NAMESRV_CONFIG, body=b"brokerTimeoutMillis=1")).code == 29
        assert (await ask(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=maybe")).code == 29
        assert server.handlers.config.order_message_enable is True
        assert server.handlers.config.kv_config_path == before
        shown = bytes((await ask(Code.GET_NAMESRV_CONFIG)).body).decode()
        assert "orderMessageEnable=true\n" in shown

    serve(story, NamesrvConfig(kv_config_path=before))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (103, {}, b"{}"),
        (103, registration(brokerId="x"), b"{}"),
        (103, registration(-1), encode_registration(TOPICS, VERSION)),
        (103, registration(bodyCrc32="1"), b"{}"),
        (103, registration(), b"not json"),
        (103, registration(compressed="true"), b"not zlib"),
        (103, registration(), b'{"topicConfigSerializeWrapper":[]}'),
        (103, registration(), b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":"x"}}}}'),
        (105, {}, b""),
        (322, registration(), b"[1]"),
        (217, {"topic": "t"}, b'{"queueDatas":{}}'),
        (318, {}, b"\xff\xfe"),
    ],
)
def test_bad_requests_are_answered_and_change_nothing(code: int, ext: dict[str, str], body: bytes) -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        answer = await ask(code, ext, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert server.routes.groups() == []

    serve(story)


def test_topic_lists_can_be_switched_off() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        assert (await ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).remark == "disable"
        assert (await ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})).remark == "disable"

    serve(story, NamesrvConfig(enable_all_topic_list=False, enable_topic_list=False))


def test_members_hear_of_a_new_lowest_id() -> None:
    async def story(server: NameServer, ask: Ask, address: str) -> None:
        heard: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        def told(_: object, command: Command) -> None:
            heard.put_nowait(command.ext)

        async with RemotingClient(REMOTING, {Code.NOTIFY_MIN_BROKER_ID_CHANGE: told}) as slave:
            body = encode_registration(TOPICS, VERSION)
            await register(ask)
            await slave.invoke(address, Command(Code.REGISTER_BROKER, registration(1), body), 5.0)
            await ask(Code.UNREGISTER_BROKER, registration(0))
            notice = await asyncio.wait_for(heard.get(), 5)
        assert (notice["minBrokerId"], notice["offlineBrokerAddr"]) == ("1", "10.0.0.0:10911")

    serve(story, NamesrvConfig(notify_min_broker_id_changed=True))


def test_metrics_endpoint() -> None:
    async def story(server: NameServer, ask: Ask, _: str) -> None:
        await register(ask)
        port = await server.metrics.start("127.0.0.1", 0)

        async def get(path: str, method: str = "GET") -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return answer.decode()

        metrics = await get("/metrics")
        assert "\ntandemq_namesrv_brokers 1\n" in metrics
        assert "\ntandemq_namesrv_requests_total 1\n" in metrics
        assert (await get("/health")).endswith("ok\n")
        assert "404" in await get("/")
        assert "405" in await get("/metrics", "POST")

    serve(story)
