"""What a client knows about the cluster: routes by topic, addresses by broker name. Pure; `session` feeds it.

A topic without a route of its own is published through the route of TBW102, the template from which brokers create
topics on the first send; consumers never use that fallback (there is nothing to read yet).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tandemq.model.route import MASTER_ID, BrokerGroup, TopicRoute
from tandemq.model.topic import PERM_READ, PERM_WRITE, QueueRef


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a member of a broker group, and its broker id: 0 is the master."""

    address: str
    broker_id: int


def publish_queues(topic: str, route: TopicRoute) -> tuple[QueueRef, ...]:
    """Returns the queues to send to: they are writable, and their group has a master."""
    if route.order_conf:
        return _ordered_queues(topic, route.order_conf)
    with_master = {group.name for group in route.groups if group.master}
    return tuple(
        QueueRef(topic, data.broker_name, i)
        for data in sorted(route.queues, key=lambda data: data.broker_name)
        if data.perm & PERM_WRITE and data.broker_name in with_master
        for i in range(data.write_queues)
    )


def _ordered_queues(topic: str, conf: str) -> tuple[QueueRef, ...]:
    """Returns the queues of an order configuration, `broker-a:4;broker-b:4`.

    They stay the same when a broker is away, so that a message keeps its queue.
    """
    parts = (part.rpartition(":") for part in conf.split(";") if part)
    return tuple(QueueRef(topic, name, i) for name, _, count in parts if count.isdigit() for i in range(int(count)))


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[QueueRef, ...]:
    """Returns the queues that can be read, on any member of their group: slaves serve them when the master is gone."""
    return tuple(
        QueueRef(topic, data.broker_name, i)
        for data in sorted(route.queues, key=lambda data: data.broker_name)
        if data.perm & PERM_READ
        for i in range(data.read_queues)
    )


def template_route(route: TopicRoute, queues_max: int) -> TopicRoute:
    """Returns the route of TBW102 as a new topic will have it: at most `queues_max` queues per broker."""
    clamped = (
        replace(
            data,
            read_queues=min(queues_max, data.read_queues),
            write_queues=min(queues_max, data.read_queues),
        )
        for data in route.queues
    )
    return replace(route, queues=tuple(clamped))


class Routes:
    """Routes by topic and the addresses they brought. Addresses stay until a newer route of the group replaces them."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicRoute] = {}
        self._groups: dict[str, BrokerGroup] = {}
        self._learned: frozenset[str] = frozenset()
        """Groups that are kept although no route names them."""
        self._templated: set[str] = set()
        self._publish: dict[str, tuple[QueueRef, ...]] = {}

    def put(self, topic: str, route: TopicRoute, *, templated: bool = False) -> bool:
        """Keeps a route; returns whether it differs from what was known."""
        for group in route.groups:
            self._groups[group.name] = group
        changed = self._by_topic.get(topic) != route
        self._by_topic[topic] = route
        self._publish[topic] = publish_queues(topic, route)
        self._templated.discard(topic)
        if templated:
            self._templated.add(topic)
        return changed

    def learn(self, groups: Iterable[BrokerGroup]) -> None:
        """Takes over the brokers of the whole cluster, of whatever topics they have."""
        found = {group.name: group for group in groups}
        self._groups.update(found)
        self._learned = frozenset(found)

    def forget(self, topic: str) -> None:
        self._by_topic.pop(topic, None)
        self._publish.pop(topic, None)
        self._templated.discard(topic)

    def get(self, topic: str) -> TopicRoute | None:
        return self._by_topic.get(topic)

    def publish(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the queues to send to; none for an unknown topic. They are worked out once per route."""
        return self._publish.get(topic, ())

    def is_templated(self, topic: str) -> bool:
        """Returns whether the route is TBW102's, because the topic itself did not exist when it was asked for."""
        return topic in self._templated

    def topics(self) -> tuple[str, ...]:
        return tuple(self._by_topic)

    def groups(self) -> Mapping[str, BrokerGroup]:
        return self._groups

    def master(self, broker_name: str) -> str | None:
        group = self._groups.get(broker_name)
        return group.master if group else None

    def reader(self, broker_name: str, suggested_id: int) -> Target | None:
        """Returns where to pull: the suggested member, the next one if a slave was suggested, else whoever is left."""
        group = self._groups.get(broker_name)
        if group is None or not group.addresses:
            return None
        wanted = [suggested_id, suggested_id + 1] if suggested_id != MASTER_ID else [suggested_id]
        for broker_id in [*wanted, *sorted(group.addresses)]:
            if broker_id in group.addresses:
                return Target(group.addresses[broker_id], broker_id)
        return None

    def readers(self, broker_name: str, suggested_id: int) -> list[Target]:
        """Returns all members that could answer a pull, the best first."""
        group = self._groups.get(broker_name)
        first = self.reader(broker_name, suggested_id)
        if group is None or first is None:
            return []
        others = (Target(address, i) for i, address in sorted(group.addresses.items()) if i != first.broker_id)
        return [first, *others]

    def drop_unused(self, topics: Iterable[str]) -> None:
        """Forgets the routes of all other topics, and the groups that only they named."""
        wanted = set(topics)
        for topic in [t for t in self._by_topic if t not in wanted]:
            self.forget(topic)
        named = {group.name for route in self._by_topic.values() for group in route.groups} | self._learned
        self._groups = {name: group for name, group in self._groups.items() if name in named}
