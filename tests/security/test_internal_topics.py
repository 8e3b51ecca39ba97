"""What brokers keep for themselves is written and read by the requests made for it, and by no others."""

import asyncio
from pathlib import Path

import pytest
from tests.security.guarded import Guarded, run

from tandemq.codec.codes import RequestCode as Code
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.local_cluster import LocalCluster

INTERNAL = [
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster", "DefaultCluster_REPLY_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
]  # fmt: skip


def header(topic: str) -> SendHeader:
    return SendHeader(
        producerGroup="p", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0,
    )  # fmt: skip


@pytest.mark.parametrize("controlled", [True, False])
def test_nobody_writes_to_them(tmp_path: Path, controlled: bool) -> None:
    """Not even an administrator, and not without access control either: a forged record would be believed."""

    async def refused(client: RemotingClient, address: str) -> None:
        for topic in INTERNAL:
            for code, short in (
                (Code.SEND_MESSAGE, False),
                (Code.SEND_MESSAGE_V2, True),
                (Code.SEND_BATCH_MESSAGE, True),
            ):
                answer = await client.invoke(address, Command(code, send_ext(header(topic), short=short), b"x"), 10)
                assert (topic, answer.code) == (topic, 16)
            if not topic.endswith("_REPLY_TOPIC"):
                reply = Command(Code.SEND_REPLY_MESSAGE, send_ext(header(topic), short=False), b"x")
                assert (await client.invoke(address, reply, 10)).code == 16

    async def with_accounts(guarded: Guarded) -> None:
        for account in ("generous", "operator"):
            await refused(guarded.client(account), guarded.broker.address)

    async def without() -> None:
        async with LocalCluster(tmp_path) as cluster, RemotingClient(RemotingConfig()) as client:
            await refused(client, (await cluster.add_broker()).address)

    if controlled:
        run(tmp_path, with_accounts)
    else:
        asyncio.run(without())


def test_only_administrators_read_them(tmp_path: Path) -> None:
    """An account that may read every topic may not read these."""

    async def story(guarded: Guarded) -> None:
        for topic in INTERNAL[:-1]:
            ext = {
                "topic": topic, "consumerGroup": "g", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
                "sysFlag": "4", "subscription": "*", "key": "k", "maxNum": "1", "beginTimestamp": "0",
                "endTimestamp": "1",
            }  # fmt: skip
            for code in (Code.PULL_MESSAGE, Code.QUERY_MESSAGE, Code.GET_MAX_OFFSET, Code.GET_TOPIC_STATS_INFO):
                assert (topic, (await guarded.ask("generous", code, ext)).code) == (topic, 16)
            assert (await guarded.ask("operator", Code.GET_MAX_OFFSET, ext)).code == 0

    run(tmp_path, story)


def test_they_are_neither_made_nor_deleted_by_hand(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        for topic in (*INTERNAL, "rmq_sys_anything"):
            ext = {"topic": topic, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
            for code in (Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER):
                assert (topic, (await guarded.ask("operator", code, ext)).code) == (topic, 29)

    run(tmp_path, story)


def test_traces_are_added_by_producers_and_read_by_those_who_are_named(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        trace = "RMQ_SYS_TRACE_TOPIC"
        assert (await guarded.send("generous", trace)).code == 0
        assert (await guarded.ask("generous", Code.GET_MAX_OFFSET, {"topic": trace, "queueId": "0"})).code == 16
        assert (await guarded.ask("operator", Code.GET_MAX_OFFSET, {"topic": trace, "queueId": "0"})).code == 0

    run(tmp_path, story, traceTopicEnable="true")
