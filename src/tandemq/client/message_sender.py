"""Sends the requests of one producer: which queue, how long, what next after a failure.

One deadline covers all attempts of a send. The first attempt of a submitted message costs no task and no second future;
only one that fails gets a task for its other attempts. The caller has entered `room` before it sends.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from tandemq.client.encode import Outgoing, send_fields
from tandemq.client.message import SendResult
from tandemq.client.send_frame import SendTemplate
from tandemq.client.send_policy import FaultTable, QueueChooser, after_failure, may_be_stored, same_broker_pause
from tandemq.client.send_results import send_result
from tandemq.client.send_room import SendRoom
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, encode_request
from tandemq.errors import Attempt, NoRoute, RemotingError, ReplyError, RequestTimeout, SendFailed, TandemError
from tandemq.model.topic import QueueRef
from tandemq.remoting.connection import Signer

TEMPLATES_MAX = 4096
"""Queues whose encoded send header is kept."""

ROUTE_WAIT_S = 0.3
"""For the name servers to say who reigns, before a request to a broker that was silent."""

T = TypeVar("T")


class MessageSender:
    """Sends requests of one producer group."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.config = session.config
        self.room = SendRoom(self.config.in_flight_max, self.config.in_flight_bytes_max)
        self._group = group
        self._chooser = QueueChooser(session.random.randrange(1 << 16))
        self._faults = FaultTable()
        self._retrying: set[asyncio.Task[None]] = set()
        self._templates: dict[QueueRef, SendTemplate] = {}
        self._silent: set[str] = set()
        """Broker names whose master did not answer the last request: who it is, is asked before the next one."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        """Returns when a send that begins now must be answered."""
        return self.session.clock.monotonic() + (timeout_ms or self.config.send_timeout_ms) / 1000

    async def send(
        self,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        deadline: float,
        code: int | None = None,
    ) -> SendResult:
        """Makes all attempts of a request; SendFailed tells of each."""
        return await self._try(item, queues, fixed, deadline, code or _send_code(item), [])

    async def send_oneway(
        self, item: Outgoing, queues: Sequence[QueueRef], fixed: QueueRef | None, deadline: float
    ) -> None:
        """Writes a request that gets no answer; raises when no connection takes it before the deadline."""
        queue = fixed or self._choose(queues, None)
        try:
            address = await self.within(self._address(queue), deadline, f"no address of {queue.broker_name}")
            work = self.session.invoke_oneway(address, RequestCode.SEND_MESSAGE_V2, self.fields(item, queue), item.body)
            await self.within(work, deadline, f"{address} takes no data")
        except (RemotingError, NoRoute):
            self.session.alarm()
            raise

    async def within(self, work: Awaitable[T], deadline: float, problem: str) -> T:
        """Awaits a part of a send; RequestTimeout says what was missing at the deadline."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self.session.clock.monotonic())):
                return await work
        except TimeoutError:
            raise RequestTimeout(f"{problem} before the deadline of the send") from None

    async def _try(
        self,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        deadline: float,
        code: int,
        attempts: list[Attempt],
        counted: int = 0,
    ) -> SendResult:
        clock = self.session.clock
        avoid = attempts[-1].broker_name if attempts else None
        while True:
            queue = fixed or self._choose(queues, avoid)
            if queue.broker_name in self._silent and not attempts:
                await self._ask_who_reigns(item.topic, deadline)
            if queue.broker_name == avoid:
                pause = same_broker_pause(_failures_in_a_row(attempts))
                await asyncio.sleep(min(pause, max(0.0, deadline - clock.monotonic())))
            started = clock.monotonic()
            address = "?"
            try:
                address = await self.within(self._address(queue), deadline, f"no address of {queue.broker_name}")
                wait = self._attempt_wait(deadline - started, counted, queues, fixed)
                request = self.session.command(code, self.fields(item, queue), item.body)
                reply = await self.session.remoting.invoke(address, request, wait)
                result = self._checked(send_result(reply, item, queue), reply)
                self._record(queue, started, failed=False)
                return result._replace(attempts=tuple(attempts)) if attempts else result
            except (RemotingError, ReplyError, NoRoute) as error:
                self._record(queue, started, failed=not isinstance(error, ReplyError))
                attempts.append(self._attempt(queue, address, started, error))
                queues, counted = await self._next_queues(error, item, queues, fixed, deadline, attempts, counted)
            avoid = queue.broker_name

    def _checked(self, result: SendResult, reply: Command) -> SendResult:
        """Returns the result; a missing promise is an error only for those who set retryAnotherBrokerWhenNotStoreOK."""
        if result.ok or not self.config.retry_not_stored_ok:
            return result
        raise ReplyError(reply.code, reply.remark or result.status.name)

    def _attempt(self, queue: QueueRef, address: str, started: float, error: Exception) -> Attempt:
        elapsed_ms = round((self.session.clock.monotonic() - started) * 1000)
        return Attempt(queue.broker_name, address, queue.queue_id, elapsed_ms, str(error), may_be_stored(error))

    async def _next_queues(
        self,
        error: Exception,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        deadline: float,
        attempts: list[Attempt],
        counted: int,
    ) -> tuple[Sequence[QueueRef], int]:
        """Returns (queues to choose from, attempts that count) for the next attempt; SendFailed if there is none."""
        step = after_failure(error, fixed=fixed is not None)
        counted += step.counted
        allowed = self.config.retry_times > 0 if not step.counted else counted <= self.config.retry_times
        if not (step.again and allowed and self.session.clock.monotonic() < deadline):
            if step.refresh:
                self.session.alarm()  # this send has failed, the next one should go to whoever reigns by then
            raise SendFailed(item.topic, attempts, getattr(error, "code", None)) from error
        if step.refresh:
            try:
                await self.within(self.session.route(item.topic, refresh=True), deadline, "no route")
                queues = self.session.routes.publish(item.topic) or queues
            except (RemotingError, ReplyError, NoRoute):
                pass  # the next attempt goes where we know, and says why it fails
        return queues, counted

    def _attempt_wait(self, left: float, counted: int, queues: Sequence[QueueRef], fixed: QueueRef | None) -> float:
        """Returns how long one attempt may take: half of what is left while another broker could still be tried."""
        if left <= 0:
            raise RequestTimeout("no time left before the send's deadline")
        others = fixed is None and counted < self.config.retry_times and queues[0].broker_name != queues[-1].broker_name
        return left / 2 if others else left

    # submitted messages

    async def submit(
        self, item: Outgoing, queues: Sequence[QueueRef], fixed: QueueRef | None, deadline: float, size: int
    ) -> "asyncio.Future[SendResult]":
        """Makes the first attempt without a task of its own; leaves the room for `size` bytes when it is answered."""
        queue = fixed or self._choose(queues, None)
        pending = _Pending(self, item, queues, fixed, queue, deadline, size)
        try:
            address = self.session.routes.master(queue.broker_name)
            if address is None or self.config.vip_channel:
                address = await self.within(self._address(queue), deadline, f"no address of {queue.broker_name}")
            pending.address = address
            connection = await self.session.remoting.connection(address)
            if not connection.is_writable:
                await self.within(connection.wait_writable(), deadline, f"{address} takes no data")
            wait = self._attempt_wait(deadline - pending.started, 0, queues, fixed)
            pending.signer = connection.signer
            connection.start_request(pending.encode, pending, wait)
        except TandemError as error:
            self.try_again(pending, error)
        except BaseException:
            self.room.leave(size)
            raise
        return pending.future

    def template(self, queue: QueueRef) -> SendTemplate:
        """Returns what is the same in all send headers to a queue."""
        found = self._templates.get(queue)
        if found is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            found = self._templates[queue] = SendTemplate(self._group, queue, self.config.default_topic_queues)
        return found

    def answered(self, pending: "_Pending", reply: Command) -> None:
        """Takes the answer to the first attempt of a submitted message."""
        try:
            result = self._checked(send_result(reply, pending.item, pending.queue), reply)
        except ReplyError as error:
            self.try_again(pending, error)
            return
        self._record(pending.queue, pending.started, failed=False)
        self.room.leave(pending.size)
        if not pending.future.done():
            pending.future.set_result(result)

    def try_again(self, pending: "_Pending", error: Exception) -> None:
        """Makes the other attempts of a submitted message in a task, because the first one failed."""
        task = asyncio.get_running_loop().create_task(self._send_into(pending, error))
        self._retrying.add(task)
        task.add_done_callback(self._retrying.discard)

    async def _send_into(self, pending: "_Pending", error: Exception) -> None:
        item, fixed, deadline = pending.item, pending.fixed, pending.deadline
        attempts = [self._attempt(pending.queue, pending.address, pending.started, error)]
        self._record(pending.queue, pending.started, failed=not isinstance(error, ReplyError))
        try:
            queues, counted = await self._next_queues(error, item, pending.queues, fixed, deadline, attempts, 0)
            result = await self._try(item, queues, fixed, deadline, _send_code(item), attempts, counted)
        except Exception as failure:
            if not pending.future.done():
                pending.future.set_exception(failure)
        else:
            if not pending.future.done():
                pending.future.set_result(result)
        finally:
            self.room.leave(pending.size)

    # queues and addresses

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
        """Returns the ext fields of a send to a queue."""
        now_ms = self.session.clock.wall_ms()
        return send_fields(
            item, self._group, queue.queue_id, queue.broker_name, now_ms, self.config.default_topic_queues
        )

    async def _ask_who_reigns(self, topic: str, deadline: float) -> None:
        """Asks for the route of a broker that was silent: another may reign by now, and a hung one costs a deadline."""
        until = min(deadline, self.session.clock.monotonic() + ROUTE_WAIT_S)
        with contextlib.suppress(RemotingError, ReplyError, NoRoute):  # then it goes where we know
            await self.within(self.session.route(topic, refresh=True), until, "no route")

    def _record(self, queue: QueueRef, started: float, *, failed: bool) -> None:
        (self._silent.add if failed else self._silent.discard)(queue.broker_name)
        if self.config.latency_fault:
            now = self.session.clock.monotonic()
            self._faults.record(queue.broker_name, (now - started) * 1000, now, failed=failed)


class _Pending:
    """A submitted message: told by the connection when its answer comes, without a future in between."""

    __slots__ = (
        "_sender",
        "address",
        "deadline",
        "fixed",
        "future",
        "item",
        "queue",
        "queues",
        "signer",
        "size",
        "started",
    )

    def __init__(
        self,
        sender: MessageSender,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        queue: QueueRef,
        deadline: float,
        size: int,
    ) -> None:
        self._sender = sender
        self.item = item
        self.queues = queues
        self.fixed = fixed
        self.queue = queue
        self.address = "?"
        self.deadline = deadline
        self.size = size
        self.started = sender.session.clock.monotonic()
        self.signer: Signer | None = None
        """Of the connection it leaves by."""
        self.future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

    def encode(self, opaque: int) -> bytes:
        session = self._sender.session
        if self.signer is not None:
            command = session.command(_send_code(self.item), self._sender.fields(self.item, self.queue), self.item.body)
            command.opaque = opaque
            self.signer.sign(command)
            return encode_request(command)
        return self._sender.template(self.queue).frame(self.item, session.clock.wall_ms(), opaque)

    def done(self) -> bool:
        """Returns False until the answer comes: a caller who cancels the future changes nothing about the request."""
        return False

    def set_result(self, reply: Command, /) -> None:
        self._sender.answered(self, reply)

    def set_exception(self, error: Exception, /) -> None:
        self._sender.try_again(self, error)


async def send_once(session: Session, group: str, item: Outgoing) -> SendResult:
    """Sends to any queue of the item's topic, for messages that a consumer sends by itself.

    There is one attempt, and another if the queue's master has changed by then.
    """
    queues = await session.publish_queues(item.topic)
    queue = session.random.choice(queues)
    now_ms = session.clock.wall_ms()
    fields = send_fields(item, group, queue.queue_id, queue.broker_name, now_ms, session.config.default_topic_queues)

    async def ask(address: str) -> SendResult:
        return send_result(await session.invoke(address, RequestCode.SEND_MESSAGE_V2, fields, item.body), item, queue)

    return await session.ask_master(queue.broker_name, queue.topic, ask)


def vip_address(address: str) -> str:
    """Returns the broker's fast port: two below its main one."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def _send_code(item: Outgoing) -> int:
    return RequestCode.SEND_BATCH_MESSAGE if item.batch else RequestCode.SEND_MESSAGE_V2


def _failures_in_a_row(attempts: Sequence[Attempt]) -> int:
    """Returns how many of the last attempts went to the same broker."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.broker_name != attempts[-1].broker_name:
            break
        count += 1
    return count
