"""A node with the services of a broker: a clean stop leaves its tables, and a hand-over takes no messages."""

import pytest

from tandemq.replication.acks import PutStatus
from tandemq.sim.clients import CONSUMERS, TOPIC
from tandemq.sim.fuller import Beside, FullerWorld
from tandemq.store.message_store import Appended


@pytest.fixture
def world() -> FullerWorld:
    """One master, alone: its group has no other member yet."""
    world = FullerWorld(1, Beside())
    world._calm = True
    node = world.serving[0]
    node.role = "master"
    world._boot(node)
    while node.services.writer.refusal is not None:
        assert world.events.now < 5.0
        world.events.step()
    return world


def sends(world: FullerWorld) -> list[PutStatus]:
    """Sends one message and returns what it was told soon after."""
    told: list[PutStatus] = []

    def done(status: PutStatus, reason: str, appended: Appended) -> None:
        told.append(status)

    world.serving[0].produce(0, b"1 ", world.level, done)
    until = world.events.now + 0.5
    while world.events.now < until:
        world.events.step()
    return told


def test_a_clean_stop_leaves_the_tables(world: FullerWorld) -> None:
    sends(world)
    node = world.serving[0]
    node.services.offsets.commit(CONSUMERS, TOPIC, 0, 1)
    node.stop()
    world._boot(node)
    assert node.services.offsets.query(CONSUMERS, TOPIC, 0) == 1


def test_a_master_that_hands_over_takes_no_messages_until_it_goes_on(world: FullerWorld) -> None:
    node = world.serving[0]
    node.rest()
    assert sends(world) == []
    node.wake()
    while node.services.writer.refusal is not None:
        assert world.events.now < 5.0
        world.events.step()
    assert len(sends(world)) == 1
