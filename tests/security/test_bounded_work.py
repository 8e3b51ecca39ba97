"""What one request may cost: work and bytes are counted here; milliseconds live in the benchmarks.

Every story was seen to stop a server, or to make it keep what it could never write again.
"""

import asyncio
import json
import socket
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fault.test_pair_reasons import certificate  # noqa: F401
from tests.security.guarded import send

from tandemq.broker.broker import Broker
from tandemq.broker.handlers import admin, locks, pull
from tandemq.broker.sql92 import LENGTH_MAX
from tandemq.codec import bodies, fastjson, heartbeat, register
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.register import encode_registration
from tandemq.errors import BodyTooLarge, MalformedBody, MalformedHeader
from tandemq.formats.compression import decompress
from tandemq.model.message import COMPRESSED
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.namesrv import handlers as namesrv_handlers
from tandemq.remoting import server as remoting_server
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.remoting.server import RemotingServer
from tandemq.testing.local_cluster import LocalCluster

MIB = 1 << 20
HALF = "\\ud800"
"""Half of a UTF-16 pair, as JSON can spell it and UTF-8 can't."""


def told(directory: Path, story: Callable[[LocalCluster, Broker, RemotingClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with LocalCluster(directory) as cluster, RemotingClient(RemotingConfig()) as client:
            await story(cluster, await cluster.add_broker(), client)

    asyncio.run(main())


# --- half of a pair ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [f'{{"a":"{HALF}"}}', f'{{"{HALF}":1}}', f'{{0:"x","a":"{HALF}z"}}', '{"a":"\\udfff"}']
)
def test_half_of_a_pair_is_no_text(body: str) -> None:
    with pytest.raises(MalformedBody, match="half of a pair"):
        fastjson.loads(body.encode())
    assert fastjson.loads(b'{0:"\\ud83d\\ude00"}') == {0: "😀"}


def test_half_of_a_pair_is_no_header_field() -> None:
    from tandemq.codec import header_json

    for place in ('"extFields":{"a":"%s"}', '"extFields":{"%s":"a"}', '"remark":"%s"'):
        text = '{"code":34,"flag":0,"opaque":1,"version":1,%s}' % (place % HALF)
        with pytest.raises(MalformedHeader):
            header_json.decode(text.encode())


def test_a_server_that_was_sent_half_of_a_pair_works_and_saves_on(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        beat = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"g{HALF}"}}],"producerDataSet":[]}}'
        reply = await client.invoke(broker.address, Command(RequestCode.HEART_BEAT, {}, beat.encode()), 10)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "half of a pair" in str(reply.remark)
        good = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": []}]}
        command = Command(RequestCode.HEART_BEAT, {}, json.dumps(good).encode())
        assert (await client.invoke(broker.address, command, 10)).code == ResponseCode.SUCCESS
        group = f'{{"groupName":"a{HALF}"}}'.encode()
        reply = await client.invoke(
            broker.address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group), 10
        )
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (await client.invoke(broker.address, send("after", b"x"), 10)).code == ResponseCode.SUCCESS
        await broker.topics_file.saved()

    told(tmp_path, story)


# --- parsers ----------------------------------------------------------------------------------------------------------


def test_a_large_body_in_fastjsons_dialect_is_not_read_character_by_character(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    value = fastjson._value

    def counted(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        return value(*given)

    monkeypatch.setattr(fastjson, "_value", counted)
    large = b"{a:[" + b"1," * bodies.TOLERANT_SIZE_MAX + b"1]}"
    with pytest.raises(MalformedBody, match="no strict JSON"):
        bodies.load_request(large, "request")
    assert steps == 0
    assert bodies.load_request(b"{a:[1,2]}", "request") == {"a": [1, 2]}
    assert steps == 4
    assert bodies.load_request(b'{"a":[' + b"1," * bodies.TOLERANT_SIZE_MAX + b"1]}", "request")["a"][-1] == 1


def test_a_heartbeat_has_a_bound_in_bytes() -> None:
    body = b'{"clientID":"' + b"x" * heartbeat.HEARTBEAT_SIZE_MAX + b'"}'
    with pytest.raises(MalformedBody, match=f"the limit is {heartbeat.HEARTBEAT_SIZE_MAX}"):
        heartbeat.decode_heartbeat(body)


def compressed_registration(count: int) -> bytes:
    topics = [b"topic-%d 4 4 6 SINGLE_TAG {}" % number for number in range(count)]
    parts = [struct.pack(">i", 2) + b"{}" + struct.pack(">i", count)]
    parts += [struct.pack(">i", len(topic)) + topic for topic in topics]
    return zlib.compress(b"".join(parts) + struct.pack(">i", 2) + b"[]", 9)


def test_a_registration_inflates_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zlib.compress(bytes(register.INFLATED_SIZE_MAX + 1), 9)
    assert len(bomb) < 32 << 10
    tracemalloc.start()
    with pytest.raises(MalformedBody, match="inflates beyond"):
        register.decode_registration(bomb, compressed=True, peer_version=407)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 32 * MIB + register.INFLATED_SIZE_MAX


@pytest.mark.parametrize(
    ("body", "beside"),
    [
        (encode_registration([TopicConfig(name="one"), TopicConfig(name="two")], DataVersion()), False),
        (encode_registration([TopicConfig(name=f"t{n}") for n in range(200)], DataVersion()), True),
        (compressed_registration(10), True),
        (compressed_registration(20_000), True),
    ],
    ids=["small", "large", "compressed", "compressed and large"],
)
def test_a_large_registration_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, beside: bool
) -> None:
    threads: list[bool] = []
    decode = namesrv_handlers.decode_registration

    def watched(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return decode(*given, **named)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        monkeypatch.setattr(namesrv_handlers, "decode_registration", watched)
        ext = {
            "brokerName": "big", "brokerAddr": "10.0.0.9:10911", "clusterName": "c", "haServerAddr": "10.0.0.9:10912",
            "brokerId": "0", "compressed": "false" if body[:1] == b"{" else "true", "bodyCrc32": "0",
        }  # fmt: skip
        command = Command(RequestCode.REGISTER_BROKER, ext, body)
        reply = await client.invoke(cluster.namesrv_address, command, 30)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        assert beside in threads

    told(tmp_path, story)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_compressed_batch_grows_no_larger_than_a_message_may_be(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        command = send("t", zlib.compress(bytes(48 * MIB), 1))
        command.code = RequestCode.SEND_BATCH_MESSAGE
        command.ext = {**command.ext, "f": str(COMPRESSED), "m": "true"}  # sysFlag, batch
        assert (await client.invoke(broker.address, send("t", b"x"), 10)).code == ResponseCode.SUCCESS
        tracemalloc.start()
        reply = await client.invoke(broker.address, command, 30)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert reply.code != ResponseCode.SUCCESS
        assert "grows beyond the limit" in str(reply.remark)
        assert peak < 32 * MIB

    told(tmp_path, story)


def test_a_compressed_body_costs_what_it_may_hold_and_not_what_it_claims() -> None:
    bomb = zlib.compress(bytes(48 * MIB), 1)
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decompress(bomb, COMPRESSED, size_max=4 * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * MIB


def test_a_pull_evaluates_so_much_sql_and_no_more() -> None:
    for expression in ("a = 1", "a = 1 OR " * 100, "x" * LENGTH_MAX):
        count = pull.sql_count_max(expression)
        assert count >= 8
        assert count * len(expression) <= max(pull.SQL_WORK_MAX, 8 * LENGTH_MAX)
    assert pull.sql_count_max("a = 1") >= 1000


# --- tables -----------------------------------------------------------------------------------------------------------


def test_statistics_of_many_groups_let_others_have_their_turn(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        count = 10 * admin.GROUPS_PER_TURN
        for number in range(count):
            assert broker.groups.find_or_create(f"g{number}") is not None
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        handler = broker.server.dispatcher.handlers[RequestCode.GET_BROKER_CONSUME_STATS]
        task = asyncio.create_task(others())
        before = turns
        reply: Any = handler(None, Command(RequestCode.GET_BROKER_CONSUME_STATS, {}))  # type: ignore[arg-type]
        encoded = await reply
        task.cancel()
        assert turns - before >= 9
        assert b'"consumeStatsList":[{"' in encoded
        answer = await client.invoke(broker.address, Command(RequestCode.GET_BROKER_CONSUME_STATS, {}), 30)
        listed = fastjson.loads(answer.body)["consumeStatsList"]
        assert {f"g{number}" for number in range(count)} <= {name for one in listed for name in one}

    told(tmp_path, story)


@pytest.mark.parametrize(
    "request_body",
    [
        {"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t" * 600, "brokerName": "b", "queueId": 0}]},
        {"consumerGroup": "g" * 600, "clientId": "c", "mqSet": []},
        {"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 0}] * 10_001},
    ],
)
def test_locks_have_short_names_and_are_asked_for_in_moderate_numbers(
    tmp_path: Path, request_body: dict[str, Any]
) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        command = Command(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(request_body).encode())
        reply = await client.invoke(broker.address, command, 10)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "the limit is" in str(reply.remark)
        assert len(broker.locks) == 0
        assert locks.QUEUES_MAX == 10_000

    told(tmp_path, story)


# --- sockets ----------------------------------------------------------------------------------------------------------


def test_silent_sockets_at_a_permissive_port_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
    certificate: dict[str, str],  # noqa: F811
) -> None:
    monkeypatch.setattr(remoting_server, "CHOOSING_MAX", 16)

    async def main() -> None:
        config = RemotingConfig(bind_address="127.0.0.1", tls_mode=TlsMode.PERMISSIVE, **certificate)
        server = RemotingServer(config, {})
        port = await server.listen(0)
        silent = []
        for _ in range(64):
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            await asyncio.sleep(0)
        async with RemotingClient(RemotingConfig()) as client:
            reply = await client.invoke(f"127.0.0.1:{port}", Command(9999, {}), 10)
            assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert len(server._choosing) <= 16
        for one in silent:
            one.close()
        await server.stop()

    asyncio.run(main())
