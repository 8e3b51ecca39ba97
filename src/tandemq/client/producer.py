"""Producer: sends messages, one deadline per send, other brokers when one fails.

`send` waits for the broker's answer, `submit` hands the message over and gives a future (pipelining), `send_oneway`
never learns what became of it, `send_batch` packs many into few requests. However they are sent, at most `maxInFlight`
messages and `maxInFlightBytes` are on their way: the next one waits for room. Statuses other than SEND_OK mean stored
with a promise missing (see SendStatus): they are results, not errors.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

from tandemq.client.arguments import (
    check_callable,
    check_close_timeout,
    check_copies,
    check_group,
    check_queue,
    check_sharding_key,
    check_timeout_ms,
)
from tandemq.client.config import ClientConfig
from tandemq.client.encode import Outgoing, check_batch, check_message, outgoing, split_batch_list
from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.message_sender import MessageSender
from tandemq.client.request_reply import Requester, send_reply
from tandemq.client.send_policy import same_broker_pause
from tandemq.client.send_results import spread_batch
from tandemq.client.session import Session, session_for
from tandemq.client.telemetry import Telemetry, current_telemetry
from tandemq.codec.heartbeat import ConsumerGroupInfo
from tandemq.errors import ClientClosed, ClientError, NoRoute
from tandemq.model import message as names
from tandemq.model.message import Message, java_hash
from tandemq.model.topic import QueueRef

QueueSelector = Callable[[Sequence[QueueRef], Message], QueueRef]
"""Chooses the queue of a message among the writable ones of its topic."""


class Producer:
    """Sends to any topic.

        async with Producer("shop", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message(topic="orders", body=b"paid", tags="new", keys=("order-1",)))
            print(result.status.name, result.message_id)

    Options go into a ClientConfig; `session` shares connections with other clients. Use it from one event loop;
    `tandemq.client.sync.Producer` may be used from threads.
    """

    def __init__(
        self,
        group: str = "DEFAULT_PRODUCER",
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
    ) -> None:
        self._group = check_group(group)
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self._sender = MessageSender(self.session, group)
        self._telemetry: Telemetry | None = current_telemetry()
        self._topics: dict[str, None] = {}
        self._routed: set[str] = set()
        """Topics that had queues once: if they have none now, their master is expected back."""
        self._requester: Requester | None = None
        self._closed = False

    # what the session asks

    @property
    def group(self) -> str:
        """The producer group."""
        return self._group

    @property
    def needs_all_masters(self) -> bool:
        """False: a plain producer is known to the brokers that it sends to."""
        return False

    def topics(self) -> Iterable[str]:
        """Returns the topics that were sent to."""
        return tuple(self._topics)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        """Returns None: this is no consumer."""
        return None

    # life

    async def start(self) -> None:
        """Joins the session; `async with` does it too."""
        if self._closed:
            raise ClientClosed(f"producer {self._group!r} was closed: make a new one")
        await self.session.start()
        self.session.join(self)

    async def close(self, timeout: float | None = None) -> None:
        """Waits for what is in flight, tells the brokers, closes.

            await producer.close(timeout=5)

        Sends that wait for room get ClientClosed. Those in flight have a deadline of their own; with `timeout`, in
        seconds, they get at most that long.
        """
        check_close_timeout(timeout)
        self.session.check_loop(f"producer {self._group!r}")
        self._closed = True
        self._sender.room.close(f"producer {self._group!r} was closed")
        try:
            async with asyncio.timeout(timeout):
                await self._sender.room.empty()
        except TimeoutError:
            pass  # the connections close: those who wait learn that their answer is lost
        finally:
            if self._requester is not None:
                self.session.off_push(self._requester)
            try:
                await self.session.leave(self)
            finally:
                if self._owns_session:
                    await self.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def flush(self) -> None:
        """Returns when nothing is in flight.

        for number in range(1000):
            await producer.submit(Message(topic="orders", body=b"%d" % number))
        await producer.flush()
        """
        await self._sender.room.empty()

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
        """Sends and waits for the answer.

            await producer.send(Message(topic="orders", body=b"paid"), sharding_key="order-1", copies="2:durable")

        `queue`, `sharding_key` (same key, same queue) or `select` fix the queue; the message then goes nowhere else.
        `copies` says how many nodes must have it: a number, "majority" or "all"; "2:durable" means two on disk.
        `timeout_ms` (default: sendMsgTimeout) covers the route, all attempts and their pauses; waiting for room does
        not count. Raises SendFailed, which lists every attempt; NoRoute for a topic that nobody knows; RequestTimeout
        when no name server answers in time; InvalidMessage and ClientError for wrong arguments.
        """
        self._check(message, queue=queue, sharding_key=sharding_key, select=select, copies=copies)
        check_timeout_ms(timeout_ms)
        async with self._sender.room.place(len(message.body)):
            if self._telemetry is None:
                return await self._send(message, queue, sharding_key, select, copies, timeout_ms)
            with self._telemetry.sending(self._group, [message]) as span:
                result = await self._send(span.messages[0], queue, sharding_key, select, copies, timeout_ms)
                span.sent([result])
                return result

    async def _send(
        self,
        message: Message,
        queue: QueueRef | None,
        sharding_key: str | None,
        select: QueueSelector | None,
        copies: str | int | None,
        timeout_ms: int | None,
    ) -> SendResult:
        queues = self._known_queues(message.topic)
        if not queues:
            await asyncio.sleep(0)  # it has to be asked for; time that others start their sends in does not count
        deadline = self._sender.deadline(timeout_ms)
        queues = queues or await self._queues_by(message.topic, deadline)
        fixed = _fixed_queue(message, queues, queue, sharding_key, select)
        return await self._sender.send(self._outgoing(message, sharding_key, copies), queues, fixed, deadline)

    async def submit(
        self, message: Message, *, sharding_key: str | None = None, copies: str | int | None = None
    ) -> "asyncio.Future[SendResult]":
        """Hands the message over; waits only for room and, once per topic, for the route.

            futures = [await producer.submit(Message(topic="orders", body=b"%d" % number)) for number in range(100)]
            results = await asyncio.gather(*futures)

        The future gives what `send` would return or raise.
        """
        self._check(message, sharding_key=sharding_key, copies=copies)
        size = len(message.body)
        room = self._sender.room
        if not room.try_enter(size):
            await room.enter(size)
        try:
            deadline = self._sender.deadline()
            queues = self._known_queues(message.topic) or await self._queues_by(message.topic, deadline)
            span = None
            if self._telemetry is not None:
                span = self._telemetry.submitted(self._group, message)
                message = span.message
            fixed = _fixed_queue(message, queues, None, sharding_key, None)
            item = self._outgoing(message, sharding_key, copies)
        except BaseException:
            room.leave(size)
            raise
        future = await self._sender.submit(item, queues, fixed, deadline, size)
        if span is not None:
            future.add_done_callback(span.ended)
        return future

    async def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Writes the message to a connection and forgets it: no answer, no retry, no error from the broker.

        await producer.send_oneway(Message(topic="metrics", body=b"cpu 17"))
        """
        self._check(message, sharding_key=sharding_key)
        async with self._sender.room.place(len(message.body)):
            if self._telemetry is None:
                await self._send_oneway(message, sharding_key)
            else:
                with self._telemetry.sending(self._group, [message]) as span:
                    await self._send_oneway(span.messages[0], sharding_key)
            # The connection writes at the end of the loop's turn: until then the message still counts as in flight.
            await asyncio.sleep(0)

    async def _send_oneway(self, message: Message, sharding_key: str | None) -> None:
        deadline = self._sender.deadline()
        queues = self._known_queues(message.topic) or await self._queues_by(message.topic, deadline)
        fixed = _fixed_queue(message, queues, None, sharding_key, None)
        await self._sender.send_oneway(self._outgoing(message, sharding_key, None), queues, fixed, deadline)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Sends messages of one topic in few requests; returns one result per message, in their order.

            results = await producer.send_batch([Message(topic="orders", body=b"%d" % number) for number in range(500)])
            assert all(result.ok for result in results)

        A list beyond `batchSizeMax` bytes or `batchCountMax` messages is sent in several parts, each with a deadline of
        its own. When a part fails, SendFailed is raised although the parts before it are stored.
        """
        check_timeout_ms(timeout_ms)
        check_batch(messages, self.config)
        self._check(messages[0], queue=queue, sharding_key=sharding_key, copies=copies)
        if copies is not None:
            messages = [replace(m, properties={**m.properties, names.ACK_COPIES: str(copies)}) for m in messages]
        if self._telemetry is None:
            return await self._send_batch(messages, queue, sharding_key, timeout_ms)
        with self._telemetry.sending(self._group, messages) as span:
            results = await self._send_batch(span.messages, queue, sharding_key, timeout_ms)
            span.sent(results)
            return results

    async def _send_batch(
        self, messages: Sequence[Message], queue: QueueRef | None, sharding_key: str | None, timeout_ms: int | None
    ) -> list[SendResult]:
        now_ms = self.session.clock.wall_ms()
        keys = [m.properties.get(names.UNIQUE_KEY) or self.session.keys.next(now_ms) for m in messages]
        results: list[SendResult] = []
        for part, item in split_batch_list(messages, keys, self.config):
            async with self._sender.room.place(len(item.body)):
                deadline = self._sender.deadline(timeout_ms)
                queues = self._known_queues(item.topic) or await self._queues_by(item.topic, deadline)
                fixed = _fixed_queue(part[0], queues, queue, sharding_key, None)
                results += spread_batch(await self._sender.send(item, queues, fixed, deadline))
        return results

    # asking and answering

    async def request(self, message: Message, *, timeout_ms: int | None = None) -> ReceivedMessage:
        """Sends a message and returns the reply that some consumer gives it; RequestTimeout if none comes.

        reply = await producer.request(Message(topic="questions", body=b"2 + 2"), timeout_ms=5000)
        """
        self._check(message)
        check_timeout_ms(timeout_ms)
        if self._requester is None:
            self._requester = Requester(self)
        return await self._requester.request(message, timeout_ms or self.config.send_timeout_ms)

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answers a message that was sent with `request`.

        async def answer(messages):
            for message in messages:
                await producer.reply(message, b"4")
        """
        self._check_open()
        return await send_reply(self, request, body)

    # for the parts of this client

    async def send_outgoing(self, item: Outgoing, queues: Sequence[QueueRef], code: int | None = None) -> SendResult:
        """Sends what is encoded already."""
        self._check_open()
        async with self._sender.room.place(len(item.body)):
            return await self._sender.send(item, queues, None, self._sender.deadline(), code)

    async def queues(self, topic: str) -> Sequence[QueueRef]:
        """Returns where messages of a topic can go now; NoRoute if nowhere.

        queues = await producer.queues("orders")
        await producer.send(Message(topic="orders", body=b"here"), queue=queues[0])
        """
        new = topic not in self._topics
        self._topics[topic] = None
        queues = await self.session.publish_queues(topic)
        self._routed.add(topic)
        if new:
            self.session.heartbeat_soon()
        return queues

    async def _queues_by(self, topic: str, deadline: float) -> Sequence[QueueRef]:
        """Returns the queues of a topic; waits until the deadline for the master of one that had queues before."""
        tries = 0
        while True:
            try:
                return await self._sender.within(self.queues(topic), deadline, f"no route of {topic!r}")
            except NoRoute:
                tries += 1
                pause = same_broker_pause(tries)
                gone = self.session.clock.monotonic() + pause >= deadline
                if topic not in self._routed or gone or not self.config.retry_times:
                    raise
                await asyncio.sleep(pause)

    def _known_queues(self, topic: str) -> Sequence[QueueRef]:
        return self.session.routes.publish(topic) if topic in self._topics else ()

    def _outgoing(self, message: Message, sharding_key: str | None, copies: str | int | None) -> Outgoing:
        key = message.properties.get(names.UNIQUE_KEY) or self.session.keys.next(self.session.clock.wall_ms())
        extra = []
        if sharding_key is not None:
            extra.append((names.SHARDING_KEY, sharding_key))
        if copies is not None:
            extra.append((names.ACK_COPIES, str(copies)))
        return outgoing(message, key, self.config, extra=extra)

    def _check(
        self,
        message: Message,
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        select: QueueSelector | None = None,
        copies: str | int | None = None,
    ) -> None:
        """Raises for a closed producer, a message that can't be sent, and arguments that make no sense."""
        self._check_open()
        check_message(message, self.config)
        if queue is not None:
            check_queue(queue, message.topic)
        if sharding_key is not None:
            check_sharding_key(sharding_key)
        if copies is not None:
            check_copies(copies)
        if select is not None and not callable(select):
            check_callable(select, "select")
        if select is not None and (queue is not None or sharding_key is not None):
            raise ClientError("select, queue and sharding_key each fix the queue: give one of them")

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"producer {self._group!r} is closed")
        self.session.check_loop(f"producer {self._group!r}")


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
    if select is None:
        return None
    chosen = select(queues, message)
    if chosen not in queues:
        raise ClientError(f"select returned {chosen!r}, which is none of the {len(queues)} queues it was given")
    return chosen
