"""One queue that a consumer holds."""

import asyncio
from typing import Any

from tests.unit.client.fake_cluster import on_loop, turns

from tandemq.client.held_queue import HeldQueue
from tandemq.client.process_queue import ProcessQueue
from tandemq.model.topic import QueueRef


class Fetcher:
    def __init__(self) -> None:
        self.runs = self.ends = self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    async def run(self) -> None:
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ends += 1


def made() -> tuple[HeldQueue, Any]:
    return HeldQueue(QueueRef("T", "a", 0), ProcessQueue()), Fetcher()


@on_loop
async def test_fetching_is_started_anew_and_stopped() -> None:
    held, fetcher = made()
    held.fetch_with(fetcher)
    await turns(2)
    held.fetch_anew()
    await turns(2)
    assert (fetcher.runs, fetcher.ends) == (2, 1)
    held.wake()
    assert fetcher.wakes == 1
    held.stop_fetching()
    await turns(2)
    assert (fetcher.runs, fetcher.ends) == (2, 2)


@on_loop
async def test_a_dropped_queue_is_not_fetched_any_more() -> None:
    held, fetcher = made()
    held.fetch_with(fetcher)
    await turns(2)
    held.drop()
    held.fetch_anew()
    await turns(2)
    assert (fetcher.runs, fetcher.ends) == (1, 1)
    assert held.state.dropped


@on_loop
async def test_calls_begin_only_in_a_queue_that_stays_where_it_is() -> None:
    held, _ = made()
    assert held.is_open
    held.leaving = True
    assert not held.is_open
    held.leaving, held.moving = False, True
    assert not held.is_open
    held.moving = False
    held.drop()
    assert not held.is_open
