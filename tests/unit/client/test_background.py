"""Background loops outlive their errors."""

import asyncio
import logging

import pytest
from tests.unit.client.fake_cluster import on_loop, turns

from tandemq.client.background import Background, cancelled
from tandemq.testing.waiting import until


@on_loop
async def test_a_loop_that_fails_is_logged_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[int] = []

    async def work() -> None:
        starts.append(len(starts))
        if len(starts) < 3:
            raise KeyError("topic")
        await asyncio.Event().wait()

    background = Background("group g", restart_s=0.0)
    with caplog.at_level(logging.ERROR, "tandemq.client"):
        background.start("rebalance", work)
        await until(lambda: len(starts) == 3, "the third start")
    assert [record.getMessage() for record in caplog.records] == [
        "group g: rebalance failed and is started again in 0 s"
    ] * 2
    assert caplog.records[0].exc_info is not None
    await background.stop()


@on_loop
async def test_a_loop_that_returns_is_done() -> None:
    runs: list[int] = []

    async def work() -> None:
        runs.append(1)

    background = Background("g")
    background.start("once", work)
    await turns()
    await background.stop()
    assert runs == [1]


@on_loop
async def test_stop_ends_all_and_leaves_the_caller_out() -> None:
    background = Background("g")
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    async def stops() -> None:
        await background.stop()
        ended.append("stopped")

    background.start("forever", forever)
    background.start("stops", stops)
    await until(lambda: ended == ["forever", "stopped"], "both ended")


@on_loop
async def test_cancelled_waits_until_tasks_have_ended() -> None:
    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(3)

    task = asyncio.get_running_loop().create_task(slow_to_end())
    await turns(1)
    await cancelled([task])
    assert task.cancelled()
