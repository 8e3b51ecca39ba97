"""Producer: sends messages, one deadline per send, other brokers when one fails.

`send` waits for the broker's answer, `submit` hands the message over and gives a future (pipelining), `send_oneway`
never learns what became of it, `send_batch` packs many into few requests. Statuses other than SEND_OK mean stored
with a promise missing (see SendStatus): they are results, not errors.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tandemq.client.config import ClientConfig
from tandemq.client.encode import Outgoing, outgoing, send_fields, split_batch_list
from tandemq.client.message import ReceivedMessage, SendResult, SendStatus
from tandemq.client.requests import Requester, send_reply
from tandemq.client.retry import Attempt, FaultTable, QueueChooser, worth_retrying
from tandemq.client.send_frame import SendTemplate
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_request
from tandemq.codec.heartbeat import ConsumerGroupInfo
from tandemq.errors import (
    ClientError,
    ConnectFailed,
    NoRoute,
    RemotingError,
    ReplyError,
    RequestTimeout,
    SendFailed,
    TandemError,
)
from tandemq.model import message as names
from tandemq.model.message import Message, java_hash
from tandemq.model.topic import QueueRef, group_name_problem

QueueSelector = Callable[[Sequence[QueueRef], Message], QueueRef]

_STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
TEMPLATES_MAX = 4096
"""Queues whose encoded send header is kept."""
SAME_BROKER_PAUSE_S = 0.05
"""Before the only broker there is is asked again: a moment for a busy or restarting one."""


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
        self._chooser = QueueChooser(self.session.random.randrange(1 << 16))
        self._faults = FaultTable()
        self._topics: dict[str, None] = {}
        self._in_flight = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._retrying: set[asyncio.Task[None]] = set()
        self._templates: dict[QueueRef, SendTemplate] = {}
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
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

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
        `copies` is how many replicas must have the message: a number, "majority" or "all", "+disk" for copies on disk.
        """
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, queue, sharding_key, select)
        item = self._outgoing(message, sharding_key, copies)
        return await self.send_outgoing(item, queues, fixed, timeout_ms)

    async def submit(
        self, message: Message, *, sharding_key: str | None = None, copies: str | int | None = None
    ) -> "asyncio.Future[SendResult]":
        """Hands the message over; waits only for room (`maxInFlight`). The future gives what `send` would."""
        while self._in_flight >= self.config.in_flight_max:
            self._room.clear()
            await self._room.wait()
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, None, sharding_key, None)
        item = self._outgoing(message, sharding_key, copies)
        return (await self._submit(item, queues, fixed)).future

    async def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Writes the message to a connection and forgets it: no answer, no retry, no error from the broker."""
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        fixed = _fixed_queue(message, queues, None, sharding_key, None)
        queue = fixed or self._chooser.choose(queues, None)
        item = self._outgoing(message, sharding_key, None)
        address = await self.session.master(queue.broker_name, queue.topic)
        await self.session.invoke_oneway(address, RequestCode.SEND_MESSAGE_V2, self.fields(item, queue), item.body)

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
        """The attempts of one request under one deadline."""
        self._check_open()
        deadline = self.session.clock.monotonic() + (timeout_ms or self.config.send_timeout_ms) / 1000
        self._in_flight += 1
        try:
            return await self._try(item, queues, fixed, deadline, code or _send_code(item), [])
        finally:
            self._left()

    async def _try(
        self,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        deadline: float,
        code: int,
        attempts: list[Attempt],
    ) -> SendResult:
        clock = self.session.clock
        avoid = attempts[-1].broker_name if attempts else None
        cause: Exception | None = None
        while True:
            queue = fixed or self._choose(queues, avoid)
            if queue.broker_name == avoid:
                await asyncio.sleep(min(SAME_BROKER_PAUSE_S, max(0.0, deadline - clock.monotonic())))
            started = clock.monotonic()
            address = "?"
            try:
                address = await self._address(queue)
                wait = self._attempt_wait(deadline - started, len(attempts), queues, fixed)
                request = self.session.command(code, self.fields(item, queue), item.body)
                reply = await self.session.remoting.invoke(address, request, wait)
                result = send_result(reply, item, queue)
                self._record(queue, started, failed=False)
                if result.ok or not self.config.retry_not_stored_ok:
                    return result
                cause = ReplyError(reply.code, reply.remark or result.status.name)
            except (RemotingError, ReplyError, NoRoute) as error:
                cause = error
                self._record(queue, started, failed=not isinstance(error, ReplyError))
            elapsed_ms = round((clock.monotonic() - started) * 1000)
            attempts.append(Attempt(queue.broker_name, address, queue.queue_id, elapsed_ms, str(cause)))
            queues, again = await self._after_failure(cause, item, queues, fixed, deadline, len(attempts))
            if not again:
                raise SendFailed(item.topic, attempts, getattr(cause, "code", None)) from cause
            avoid = queue.broker_name

    async def _after_failure(
        self,
        cause: Exception,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        deadline: float,
        tried: int,
    ) -> tuple[Sequence[QueueRef], bool]:
        """(queues to choose from, whether to try again). A fixed queue is tried again only if nothing was sent."""
        in_time = self.session.clock.monotonic() < deadline
        again = tried <= self.config.retry_times and in_time and worth_retrying(cause)
        if fixed is not None and not isinstance(cause, (ConnectFailed, NoRoute)):
            again = False
        if again and not isinstance(cause, ReplyError):
            # A master that does not answer may have a successor: ask before the next attempt.
            try:
                await self.session.route(item.topic, refresh=True)
                queues = await self.session.publish_queues(item.topic)
            except (RemotingError, ReplyError, NoRoute):
                pass  # the attempt with what we know will say why
        return queues, again

    def _attempt_wait(self, left: float, tried: int, queues: Sequence[QueueRef], fixed: QueueRef | None) -> float:
        """How long one attempt may take: half of what is left while another broker could still be tried."""
        if left <= 0:
            raise RequestTimeout("no time left before the send's deadline")
        others = fixed is None and tried < self.config.retry_times and queues[0].broker_name != queues[-1].broker_name
        return left / 2 if others else left

    async def _submit(self, item: Outgoing, queues: Sequence[QueueRef], fixed: QueueRef | None) -> "_Pending":
        """The first attempt without a task of its own: most sends need no other."""
        queue = fixed or self._choose(queues, None)
        pending = _Pending(self, item, queues, fixed, queue)
        self._in_flight += 1
        try:
            address = self.session.routes.master(queue.broker_name)
            if address is None or self.config.vip_channel:
                address = await self._address(queue)
            connection = await self.session.remoting.connection(address)
            if not connection.is_writable:
                await connection.wait_writable()
            wait = self._attempt_wait(self.config.send_timeout_ms / 1000, 0, queues, fixed)
            connection.start_request(pending.encode, pending, wait)
        except TandemError as error:
            self.try_again(pending, error)
        except BaseException:
            self._left()
            raise
        return pending

    def template(self, queue: QueueRef) -> SendTemplate:
        found = self._templates.get(queue)
        if found is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            found = self._templates[queue] = SendTemplate(self._group, queue, self.config.default_topic_queues)
        return found

    def answered(self, pending: "_Pending", reply: Command) -> None:
        try:
            result = send_result(reply, pending.item, pending.queue)
            if not result.ok and self.config.retry_not_stored_ok:
                raise ReplyError(reply.code, reply.remark or result.status.name)
        except ReplyError as error:
            self.try_again(pending, error)
            return
        self._record(pending.queue, pending.started, failed=False)
        self._left()
        if not pending.future.done():
            pending.future.set_result(result)

    def try_again(self, pending: "_Pending", error: Exception) -> None:
        """The first attempt of a submitted message failed: the others run in a task."""
        task = asyncio.get_running_loop().create_task(self._send_into(pending, error))
        self._retrying.add(task)
        task.add_done_callback(self._retrying.discard)

    async def _send_into(self, pending: "_Pending", error: Exception) -> None:
        item, queues, fixed, queue = pending.item, pending.queues, pending.fixed, pending.queue
        deadline = pending.started + self.config.send_timeout_ms / 1000
        elapsed_ms = round((self.session.clock.monotonic() - pending.started) * 1000)
        address = self.session.routes.master(queue.broker_name) or "?"
        attempts = [Attempt(queue.broker_name, address, queue.queue_id, elapsed_ms, str(error))]
        self._record(queue, pending.started, failed=not isinstance(error, ReplyError))
        try:
            queues, again = await self._after_failure(error, item, queues, fixed, deadline, 1)
            if not again:
                raise SendFailed(item.topic, attempts, getattr(error, "code", None)) from error
            result = await self._try(item, queues, fixed, deadline, _send_code(item), attempts)
        except Exception as failure:
            if not pending.future.done():
                pending.future.set_exception(failure)
        else:
            if not pending.future.done():
                pending.future.set_result(result)
        finally:
            self._left()

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

    def _choose(self, queues: Sequence[QueueRef], avoid: str | None) -> QueueRef:
        if not self.config.latency_fault:
            return self._chooser.choose(queues, avoid)
        now = self.session.clock.monotonic()
        return self._chooser.choose(queues, avoid, lambda name: self._faults.available(name, now))

    async def _address(self, queue: QueueRef) -> str:
        address = self.session.routes.master(queue.broker_name)
        if address is None:
            address = await self.session.master(queue.broker_name, queue.topic)
        return vip_address(address) if self.config.vip_channel else address

    def fields(self, item: Outgoing, queue: QueueRef) -> dict[str, str]:
        now_ms = self.session.clock.wall_ms()
        return send_fields(
            item, self._group, queue.queue_id, queue.broker_name, now_ms, self.config.default_topic_queues
        )

    def _record(self, queue: QueueRef, started: float, *, failed: bool) -> None:
        if self.config.latency_fault:
            now = self.session.clock.monotonic()
            self._faults.record(queue.broker_name, (now - started) * 1000, now, failed=failed)

    def _left(self) -> None:
        self._in_flight -= 1
        if not self._room.is_set():
            self._room.set()
        if not self._in_flight:
            self._idle.set()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError(f"producer {self._group!r} is closed")


class _Pending:
    """A submitted message: told by the connection when its answer comes, without a future in between."""

    __slots__ = ("_producer", "fixed", "future", "item", "queue", "queues", "started")

    def __init__(
        self,
        producer: Producer,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        queue: QueueRef,
    ) -> None:
        self._producer = producer
        self.item = item
        self.queues = queues
        self.fixed = fixed
        self.queue = queue
        self.started = producer.session.clock.monotonic()
        self.future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

    def encode(self, opaque: int) -> bytes:
        session = self._producer.session
        if session.config.access_key:
            command = session.command(
                _send_code(self.item), self._producer.fields(self.item, self.queue), self.item.body
            )
            command.opaque = opaque
            return encode_request(command)
        return self._producer.template(self.queue).frame(self.item, session.clock.wall_ms(), opaque)

    def done(self) -> bool:
        """Never before the answer: a caller who gave up on the future changes nothing about what is in flight."""
        return False

    def set_result(self, reply: Command, /) -> None:
        self._producer.answered(self, reply)

    def set_exception(self, error: Exception, /) -> None:
        self._producer.try_again(self, error)


def session_for(session: Session | None, config: ClientConfig | None, namesrv: str | None) -> tuple[Session, bool]:
    """The session to use and whether its user must close it."""
    if session is not None:
        if config is not None or namesrv is not None:
            raise ClientError("a session brings its own config and name servers: give either, not both")
        return session, False
    config = config or ClientConfig()
    return Session(replace(config, namesrv=namesrv) if namesrv else config), True


def send_result(reply: Command, item: Outgoing, queue: QueueRef) -> SendResult:
    """What an answered send says; ReplyError when it says no."""
    status = _STATUSES.get(reply.code)
    if status is None:
        raise ReplyError(reply.code, reply.remark or "the broker gave no reason")
    ext = reply.ext
    where = QueueRef(queue.topic, queue.broker_name, int(ext.get("queueId", queue.queue_id)))
    return SendResult(
        status,
        item.unique_key,
        ext.get("msgId", ""),
        where,
        int(ext.get("queueOffset", -1)),
        ext.get("transactionId", ""),
        reply.remark or "",
    )


def spread_batch(result: SendResult) -> list[SendResult]:
    """One result per element of a batch: ids as the broker joined them, offsets counted from the first."""
    keys = result.message_id.split(",")
    ids = result.offset_message_id.split(",")
    if len(ids) != len(keys):
        ids = [""] * len(keys)
    return [
        replace(result, message_id=key, offset_message_id=offset_id, queue_offset=result.queue_offset + i)
        for i, (key, offset_id) in enumerate(zip(keys, ids, strict=True))
    ]


async def send_outgoing_once(session: Session, group: str, item: Outgoing) -> SendResult:
    """One attempt on any queue of the item's topic, for messages a consumer sends by itself."""
    queues = await session.publish_queues(item.topic)
    queue = session.random.choice(queues)
    address = await session.master(queue.broker_name, queue.topic)
    now_ms = session.clock.wall_ms()
    fields = send_fields(item, group, queue.queue_id, queue.broker_name, now_ms, session.config.default_topic_queues)
    reply = await session.invoke(address, RequestCode.SEND_MESSAGE_V2, fields, item.body)
    return send_result(reply, item, queue)


def vip_address(address: str) -> str:
    """The broker's fast port: two below its main one."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


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


def _send_code(item: Outgoing) -> int:
    return RequestCode.SEND_BATCH_MESSAGE if item.batch else RequestCode.SEND_MESSAGE_V2
