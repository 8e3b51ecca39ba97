"""SIGTERM and SIGINT as an event, so that a service can drain before it ends."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Gives an event that SIGTERM or SIGINT sets, for the time of an `async with` block.

        async with stop_signals() as stop, Producer("shop", namesrv="127.0.0.1:9876") as producer:
            while not stop.is_set():
                await producer.send(Message(topic="orders", body=b"paid"))
                stop.set()  # as a signal would

    The first signal sets the event and gives the signals back to whoever had them: a second one ends the program as if
    this were not there. Outside of the main thread, where signals can't be had, the event is never set.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with _handled(lambda: loop.call_soon_threadsafe(stop.set)):
        yield stop


class StopFlag:
    """Says whether a signal came.

    A threading.Event would not do: a handler runs in the main thread between two steps of it, perhaps inside
    `Event.wait` with the event's lock held, and `Event.set` would then wait for that lock for ever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


@contextmanager
def blocking_stop_signals() -> Iterator[StopFlag]:
    """Gives the same as a flag, for programs without an event loop."""
    stop = StopFlag()
    with _handled(stop.set):
        yield stop


@contextmanager
def _handled(tell: object) -> Iterator[None]:
    assert callable(tell)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def give_back() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)

    def on_signal(number: int, frame: FrameType | None) -> None:
        give_back()
        tell()

    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        give_back()
