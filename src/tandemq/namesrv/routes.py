"""The route table: who lives and what they offer. Pure: time and connections are arguments.

Four tables, as RouteInfoManager has them:

* clusters:  cluster -> names of its broker groups
* groups:    broker name -> cluster and address per broker id (0 = master)
* topics:    topic -> broker name -> its queues there
* live:      (cluster, address) -> when it last registered, its table's version, its connection

Topics come and go with masters' registrations; a group leaves with its last address, a topic with its last group.
`revision` moves whenever an answer to a route request may have changed.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from tandemq.errors import ReplyError
from tandemq.model.route import MASTER_ID, BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig

_REFUSED = 1  # SYSTEM_ERROR
_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_UNIT, _UNIT_SUBSCRIPTION = 1, 2
"""Bits of topicSysFlag."""

Address = tuple[str, str]
"""(cluster, "ip:port"): what identifies a live broker."""


@dataclass(slots=True)
class Live:
    """A broker that registered and has not been silent for too long."""

    broker_name: str
    broker_id: int
    deadline: float
    """Removed when this moment passes without another registration or heartbeat."""
    timeout: float
    version: DataVersion
    connection: Hashable
    ha_address: str


@dataclass(slots=True)
class _Group:
    cluster: str
    addresses: dict[int, str]
    acting_master: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering:
    """One REGISTER_BROKER request."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    topics: Mapping[str, TopicConfig]
    version: DataVersion
    connection: Hashable = None
    timeout_seconds: float | None = None
    enable_acting_master: bool | None = None
    """None: a broker before 5.0, which can't act as master."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a broker learns from registering: its group's master, when it is not the master itself."""

    master_address: str = ""
    ha_address: str = ""


@dataclass(frozen=True, slots=True)
class MinIdChange:
    """The lowest broker id of a group changed: its members may want to know (NOTIFY_MIN_BROKER_ID_CHANGE)."""

    broker_name: str
    addresses: Mapping[int, str]
    offline_address: str
    ha_address: str


class RouteTable:
    """All routes of one name server."""

    def __init__(self, *, brokers_max: int = 10_000, routes_max: int = 2_000_000) -> None:
        self._brokers_max = brokers_max
        self._routes_max = routes_max
        self._clusters: dict[str, set[str]] = {}
        self._groups: dict[str, _Group] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._route_count = 0
        """Entries in all of `_topics`: what `routes_max` bounds."""
        self._live: dict[Address, Live] = {}
        self.revision = 0
        self.min_id_changes: list[MinIdChange] = []
        """Filled by register and unregister, emptied by whoever sends the notices."""

    # Registration -----------------------------------------------------------------------------------------------------

    def register(
        self, request: Registering, now: float, *, timeout: float, delete_missing_topics: bool = False
    ) -> Registered:
        """Takes a broker in, or refreshes it. ReplyError when it is refused."""
        group = self._groups.get(request.broker_name)
        known = group.addresses if group is not None else {}
        key = (request.cluster, request.address)
        other = known.get(request.broker_id)
        if other is not None and other != request.address and self._is_older(request, other):
            # Two brokers claim one id: the one with the higher epoch stays.
            self._live.pop(key, None)
            return Registered()
        if request.broker_id not in known and len(request.topics) == 1:
            # An incremental registration (one new topic) that comes after its broker was removed.
            raise ReplyError(_REFUSED, "register broker failed")
        self._check_room(request, key)

        lowest_before = min(known, default=None)
        group = self._join(request)
        first = group.addresses.get(request.broker_id) in (None, "")
        previous = self._live.get(key)
        changed = previous is None or previous.version != request.version
        if group.addresses.get(request.broker_id) != request.address:
            group.addresses[request.broker_id] = request.address
            self.revision += 1
        self._take_topics(request, group, everything=first or changed, delete_missing=delete_missing_topics)
        limit = request.timeout_seconds if request.timeout_seconds is not None else timeout
        self._live[key] = Live(
            request.broker_name,
            request.broker_id,
            now + limit,
            limit,
            request.version,
            request.connection,
            request.ha_address,
        )
        self._note_lowest(request.broker_name, lowest_before, "")
        return self._master_for(request, group)

    def _is_older(self, request: Registering, other: str) -> bool:
        living = self._live.get((request.cluster, other))
        return living is not None and living.version.state_version > request.version.state_version

    def _check_room(self, request: Registering, key: Address) -> None:
        if key not in self._live and len(self._live) >= self._brokers_max:
            raise ReplyError(_REFUSED, f"{len(self._live)} brokers are registered, brokersMax is {self._brokers_max}")
        if self._route_count + len(request.topics) > self._routes_max:
            fresh = sum(1 for topic in request.topics if request.broker_name not in self._topics.get(topic, {}))
            if self._route_count + fresh > self._routes_max:
                raise ReplyError(
                    _REFUSED,
                    f"{self._route_count} routes held, {fresh} would be added, topicRoutesMax is {self._routes_max}",
                )

    def _join(self, request: Registering) -> _Group:
        """Returns the broker's group, created if needed, in which no other id has the broker's address."""
        self._clusters.setdefault(request.cluster, set()).add(request.broker_name)
        group = self._groups.get(request.broker_name)
        if group is None:
            group = self._groups[request.broker_name] = _Group(request.cluster, {})
            self.revision += 1
        acting = bool(request.enable_acting_master)
        if group.acting_master != acting:
            group.acting_master = acting
            self.revision += 1
        for broker_id, address in list(group.addresses.items()):
            if address == request.address and broker_id != request.broker_id:
                del group.addresses[broker_id]
                self.revision += 1
        return group

    def _take_topics(self, request: Registering, group: _Group, *, everything: bool, delete_missing: bool) -> None:
        is_master = request.broker_id == MASTER_ID
        is_prime_slave = request.enable_acting_master is not None and request.broker_id == min(group.addresses)
        if not is_master and not is_prime_slave:
            return
        name = request.broker_name
        if delete_missing and request.topics:
            for topic in [
                topic for topic, held in self._topics.items() if name in held and topic not in request.topics
            ]:
                self._drop(topic, name)
        for topic, config in request.topics.items():
            if not everything and name in self._topics.get(topic, {}):
                continue
            perm = config.perm & ~PERM_WRITE if not is_master and group.acting_master else config.perm
            self._put(
                topic,
                QueueData(
                    broker_name=name,
                    read_queues=config.read_queues,
                    write_queues=config.write_queues,
                    perm=perm,
                    topic_sys_flag=config.sys_flag,
                ),
            )

    def _put(self, topic: str, queues: QueueData) -> None:
        held = self._topics.setdefault(topic, {})
        before = held.get(queues.broker_name)
        if before == queues:
            return
        if before is None:
            self._route_count += 1
        held[queues.broker_name] = queues
        self.revision += 1

    def _drop(self, topic: str, broker_name: str) -> None:
        held = self._topics.get(topic)
        if held is None or held.pop(broker_name, None) is None:
            return
        self._route_count -= 1
        self.revision += 1
        if not held:
            del self._topics[topic]

    def _master_for(self, request: Registering, group: _Group) -> Registered:
        if request.broker_id == MASTER_ID:
            return Registered()
        master = group.addresses.get(MASTER_ID, "")
        living = self._live.get((group.cluster, master))
        return Registered(master, living.ha_address) if living is not None else Registered()

    # Liveness ---------------------------------------------------------------------------------------------------------

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """Removes one broker; unknown ones are ignored."""
        living = self._live.pop((cluster, address), None)
        group = self._groups.get(broker_name)
        if group is None or address not in group.addresses.values():
            return
        self.revision += 1
        lowest_before = min(group.addresses)
        for broker_id in [broker_id for broker_id, held in group.addresses.items() if held == address]:
            del group.addresses[broker_id]
        if not group.addresses:
            self._remove_group(broker_name, group.cluster)
        elif group.acting_master and MASTER_ID not in group.addresses:
            self.wipe_write_perm(broker_name)
        self._note_lowest(broker_name, lowest_before, address if living is not None else "")

    def _remove_group(self, broker_name: str, cluster: str) -> None:
        del self._groups[broker_name]
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)
        for topic in [topic for topic, held in self._topics.items() if broker_name in held]:
            self._drop(topic, broker_name)

    def _note_lowest(self, broker_name: str, before: int | None, offline: str) -> None:
        group = self._groups.get(broker_name)
        if group is None or not group.addresses or before is None or before == min(group.addresses):
            return
        lowest = group.addresses[min(group.addresses)]
        living = self._live.get((group.cluster, lowest))
        ha_address = living.ha_address if living is not None else ""
        self.min_id_changes.append(MinIdChange(broker_name, dict(group.addresses), offline, ha_address))

    def refresh(self, cluster: str, address: str, now: float) -> DataVersion | None:
        """Takes a heartbeat; returns the version of the broker's last registration, None for an unknown broker."""
        living = self._live.get((cluster, address))
        if living is None:
            return None
        living.deadline = now + living.timeout
        return living.version

    def disconnected(self, connection: Hashable) -> list[Address]:
        """Removes every broker that registered through a connection which is gone."""
        gone = [(key, live) for key, live in self._live.items() if live.connection == connection]
        for (cluster, address), live in gone:
            self.unregister(cluster, live.broker_name, address)
        return [key for key, _ in gone]

    def expire(self, now: float) -> list[tuple[Address, Live]]:
        """Removes the brokers whose time is over; the caller closes their connections."""
        gone = [(key, live) for key, live in self._live.items() if live.deadline <= now]
        for (cluster, address), live in gone:
            self.unregister(cluster, live.broker_name, address)
        return gone

    @property
    def next_deadline(self) -> float | None:
        """Returns when `expire` has something to do at the earliest."""
        return min((live.deadline for live in self._live.values()), default=None)

    def connections_of(self, addresses: Iterable[str]) -> list[Hashable]:
        """Returns the connections through which brokers with these addresses registered."""
        wanted = set(addresses)
        return [live.connection for (_, address), live in self._live.items() if address in wanted]

    # Look-ups ---------------------------------------------------------------------------------------------------------

    def route(self, topic: str, *, support_acting_master: bool = False, order_conf: str = "") -> TopicRoute | None:
        """Returns where a topic lives; None when no living group has it."""
        held = self._topics.get(topic)
        if not held:
            return None
        names = sorted(name for name in held if name in self._groups)
        if not names:
            return None
        queues = tuple(held[name] for name in names)
        groups = tuple(self._group(name) for name in names)
        if support_acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            groups = tuple(_with_acting_master(group, held[group.name]) for group in groups)
        return TopicRoute(queues=queues, groups=groups, order_conf=order_conf)

    def _group(self, name: str) -> BrokerGroup:
        held = self._groups[name]
        return BrokerGroup(
            cluster=held.cluster, name=name, addresses=dict(held.addresses), acting_master=held.acting_master
        )

    @property
    def group_count(self) -> int:
        return len(self._groups)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def groups(self) -> list[BrokerGroup]:
        return [self._group(name) for name in self._groups]

    def clusters(self) -> dict[str, list[str]]:
        return {cluster: sorted(names) for cluster, names in self._clusters.items()}

    def members(self, cluster: str, broker_name: str) -> BrokerGroup | None:
        """Returns one group if it belongs to that cluster."""
        held = self._groups.get(broker_name)
        return self._group(broker_name) if held is not None and held.cluster == cluster else None

    def topics(self, cluster: str | None = None) -> list[str]:
        """Returns all topics, or those that some group of a cluster has."""
        if cluster is None:
            return list(self._topics)
        names = self._clusters.get(cluster, set())
        return [topic for topic, held in self._topics.items() if not names.isdisjoint(held)]

    def unit_topics(self, *, unit: bool | None, subscription: bool | None) -> list[str]:
        """Returns the topics with these unit bits in their flag (None = either)."""

        def fits(flag: int) -> bool:
            return (unit is None or bool(flag & _UNIT) == unit) and (
                subscription is None or bool(flag & _UNIT_SUBSCRIPTION) == subscription
            )

        return [topic for topic, held in self._topics.items() if fits(next(iter(held.values())).topic_sys_flag)]

    def system_topics(self) -> tuple[list[str], str]:
        """Returns the names of clusters and groups (brokers have a topic for each) and the address of some broker."""
        names = [name for cluster, members in self._clusters.items() for name in (cluster, *sorted(members))]
        address = next((address for group in self._groups.values() for address in group.addresses.values()), "")
        return names, address

    def live(self) -> Mapping[Address, Live]:
        """Returns the table itself, for status and tests; it must not be changed."""
        return self._live

    # Changes by operators ---------------------------------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> int:
        """Takes the write permission from every topic of a group; how many topics it has."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Gives it back."""
        return self._set_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for topic, held in self._topics.items():
            queues = held.get(broker_name)
            if queues is not None:
                count += 1
                self._put(topic, replace(queues, perm=change(queues.perm)))
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forgets a topic's routes, everywhere or on the groups of one cluster."""
        names = self._clusters.get(cluster, set()) if cluster else set(self._topics.get(topic, {}))
        for name in list(names):
            self._drop(topic, name)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Adds routes of one topic on groups that are registered (REGISTER_TOPIC_IN_NAMESRV)."""
        for entry in queues:
            if entry.broker_name in self._groups:
                if self._route_count >= self._routes_max:
                    raise ReplyError(_REFUSED, f"topicRoutesMax is {self._routes_max}: no room for {topic[:127]!r}")
                self._put(topic, entry)


def _with_acting_master(group: BrokerGroup, queues: QueueData) -> BrokerGroup:
    """Returns a group without a master with its lowest slave shown as id 0: ordered and delayed work goes on."""
    if not group.acting_master or MASTER_ID in group.addresses or queues.perm & PERM_WRITE or not group.addresses:
        return group
    addresses = dict(group.addresses)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return replace(group, addresses=addresses)
