"""Queues that can be written; masters are waited for, unknown topics are not."""

from typing import Any

import pytest

from tandemq.errors import NoRoute
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.routes import KEPT_SECONDS, NoMaster, WriteRoutes


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Cluster:
    """Answers with the routes it holds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.routes: dict[str, TopicRoute] = {}
        self.asked = 0

    def route(self, topic: str) -> TopicRoute | None:
        self.asked += 1
        self.clock.now += 1
        return self.routes.get(topic)

    def groups(self) -> dict[str, BrokerGroup]:
        self.clock.now += 1
        return {group.name: group for route in self.routes.values() for group in route.groups}


def route(*brokers: tuple[str, int], perm: int = 6, masters: bool = True) -> TopicRoute:
    ids = {0: "m", 1: "s"} if masters else {1: "s"}
    return TopicRoute(
        queues=tuple(QueueData(broker_name=name, read_queues=n, write_queues=n, perm=perm) for name, n in brokers),
        groups=tuple(
            BrokerGroup(cluster="c", name=name, addresses={i: f"{name}-{text}:1" for i, text in ids.items()})
            for name, _ in brokers
        ),
    )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(Clock())


def routes(cluster: Cluster, **given: str) -> WriteRoutes:
    options = parse(SinkOptions, {"nameserver": "n:1", "topic": "t", "retryIntervalMs": "1", **given})
    made = WriteRoutes(options, clock=cluster.clock, cluster=cluster)  # type: ignore[arg-type]
    made.access = _Impatient()  # type: ignore[assignment]
    return made


class _Impatient:
    def back_off(self, tries: int) -> None:
        pass


def named(found: Any) -> list[str]:
    return [f"{queue.broker_name}/{queue.queue_id}" for queue in found]


def test_queues_of_all_groups_in_a_fixed_order_kept_for_a_while(cluster: Cluster) -> None:
    cluster.routes["t"] = route(("b", 1), ("a", 2))
    made = routes(cluster)
    assert named(made.queues("t")) == named(made.queues("t")) == ["a/0", "a/1", "b/0"]
    assert cluster.asked == 1
    cluster.clock.now += KEPT_SECONDS
    made.queues("t")
    assert cluster.asked == 2
    for write in ("w1", "w1", "w2"):
        made.begin(write)
        made.queues("t")
    assert cluster.asked == 4


def test_a_new_topic_gets_as_many_queues_as_the_first_send_makes(cluster: Cluster) -> None:
    """Not as many as the template has: sends to the others would be refused."""
    cluster.routes["TBW102"] = route(("a", 8))
    assert named(routes(cluster).queues("t")) == ["a/0", "a/1", "a/2", "a/3"]


def test_a_broker_that_comes_back_between_two_questions_is_not_taken_for_a_new_topic(cluster: Cluster) -> None:
    """The template was registered together with the topic: the topic is asked for once more."""

    def back(topic: str, ask: Any = cluster.route) -> TopicRoute | None:
        found: TopicRoute | None = ask(topic)
        cluster.routes = {"t": route(("a", 2)), "TBW102": route(("a", 8))}
        return found

    cluster.route = back  # type: ignore[method-assign]
    assert named(routes(cluster).queues("t")) == ["a/0", "a/1"]


def test_an_unknown_topic_is_an_error_at_once(cluster: Cluster) -> None:
    cluster.routes["other"] = route(("a", 8))
    with pytest.raises(NoRoute, match="no name server knows topic 't'; create it"):
        routes(cluster).queues("t")
    assert cluster.clock.now < 10


def test_a_topic_without_a_master_is_waited_for(cluster: Cluster) -> None:
    """A promotion takes some seconds; a route without any broker means that all are restarting."""
    cluster.routes["t"] = route(("a", 4), masters=False)
    made = routes(cluster, deliveryTimeoutMs="20000")
    with pytest.raises(NoMaster, match="no broker group that has it has a master"):
        made.queues("t")
    assert 20 <= cluster.clock.now < 25
    cluster.routes.clear()
    with pytest.raises(NoMaster, match="none is up"):
        made.queues("t")
    assert cluster.clock.now > 40


def test_a_read_only_topic_is_an_error_at_once(cluster: Cluster) -> None:
    cluster.routes["t"] = route(("a", 4), perm=4)
    with pytest.raises(NoRoute, match="read-only"):
        routes(cluster).queues("t")


def test_masters_are_looked_up_again_when_asked(cluster: Cluster) -> None:
    cluster.routes["t"] = route(("a", 4))
    made = routes(cluster)
    made.queues("t")
    assert made.master("a") == "a-m:1"
    cluster.routes["t"] = route(("a", 4), masters=False)
    assert made.master("a") == "a-m:1"
    with pytest.raises(NoMaster, match="'a' has no master"):
        made.master("a", fresh=True)
    assert made.members() == {"a": ["a-s:1"]}
