"""Which queues a route offers, and whom to ask."""

from tandemq.client.nameservers import NameServers
from tandemq.client.routes import Routes, Target, publish_queues, subscribe_queues, template_route
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import QueueRef


def route(addresses: dict[int, str], *, read: int = 2, write: int = 2, perm: int = 6, order: str = "") -> TopicRoute:
    return TopicRoute(
        queues=(QueueData(broker_name="a", read_queues=read, write_queues=write, perm=perm),),
        groups=(BrokerGroup(cluster="c", name="a", addresses=addresses),),
        order_conf=order,
    )


def test_sending_needs_a_master_and_the_write_bit() -> None:
    assert publish_queues("T", route({0: "m"})) == (QueueRef("T", "a", 0), QueueRef("T", "a", 1))
    assert publish_queues("T", route({1: "s"})) == ()
    assert publish_queues("T", route({0: "m"}, perm=4)) == ()


def test_reading_needs_only_the_read_bit() -> None:
    assert len(subscribe_queues("T", route({1: "s"}))) == 2
    assert subscribe_queues("T", route({0: "m"}, perm=2)) == ()


def test_an_order_configuration_fixes_the_queues() -> None:
    queues = publish_queues("T", route({1: "s"}, order="a:1;b:2"))
    assert queues == (QueueRef("T", "a", 0), QueueRef("T", "b", 0), QueueRef("T", "b", 1))


def test_a_template_is_clamped() -> None:
    clamped = template_route(route({0: "m"}, read=8, write=8), 4)
    assert len(publish_queues("new", clamped)) == 4


def test_the_suggested_member_is_asked_else_who_is_left() -> None:
    routes = Routes()
    routes.put("T", route({0: "m", 1: "s1", 2: "s2"}))
    assert routes.reader("a", 0) == Target("m", 0)
    assert routes.reader("a", 2) == Target("s2", 2)
    routes.put("T", route({2: "s2"}))
    assert routes.reader("a", 1) == Target("s2", 2)
    assert routes.reader("a", 0) == Target("s2", 2)
    assert routes.master("a") is None
    assert routes.reader("unknown", 0) is None


def test_readers_come_best_first() -> None:
    routes = Routes()
    routes.put("T", route({0: "m", 1: "s1"}))
    assert routes.readers("a", 1) == [Target("s1", 1), Target("m", 0)]


def test_a_route_that_did_not_change_is_no_news() -> None:
    routes = Routes()
    assert routes.put("T", route({0: "m"}))
    assert not routes.put("T", route({0: "m"}))
    assert routes.put("T", route({0: "m", 1: "s"}))


def test_unused_routes_and_their_brokers_are_forgotten() -> None:
    routes = Routes()
    routes.put("T", route({0: "m"}))
    routes.drop_unused(["other"])
    assert routes.get("T") is None
    assert routes.groups() == {}
    assert routes.publish("T") == ()


def test_a_name_server_is_kept_until_it_fails() -> None:
    servers = NameServers(["a", "b", "c"], start=1)
    assert servers.candidates() == ("b", "c", "a")
    assert not servers.answered("b")
    assert servers.answered("a")
    assert servers.candidates() == ("a", "b", "c")
