"""The requests that a client makes of a broker, and what their answers mean."""

from typing import Any

import pytest
from tests.unit.client.fake_cluster import on_loop, pull_answer

from tandemq.client.broker_api import HAS_SUBSCRIPTION, SUSPEND, BrokerApi, by_broker
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 2)


class Broker:
    """Gives one answer and remembers what was asked."""

    def __init__(self, answer: Command) -> None:
        self.answer = answer
        self.code = 0
        self.ext: dict[str, str] = {}
        self.body = b""
        self.timeout_ms: int | None = None
        self.api = BrokerApi(self._invoke)

    async def _invoke(
        self, address: str, code: int, ext: dict[str, str], body: bytes = b"", *, timeout_ms: int | None = None
    ) -> Command:
        assert address == "a:1"
        self.code, self.ext, self.body, self.timeout_ms = code, ext, body, timeout_ms
        return self.answer


async def pull(broker: Broker, suspend_ms: int = 0) -> Any:
    return await broker.api.pull(
        "a:1",
        "g",
        QUEUE,
        7,
        count_max=32,
        subscription=Subscription(topic="T", expression="A || B", version=9),
        suspend_ms=suspend_ms,
        timeout_ms=1000,
    )


@on_loop
async def test_a_pull_carries_its_subscription_and_commits_nothing() -> None:
    broker = Broker(pull_answer(0, 9, b"records"))
    result = await pull(broker, suspend_ms=500)
    assert (result.found, bytes(result.records), result.next_offset) == (True, b"records", 9)
    assert (broker.ext["subscription"], broker.ext["subVersion"], broker.ext["commitOffset"]) == ("A || B", "9", "0")
    assert int(broker.ext["sysFlag"]) == HAS_SUBSCRIPTION | SUSPEND
    assert (broker.ext["suspendTimeoutMillis"], broker.timeout_ms) == ("500", 1000)
    await pull(broker)
    assert int(broker.ext["sysFlag"]) == HAS_SUBSCRIPTION


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED])
@on_loop
async def test_a_pull_that_finds_nothing_is_an_answer(code: ResponseCode) -> None:
    result = await pull(Broker(pull_answer(code, 12)))
    assert (result.found, result.code, result.next_offset) == (False, code, 12)


@on_loop
async def test_a_refused_pull_is_an_error() -> None:
    with pytest.raises(ReplyError, match="who are you"):
        await pull(Broker(Command(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="who are you")))


@on_loop
async def test_offsets_are_asked_for_and_written() -> None:
    broker = Broker(Command(0, {"offset": "5", "timestamp": "77"}))
    api = broker.api
    assert await api.min_offset("a:1", QUEUE) == await api.max_offset("a:1", QUEUE) == 5
    assert await api.offset_at("a:1", QUEUE, 1000) == 5
    assert broker.ext == {"topic": "T", "queueId": "2", "timestamp": "1000"}
    assert await api.earliest_store_time("a:1", QUEUE) == 77
    assert await api.query_offset("a:1", "g", QUEUE) == 5
    assert "setZeroIfNotFound" not in broker.ext
    await api.query_offset("a:1", "g", QUEUE, zero_if_young=False)
    assert broker.ext["setZeroIfNotFound"] == "false"
    await api.update_offset("a:1", "g", QUEUE, 9)
    assert (broker.code, broker.ext["commitOffset"]) == (RequestCode.UPDATE_CONSUMER_OFFSET, "9")


@on_loop
async def test_a_group_without_an_offset_has_none() -> None:
    assert await Broker(Command(ResponseCode.QUERY_NOT_FOUND)).api.query_offset("a:1", "g", QUEUE) is None
    assert await Broker(Command(0, {"offset": "-1"})).api.query_offset("a:1", "g", QUEUE) is None


@on_loop
async def test_a_group_without_members_is_an_empty_list() -> None:
    nobody = Command(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group, g")
    assert await Broker(nobody).api.consumer_ids("a:1", "g") == []
    with pytest.raises(ReplyError, match="broken"):
        await Broker(Command(ResponseCode.SYSTEM_ERROR, remark="broken")).api.consumer_ids("a:1", "g")
    some = Command(0, None, fastjson.dumps({"consumerIdList": ["b", "a"]}))
    assert await Broker(some).api.consumer_ids("a:1", "g") == ["b", "a"]


@on_loop
async def test_locks_are_granted_by_queue() -> None:
    granted = [{"topic": "T", "brokerName": "a", "queueId": 2}]
    broker = Broker(Command(0, None, fastjson.dumps({"lockOKMQSet": granted})))
    assert await broker.api.lock("a:1", "g", "me", [QUEUE, QueueRef("T", "a", 3)]) == {QUEUE}
    asked = fastjson.loads(broker.body)
    assert (asked["consumerGroup"], asked["clientId"], len(asked["mqSet"])) == ("g", "me", 2)
    await broker.api.unlock("a:1", "g", "me", [QUEUE])
    assert broker.code == RequestCode.UNLOCK_BATCH_MQ


@on_loop
async def test_members_come_and_go() -> None:
    broker = Broker(Command(0))
    await broker.api.heartbeat("a:1", b"{}")
    await broker.api.unregister("a:1", "me", producer="p")
    assert broker.ext == {"clientID": "me", "producerGroup": "p"}
    await broker.api.unregister("a:1", "me", consumer="g")
    assert broker.ext == {"clientID": "me", "consumerGroup": "g"}
    with pytest.raises(ReplyError):
        await Broker(Command(1, remark="no")).api.heartbeat("a:1", b"{}")


@on_loop
async def test_a_message_is_given_back_with_its_level() -> None:
    broker = Broker(Command(0))
    await broker.api.send_back("a:1", "g", physical_offset=70, message_id="ID", topic="T", level=-1, max_times=16)
    assert (broker.ext["offset"], broker.ext["delayLevel"], broker.ext["maxReconsumeTimes"]) == ("70", "-1", "16")


@on_loop
async def test_messages_are_looked_up() -> None:
    broker = Broker(Command(0, {}, b"record"))
    assert await broker.api.view("a:1", 70) == b"record"
    assert "topic" not in broker.ext
    await broker.api.view("a:1", 70, "T")
    assert broker.ext["topic"] == "T"
    found = await broker.api.query("a:1", "T", "k", count_max=5, begin_ms=1, end_ms=2, unique=True)
    assert (found, broker.ext["_UNIQUE_KEY_QUERY"]) == (b"record", "true")
    nothing = Broker(Command(ResponseCode.QUERY_NOT_FOUND, remark="none"))
    assert await nothing.api.query("a:1", "T", "k", count_max=5, begin_ms=1, end_ms=2, unique=False) == b""


@on_loop
async def test_a_filter_is_checked() -> None:
    broker = Broker(Command(0))
    await broker.api.check_subscription("a:1", "me", "g", Subscription(topic="T"))
    assert fastjson.loads(broker.body)["subscriptionData"]["topic"] == "T"


def test_queues_are_grouped_by_broker() -> None:
    other = QueueRef("T", "b", 0)
    assert by_broker([QUEUE, other]) == {"a": [QUEUE], "b": [other]}
