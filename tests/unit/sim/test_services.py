"""Tables and services of simulated nodes: they travel, they wait for the log, and they outlive their process."""

import logging
from collections.abc import Callable

import pytest

from tandemq.sim.clients import CONSUMERS, TOPIC
from tandemq.sim.fuller import Beside, FullerWorld
from tandemq.sim.serving_node import ServingNode


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class Peace(FullerWorld):
    """A world in which nothing happens unless a test does it."""

    def __init__(self) -> None:
        super().__init__(1, Beside())
        self._calm = True
        for node in self.nodes:
            node.role, node.follows = ("master" if node is self.chosen else "slave"), self.chosen
            self._boot(node)
        self.run_to(lambda: self.chosen.is_open and all(n.is_following for n in self.nodes if n is not self.chosen))

    def run_to(self, holds: Callable[[], bool], seconds: float = 5.0) -> None:
        deadline = self.events.now + seconds
        while not holds():
            assert self.events.now < deadline, self._describe()
            self.events.step()

    @property
    def master(self) -> ServingNode:
        return next(node for node in self.serving if node is self.chosen)

    @property
    def slave(self) -> ServingNode:
        return next(node for node in self.serving if node is not self.chosen)

    def send(self, count: int) -> None:
        for number in range(count):
            self.master.produce(0, b"%d " % number, self.level, lambda status, reason, appended: None)

    def told(self, node: ServingNode) -> int:
        return node.services.offsets.query(CONSUMERS, TOPIC, 0)


def test_consumer_offsets_reach_the_slave() -> None:
    world = Peace()
    world.run_to(lambda: world.master.services.writer.refusal is None)
    world.send(5)
    world.run_to(lambda: world.slave.store.dispatched == world.master.store.appended)
    world.master.services.offsets.commit(CONSUMERS, TOPIC, 0, 5)
    world.run_to(lambda: world.told(world.slave) == 5)


def test_tables_outlive_their_process() -> None:
    world = Peace()
    world.run_to(lambda: world.master.services.writer.refusal is None)
    world.send(5)
    world.master.services.offsets.commit(CONSUMERS, TOPIC, 0, 5)
    world.run_to(lambda: world.told(world.slave) == 5)
    world.slave.services.save()
    slave = world.slave
    slave.die(power=False)
    world.run_to(lambda: slave.alive)
    assert world.told(slave) == 5


def test_a_slave_has_no_services_and_takes_no_writes() -> None:
    world = Peace()
    world.run_to(lambda: world.master.services.writer.refusal is None)
    assert world.slave.services.writer.refusal is not None
    assert not world.slave.is_open
