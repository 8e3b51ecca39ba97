"""A pair's waiting, without its broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tandemq.broker.pair.pair import Pair
from tandemq.sim.clock import ManualClock


def test_an_order_that_comes_before_the_broker_is_up_does_not_stop_the_loop() -> None:
    """The port answers a moment before start-up ends, and a moment longer than the broker runs."""

    async def scenario() -> None:
        waiting: Any = Pair.__new__(Pair)
        waiting._broker = SimpleNamespace(clock=ManualClock(), is_started=False)
        waiting._live = SimpleNamespace(replication=SimpleNamespace(rejoin_wait_ms=1000))
        waiting._may_go_on = asyncio.Event()
        waiting._may_go_on.set()
        task = asyncio.create_task(waiting._until_word())
        for _ in range(10):
            await asyncio.sleep(0)  # others still get their turn
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
