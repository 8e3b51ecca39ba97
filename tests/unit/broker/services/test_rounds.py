"""Rounds of a service: bounded work, pauses that a wake ends."""

import asyncio
from collections.abc import Callable

from tandemq.broker.services.rounds import in_rounds
from tandemq.testing.waiting import until


def run_rounds(wake: asyncio.Event, work: Callable[[], float | None]) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(in_rounds(wake, work))


async def stopped(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_work_goes_on_while_there_is_more_and_lets_others_run() -> None:
    async def story() -> None:
        left, others = [3], [0]

        def work() -> float | None:
            left[0] -= 1
            others.append(others[0])
            return 0 if left[0] else None

        task = run_rounds(asyncio.Event(), work)
        while left[0]:
            others[0] += 1
            await asyncio.sleep(0)
        assert len(set(others[1:])) == 3, "somebody else had a turn between any two rounds"
        await stopped(task)

    asyncio.run(story())


def test_a_wake_during_a_round_is_not_lost() -> None:
    async def story() -> None:
        wake, rounds = asyncio.Event(), [0]

        def work() -> float | None:
            rounds[0] += 1
            if rounds[0] == 1:
                wake.set()
            return None

        task = run_rounds(wake, work)
        await until(lambda: rounds[0] == 2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert rounds[0] == 2, "and without one it waits"
        wake.set()
        await until(lambda: rounds[0] == 3)
        await stopped(task)

    asyncio.run(story())


def test_a_pause_ends_by_itself() -> None:
    async def story() -> None:
        rounds = [0]

        def work() -> float | None:
            rounds[0] += 1
            return 0.001 if rounds[0] == 1 else None

        task = run_rounds(asyncio.Event(), work)
        await until(lambda: rounds[0] == 2)
        await stopped(task)

    asyncio.run(story())
