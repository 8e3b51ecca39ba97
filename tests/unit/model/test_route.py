"""A group's master is its member with id 0."""

from tandemq.model.route import BrokerGroup


def test_the_master_has_id_0() -> None:
    assert BrokerGroup(cluster="c", name="b", addresses={0: "m:1", 1: "s:1"}).master == "m:1"
    assert BrokerGroup(cluster="c", name="b", addresses={1: "s:1"}).master is None
