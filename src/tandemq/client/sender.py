"""One request of a producer and its attempts: which queue, how long, what next after a failure.

One deadline covers all attempts. The first attempt of a submitted message costs no task and no second future; only what
fails gets a task for the rest. Everything in flight is counted here.
"""

import asyncio
from collections.abc import Sequence

from tandemq.client.encode import Outgoing, send_fields
from tandemq.client.message import SendResult
from tandemq.client.retry import Attempt, FaultTable, QueueChooser, worth_retrying
from tandemq.client.send_frame import SendTemplate
from tandemq.client.send_results import send_result
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, encode_request
from tandemq.errors import ConnectFailed, NoRoute, RemotingError, ReplyError, RequestTimeout, SendFailed, TandemError
from tandemq.model.topic import QueueRef

TEMPLATES_MAX = 4096
"""Queues whose encoded send header is kept."""
SAME_BROKER_PAUSE_S = 0.05
"""Before the only broker there is is asked again: a moment for a busy or restarting one."""


class Sender:
    """Sends requests of one producer group."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.config = session.config
        self._group = group
        self._chooser = QueueChooser(session.random.randrange(1 << 16))
        self._faults = FaultTable()
        self._in_flight = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._retrying: set[asyncio.Task[None]] = set()
        self._templates: dict[QueueRef, SendTemplate] = {}

    async def flush(self) -> None:
        """Until nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    async def room(self) -> None:
        """Until there is room for another request."""
        while self._in_flight >= self.config.in_flight_max:
            self._room.clear()
            await self._room.wait()

    async def send(
        self,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None = None,
        timeout_ms: int | None = None,
        code: int | None = None,
    ) -> SendResult:
        """All attempts of a request; SendFailed tells of each."""
        deadline = self.session.clock.monotonic() + (timeout_ms or self.config.send_timeout_ms) / 1000
        self._in_flight += 1
        try:
            return await self._try(item, queues, fixed, deadline, code or _send_code(item), [])
        finally:
            self._left()

    async def send_oneway(self, item: Outgoing, queues: Sequence[QueueRef], fixed: QueueRef | None) -> None:
        queue = fixed or self._choose(queues, None)
        address = await self._address(queue)
        await self.session.invoke_oneway(address, RequestCode.SEND_MESSAGE_V2, self.fields(item, queue), item.body)

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
                async with asyncio.timeout(deadline - self.session.clock.monotonic()):
                    await self.session.route(item.topic, refresh=True)
                    queues = await self.session.publish_queues(item.topic)
            except (RemotingError, ReplyError, NoRoute, TimeoutError):
                pass  # the attempt with what we know will say why
        return queues, again

    def _attempt_wait(self, left: float, tried: int, queues: Sequence[QueueRef], fixed: QueueRef | None) -> float:
        """How long one attempt may take: half of what is left while another broker could still be tried."""
        if left <= 0:
            raise RequestTimeout("no time left before the send's deadline")
        others = fixed is None and tried < self.config.retry_times and queues[0].broker_name != queues[-1].broker_name
        return left / 2 if others else left

    async def submit(
        self, item: Outgoing, queues: Sequence[QueueRef], fixed: QueueRef | None
    ) -> "asyncio.Future[SendResult]":
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
                async with asyncio.timeout(self.config.send_timeout_ms / 1000):
                    await connection.wait_writable()
            wait = self._attempt_wait(self.config.send_timeout_ms / 1000, 0, queues, fixed)
            connection.start_request(pending.encode, pending, wait)
        except TandemError as error:
            self.try_again(pending, error)
        except TimeoutError:
            self.try_again(pending, RequestTimeout(f"{queue.broker_name} takes no more data"))
        except BaseException:
            self._left()
            raise
        return pending.future

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


class _Pending:
    """A submitted message: told by the connection when its answer comes, without a future in between."""

    __slots__ = ("_sender", "fixed", "future", "item", "queue", "queues", "started")

    def __init__(
        self,
        sender: Sender,
        item: Outgoing,
        queues: Sequence[QueueRef],
        fixed: QueueRef | None,
        queue: QueueRef,
    ) -> None:
        self._sender = sender
        self.item = item
        self.queues = queues
        self.fixed = fixed
        self.queue = queue
        self.started = sender.session.clock.monotonic()
        self.future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

    def encode(self, opaque: int) -> bytes:
        session = self._sender.session
        if session.config.access_key:
            command = session.command(_send_code(self.item), self._sender.fields(self.item, self.queue), self.item.body)
            command.opaque = opaque
            return encode_request(command)
        return self._sender.template(self.queue).frame(self.item, session.clock.wall_ms(), opaque)

    def done(self) -> bool:
        """Never before the answer: a caller who gave up on the future changes nothing about what is in flight."""
        return False

    def set_result(self, reply: Command, /) -> None:
        self._sender.answered(self, reply)

    def set_exception(self, error: Exception, /) -> None:
        self._sender.try_again(self, error)


async def send_once(session: Session, group: str, item: Outgoing) -> SendResult:
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


def _send_code(item: Outgoing) -> int:
    return RequestCode.SEND_BATCH_MESSAGE if item.batch else RequestCode.SEND_MESSAGE_V2
