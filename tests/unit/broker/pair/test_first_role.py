"""A master's waiting for word from its group, without its broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tandemq.broker.pair.first_role import FirstRole
from tandemq.sim.clock import ManualClock


def test_an_order_that_comes_before_the_broker_is_up_does_not_stop_the_loop() -> None:
    """The port answers a moment before start-up ends, and a moment longer than the broker runs."""

    async def scenario() -> None:
        may_go_on = asyncio.Event()
        may_go_on.set()
        core: Any = SimpleNamespace(
            broker=SimpleNamespace(clock=ManualClock(), is_started=False),
            live=SimpleNamespace(replication=SimpleNamespace(rejoin_wait_ms=1000)),
        )
        rivals: Any = SimpleNamespace(may_go_on=may_go_on)
        nothing: Any = None
        task = asyncio.create_task(FirstRole(core, nothing, rivals, nothing)._until_word())
        for _ in range(10):
            await asyncio.sleep(0)  # others still get their turn
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
