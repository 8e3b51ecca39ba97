"""Hostile frames at a running broker and name server: what counts is the frames that were answered.

A frame that ends its connection proves little, and a fuzzer whose frames all do only looks busy. So what is changed are
the values of fields and the bodies, and nearly all frames must be answered, one way or another.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.fuzz import Target, inputs
from tests.security.guarded import send
from tests.security.test_bounded_work import told

from tandemq.broker.broker import Broker
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_request
from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader
from tandemq.remoting.client import RemotingClient
from tandemq.replication.metadata import PairCode
from tandemq.testing.local_cluster import LocalCluster

COUNT = 1500
EXT = {
    "topic": "t", "consumerGroup": "g", "group": "g", "queueId": "0", "queueOffset": "0", "offset": "0", "maxNum": "3",
    "maxMsgNums": "3", "sysFlag": "4", "commitOffset": "0", "subscription": "*", "key": "k", "beginTimestamp": "0",
    "endTimestamp": "9", "brokerName": "b", "clusterName": "c", "brokerAddr": "10.9.9.9:1", "brokerId": "0",
    "timestamp": "1", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "subVersion": "1",
}  # fmt: skip
BODIES = Target(
    lambda data: None,
    [b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}]}', b"{}", b"a=1\n"],
    (b'"', b"{", b"}", b"\\ud800", b"null", b"[", b"]"),
)
VALUES = (
    "", "-1", "0", "1", "2147483648", "-9223372036854775809", "1" * 60, "1e9", "NaN", "null", "true", "%s", "../x",
    "\0", "\x1b[2J", "ü" * 200, "x" * 40_000, "{" * 2000, "*", "a || b", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%g",
)  # fmt: skip


def frames(codes: list[int], seed: int) -> Iterator[bytes]:
    """Requests of every code, in both encodings, with some fields and the body changed."""
    chance = random.Random(seed)
    for body in inputs(BODIES, seed, COUNT):
        ext = dict(EXT)
        for name in chance.sample(sorted(ext), chance.choice((0, 1, 1, 2, 5))):
            ext[name] = chance.choice(VALUES)
        yield encode_request(Command(chance.choice(codes), ext, body, opaque=7), chance.choice((JSON, ROCKETMQ)))


async def answered(address: str, codes: list[int], seed: int) -> int:
    """How many of the frames were answered with a frame; each gets a connection if the last one was closed on it."""
    host, _, port = address.rpartition(":")
    count, link = 0, None
    for data in frames(codes, seed):
        if link is None:
            link = await asyncio.open_connection(host, int(port))
        reader, writer = link
        try:
            writer.write(data + encode_request(Command(99_999, {}, opaque=99)))  # a code that nobody has
            got, wanted = FrameReader(), 0
            while wanted < 1:
                piece = await asyncio.wait_for(reader.read(1 << 16), 30)
                if not piece:
                    raise ConnectionResetError
                replies = got.feed(piece)
                count += sum(b'"opaque":99' not in bytes(header) for _, header, _ in replies)
                wanted += sum(b'"opaque":99' in bytes(header) for _, header, _ in replies)
        except (ConnectionError, BrokenPipeError):
            writer.close()
            link = None
    if link is not None:
        link[1].close()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20, 21])
def test_servers_answer_hostile_frames_and_go_on(tmp_path: Path, seed: int) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        assert (await client.invoke(broker.address, send("t", b"x"), 10)).code == ResponseCode.SUCCESS
        (namesrv,) = cluster.name_servers
        for dispatcher, address in (
            (broker.server.dispatcher, broker.address),
            (namesrv.remoting.dispatcher, cluster.namesrv_address),
        ):
            codes = sorted({**dispatcher.handlers, **dispatcher._send}.keys() - set(PairCode))  # nobody is demoted
            assert await answered(address, codes, seed) > COUNT * 0.9
        assert (await client.invoke(broker.address, send("t", b"y"), 10)).code == ResponseCode.SUCCESS
        await broker.topics_file.saved()

    told(tmp_path, story)
