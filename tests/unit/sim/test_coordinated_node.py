"""What a simulated broker tells production's failover, and what it makes of its orders."""

from typing import cast

from tandemq.broker.write_gate import WriteRefused
from tandemq.sim.coordinated import LEASE, CoordinatedWorld
from tandemq.sim.coordinated_node import CoordinatedNode


def nodes_of(world: CoordinatedWorld, seconds: float) -> tuple[CoordinatedNode, list[CoordinatedNode]]:
    world._calm = True
    for node in world.nodes:
        world._boot(node)
    world.events.at(seconds, lambda: None)
    while world.events.now < seconds and world.events.step():
        pass
    nodes = [cast("CoordinatedNode", node) for node in world.nodes]
    (master,) = [node for node in nodes if node.is_open]
    return master, [node for node in nodes if node is not master]


def test_only_the_master_takes_messages_and_runs_services() -> None:
    master, slaves = nodes_of(CoordinatedWorld(1), 2.0 * LEASE)
    assert master.pair.broker.writer.refusal is None
    assert master.pair.broker.services is not None
    for slave in slaves:
        assert isinstance(slave.pair.broker.writer.refusal, WriteRefused)
        assert slave.pair.broker.services is None


def test_it_says_who_it_is_and_how_far_it_has_come() -> None:
    master, slaves = nodes_of(CoordinatedWorld(1), 2.0 * LEASE)
    facts = slaves[0].pair.facts()
    assert facts["tandemqReplica"] == slaves[0].record.replica
    assert facts["tandemqHolder"] == master.record.replica
    assert facts["tandemqRank"].count(".") == 1


def test_a_port_is_refused_by_a_dead_process_and_silent_where_the_machine_is_off() -> None:
    master, slaves = nodes_of(CoordinatedWorld(1), 2.0 * LEASE)
    assert slaves[0]._knock(master.name, 1) is True
    master.die(power=False)
    assert slaves[0]._knock(master.name, 1) is False
    master.machine_runs = False
    assert slaves[0]._knock(master.name, 1) is None
