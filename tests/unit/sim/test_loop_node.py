"""A node with a loop: it knows who can be reached, and its coroutines die with its process."""

import asyncio
import contextlib

from tandemq.sim.fuller import Beside, FullerWorld


def test_what_runs_on_the_loop_of_a_process_ends_with_it() -> None:
    world = FullerWorld(1, Beside())
    node = world.serving[0]
    world._boot(node)
    woken: list[str] = []

    async def wait() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.get_running_loop().create_future()
        woken.append("late")

    node.begin(wait, "wait")
    while world.events.now < 0.01:
        world.events.step()
    node.die(power=False)
    while world.events.now < 0.2:
        world.events.step()
    assert woken == []


def test_a_cut_in_one_direction_is_a_cut() -> None:
    world = FullerWorld(1, Beside())
    one, other = world.serving[:2]
    assert one.reaches(other)
    world.network.block(other.name, one.name)
    assert not one.reaches(other)
    assert one.peer_at(other.address) is other
