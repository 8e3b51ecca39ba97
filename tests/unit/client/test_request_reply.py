"""Requests and replies over messages."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, record

from tandemq.client.message import decode_messages
from tandemq.client.producer import Producer
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, RequestTimeout
from tandemq.model.message import Message, decode_properties
from tandemq.testing.waiting import until

QUESTION = Message(topic="T", body=b"2 + 2", tags="sum", properties={"own": "kept"})


def sent(cluster: FakeCluster) -> dict[str, str]:
    command = next(c for c in reversed(cluster.commands) if c.code == RequestCode.SEND_MESSAGE_V2)
    return decode_properties(command.ext["i"].encode())


def pushed(correlation: str, body: bytes) -> Command:
    ext = {
        "topic": "c_REPLY_TOPIC",
        "producerGroup": "p",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": f"CORRELATION_ID\x01{correlation}\x02",
        "reconsumeTimes": "0",
        "storeTimestamp": "2",
    }
    return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body)


@on_loop
async def test_a_request_gets_the_reply_with_its_correlation() -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session()) as producer:
        asking = asyncio.get_running_loop().create_task(producer.request(QUESTION, timeout_ms=5000))
        await until(lambda: bool(cluster.sent), "the request")
        assert cluster.count(RequestCode.HEART_BEAT) >= 1, "the broker must know whom to push the reply to"
        properties = sent(cluster)
        assert (properties["own"], properties["TAGS"], properties["TTL"]) == ("kept", "sum", "5000")
        assert properties["REPLY_TO_CLIENT"] == producer.session.client_id
        for correlation in ("unknown", properties["CORRELATION_ID"], properties["CORRELATION_ID"]):
            answer = producer.session._dispatch(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, None, pushed(correlation, b"4")
            )
            assert answer.code == 0
        assert (await asking).body == b"4"


@on_loop
async def test_a_request_without_a_reply_times_out() -> None:
    async with Producer("p", session=FakeCluster().session()) as producer:
        with pytest.raises(RequestTimeout, match="no reply to a request on 'T' within 10 ms"):
            await producer.request(QUESTION, timeout_ms=10)
        assert producer._requester is not None
        assert producer._requester._waiting == {}


@on_loop
async def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.request_reply.WAITING_MAX", 0)
    async with Producer("p", session=FakeCluster().session()) as producer:
        with pytest.raises(ClientError, match="0 requests wait"):
            await producer.request(QUESTION)


@on_loop
async def test_a_reply_goes_to_the_reply_topic_of_the_cluster() -> None:
    cluster = FakeCluster()
    cluster.topics["c_REPLY_TOPIC"] = 1
    names: dict[str, Any] = {"CLUSTER": "c", "CORRELATION_ID": "C1", "REPLY_TO_CLIENT": "me", "TTL": "700"}
    (request,) = decode_messages(record(b"2 + 2", 0, **names), "a")
    (plain,) = decode_messages(record(b"no question", 0), "a")
    async with Producer("p", session=cluster.session()) as producer:
        await producer.reply(request, b"4")
        with pytest.raises(ClientError, match="asks for no reply"):
            await producer.reply(plain, b"4")
        with pytest.raises(ClientError, match="request=None"):
            await producer.reply(None, b"4")  # type: ignore[arg-type]
    assert cluster.sent == [("a:1", "c_REPLY_TOPIC", b"4")]
    command = next(c for c in cluster.commands if c.code == RequestCode.SEND_REPLY_MESSAGE_V2)
    properties = decode_properties(command.ext["i"].encode())
    assert (properties["MSG_TYPE"], properties["CORRELATION_ID"], properties["TTL"]) == ("reply", "C1", "700")
