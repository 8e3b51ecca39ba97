"""Long work lets others run."""

import asyncio

from tandemq.remoting.slices import SLICE_SECONDS, Slices
from tandemq.sim.clock import ManualClock


def test_the_loop_is_given_away_once_a_slice_is_used_up() -> None:
    async def story() -> None:
        clock = ManualClock()
        slices = Slices(clock)
        others: list[int] = []
        for step in range(10):
            asyncio.get_running_loop().call_soon(others.append, step)
            await slices.breathe()
            assert others == []
        clock.advance(SLICE_SECONDS)
        await slices.breathe()
        assert others == list(range(10))
        asyncio.get_running_loop().call_soon(others.append, 10)
        await slices.breathe()
        assert 10 not in others

    asyncio.run(story())
