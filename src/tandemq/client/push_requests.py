"""What brokers ask of a push consumer on its own connection: reset an offset, say how it is doing, try a message now.

| code | asked by | answer |
|---|---|---|
| 220 RESET_CONSUMER_CLIENT_OFFSET | a 4.x broker, after an admin's reset | none (one-way): the queues go on elsewhere |
| 221 GET_CONSUMER_STATUS_FROM_CLIENT | admin tools | offsets by queue |
| 307 GET_CONSUMER_RUNNING_INFO | admin tools | properties, subscriptions, state of every queue |
| 309 CONSUME_MESSAGE_DIRECTLY | admin tools | what the listener made of the message |
"""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from tandemq.client.listener import Action
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.session import Session
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, subscription_json
from tandemq.errors import CodecError
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")


class Asked(Protocol):
    """The part of a push consumer that brokers may ask about."""

    session: Session
    ordered: bool

    @property
    def group(self) -> str: ...

    def consumer_info(self) -> ConsumerGroupInfo | None: ...

    def states(self) -> Mapping[QueueRef, ProcessQueue]: ...

    def committed(self, queue: QueueRef) -> int | None: ...

    def move(self, queue: QueueRef, offset: int) -> None: ...

    async def try_now(self, message: ReceivedMessage) -> Action: ...


class PushRequests:
    """Answers for one consumer; requests for other groups of the session are left to their own."""

    def __init__(self, consumer: Asked) -> None:
        self._consumer = consumer
        session = consumer.session
        session.on_push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        session.on_push(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        session.on_push(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        session.on_push(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _is_ours(self, command: Command, field: str) -> bool:
        return command.ext.get(field) == self._consumer.group

    def _reset(self, _: Any, command: Command) -> None:
        if not self._is_ours(command, "group"):
            return
        try:
            table = bodies.queue_table_of(bodies.load_object(command.body, "reset offsets").get("offsetTable"))
        except CodecError as error:
            log.error("group %s: a reset of offsets can't be read: %s", self._consumer.group, error)
            return
        for queue, offset in table.items():
            log.info("group %s: %s is reset to %s", self._consumer.group, queue, offset)
            self._consumer.move(queue, int(offset))

    def _status(self, _: Any, command: Command) -> Command | None:
        if not self._is_ours(command, "group"):
            return None
        topic = command.ext.get("topic", "")
        offsets = {
            queue: self._consumer.committed(queue)
            for queue in self._consumer.states()
            if not topic or queue.topic == topic
        }
        return _answer({"messageQueueTable": bodies.queue_table_json(offsets)})

    def _running_info(self, _: Any, command: Command) -> Command | None:
        if not self._is_ours(command, "consumerGroup"):
            return None
        info = self._consumer.consumer_info()
        config = self._consumer.session.config
        return _answer(
            {
                "mqTable": bodies.queue_table_json(
                    {queue: self._queue_info(queue, state) for queue, state in self._consumer.states().items()}
                ),
                "properties": {
                    "PROP_CONSUMEORDERLY": "true" if self._consumer.ordered else "false",
                    "PROP_CONSUME_TYPE": info.consume_type if info else "",
                    "PROP_NAMESERVER_ADDR": config.namesrv,
                    "PROP_CLIENT_VERSION": "V4_9_7",
                    "PROP_THREADPOOL_CORE_SIZE": str(config.consume_concurrency),
                },
                "statusTable": {},
                "subscriptionSet": [subscription_json(item) for item in info.subscriptions] if info else [],
            }
        )

    def _queue_info(self, queue: QueueRef, state: ProcessQueue) -> dict[str, Any]:
        return {
            "cachedMsgCount": state.count,
            "cachedMsgSizeInMiB": state.size >> 20,
            "commitOffset": self._consumer.committed(queue) or 0,
            "droped": state.dropped,  # upstream's spelling
            "locked": state.locked_at is not None,
        }

    async def _consume(self, command: Command) -> Command:
        message = next(decode_messages(bytes(command.body), command.ext.get("brokerName", "")))
        clock = self._consumer.session.clock
        started = clock.monotonic()
        action = await self._consumer.try_now(message)
        return _answer(
            {
                "autoCommit": True,
                "consumeResult": "CR_SUCCESS" if action is Action.SUCCESS else "CR_LATER",
                "order": self._consumer.ordered,
                "spentTimeMills": round((clock.monotonic() - started) * 1000),
            }
        )

    def _consume_directly(self, _: Any, command: Command) -> Any:
        command.body = bytes(command.body)  # used after this call
        return self._consume(command) if self._is_ours(command, "consumerGroup") else None


def _answer(body: dict[str, Any]) -> Command:
    return Command(ResponseCode.SUCCESS, None, fastjson.dumps(body))
