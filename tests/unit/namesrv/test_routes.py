"""The route table, step by step as RouteInfoManager does it. Time and connections are plain values."""

import pytest

from tandemq.errors import ReplyError
from tandemq.model.route import BrokerGroup, QueueData
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.namesrv.routes import Live, Registered, Registering, RouteTable

TOPICS = {name: TopicConfig(name=name, read_queues=4, write_queues=4) for name in ("t1", "t2")}
V1, V2 = DataVersion(0, 100, 1), DataVersion(0, 200, 2)


def broker(broker_id: int = 0, name: str = "a", **changes: object) -> Registering:
    values: dict[str, object] = {
        "cluster": "c",
        "broker_name": name,
        "broker_id": broker_id,
        "address": f"{name}:{10911 + broker_id}",
        "ha_address": f"{name}:{20911 + broker_id}",
        "topics": TOPICS,
        "version": V1,
        "connection": f"{name}{broker_id}",
    }
    return Registering(**{**values, **changes})  # type: ignore[arg-type]


def table(*requests: Registering, now: float = 0.0) -> RouteTable:
    found = RouteTable()
    for request in requests:
        found.register(request, now, timeout=120.0)
    return found


def test_a_master_brings_its_topics() -> None:
    routes = table(broker())
    route = routes.route("t1")
    assert route is not None
    assert route.queues == (QueueData(broker_name="a", read_queues=4, write_queues=4, perm=6),)
    assert route.groups == (BrokerGroup(cluster="c", name="a", addresses={0: "a:10911"}),)
    assert routes.clusters() == {"c": ["a"]}
    assert routes.route("t3") is None


def test_a_slave_learns_its_master_and_brings_no_topics() -> None:
    routes = table()
    assert routes.register(broker(), 0.0, timeout=120.0) == Registered()
    answer = routes.register(broker(1, topics={**TOPICS, "t3": TOPICS["t1"]}), 0.0, timeout=120.0)
    assert answer == Registered("a:10911", "a:20911")
    assert routes.route("t3") is None
    group = routes.members("c", "a")
    assert group is not None
    assert group.addresses == {0: "a:10911", 1: "a:10912"}


def test_a_slave_without_master_learns_nothing() -> None:
    assert table().register(broker(1), 0.0, timeout=120.0) == Registered()


def test_topics_follow_the_version_of_the_table() -> None:
    """The same version changes nothing; a new one updates; topics are never deleted by registering."""
    routes = table(broker())
    wider = {"t1": TopicConfig(name="t1", read_queues=16, write_queues=16), "t2": TOPICS["t2"]}
    routes.register(broker(topics=wider), 1.0, timeout=120.0)
    assert routes.route("t1").queues[0].read_queues == 4  # type: ignore[union-attr]
    routes.register(broker(topics=wider, version=V2), 2.0, timeout=120.0)
    assert routes.route("t1").queues[0].read_queues == 16  # type: ignore[union-attr]
    routes.register(broker(topics={"t1": wider["t1"]}, version=DataVersion(0, 300, 3)), 3.0, timeout=120.0)
    assert routes.route("t2") is not None


def test_a_new_topic_comes_even_with_an_unchanged_version() -> None:
    routes = table(broker())
    routes.register(broker(topics={**TOPICS, "t3": TopicConfig(name="t3")}), 1.0, timeout=120.0)
    assert routes.route("t3") is not None


def test_missing_topics_can_be_deleted_by_registration() -> None:
    routes = table(broker())
    only = {"t1": TOPICS["t1"], "t9": TopicConfig(name="t9")}
    routes.register(broker(topics=only, version=V2), 1.0, timeout=120.0, delete_missing_topics=True)
    assert sorted(routes.topics()) == ["t1", "t9"]


def test_an_incremental_registration_of_an_unknown_broker_is_refused() -> None:
    """It races after an unregister: one topic would stand for all."""
    routes = table()
    with pytest.raises(ReplyError, match="register broker failed"):
        routes.register(broker(topics={"t1": TOPICS["t1"]}), 0.0, timeout=120.0)
    assert routes.groups() == []


def test_an_address_that_changes_its_id_has_one_id() -> None:
    """Promotion: the slave's address registers as id 0."""
    routes = table(broker(), broker(1))
    routes.unregister("c", "a", "a:10911")
    routes.register(broker(0, address="a:10912"), 1.0, timeout=120.0)
    assert routes.members("c", "a").addresses == {0: "a:10912"}  # type: ignore[union-attr]


def test_two_brokers_claim_one_id() -> None:
    """The one whose table has the higher state version (epoch) stays."""
    routes = table(broker(version=DataVersion(5, 100, 1)))
    old = routes.register(broker(address="b:1", version=DataVersion(4, 900, 9)), 1.0, timeout=120.0)
    assert old == Registered()
    assert routes.members("c", "a").addresses == {0: "a:10911"}  # type: ignore[union-attr]
    assert ("c", "b:1") not in routes.live()
    routes.register(broker(address="b:1", version=DataVersion(6, 50, 1)), 2.0, timeout=120.0)
    assert routes.members("c", "a").addresses == {0: "b:1"}  # type: ignore[union-attr]


def test_expiry_is_exact_and_uses_the_brokers_own_timeout() -> None:
    routes = table(broker(), broker(name="b", timeout_seconds=10.0))
    assert routes.next_deadline == 10.0
    assert routes.expire(9.9) == []
    ((key, live),) = routes.expire(10.0)
    assert (key, live.connection) == (("c", "b:10911"), "b0")
    assert routes.clusters() == {"c": ["a"]}
    assert routes.refresh("c", "a:10911", 100.0) == V1
    assert routes.expire(219.9) == []
    assert [key for key, _ in routes.expire(220.0)] == [("c", "a:10911")]
    assert (routes.groups(), routes.topics(), routes.clusters(), routes.next_deadline) == ([], [], {}, None)
    assert routes.refresh("c", "a:10911", 230.0) is None


def test_a_lost_connection_removes_its_brokers_at_once() -> None:
    routes = table(broker(), broker(1), broker(name="b", connection="a0"))
    assert sorted(routes.disconnected("a0")) == [("c", "a:10911"), ("c", "b:10911")]
    route = routes.route("t1")
    assert route is not None
    assert route.groups == (BrokerGroup(cluster="c", name="a", addresses={1: "a:10912"}),)
    assert route.queues[0].perm == 6
    assert routes.disconnected("a0") == []


def test_the_last_address_takes_group_and_topics_along() -> None:
    routes = table(broker(), broker(name="b"))
    routes.unregister("c", "a", "a:10911")
    routes.unregister("c", "a", "a:10911")
    assert routes.route("t1").queues[0].broker_name == "b"  # type: ignore[union-attr]
    routes.unregister("c", "b", "b:10911")
    assert routes.topics() == []


def test_write_permission_can_be_wiped_and_given_back() -> None:
    routes = table(broker(), broker(name="b"))
    assert routes.wipe_write_perm("a") == 2
    assert [queues.perm for queues in routes.route("t1").queues] == [4, 6]  # type: ignore[union-attr]
    assert routes.add_write_perm("a") == 2
    assert [queues.perm for queues in routes.route("t1").queues] == [6, 6]  # type: ignore[union-attr]
    assert routes.wipe_write_perm("nobody") == 0


def test_topics_can_be_deleted_and_added_by_hand() -> None:
    routes = table(broker(), broker(name="b", cluster="d"))
    routes.delete_topic("t1", "c")
    assert [queues.broker_name for queues in routes.route("t1").queues] == ["b"]  # type: ignore[union-attr]
    routes.delete_topic("t1")
    assert routes.route("t1") is None
    queues = [QueueData(broker_name=name, read_queues=1, write_queues=1, perm=6) for name in ("a", "ghost")]
    routes.register_topic("t1", queues)
    assert [entry.broker_name for entry in routes.route("t1").queues] == ["a"]  # type: ignore[union-attr]
    assert sorted(routes.topics("c")) == ["t1", "t2"]
    assert routes.topics("nowhere") == []


def test_unit_and_system_lists() -> None:
    unit = TopicConfig(name="u", sys_flag=1)
    both = TopicConfig(name="ub", sys_flag=3)
    sub = TopicConfig(name="s", sys_flag=2)
    routes = table(broker(topics={"u": unit, "ub": both, "s": sub, "n": TopicConfig(name="n")}))
    assert routes.unit_topics(unit=True, subscription=None) == ["u", "ub"]
    assert routes.unit_topics(unit=None, subscription=True) == ["ub", "s"]
    assert routes.unit_topics(unit=False, subscription=True) == ["s"]
    assert routes.system_topics() == (["c", "a"], "a:10911")


def test_acting_master() -> None:
    """A 5.x slave that may act brings read-only topics, and is shown as id 0 when the name server supports it."""
    routes = table(broker(1, enable_acting_master=True), broker(2, enable_acting_master=True))
    plain = routes.route("t1")
    acting = routes.route("t1", support_acting_master=True)
    assert plain is not None
    assert acting is not None
    assert plain.queues[0].perm == 4
    assert plain.groups[0].addresses == {1: "a:10912", 2: "a:10913"}
    assert acting.groups[0].addresses == {0: "a:10912", 2: "a:10913"}


def test_a_lost_master_of_an_acting_group_makes_it_read_only() -> None:
    routes = table(broker(enable_acting_master=True), broker(1, enable_acting_master=True))
    assert routes.route("t1").queues[0].perm == 6  # type: ignore[union-attr]
    routes.unregister("c", "a", "a:10911")
    assert routes.route("t1").queues[0].perm == 4  # type: ignore[union-attr]


def test_prime_slave_of_a_new_broker_brings_topics_without_acting() -> None:
    """`enableActingMaster=false` still says: a broker that knows about it."""
    routes = table(broker(1, enable_acting_master=False))
    assert routes.route("t1").queues[0].perm == 6  # type: ignore[union-attr]
    assert table(broker(1)).route("t1") is None


def test_changes_of_the_lowest_id_are_noted() -> None:
    routes = table(broker(), broker(1))
    routes.min_id_changes.clear()
    routes.unregister("c", "a", "a:10911")
    (change,) = routes.min_id_changes
    assert (change.addresses, change.offline_address, change.ha_address) == ({1: "a:10912"}, "a:10911", "a:20912")
    assert routes.connections_of(change.addresses.values()) == ["a1"]


def test_revision_moves_only_with_routes() -> None:
    routes = table(broker())
    before = routes.revision
    routes.register(broker(), 5.0, timeout=120.0)
    routes.refresh("c", "a:10911", 6.0)
    assert routes.revision == before
    routes.wipe_write_perm("a")
    assert routes.revision > before


def test_bounds() -> None:
    routes = RouteTable(brokers_max=1, routes_max=3)
    routes.register(broker(), 0.0, timeout=120.0)
    with pytest.raises(ReplyError, match="brokersMax is 1"):
        routes.register(broker(name="b"), 0.0, timeout=120.0)
    more = {f"t{n}": TopicConfig(name=f"t{n}") for n in range(5)}
    with pytest.raises(ReplyError, match="topicRoutesMax is 3"):
        routes.register(broker(topics=more, version=V2), 0.0, timeout=120.0)
    routes.register(broker(topics={**TOPICS, "t3": TOPICS["t1"]}, version=V2), 0.0, timeout=120.0)
    with pytest.raises(ReplyError, match="topicRoutesMax"):
        routes.register_topic("t4", [QueueData(broker_name="a", read_queues=1, write_queues=1, perm=6)])
    assert isinstance(routes.live()["c", "a:10911"], Live)
