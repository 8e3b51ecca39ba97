"""Requests to a name server, handler by handler; test_server.py has the same over sockets."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode as Code
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.register import body_crc, encode_registration
from tandemq.errors import MalformedBody, ReplyError
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.namesrv import handlers as module
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.handlers import NamesrvHandlers
from tandemq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from tandemq.namesrv.routes import RouteTable
from tandemq.sim.clock import ManualClock
from tandemq.testing.broker_parts import FakeConnection, decoded

VERSION = DataVersion(0, 100, 1)


class Server:
    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.clock = ManualClock()
        self.routes = RouteTable()
        self.kv = KvConfig(None, 10)
        self.handlers = NamesrvHandlers(config or NamesrvConfig(), self.routes, self.kv, self.clock)
        self.connection: Any = FakeConnection()

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **fields: Any) -> Command:
        async def answered() -> bytes:
            caller = fields.pop("caller", None)
            command = Command(code, ext or {}, body, **fields)
            command.caller = caller
            found: Any = self.handlers.handlers()[code](self.connection, command)
            return await found if inspect.isawaitable(found) else found  # type: ignore[no-any-return]

        [reply] = decoded(asyncio.run(answered()))
        return reply

    def register(self, *topics: str, broker_id: int = 0, name: str = "a", **changes: str) -> Command:
        body = encode_registration([TopicConfig(name=topic) for topic in topics], VERSION)
        ext = {
            "brokerName": name, "brokerAddr": f"10.0.0.{broker_id}:10911", "clusterName": "c",
            "haServerAddr": f"10.0.0.{broker_id}:10912", "brokerId": str(broker_id), "bodyCrc32": str(body_crc(body)),
            "compressed": "false",
        }  # fmt: skip
        return self.ask(Code.REGISTER_BROKER, ext | changes, body)


def test_a_slave_is_told_its_master() -> None:
    server = Server()
    assert server.register("t", "u").ext == {}
    reply = server.register(broker_id=1)
    assert reply.ext == {"haServerAddr": "10.0.0.0:10912", "masterAddr": "10.0.0.0:10911"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"bodyCrc32": "7"}, "crc32 not match"), ({"brokerId": "-1"}, "brokerId=-1")],
)
def test_a_registration_that_makes_no_sense_is_refused(changes: dict[str, str], says: str) -> None:
    server = Server()
    with pytest.raises(ReplyError, match=says):
        server.register("t", "u", **changes)
    with pytest.raises(MalformedBody, match="brokerName"):
        server.ask(Code.REGISTER_BROKER, {"clusterName": "c"}, encode_registration([], VERSION))
    assert server.routes.topics() == []


@pytest.mark.parametrize(
    ("version", "ext", "quoted"),
    [(399, {}, False), (401, {}, True), (399, {"acceptStandardJsonOnly": "true"}, True)],
)
def test_old_clients_get_broker_ids_without_quotes(version: int, ext: dict[str, str], quoted: bool) -> None:
    """Go up to 2.1.1 splits the text by hand."""
    server = Server()
    server.register("t", "u")
    body = bytes(server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t", **ext}, version=version).body)
    assert (b'{"0":"10.0.0.0:10911"}' in body, b'{0:"10.0.0.0:10911"}' in body) == (quoted, not quoted)


def test_a_kept_route_follows_every_change() -> None:
    server = Server(NamesrvConfig(order_message_enable=True))
    server.register("t", "u")

    def route() -> Any:
        return fastjson.loads(bytes(server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).body))

    assert route() == route()
    asyncio.run(server.kv.put(ORDER_TOPIC_CONFIG, "other", "x"))
    server.ask(Code.PUT_KV_CONFIG, {"namespace": ORDER_TOPIC_CONFIG, "key": "t", "value": "a:4"})
    assert route()["orderTopicConf"] == "a:4"
    server.register("t", "u", broker_id=1)
    assert len(route()["brokerDatas"][0]["brokerAddrs"]) == 2
    assert server.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"}).ext == {"wipeTopicCount": "2"}
    assert route()["queueDatas"][0]["perm"] == 4
    server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    with pytest.raises(ReplyError) as refused:
        route()
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_the_cache_of_routes_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTE_CACHE_MAX", 1)
    server = Server()
    server.register("t1", "t2")
    for _ in range(2):
        for topic in ("t1", "t2"):
            server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert len(server.handlers._cache) == 1


def test_a_broker_that_is_heard_of_again_stays() -> None:
    server = Server(NamesrvConfig(broker_timeout_ms=10_000))
    server.register("t", "u")
    server.clock.advance(9)
    server.ask(Code.BROKER_HEARTBEAT, {"clusterName": "c", "brokerAddr": "10.0.0.0:10911"})
    server.clock.advance(9)
    assert server.routes.expire(server.clock.monotonic()) == []
    server.clock.advance(2)
    assert server.routes.expire(server.clock.monotonic())


def test_a_broker_asks_whether_its_table_is_known() -> None:
    server = Server()
    server.register("t", "u")
    ext = {"clusterName": "c", "brokerAddr": "10.0.0.0:10911"}
    for version, changed in ((VERSION, "false"), (DataVersion(0, 100, 2), "true")):
        body = fastjson.dumps({"stateVersion": 0, "timestamp": 100, "counter": version.counter})
        assert server.ask(Code.QUERY_DATA_VERSION, ext, body).ext == {"changed": changed}
    ext["brokerAddr"] = "10.9.9.9:1"
    reply = server.ask(Code.QUERY_DATA_VERSION, ext, fastjson.dumps({}))
    assert (reply.ext, bytes(reply.body)) == ({"changed": "true"}, b"")


def test_a_list_that_is_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIST_SIZE_MAX", 40)
    monkeypatch.setattr(module, "NAMES_PER_TURN", 1)
    server = Server()
    server.register(*(f"topic-{number}" for number in range(6)))
    reply = server.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    names = fastjson.loads(bytes(reply.body))["topicList"]
    assert 0 < len(names) < 6
    assert reply.remark == f"cut: {6 - len(names)} more topics don't fit into one answer"


def test_a_caller_sees_the_topics_it_may_use() -> None:
    server = Server()
    server.register("mine", "theirs")
    caller = SimpleNamespace(is_admin=False, may=lambda need: need.name == "mine")
    reply = server.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, caller=caller)
    assert fastjson.loads(bytes(reply.body)) == {"topicList": ["mine"]}


def test_lists_can_be_switched_off() -> None:
    server = Server(NamesrvConfig(enable_all_topic_list=False, enable_topic_list=False))
    for code, ext in (
        (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}),
        (Code.GET_UNIT_TOPIC_LIST, {}),
        (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
    ):
        with pytest.raises(ReplyError, match="disable"):
            server.ask(code, ext)


def test_values_are_kept_by_namespace() -> None:
    server = Server()
    server.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    assert server.ask(Code.GET_KV_CONFIG, {"namespace": "n", "key": "k"}).ext == {"value": "v"}
    listed = server.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert fastjson.loads(bytes(listed.body)) == {"table": {"k": "v"}}
    server.ask(Code.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"})
    with pytest.raises(ReplyError) as refused:
        server.ask(Code.GET_KV_CONFIG, {"namespace": "n", "key": "k"})
    assert refused.value.code == ResponseCode.QUERY_NOT_FOUND


def test_options_are_changed_all_or_none() -> None:
    server = Server()
    server.ask(Code.UPDATE_NAMESRV_CONFIG, body=b"brokerTimeoutMillis=5000\nenableTopicList=false\n")
    assert (server.handlers.config.broker_timeout_ms, server.handlers.config.enable_topic_list) == (5000, False)
    for body, code in (
        (b"brokerTimeoutMillis=9000\nkvConfigPath=/etc/passwd\n", ResponseCode.NO_PERMISSION),
        (b"enableTopicList=true\nbrokerTimeoutMillis=soon\n", ResponseCode.INVALID_PARAMETER),
        (b"#" * (module.CONFIG_SIZE_MAX + 1), ResponseCode.INVALID_PARAMETER),
    ):
        with pytest.raises(ReplyError) as refused:
            server.ask(Code.UPDATE_NAMESRV_CONFIG, body=body)
        assert refused.value.code == code
    assert (server.handlers.config.broker_timeout_ms, server.handlers.config.enable_topic_list) == (5000, False)
    shown = bytes(server.ask(Code.GET_NAMESRV_CONFIG).body)
    assert b"brokerTimeoutMillis=5000" in shown
    assert b"enableTopicList=false" in shown
