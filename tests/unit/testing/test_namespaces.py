"""The addresses of machines; tests/fault/test_failover_partition.py makes them."""

from tandemq.testing.namespaces import HERE, Machines


def test_every_machine_has_its_own_address() -> None:
    machines = Machines(("etcd", "0", "1"))
    assert len({HERE, *map(machines.address, ("etcd", "0", "1"))}) == 4
    assert machines.inside("0")[:3] == ["ip", "netns", "exec"]
