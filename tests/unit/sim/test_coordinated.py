"""A simulated group with a coordinator, left in peace: it finds a master, and keeps what its checks are for."""

import pytest

from tandemq.sim.coordinated import LEASE, CoordinatedWorld
from tandemq.sim.ledger import Violation
from tandemq.sim.node import SimNode


def peaceful(seed: int = 1) -> CoordinatedWorld:
    world = CoordinatedWorld(seed)
    world._calm = True
    for node in world.nodes:
        world._boot(node)
    return world


def run(world: CoordinatedWorld, seconds: float) -> None:
    until = world.events.now + seconds
    world.events.at(until, lambda: None)
    while world.events.now < until and world.events.step():
        pass


def reigning(world: CoordinatedWorld) -> list[SimNode]:
    return [node for node in world.nodes if node.is_open]


def test_a_group_begins_with_one_master_and_all_others_follow_it() -> None:
    world = peaceful()
    run(world, 2 * LEASE)
    assert len(reigning(world)) == 1
    assert sum(node.is_following for node in world.nodes) == len(world.nodes) - 1


def test_a_dead_process_is_replaced_before_its_lease_ends() -> None:
    world = peaceful()
    run(world, 5 * LEASE)  # one that has handed over to a preferred master rests for two
    (first,) = reigning(world)
    world._boot = lambda node: None  # type: ignore[method-assign]  # it stays dead
    first.die(power=False)
    run(world, LEASE / 2)
    assert [node for node in reigning(world) if node is not first]


def test_an_acknowledgement_in_an_older_epoch_is_noticed() -> None:
    world = peaceful()
    run(world, 2 * LEASE)
    (master,) = reigning(world)
    world.acknowledged_by(master)
    assert master.master is not None
    world._newest_ack = master.master.number + 1
    with pytest.raises(Violation, match="acknowledged in epoch"):
        world.acknowledged_by(master)
