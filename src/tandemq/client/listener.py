"""Calls the user's listener: plain functions in threads, coroutine functions on the loop; what its answer means.

Whatever leaves a listener is an answer: an exception, a CancelledError of its own, SystemExit. None of them may end the
task that called it, or the consumer would stand still and look alive.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any, NamedTuple

from tandemq.client.message import ReceivedMessage
from tandemq.client.plain_call import Outcome, outcome_of
from tandemq.client.telemetry import Telemetry
from tandemq.errors import ClientError
from tandemq.model.topic import RETRY_PREFIX

log = logging.getLogger("tandemq.client")


class Action(Enum):
    """What a listener answers.

        async def listener(messages):
            if not database_is_up():
                return Action.LATER
            ...
            return Action.SUCCESS

    None counts as SUCCESS. An exception counts as LATER and is logged, and so does any other answer.
    """

    SUCCESS = "SUCCESS"
    """The messages are done."""
    LATER = "LATER"
    """Deliver again: after a delay that grows (concurrent), or after a pause with the queue held up (ordered)."""


Answer = Action | None
Listener = Callable[[Sequence[ReceivedMessage]], Answer | Awaitable[Answer]]
"""Takes a list of messages; a coroutine function, or a plain one that then runs in a thread."""
Handler = Callable[[ReceivedMessage], Answer | Awaitable[Answer]]
"""Takes one message; otherwise like a Listener."""


class ShuttingDown(ClientError):
    """The interpreter ends: no thread can be started any more. That is not the listener's failure."""


class Call(NamedTuple):
    """What came of one call."""

    action: Action
    still_running: "asyncio.Future[Any] | None" = None
    """A plain function that took longer than the limit: its thread goes on, and this future is done when it ends."""


_DONE = Call(Action.SUCCESS)
_AGAIN = Call(Action.LATER)


class _TimeLimits:
    """Cancels the task of a call that takes too long.

    All calls have the same limit, so the one that began first is the first to reach it, and one timer watches them
    all: a timer for each message would cost more than the rest of its call.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[asyncio.Task[Any], tuple[float, int]] = {}
        """Deadline of each call and how often its task had been cancelled before; the oldest comes first."""
        self._expired: dict[asyncio.Task[Any], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: "asyncio.Task[Any]") -> None:
        """Starts the time of a call that runs in this task."""
        loop = task.get_loop()
        deadline = loop.time() + self._seconds
        self._running[task] = (deadline, task.cancelling())
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)

    def end(self, task: "asyncio.Task[Any]") -> bool:
        """Ends the time of a call; returns whether its task was cancelled by this limit and by nobody else.

        A cancellation by this limit is taken back.
        """
        if self._running.pop(task, None) is not None:
            return False
        return task.uncancel() <= self._expired.pop(task)

    def close(self) -> None:
        """Forgets the timer. Call it when no call runs any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        while self._running:
            task, (deadline, before) = next(iter(self._running.items()))
            loop = task.get_loop()
            if deadline > loop.time():
                self._timer = loop.call_at(deadline, self._expire)
                return
            del self._running[task]
            self._expired[task] = before
            task.cancel()


class _Target(NamedTuple):
    """One function of the user."""

    function: Callable[[Any], Any]
    is_async: bool
    takes_list: bool
    """False: it takes one message at a time."""


class ListenerCaller:
    """Calls the listeners of one consumer: one per topic, or one for all.

    The owner bounds how many calls run at once; `concurrency` is the number of threads for plain functions.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        batch_size: int,
        timeout_s: float,
        group: str = "",
        telemetry: Telemetry | None = None,
    ) -> None:
        self._concurrency = concurrency
        self._batch_size = batch_size
        self._timeout_s = timeout_s
        self._limits = _TimeLimits(timeout_s)
        self._group = group
        self._telemetry = telemetry
        self._of_topic: dict[str, _Target] = {}
        self._of_all: _Target | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._inside = threading.local()
        self._in_threads: dict[Future[Any], Sequence[ReceivedMessage]] = {}

    def add(self, function: Callable[[Any], Any], topic: str | None = None, *, takes_list: bool = True) -> None:
        """Sets the listener of a topic, or without one the listener of all topics that have none of their own."""
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  an object with `async def __call__`
        )
        target = _Target(function, is_async, takes_list)
        if topic is None:
            self._of_all = target
        else:
            self._of_topic[topic] = target

    def function_of(self, topic: str) -> Callable[[Any], Any] | None:
        """Returns the function that a topic has of its own."""
        target = self._of_topic.get(topic)
        return None if target is None else target.function

    def serves(self, topic: str) -> bool:
        """Returns whether there is a listener for messages of a topic."""
        return topic in self._of_topic or self._of_all is not None

    def batch_size(self, topic: str) -> int:
        """Returns how many messages of a queue of this topic may be handed to one call.

        The messages of a call have one listener, so a retry topic, where messages of all topics meet, gives them one by
        one unless there is only one listener.
        """
        target = self._of_topic.get(topic, self._of_all)
        if target is None or not target.takes_list or (topic.startswith(RETRY_PREFIX) and self._of_topic):
            return 1
        return self._batch_size

    def call(self, messages: Sequence[ReceivedMessage], *, patient: bool = False) -> Coroutine[Any, Any, Call]:
        """Returns, when awaited, what the listener answered, LATER for anything that went wrong.

        A coroutine is cancelled at the time limit. A plain function can't be: `patient` waits for its end, otherwise
        the answer is LATER while its thread runs on. CancelledError leaves only when the calling task itself was
        cancelled. Raises ShuttingDown when no thread can be started, because the program ends.
        """
        if self._telemetry is None:
            return self._call(messages, patient)
        return self._observed(self._telemetry, messages, patient)

    async def _observed(self, telemetry: Telemetry, messages: Sequence[ReceivedMessage], patient: bool) -> Call:
        with telemetry.handling(self._group, messages) as span:
            call = await self._call(messages, patient)
            span.handled(call.action.name.lower())
            return call

    async def _call(self, messages: Sequence[ReceivedMessage], patient: bool) -> Call:
        task = asyncio.current_task()
        assert task is not None
        took_too_long = False
        try:
            target = self._of_topic.get(messages[0].topic, self._of_all)
            if target is None:
                raise LookupError(f"no listener for topic {messages[0].topic!r}")
            given = messages if target.takes_list else messages[0]
            if not target.is_async:
                return await self._in_thread(target.function, given, messages, patient)
            self._limits.begin(task)
            try:
                answer = await target.function(given)
            finally:
                took_too_long = self._limits.end(task)
            return _DONE if answer is None else Call(self._meaning(answer, messages))
        except asyncio.CancelledError:
            if took_too_long:
                log.error("the listener took more than %g s for %s and was cancelled", self._timeout_s, messages[0])
                return _AGAIN
            if task.cancelling():
                raise
            log.exception("the listener let a CancelledError out for %s", messages[0])
        except SystemExit as error:
            _log_exit(error, messages)
        except KeyboardInterrupt:
            if threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C while the listener ran
            log.exception("the listener let a KeyboardInterrupt out for %s", messages[0])
        except ShuttingDown:
            raise
        except Exception:
            log.exception("the listener failed for %s", messages[0])
        return _AGAIN

    async def _in_thread(
        self, function: Callable[[Any], Any], given: Any, messages: Sequence[ReceivedMessage], patient: bool
    ) -> Call:
        context = contextvars.copy_context()
        try:
            running = self._pool().submit(context.run, self._marked, function, given)
        except RuntimeError as error:
            raise ShuttingDown(str(error)) from None
        self._in_threads[running] = messages
        running.add_done_callback(lambda done: self._in_threads.pop(done, None))
        outcome = asyncio.wrap_future(running)
        await asyncio.wait([outcome], timeout=self._timeout_s)
        if not outcome.done():
            log.error(
                "the listener takes more than %g s for %s; a plain function can't be cancelled and runs on",
                self._timeout_s,
                messages[0],
            )
            outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not patient:
                return Call(Action.LATER, outcome)
            await asyncio.wait([outcome])
        answer, raised = outcome.result()
        if raised is None:
            return Call(self._meaning(await _awaited(answer), messages))
        if isinstance(raised, SystemExit):
            _log_exit(raised, messages)
        else:
            log.error("the listener failed for %s", messages[0], exc_info=raised)
        return _AGAIN

    def _pool(self) -> ThreadPoolExecutor:
        if self._closed:
            raise RuntimeError("the consumer is closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="tandemq-listener")
        return self._threads

    def _marked(self, function: Callable[[Any], Any], given: Any) -> Outcome:
        self._inside.now = True
        try:
            return outcome_of(function, given)
        finally:
            self._inside.now = False

    def _meaning(self, answer: object, messages: Sequence[ReceivedMessage]) -> Action:
        if answer is None:
            return Action.SUCCESS
        if isinstance(answer, Action):
            return answer
        log.error(
            "the listener answered %r for %s: only Action.SUCCESS, Action.LATER and None count; it is delivered again",
            answer,
            messages[0],
        )
        return Action.LATER

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread runs the listener as a plain function at this moment."""
        return bool(getattr(self._inside, "now", False))

    @property
    def in_threads(self) -> list[Sequence[ReceivedMessage]]:
        """The messages that plain functions have in hand."""
        return list(self._in_threads.values())

    def close(self) -> None:
        """Starts no more threads. Doesn't wait for those that run: they may never end."""
        self._closed = True
        self._limits.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _log_exit(error: SystemExit, messages: Sequence[ReceivedMessage]) -> None:
    log.error(
        "the listener called sys.exit(%r) for %s: that does not end the program, close the consumer instead",
        error.code,
        messages[0],
    )


async def _awaited(answer: Any) -> Any:
    """Returns the result of a coroutine that a plain function returned, or the answer itself."""
    return await answer if inspect.isawaitable(answer) else answer
