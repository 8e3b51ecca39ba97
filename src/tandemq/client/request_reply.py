"""Request and reply over messages: a producer asks, a consumer answers, the broker pushes the answer back.

The request carries CORRELATION_ID and the client id of the one who asks. The reply is sent to `<cluster>_REPLY_TOPIC`
with both, and the broker pushes it over that client's connection, which it knows from the client's heartbeat.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

from tandemq.client.config import ClientConfig
from tandemq.client.encode import Outgoing, check_message, outgoing
from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import send_header_of
from tandemq.errors import ClientError, RequestTimeout
from tandemq.model import message as names
from tandemq.model.message import Message, StoredMessage, decode_properties
from tandemq.model.topic import QueueRef

REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
REPLY = "reply"
WAITING_MAX = 10_000
"""Requests that may wait for their reply."""


class ReplyingProducer(Protocol):
    """What requests and replies need of a producer."""

    session: Session
    config: ClientConfig

    async def queues(self, topic: str) -> Sequence[QueueRef]: ...

    async def send(self, message: Message, *, timeout_ms: int | None = None) -> SendResult: ...

    async def send_outgoing(
        self, item: Outgoing, queues: Sequence[QueueRef], code: int | None = None
    ) -> SendResult: ...


class Requester:
    """Sends requests through a producer and matches the replies."""

    def __init__(self, producer: ReplyingProducer) -> None:
        self._producer = producer
        self._session = producer.session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._announced: set[str] = set()
        self._session.on_push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pushed)

    async def request(self, message: Message, timeout_ms: int) -> ReceivedMessage:
        """Returns the reply to a message; RequestTimeout when none came in time."""
        if len(self._waiting) >= WAITING_MAX:
            raise ClientError(f"{WAITING_MAX} requests wait for their reply already")
        correlation = secrets.token_hex(16)
        extra = {
            names.CORRELATION_ID: correlation,
            names.REPLY_TO_CLIENT: self._session.client_id,
            names.MESSAGE_TTL: str(timeout_ms),
        }
        reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = reply
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._announce(message.topic)
                await self._producer.send(_with(message, extra), timeout_ms=timeout_ms)
                return await reply
        except TimeoutError:
            raise RequestTimeout(f"no reply to a request on {message.topic!r} within {timeout_ms} ms") from None
        finally:
            del self._waiting[correlation]

    async def _announce(self, topic: str) -> None:
        """Sends a heartbeat before the first request: any broker may be given the reply and must know this client."""
        if topic not in self._announced:
            await self._producer.queues(topic)
            await self._session.heartbeat()
            self._announced.add(topic)

    def _pushed(self, _: Any, command: Command) -> Command:
        properties = decode_properties(command.ext.get("properties", "").encode())
        waiting = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(_reply_of(command, properties))
        return Command(ResponseCode.SUCCESS)


async def send_reply(producer: ReplyingProducer, request: ReceivedMessage, body: bytes) -> SendResult:
    """Answers a received request; ClientError if the message asked for no answer."""
    if not isinstance(request, ReceivedMessage):
        raise ClientError(f"request={request!r}: the ReceivedMessage to answer is needed")
    cluster = request.properties.get(names.CLUSTER)
    correlation = request.properties.get(names.CORRELATION_ID)
    client = request.properties.get(names.REPLY_TO_CLIENT)
    if not (cluster and correlation and client):
        raise ClientError(f"{request} asks for no reply: CLUSTER, CORRELATION_ID or REPLY_TO_CLIENT is missing")
    topic = cluster + REPLY_TOPIC_SUFFIX
    extra = {
        names.MESSAGE_TYPE: REPLY,
        names.CORRELATION_ID: correlation,
        names.REPLY_TO_CLIENT: client,
        names.MESSAGE_TTL: request.properties.get(names.MESSAGE_TTL, "3000"),
    }
    session = producer.session
    message = Message(topic=topic, body=body)
    check_message(message, producer.config)
    item = outgoing(
        message,
        session.keys.next(session.clock.wall_ms()),
        producer.config,
        extra=extra.items(),
    )
    queues = await producer.queues(topic)
    return await producer.send_outgoing(item, queues, code=RequestCode.SEND_REPLY_MESSAGE_V2)


def _with(message: Message, extra: dict[str, str]) -> Message:
    return Message(
        topic=message.topic,
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        properties={**message.properties, **extra},
        flag=message.flag,
    )


def _reply_of(command: Command, properties: dict[str, str]) -> ReceivedMessage:
    header = send_header_of(command.ext, RequestCode.SEND_MESSAGE, command.version)
    body = bytes(command.body)
    stored = StoredMessage(
        topic=header.topic,
        queue_id=header.queueId,
        queue_offset=-1,
        physical_offset=0,
        size=0,
        flag=header.flag,
        sys_flag=header.sysFlag,
        body_crc=0,
        born_timestamp=header.bornTimestamp,
        born_host=bytes(8),
        store_timestamp=int(command.ext.get("storeTimestamp") or 0),
        store_host=bytes(8),
        reconsume_times=header.reconsumeTimes,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )
    return ReceivedMessage(stored, "")
