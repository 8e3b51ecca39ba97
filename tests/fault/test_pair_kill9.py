"""A real pair under load, killed again and again: nothing acknowledged is lost, logs end byte-identical.

TANDEMQ_PAIR_ROUNDS sets the number of rounds (50 for a thorough run).
"""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tandemq.testing.pair import RealPair

ROUNDS = int(os.environ.get("TANDEMQ_PAIR_ROUNDS", "8"))
LEVELS = ("", "1", "2:durable", "all")
"""One per sender. A killed process leaves its memory of the log to the kernel, so even one copy survives this."""


async def killed_and_checked(directory: Path, seed: int, rounds: int, levels: tuple[str, ...], **options: str) -> None:
    random = Random(seed)
    async with RealPair(directory, properties=options) as pair:
        pair.master.start()
        pair.slave.start()
        await pair.in_sync()
        load = pair.load(senders=4, levels=levels)
        for _ in range(rounds):
            before = len(load.result.acknowledged)
            await load.reached(before + random.randint(50, 500))
            victims = random.choice(([pair.master], [pair.slave], [pair.master, pair.slave]))
            for victim in victims:
                victim.kill()
            for victim in random.sample(victims, len(victims)):
                victim.start()
            await pair.in_sync(quiet=False)
            await load.reached(before + 1)
        result = await load.stop()
        await pair.in_sync()
        assert {told.level for told in result.acknowledged} == set(levels)
        await pair.check(result)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_pair_loses_nothing_it_acknowledged_at_any_level(tmp_path: Path) -> None:
    asyncio.run(killed_and_checked(tmp_path, 1, ROUNDS, LEVELS))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_pair_loses_nothing_that_was_on_two_disks(tmp_path: Path) -> None:
    asyncio.run(killed_and_checked(tmp_path, 2, max(2, ROUNDS // 3), ("2:durable",)))
