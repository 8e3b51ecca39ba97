"""SIGTERM and SIGINT as events."""

import asyncio
import signal
import threading

import pytest
from tests.unit.client.fake_cluster import on_loop

from tandemq.client.shutdown import SIGNALS, blocking_stop_signals, stop_signals


@pytest.mark.parametrize("number", SIGNALS)
@on_loop
async def test_a_signal_sets_the_event_and_gives_the_handlers_back(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    async with stop_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        await stop.wait()
        assert [signal.getsignal(each) for each in SIGNALS] == before, "a second signal acts as it always did"
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_programs_without_a_loop_get_a_flag() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with blocking_stop_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_handler_that_somebody_set_meanwhile_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with blocking_stop_signals():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    signal.signal(signal.SIGTERM, before)


def test_outside_of_the_main_thread_the_event_is_never_set() -> None:
    seen: list[bool] = []

    def run() -> None:
        async def inside() -> None:
            async with stop_signals() as stop:
                seen.append(stop.is_set())

        asyncio.run(inside())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
