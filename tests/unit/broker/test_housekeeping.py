"""Repeated work: one failure ends nothing, and a stop ends everything."""

import asyncio
import logging

import pytest

from tandemq.broker.housekeeping import Housekeeping


def test_it_comes_again_after_a_failure_until_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        housekeeping = Housekeeping(asyncio.get_running_loop())
        rounds: list[str] = []
        three = asyncio.Event()

        def sweep() -> None:
            rounds.append("plain")
            if len(rounds) == 1:
                raise OSError("no space left")

        async def count() -> None:
            rounds.append("coroutine")
            if rounds.count("plain") > 2 and rounds.count("coroutine") > 2:
                three.set()

        housekeeping.every(lambda: 0.0, sweep)
        housekeeping.every(lambda: 0.0, count)
        async with asyncio.timeout(5):
            await three.wait()
        await housekeeping.stop()
        ended = len(rounds)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(rounds) == ended

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == ["housekeeping sweep failed"]
