"""Every request of a broker, damaged, over sockets: an answer or a closed connection, our own exceptions, no memory.

Fields are those of all requests together with plausible values, then bent: wrong types, huge numbers, paths as names.
"""

import asyncio
import random
from pathlib import Path

import pytest
from tests.fault.hostile import damaged, resident

from tandemq.broker.broker import Broker
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, encode_request
from tandemq.codec.frame import JSON, ROCKETMQ
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.codec.send_header import SHORT_CODES, SHORT_NAMES
from tandemq.errors import TandemError
from tandemq.testing.local_cluster import HOST, LocalCluster

COUNT = 100_000
GROWTH_MAX = 192 * 1024 * 1024
"""Segments of the store are mapped: what the broker stored on the way counts as resident."""

FIELDS = {
    "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "UNIQ_KEY\x01A\x02", "reconsumeTimes": "0",
    "unitMode": "false", "batch": "false", "consumerGroup": "g", "queueOffset": "0", "maxMsgNums": "32",
    "commitOffset": "0", "suspendTimeoutMillis": "10", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    "timestamp": "0", "offset": "0", "clientID": "c", "clientId": "c", "group": "g", "groupName": "g",
    "delayLevel": "1", "originMsgId": "x", "originTopic": "T", "tranStateTableOffset": "0", "commitLogOffset": "0",
    "commitOrRollback": "8", "msgId": "A", "transactionId": "A", "key": "k", "maxNum": "10", "beginTimestamp": "0",
    "endTimestamp": "99",
    "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    "isForce": "true", "statsName": "TOPIC_PUT_NUMS", "statsKey": "T", "index": "0", "count": "5", "srcGroup": "g",
    "destGroup": "h", "isOffline": "false", "masterHaAddress": "", "attributes": "",
}  # fmt: skip
BENT = [
    "", "-1", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1e9", "NaN", "true",
    "../../etc/x", "/etc/passwd", "a" * 300, "%RETRY%", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "T\x00", "ü" * 200,
    "{}", "null", "T;rm -rf", "0x10",
]  # fmt: skip
HEARTBEAT = encode_heartbeat(
    Heartbeat(
        client_id="c",
        producer_groups=("pg",),
        consumers=(ConsumerGroupInfo(group="g", subscriptions=(Subscription(topic="T", expression="A||B"),)),),
    )
)
BODIES = [
    b"", b"hello", HEARTBEAT,
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}',
    b'{"topicName":"T2","perm":6,"readQueueNums":1,"writeQueueNums":1}', b'{"groupName":"g","retryQueueNums":1}',
    b"brokerPermission=6\n", b"storePathRootDir=/tmp/evil\nfilterServerNums=1\n", b"\x00\x00\x00\x1a" + bytes(22),
]  # fmt: skip
UNTOUCHED = {
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
}
"""Brokers' own requests, tested with the pair."""


def requests(chance: random.Random, count: int) -> list[bytes]:
    """Well-framed requests with one to three bent fields."""
    codes = [int(code) for code in RequestCode if code not in UNTOUCHED] + [0, -1, 99999]
    made = []
    for _ in range(count):
        code = chance.choice(codes)
        ext = dict(FIELDS)
        for name in chance.sample(sorted(ext), chance.randrange(4)):
            ext[name] = chance.choice(BENT)
        for name in chance.sample(sorted(ext), chance.randrange(3)):
            del ext[name]
        if code in SHORT_CODES:
            ext = {SHORT_NAMES[name]: value for name, value in ext.items() if name in SHORT_NAMES}
        encoding = JSON if code > 32767 or chance.random() < 0.7 else ROCKETMQ
        made.append(encode_request(Command(code, ext, chance.choice(BODIES), opaque=chance.randrange(100)), encoding))
    return made


async def attack(broker: Broker, seed: int, count: int) -> list[str]:
    """Sends them over connections that are replaced when the broker closes one; the surprises it had."""
    surprises: list[str] = []
    mapped = broker.server.dispatcher._on_error

    def on_error(error: Exception) -> tuple[int, str]:
        if not isinstance(error, (TandemError, ValueError)):
            surprises.append(repr(error))
        return mapped(error)

    broker.server.dispatcher._on_error = on_error
    chance = random.Random(seed)
    sent = 0
    while sent < count:
        well_framed = requests(chance, 50)
        broken = list(damaged(chance.randrange(2**32), well_framed, 5))
        try:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(b"".join(well_framed + broken))
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            pass
        writer.close()
        sent += 55
    return surprises


def run(tmp_path: Path, seed: int, count: int) -> None:
    async def story() -> None:
        async with LocalCluster(tmp_path / "cluster") as cluster:
            broker = await cluster.add_broker()
            await attack(broker, seed + 1000, 500)
            before = resident()
            surprises = await attack(broker, seed, count)
            assert sorted(set(surprises)) == [], f"seed {seed}"
            assert broker.server.status().requests > count * 0.8
            assert resident() - before < GROWTH_MAX

    asyncio.run(story())
    outside = [path for path in tmp_path.rglob("*") if path.name in ("passwd", "evil", "x")]
    assert outside == []


@pytest.mark.timeout(120)
def test_hostile_requests(tmp_path: Path) -> None:
    run(tmp_path, seed=1, count=2_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hostile_requests_in_large_numbers(tmp_path: Path) -> None:
    run(tmp_path, seed=2, count=COUNT)
