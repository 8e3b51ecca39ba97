"""Hostile bytes for every parser that faces the network: a refusal of ours, never a crash, and no memory kept.

Inputs are real ones, damaged: bits flipped, cut, spliced, repeated, sizes overwritten, types swapped, or plain noise.
The seed is in the test's id and in the failure message; the same seed gives the same inputs.
"""

import asyncio
import struct
import zlib
from collections.abc import Callable

import pytest
from tests.fault.hostile import damaged, resident

from tandemq.clock import SystemClock
from tandemq.codec import fastjson, header_binary, header_json
from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, decode_heartbeat, encode_heartbeat
from tandemq.codec.properties import properties_of
from tandemq.codec.register import decode_registration, encode_registration
from tandemq.codec.send_header import SendHeader, decode_send, send_ext
from tandemq.errors import CodecError, ConfigError, TandemError
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.handlers import NamesrvHandlers
from tandemq.namesrv.kv_config import KvConfig
from tandemq.namesrv.routes import RouteTable
from tandemq.remoting.access.plain import parse_yaml
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import RequestDispatcher, default_on_error
from tandemq.remoting.server import RemotingServer

COUNT = 100_000
GROWTH_MAX = 64 * 1024 * 1024

SEND = SendHeader(
    producerGroup="g", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=1, sysFlag=0,
    bornTimestamp=1_700_000_000_000, flag=0, properties="UNIQ_KEY\x01ABCD\x02TAGS\x01ü\x02",
)  # fmt: skip
HEARTBEAT = encode_heartbeat(
    Heartbeat(
        client_id="c@1",
        producer_groups=("p",),
        consumers=(ConsumerGroupInfo(group="g", subscriptions=(Subscription(topic="t", expression="A||B"),)),),
    )
)
TOPICS = [TopicConfig(name=f"topic-{n}") for n in range(3)]
REGISTRATION = encode_registration(TOPICS, DataVersion(0, 1, 2))
COMPRESSED = zlib.compress(
    struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 21) + b"t 4 4 6 SINGLE_TAG {}" + struct.pack(">i", 2) + b"[]"
)
QUEUE_TABLE = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"minOffset":0,"maxOffset":9}},0:[1,2.5,null]}'
)


def header_of(code: int, ext: dict[str, str], encoding: int) -> bytes:
    return FrameReader().feed(encode_request(Command(code, ext, opaque=9, remark="r"), encoding))[0][1]


def registering() -> dict[str, str]:
    return {
        "brokerName": "a", "brokerAddr": "1.2.3.4:10911", "clusterName": "c", "haServerAddr": "1.2.3.4:10912",
        "brokerId": "0", "compressed": "false", "bodyCrc32": "0",
    }  # fmt: skip


def feed_frames(data: bytes) -> None:
    reader = FrameReader()
    for frame in reader.feed(data):
        decode_command(frame)
    if reader.error is not None:
        raise reader.error


PARSERS: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
    "frames": (
        feed_frames,
        [
            encode_request(Command(310, send_ext(SEND, short=True), b"body"), encoding) * 2
            for encoding in (JSON, ROCKETMQ)
        ],
    ),
    "JSON header": (header_json.decode, [header_of(103, registering(), JSON)]),
    "binary header": (header_binary.decode, [header_of(103, registering(), ROCKETMQ)]),
    "send header": (lambda data: decode_send(data, 310), [header_of(310, send_ext(SEND, short=True), JSON)]),
    "long send header": (lambda data: decode_send(data, 10), [header_of(10, send_ext(SEND, short=False), JSON)]),
    "fastjson": (fastjson.loads, [QUEUE_TABLE, b'{"a":{0:"x",1:"y"}}', HEARTBEAT]),
    "heartbeat": (decode_heartbeat, [HEARTBEAT]),
    "registration": (lambda data: decode_registration(data, compressed=False, peer_version=407), [REGISTRATION]),
    "compressed registration": (
        lambda data: decode_registration(data, compressed=True, peer_version=407),
        [COMPRESSED],
    ),
    "inflated registration": (
        lambda data: decode_registration(zlib.compress(data, 1), compressed=True, peer_version=407),
        [zlib.decompress(COMPRESSED)],
    ),
    "properties": (properties_of, [b"a=b\n# c\nd : e\\\n  f\nu=\\u00e4\n"]),
    "access file": (
        lambda data: parse_yaml(data.decode("utf-8", "replace"), "acl.yml"),
        [b"accounts:\n  - accessKey: RocketMQ\n    secretKey: '123'\n    topicPerms:\n    - a=PUB\n"],
    ),
}


def attack(name: str, seed: int, count: int) -> None:
    parse, originals = PARSERS[name]
    for original in originals:
        parse(original)
    before = resident()
    for data in damaged(seed, originals, count):
        try:
            parse(data)
        except (CodecError, ConfigError):
            pass
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {type(error).__name__} for {data[:400]!r}") from error
    assert resident() - before < GROWTH_MAX


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_inputs(name: str) -> None:
    attack(name, seed=1, count=2_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_damaged_inputs_in_large_numbers(name: str) -> None:
    attack(name, seed=2, count=COUNT)


def valid_requests() -> list[bytes]:
    """One of every kind a name server answers, with fields that some of them need."""
    ext = {**registering(), "topic": "t", "namespace": "n", "key": "k", "value": "v", "cluster": "c"}
    routes = NamesrvHandlers(NamesrvConfig(), RouteTable(), KvConfig(None, 10), SystemClock()).handlers()
    route = b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
    found = []
    for code in routes:
        for body in (REGISTRATION, route, b"orderMessageEnable=true", b""):
            found.append(encode_request(Command(code, ext, body)))
            found.append(encode_request(Command(code, ext, body), ROCKETMQ))
    return found


class Deaf:
    """A transport that forgets what is written."""

    def __init__(self) -> None:
        self.closed = False

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...
    def write(self, data: bytes) -> None: ...
    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def attack_namesrv(seed: int, count: int) -> None:
    """Every request of a name server, damaged: an answer or a closed connection, and only our own exceptions."""
    surprises: list[str] = []

    def on_error(error: Exception) -> tuple[int, str]:
        if not isinstance(error, TandemError):
            surprises.append(repr(error))
        return default_on_error(error)

    async def story() -> None:
        handlers = NamesrvHandlers(
            NamesrvConfig(), RouteTable(brokers_max=50, routes_max=1000), KvConfig(None, 100), SystemClock()
        )
        dispatcher = RequestDispatcher(handlers.handlers(), on_error=on_error)
        before = resident()
        connection = None
        for data in damaged(seed, valid_requests(), count):
            if connection is None or not connection.is_open:
                connection = Connection(RemotingConfig(), dispatcher)
                connection.connection_made(Deaf())  # type: ignore[arg-type]
            connection.data_received(data)
            if connection._reader.pending_size:  # a cut frame would swallow the following ones
                connection.abort("half a frame")
        assert resident() - before < GROWTH_MAX
        assert len(handlers.routes.live()) <= 50

    asyncio.run(story())
    assert surprises == [], f"seed {seed}"


def test_damaged_requests_to_a_name_server() -> None:
    attack_namesrv(seed=1, count=3_000)


@pytest.mark.slow
def test_damaged_requests_to_a_name_server_in_large_numbers() -> None:
    attack_namesrv(seed=2, count=COUNT)


@pytest.mark.parametrize("seed", [1])
def test_a_server_survives_hostile_connections(seed: int) -> None:
    """Over sockets: 300 connections of noise, half frames and lies; the next honest client is served."""

    async def story() -> None:
        config = RemotingConfig(listen_port=0, bind_address="127.0.0.1", connections_max=100)
        async with RemotingServer(config, {1: lambda c, m: Command(0)}) as server:
            before = resident()
            honest = encode_request(Command(1, {"a": "b"}, b"x" * 1000))
            lie = struct.pack(">II", 16 * 1024 * 1024 - 4, 200_000)
            for number, data in enumerate(damaged(seed, [honest * 3, lie + b"{" * 1000], 300)):
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.write(data)
                    await writer.drain()
                except ConnectionError:
                    continue
                if number % 3:
                    writer.transport.abort()
                else:
                    writer.close()
            async with RemotingClient(config) as client, asyncio.timeout(20):
                answer = await client.invoke(f"127.0.0.1:{server.port}", Command(1), 10.0)
            assert answer.code == 0
            assert resident() - before < GROWTH_MAX

    asyncio.run(story())
