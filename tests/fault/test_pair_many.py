"""A master with three slaves, real processes: sends that need one of them, most of them, all of them; one is killed."""

import asyncio
from pathlib import Path

import pytest

from tandemq.testing.pair import RealPair

LEVELS = ("", "majority", "all", "3:durable")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_three_slaves_get_everything_whoever_is_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealPair(tmp_path, slaves=3) as group:
            for broker in group.brokers:
                broker.start()
            await group.in_sync()
            load = group.load(senders=4, levels=LEVELS)
            await load.reached(300)
            killed = group.brokers[1]
            killed.kill()
            await load.reached(len(load.result.acknowledged) + 100)  # two copies and the majority can still be had
            killed.start()
            await group.in_sync(quiet=False)
            await load.reached(len(load.result.acknowledged) + 100)
            result = await load.stop()
            await group.in_sync()
            assert {told.level for told in result.acknowledged} == set(LEVELS)
            await group.check(result)

    asyncio.run(story())
