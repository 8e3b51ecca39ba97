"""Requests between simulated brokers."""

import pytest

from tandemq.codec.command import Command
from tandemq.errors import RemotingError, RequestTimeout
from tandemq.sim.fuller import Beside, FullerWorld
from tandemq.sim.requests import SimClient


def outcome(world: FullerWorld, *, seconds: float = 0.5) -> Command | RemotingError:
    """Asks the second node something that nobody knows."""
    here, there = world.serving[:2]
    found: list[Command | RemotingError] = []

    async def ask() -> None:
        try:
            found.append(await SimClient(here).invoke(there.address, Command(32_000), 0.3))
        except RemotingError as error:
            found.append(error)

    here.begin(ask, "ask")
    while not found and world.events.now < seconds:
        world.events.step()
    return found[0]


@pytest.fixture
def world() -> FullerWorld:
    world = FullerWorld(1, Beside())
    for node in world.nodes[:2]:
        world._boot(node)
    return world


def test_a_request_is_answered(world: FullerWorld) -> None:
    assert isinstance(outcome(world), Command)


def test_a_process_that_is_dead_refuses(world: FullerWorld) -> None:
    world.nodes[1].die(power=False)
    assert not isinstance(outcome(world, seconds=0.02), RequestTimeout | Command)


def test_across_a_cut_nobody_answers(world: FullerWorld) -> None:
    world.network.block("n1", "n0")
    assert isinstance(outcome(world), RequestTimeout)
