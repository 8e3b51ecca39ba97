"""The event loop behind `tandemq.client.sync`: one background thread for all clients of a process.

A call that could never return is refused at once: one from a callback that runs on this very loop, and one with a
client that was made before a fork, whose loop's thread exists in the parent only.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import uvloop

from tandemq.errors import ClientError

log = logging.getLogger("tandemq.client")

T = TypeVar("T")

EXIT_S = 5.0
"""How long the end of the program waits for clients that nobody closed."""


class Closable(Protocol):
    """A client that can be closed from any thread."""

    def close_at_exit(self, timeout: float) -> None: ...


class ClientLoop:
    """A loop in a daemon thread: it never keeps a program alive."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="tandemq-client", daemon=True)
        self._thread.start()
        self._open: WeakSet[Closable] = WeakSet()
        atexit.register(self._at_exit)

    def _serve(self) -> None:
        while True:
            try:
                self._loop.run_forever()
                return
            except BaseException:  # a KeyboardInterrupt or SystemExit that some callback raised leaves the loop
                log.exception("a callback tried to end the thread of the clients: it goes on")

    @property
    def alive(self) -> bool:
        """Whether this process has the thread: a forked child has not."""
        return self._pid == os.getpid()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs work on the loop; returns its future at once."""
        if not self.alive:
            work.close()
            raise ClientError(
                f"this client was made in process {self._pid}, before a fork: make a new one in process {os.getpid()}"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work on the loop and returns its result."""
        try:
            self.check_outside()
        except ClientError:
            work.close()
            raise
        return self.start(work).result()

    def check_outside(self) -> None:
        """Raises ClientError on the loop's own thread, where whoever waits for the loop waits for itself."""
        if threading.current_thread() is self._thread:
            raise ClientError(
                "a call of tandemq.client.sync inside a callback of its own event loop would wait for itself: "
                "make the listener a plain function, or use the asyncio client there"
            )

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls a plain function on the loop's thread, which owns all state of the clients."""

        async def on_loop() -> T:
            return function(*args, **kwargs)

        return self.run(on_loop())

    def opened(self, client: Closable) -> None:
        """Notes a client that was started, to be closed at the program's end if nobody does it before."""
        self._open.add(client)

    def closed(self, client: Closable) -> None:
        self._open.discard(client)

    def _at_exit(self) -> None:
        if self.alive:
            for client in list(self._open):
                client.close_at_exit(EXIT_S)


_lock = threading.Lock()
_current: ClientLoop | None = None


def client_loop() -> ClientLoop:
    """Returns the loop of this process; makes it for the first client, and again after a fork."""
    global _current
    with _lock:
        if _current is None or not _current.alive:
            _current = ClientLoop()
        return _current


def _after_fork() -> None:
    """Replaces the locks in a child: one held by another thread of the parent would stay locked."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
