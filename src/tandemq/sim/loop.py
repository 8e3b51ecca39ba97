"""An event loop without sockets and without time of its own: the simulator's queue of events drives it.

So that production's coroutines run in the simulator as they are, each process of a node has one.  It dies with its
process: what is scheduled then never runs, as after kill -9.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

from tandemq.errors import TandemError
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.sim.network import EventQueue


class Process(Protocol):
    """Whose loop it is."""

    clock: ManualClock
    disk: CrashableDisk
    clock_rate: float
    alive: bool
    incarnation: int

    def guarded(self, action: Callable[[], None]) -> None:
        """Runs one event of the process, later if it is paused."""
        ...

    def advance_clock(self) -> None: ...


Knock = Callable[[str, int], "bool | None"]
"""Host, port -> whether somebody listens there; None: no answer at all."""


class SimLoop(asyncio.AbstractEventLoop):
    """As much of a loop as tasks, futures, timeouts and locks need."""

    def __init__(self, process: Process, events: EventQueue, knock: Knock) -> None:
        self._process = process
        self._events = events
        self._knock = knock
        self._incarnation = process.incarnation
        self._ready: deque[asyncio.Handle] = deque()
        self._due = False
        self.tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def _lives(self) -> bool:
        return self._process.alive and self._process.incarnation == self._incarnation

    # --- scheduling -------------------------------------------------------------------------------------------------

    def time(self) -> float:
        self._process.advance_clock()
        return self._process.clock.monotonic()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._due and self._lives:  # what a dead process still asks for depends on the garbage collection
            self._due = True
            self._events.after(0.0, self._run_soon)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay = max(0.0, when - self.time()) / self._process.clock_rate

        def due() -> None:
            if not handle.cancelled() and self._lives:
                self._process.guarded(lambda: self._run([handle]))

        self._events.after(delay, due)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _run_soon(self) -> None:
        self._due = False
        if self._lives:
            self._process.guarded(self._run_ready)

    def _run_ready(self) -> None:
        ready, self._ready = self._ready, deque()
        self._run(ready)

    def _run(self, handles: "deque[asyncio.Handle] | list[asyncio.TimerHandle]") -> None:
        """What a callback raises is the process's: a disk that fails in one ends it, as everywhere else."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=_leave)
        try:
            for handle in handles:
                if self._lives and not handle.cancelled():
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                    if self._process.disk.is_off:
                        raise PowerCut("in the middle of a coroutine")
        finally:
            sys.set_asyncgen_hooks(finalizer=None)
            asyncio._set_running_loop(before)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(self._ended)
        if not self._lives:
            self.bury()
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.pop(task, None)
        error = task.exception() if not task.cancelled() else None
        if error is not None and not isinstance(error, TandemError | OSError | PowerCut):
            raise AssertionError(f"{task.get_name()} failed: {error!r}") from error

    def bury(self) -> None:
        """The process is dead: its coroutines end without a word."""
        for task in list(self.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if not getattr(
                coroutine, "cr_running", False
            ):  # the one in which the process dies goes no further than to its next wait
                coroutine.close()
        self.tasks.clear()
        self._ready.clear()

    def finish(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs what is ready until this is done: for a process that ends, to which nothing comes from outside."""
        task = self.create_task(work)
        while not task.done() and self._ready:
            self._run_ready()

    # --- the rest ---------------------------------------------------------------------------------------------------

    async def create_connection(self, *arguments: Any, **more: Any) -> Any:
        """For whoever wants to know whether a port is refused."""
        factory, host, port = arguments
        answer = self._knock(host, port)
        if answer is None:
            await self.create_future()
        if not answer:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        return _Unused(), protocol

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._lives

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        pass


class _Unused(asyncio.Transport):
    """A connection that nothing is sent on."""

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return True


def _leave(generator: object) -> None:
    """A generator of a dead process ends where it was."""
