"""What brokers ask of a push consumer on its own connection."""

import asyncio
import inspect
from typing import Any

from tests.unit.client.fake_cluster import FakeCluster, on_loop, record

from tandemq.client.listener import Action
from tandemq.client.message import ReceivedMessage
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.push_requests import PushRequests
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 0)


class Consumer:
    group = "g"
    ordered = False

    def __init__(self) -> None:
        self.session = FakeCluster().session()
        self.moved: list[tuple[QueueRef, int]] = []
        self.tried: list[bytes] = []
        self.requests = PushRequests(self)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        return ConsumerGroupInfo(group="g")

    def states(self) -> dict[QueueRef, ProcessQueue]:
        return {QUEUE: ProcessQueue()}

    def committed(self, queue: QueueRef) -> int | None:
        return 5

    def move(self, queue: QueueRef, offset: int) -> None:
        self.moved.append((queue, offset))

    async def try_now(self, message: ReceivedMessage) -> Action:
        self.tried.append(message.body)
        return Action.LATER

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Any:
        answer = self.session._dispatch(code, None, Command(code, ext, body))
        if inspect.isawaitable(answer):
            answer = await answer
        return fastjson.loads(bytes(answer.body)) if answer is not None else None


@on_loop
async def test_a_reset_moves_the_queues_of_its_group() -> None:
    consumer = Consumer()
    body = fastjson.dumps_unquoted({"offsetTable": bodies.queue_table_json({QUEUE: 7})})
    await consumer.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"group": "other"}, body)
    await consumer.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"group": "g"}, b"nonsense")
    assert consumer.moved == []
    await consumer.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"group": "g"}, body)
    assert consumer.moved == [(QUEUE, 7)]


@on_loop
async def test_offsets_are_told_by_topic() -> None:
    consumer = Consumer()
    ask = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert len((await consumer.ask(ask, {"group": "g"}))["messageQueueTable"]) == 1
    assert len((await consumer.ask(ask, {"group": "g", "topic": "T"}))["messageQueueTable"]) == 1
    assert (await consumer.ask(ask, {"group": "g", "topic": "other"}))["messageQueueTable"] == {}
    assert await consumer.ask(ask, {"group": "other"}) is None


@on_loop
async def test_admin_tools_learn_how_the_consumer_is_doing() -> None:
    info = await Consumer().ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"})
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    (queue,) = info["mqTable"].values()
    assert (queue["cachedMsgCount"], queue["commitOffset"], queue["locked"]) == (0, 5, False)
    assert await Consumer().ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other"}) is None


@on_loop
async def test_a_message_is_tried_now_and_its_outcome_told() -> None:
    consumer = Consumer()
    ext = {"consumerGroup": "g", "brokerName": "a"}
    answer = await consumer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, record(b"x", 0))
    assert (answer["consumeResult"], answer["order"], consumer.tried) == ("CR_LATER", False, [b"x"])
    assert await consumer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "other"}, b"") is None
    await asyncio.sleep(0)
