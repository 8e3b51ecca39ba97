"""Producer: sends messages, one deadline per send, other brokers when one fails.

`send` waits for the broker's answer, `submit` hands the message over and gives a future (pipelining), `send_oneway`
never learns what became of it, `send_batch` packs many into few requests. Statuses other than SEND_OK mean stored
with a promise missing (see SendStatus): they are results, not errors.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tandemq.client.config import ClientConfig
from tandemq.client.encode import Outgoing, outgoing, split_batch_list
from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.requests import Requester, send_reply
from tandemq.client.send_results import spread_batch
from tandemq.client.sender import Sender
from tandemq.client.session import Session, session_for
from tandemq.codec.heartbeat import ConsumerGroupInfo
from tandemq.errors import ClientError
from tandemq.model import message as names
from tandemq.model.message import Message, java_hash
from tandemq.model.topic import QueueRef, group_name_problem

QueueSelector = Callable[[Sequence[QueueRef], Message], QueueRef]


class Producer:
    """Sends to any topic. `async with Producer("group", namesrv="host:9876") as producer: ...`"""

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
    ) -> None:
        problem = group_name_problem(group)
        if problem:
            raise ClientError(problem)
        self._group = group
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self._sender = Sender(self.session, group)
        self._topics: dict[str, None] = {}
        self._requester: Requester | None = None
        self._closed = False

    # what the session asks

    @property
    def group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return tuple(self._topics)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        return None

    # life

    async def start(self) -> None:
        await self.session.start()
        self.session.join(self)

    async def close(self) -> None:
        """Waits for what is in flight (it has a deadline), tells the brokers, closes."""
        self._closed = True
        await self.flush()
        if self._requester is not None:
            self.session.off_push(self._requester)
        await self.session.leave(self)
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def flush(self) -> None:
        """Until nothing is in flight."""
        await self._sender.flush()

    # sending

    async def send(
        self,
        message: Message,
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        select: QueueSelector | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Sends and waits for the answer; SendFailed lists every attempt.

        `queue`, `sharding_key` (same key, same queue) or `select` fix the queue; it is then not tried elsewhere.
        `copies` is how many nodes must have the message: a number, "majority" or "all"; "2:durable": two on disk.
        """
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, queue, sharding_key, select)
        item = self._outgoing(message, sharding_key, copies)
        return await self.send_outgoing(item, queues, fixed, timeout_ms)

    async def submit(
        self, message: Message, *, sharding_key: str | None = None, copies: str | int | None = None
    ) -> "asyncio.Future[SendResult]":
        """Hands the message over; waits only for room (`maxInFlight`). The future gives what `send` would."""
        await self._sender.room()
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, None, sharding_key, None)
        item = self._outgoing(message, sharding_key, copies)
        return await self._sender.submit(item, queues, fixed)

    async def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Writes the message to a connection and forgets it: no answer, no retry, no error from the broker."""
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, None, sharding_key, None)
        await self._sender.send_oneway(self._outgoing(message, sharding_key, None), queues, fixed)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Sends messages of one topic in as few requests as batchSizeMax allows; one result per message, in order.

        When a later part fails, SendFailed is raised although the parts before it are stored.
        """
        if copies is not None:
            messages = [replace(m, properties={**m.properties, names.ACK_COPIES: str(copies)}) for m in messages]
        now_ms = self.session.clock.wall_ms()
        keys = [m.properties.get(names.UNIQUE_KEY) or self.session.keys.next(now_ms) for m in messages]
        results: list[SendResult] = []
        for part, item in split_batch_list(messages, keys, self.config):
            queues = self._known_queues(item.topic) or await self.queues(item.topic)
            fixed = _fixed_queue(part[0], queues, queue, sharding_key, None)
            results += spread_batch(await self.send_outgoing(item, queues, fixed, timeout_ms))
        return results

    # asking and answering

    async def request(self, message: Message, *, timeout_ms: int | None = None) -> ReceivedMessage:
        """Sends a message and waits for the reply that some consumer gives it; RequestTimeout if none comes."""
        if self._requester is None:
            self._requester = Requester(self)
        return await self._requester.request(message, timeout_ms or self.config.send_timeout_ms)

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answers a message that was sent with `request`."""
        return await send_reply(self, request, body)

    # one message, its attempts

    def _outgoing(self, message: Message, sharding_key: str | None, copies: str | int | None) -> Outgoing:
        self._check_open()
        key = message.properties.get(names.UNIQUE_KEY) or self.session.keys.next(self.session.clock.wall_ms())
        extra = []
        if sharding_key is not None:
            extra.append((names.SHARDING_KEY, sharding_key))
        if copies is not None:
            extra.append((names.ACK_COPIES, str(copies)))
        return outgoing(message, key, self.config, extra=extra)

    async def send_outgoing(
        self,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None = None,
        timeout_ms: int | None = None,
        code: int | None = None,
    ) -> SendResult:
        """Sends what is encoded already."""
        self._check_open()
        return await self._sender.send(item, queues, fixed, timeout_ms, code)

    # parts

    def _known_queues(self, topic: str) -> Sequence[QueueRef]:
        return self.session.routes.publish(topic) if topic in self._topics else ()

    async def queues(self, topic: str) -> Sequence[QueueRef]:
        """Where messages of a topic go now; NoRoute if nowhere."""
        new = topic not in self._topics
        self._topics[topic] = None
        queues = await self.session.publish_queues(topic)
        if new:
            self.session.heartbeat_soon()
        return queues

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError(f"producer {self._group!r} is closed")


def _fixed_queue(
    message: Message,
    queues: Sequence[QueueRef],
    queue: QueueRef | None,
    sharding_key: str | None,
    select: QueueSelector | None,
) -> QueueRef | None:
    if queue is not None:
        return queue
    if sharding_key is not None:
        return queues[abs(java_hash(sharding_key)) % len(queues)]
    return select(queues, message) if select is not None else None
