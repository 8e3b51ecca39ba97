"""From fetched messages to calls of the listener: concurrently over all queues, or in order within each queue.

Every call runs in a task of its own, so that a listener that cancels its task ends nothing else. A call that was
cancelled from outside is treated as failed, a moment later: should the whole loop be shutting down, that moment never
comes, and the messages are read again by the next member.

Both kinds have the same face:

| method | meaning |
|---|---|
| `offer(held, messages)` | these were fetched |
| `wake(held)` | a pause is over or a lock is back |
| `quiet(held)` | returns when no call has messages of a queue that must not be given up before |
| `stop()` | no call begins any more |
| `ended()` | returns when no call runs |
| `cancel()` | cancels what runs and can be cancelled |
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.held_queue import HeldQueue
from tandemq.client.listener import Action, ListenerCaller, ShuttingDown
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import OffsetStore
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

LOCAL_RETRY_S = 5.0
"""A message that no broker takes back is tried again here after this long."""
CANCELLED_PAUSE_S = 1.0
"""How long after a call that was cancelled from outside its messages are treated as failed."""

Messages = list[ReceivedMessage]


class Returns(Protocol):
    """Takes messages that a listener could not handle."""

    async def later(self, message: ReceivedMessage) -> bool:
        """Delivers it again after a while; returns whether somebody took it."""
        ...

    async def give_up(self, message: ReceivedMessage) -> bool:
        """Puts it into the dead letter queue; returns whether somebody took it."""
        ...


class _Running(NamedTuple):
    """One call under way."""

    held: HeldQueue
    messages: Messages
    ended: Callable[[float], None]
    """Gets the pause that the call asks for."""


class Consumption(ABC):
    """What both kinds share: the tasks of the calls."""

    def __init__(
        self, caller: ListenerCaller, config: ClientConfig, model: MessageModel, offsets: OffsetStore, returns: Returns
    ) -> None:
        self._caller = caller
        self._config = config
        self._model = model
        self._offsets = offsets
        self._returns = returns
        self._calls: dict[asyncio.Task[float], _Running] = {}
        self._stopped = False
        self._changed = asyncio.Event()
        """Set whenever a call ends."""
        self._returning: dict[tuple[QueueRef, int], asyncio.Future[bool]] = {}
        """Messages on their way back to a broker; also those whose call was cancelled meanwhile."""

    @abstractmethod
    def offer(self, held: HeldQueue, messages: Messages) -> None: ...

    @abstractmethod
    def wake(self, held: HeldQueue) -> None: ...

    @abstractmethod
    async def quiet(self, held: HeldQueue) -> None: ...

    @property
    def running(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def is_call(self, task: "asyncio.Task[Any] | None") -> bool:
        """Returns whether a task is a call of the listener."""
        return task in self._calls

    def stop(self) -> None:
        self._stopped = True

    async def ended(self) -> None:
        while self._calls:
            self._changed.clear()
            await self._changed.wait()

    def cancel(self) -> None:
        for task in self._calls:
            task.cancel()

    def _start(
        self, held: HeldQueue, messages: Messages, work: Coroutine[Any, Any, float], ended: Callable[[float], None]
    ) -> None:
        """Runs a call, or what follows one, as a task; then calls `ended` with the pause that it asks for."""
        task = asyncio.get_running_loop().create_task(work, name="tandemq-listener")
        self._calls[task] = _Running(held, messages, ended)
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: "asyncio.Task[float]") -> None:
        held, messages, ended = self._calls.pop(task)
        self._changed.set()
        problem = _problem(task)
        if problem is None:
            ended(task.result())
        elif isinstance(problem, ShuttingDown):
            self._shutting_down(problem)
            ended(0.0)
        elif self._stopped:
            ended(0.0)
        else:
            log.error("a call of the listener for %s ended early", messages[0], exc_info=problem)
            asyncio.get_running_loop().call_later(CANCELLED_PAUSE_S, self._failed, held, messages)

    async def _returned(self, message: ReceivedMessage, give: Callable[[ReceivedMessage], Awaitable[bool]]) -> bool:
        """Gives a message to a broker; returns whether it took it.

        A call that is cancelled in between leaves that under way, and whoever treats it as failed finds it here: a
        second request would store the message twice.
        """
        key = (message.queue, message.queue_offset)
        giving = self._returning.get(key)
        if giving is None:
            giving = self._returning[key] = asyncio.ensure_future(give(message))
        try:
            return await asyncio.shield(giving)
        finally:
            if giving.done():
                self._returning.pop(key, None)

    def _shutting_down(self, reason: ShuttingDown) -> None:
        if not self._stopped:
            log.warning(
                "the program ends, no more messages are handled here; others of the group get them (%s)", reason
            )
        self.stop()

    @abstractmethod
    def _failed(self, held: HeldQueue, messages: Messages) -> None:
        """Treats messages as answered with LATER: their call was cancelled from outside."""


class ConcurrentConsumption(Consumption):
    """Calls the listener for messages of all queues in any order, `consumeThreadMax` calls at a time."""

    def __init__(
        self, caller: ListenerCaller, config: ClientConfig, model: MessageModel, offsets: OffsetStore, returns: Returns
    ) -> None:
        super().__init__(caller, config, model, offsets, returns)
        self._ready: deque[tuple[HeldQueue, Messages]] = deque()
        """What waits for a free place. Bounded by the caches of the queues."""

    def offer(self, held: HeldQueue, messages: Messages) -> None:
        size = self._caller.batch_size(held.queue.topic)
        for start in range(0, len(messages), size):
            self._ready.append((held, messages[start : start + size]))
        self._pump()

    def wake(self, held: HeldQueue) -> None:
        """Does nothing: these calls wait for no lock."""

    async def quiet(self, held: HeldQueue) -> None:
        """Returns at once: the next owner starts at the committed offset and repeats what is under way here."""

    def stop(self) -> None:
        super().stop()
        self._ready.clear()

    def _pump(self, _: float = 0.0) -> None:
        while self._ready and not self._stopped and len(self._calls) < self._config.consume_concurrency:
            held, messages = self._ready.popleft()
            if not held.state.dropped:
                self._start(held, messages, self._call(held, messages), self._pump)

    async def _call(self, held: HeldQueue, messages: Messages) -> float:
        call = await self._caller.call(messages)
        if call.action is Action.SUCCESS:
            self._done(held, messages)
        else:
            await self._later(held, messages)
        if call.still_running is not None:
            await asyncio.wait([call.still_running])  # its thread takes up one of the places
        return 0.0

    def _done(self, held: HeldQueue, messages: Messages) -> None:
        offset = held.state.remove(messages)
        if offset is not None and not held.state.dropped:
            self._offsets.update(held.queue, offset)
        held.wake()

    async def _later(self, held: HeldQueue, messages: Messages) -> float:
        """Gives back what a call could not handle; returns no pause: the other messages of the queue go on."""
        self._done(held, await self._give_back(held, messages))
        return 0.0

    async def _give_back(self, held: HeldQueue, messages: Messages) -> Messages:
        """Returns the messages that somebody took; the others are tried again here, later."""
        if self._model is MessageModel.BROADCASTING:
            log.warning("a broadcast message is not retried: %s", messages[0])
            return messages
        done: Messages = []
        kept: Messages = []
        for message in messages:
            (done if await self._returned(message, self._returns.later) else kept).append(message)
        if kept:
            for message in kept:
                message.reconsume_times += 1
            asyncio.get_running_loop().call_later(LOCAL_RETRY_S, self._again, held, kept)
        return done

    def _again(self, held: HeldQueue, messages: Messages) -> None:
        if not self._stopped and not held.state.dropped:
            self._ready.append((held, messages))
            self._pump()

    def _failed(self, held: HeldQueue, messages: Messages) -> None:
        if not self._stopped:
            self._start(held, messages, self._later(held, messages), self._pump)


class OrderedConsumption(Consumption):
    """Calls the listener for the messages of a queue one after the other; a failed one holds up its queue."""

    def __init__(
        self,
        caller: ListenerCaller,
        config: ClientConfig,
        model: MessageModel,
        offsets: OffsetStore,
        returns: Returns,
        *,
        may_consume: Callable[[HeldQueue], bool],
    ) -> None:
        super().__init__(caller, config, model, offsets, returns)
        self._may_consume = may_consume
        self._busy: set[HeldQueue] = set()
        """Queues with a call under way, or in the pause after a failed one."""

    def offer(self, held: HeldQueue, messages: Messages) -> None:
        self.wake(held)

    def wake(self, held: HeldQueue) -> None:
        if self._stopped or not held.is_open or held in self._busy:
            return
        if not held.state.count or not self._may_consume(held):
            return
        messages = held.state.take(self._caller.batch_size(held.queue.topic))
        self._busy.add(held)
        self._start(held, messages, self._call(held, messages), lambda pause: self._next(held, pause))

    async def quiet(self, held: HeldQueue) -> None:
        """Returns when no call has messages of the queue, however long that takes: a queue has one owner."""
        while any(running.held is held for running in self._calls.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _call(self, held: HeldQueue, messages: Messages) -> float:
        call = await self._caller.call(messages, patient=True)
        return await self._finish(held, messages, call.action)

    async def _finish(self, held: HeldQueue, messages: Messages, action: Action) -> float:
        """Returns the pause before the next call of this queue."""
        if action is Action.LATER and not await self._exhausted(messages):
            held.state.put_back()
            return self._config.suspend_ms / 1000
        offset = held.state.commit()
        if offset is not None and not held.state.dropped:
            self._offsets.update(held.queue, offset)
        held.wake()
        return 0.0

    def _next(self, held: HeldQueue, pause: float) -> None:
        if pause:
            asyncio.get_running_loop().call_later(pause, self._free, held)
        else:
            self._free(held)

    def _free(self, held: HeldQueue) -> None:
        self._busy.discard(held)
        self.wake(held)

    async def _exhausted(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Counts the failed try; returns whether all messages used up their tries and went to the dead letters."""
        limit = self._config.reconsume_max
        for message in messages:
            message.reconsume_times += 1
        if limit < 0 or any(message.reconsume_times <= limit for message in messages):
            return False
        if self._model is MessageModel.BROADCASTING:
            log.warning("a broadcast message is given up after %d tries: %s", limit, messages[0])
            return True
        return all([await self._returned(message, self._returns.give_up) for message in messages])

    def _failed(self, held: HeldQueue, messages: Messages) -> None:
        if not self._stopped and held.is_open:
            self._start(held, messages, self._finish(held, messages, Action.LATER), lambda p: self._next(held, p))
        else:
            held.state.put_back()
            self._busy.discard(held)


def _problem(task: "asyncio.Task[Any]") -> BaseException | None:
    """Returns why a call ended early, or None."""
    return asyncio.CancelledError("it was cancelled from outside") if task.cancelled() else task.exception()
