"""The route table: who lives and what they offer. Pure: time and connections are arguments.

Four tables, as RouteInfoManager has them:

* clusters:  cluster -> names of its broker groups
* groups:    broker name -> cluster and address per broker id (0 = master)
* topics:    topic -> broker name -> its queues there
* live:      (cluster, address) -> when it last registered, its table's version, its connection

Topics come and go with masters' registrations; a group leaves with its last address, a topic with its last group.
`revision` moves whenever an answer to a route request may have changed.

A group may have a hundred thousand topics, so what concerns all of them is done in steps: `register_in_steps` for a
registration, `sweep` for the topics of groups that left. Until they are swept, no route names such a group, because it
is no group any more.
"""

from collections import Counter, deque
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tandemq.errors import ReplyError
from tandemq.model.route import MASTER_ID, BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig

T = TypeVar("T")

_REFUSED = 1  # SYSTEM_ERROR
_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_NOBODY: frozenset[str] = frozenset()
_UNIT, _UNIT_SUBSCRIPTION = 1, 2
"""Bits of topicSysFlag."""

Address = tuple[str, str]
"""(cluster, "ip:port"): what identifies a live broker."""

STEP = 1000
"""Topics of one step: a millisecond or two."""
BROKERS_PER_CONNECTION_MAX = 256
"""Brokers that register through one connection; a container of brokers has a few."""
NAME_LENGTH_MAX = 255
"""Characters of a cluster, a broker or an address."""


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
        self._topics_of: dict[str, dict[str, QueueData]] = {}
        """broker name -> its topics, with the very objects that `_topics` holds."""
        self._leaving: deque[tuple[str, dict[str, QueueData]]] = deque()
        """Groups that left and topics of theirs that are still to be forgotten."""
        self._live: dict[Address, Live] = {}
        self._brokers_by: Counter[Hashable] = Counter()
        """connection -> brokers that registered through it."""
        self.revision = 0
        self.min_id_changes: list[MinIdChange] = []
        """Filled by register and unregister, emptied by whoever sends the notices."""

    # Registration -----------------------------------------------------------------------------------------------------

    def register(
        self, request: Registering, now: float, *, timeout: float, delete_missing_topics: bool = False
    ) -> Registered:
        """Takes a broker in, or refreshes it. ReplyError when it is refused."""
        return finished(
            self.register_in_steps(request, now, timeout=timeout, delete_missing_topics=delete_missing_topics)
        )

    def register_in_steps(
        self, request: Registering, now: float, *, timeout: float, delete_missing_topics: bool = False
    ) -> Generator[None, None, Registered]:
        """Does what `register` does and stops after every STEP topics; returns when the last are taken in, or when
        the broker left or registered anew meanwhile. The first step decides whether it is refused."""
        _check_names(request)
        group = self._groups.get(request.broker_name)
        known = group.addresses if group is not None else {}
        key = (request.cluster, request.address)
        other = known.get(request.broker_id)
        if other is not None and other != request.address and self._is_older(request, other):
            # Two brokers claim one id: the one with the higher epoch stays.
            self._forget_live(key)
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
        limit = request.timeout_seconds if request.timeout_seconds is not None else timeout
        living = Live(
            request.broker_name,
            request.broker_id,
            now + limit,
            limit,
            request.version,
            request.connection,
            request.ha_address,
        )
        self._forget_live(key)
        self._live[key] = living
        self._brokers_by[request.connection] += 1
        self._note_lowest(request.broker_name, lowest_before, "")
        for _ in self._take_topics(request, group, everything=first or changed, delete_missing=delete_missing_topics):
            yield
            if self._live.get(key) is not living:
                break
        return self._master_for(request, group)

    def _forget_live(self, key: Address) -> Live | None:
        living = self._live.pop(key, None)
        if living is not None:
            self._brokers_by[living.connection] -= 1
            if not self._brokers_by[living.connection]:
                del self._brokers_by[living.connection]
        return living

    def _is_older(self, request: Registering, other: str) -> bool:
        living = self._live.get((request.cluster, other))
        return living is not None and living.version.state_version > request.version.state_version

    def _check_room(self, request: Registering, key: Address) -> None:
        if key not in self._live and len(self._live) >= self._brokers_max:
            raise ReplyError(_REFUSED, f"{len(self._live)} brokers are registered, brokersMax is {self._brokers_max}")
        connection = request.connection
        if connection is not None and self._brokers_by[connection] >= BROKERS_PER_CONNECTION_MAX:
            living = self._live.get(key)
            if living is None or living.connection != connection:
                raise ReplyError(_REFUSED, f"{BROKERS_PER_CONNECTION_MAX} brokers registered through this connection")
        if self._route_count + len(request.topics) > self._routes_max:
            held = self._topics_of.get(request.broker_name, {})
            fresh = sum(1 for topic in request.topics if topic not in held)
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

    def _take_topics(
        self, request: Registering, group: _Group, *, everything: bool, delete_missing: bool
    ) -> Iterator[None]:
        """Takes over what a master, or a slave that stands in for it, offers; yields after every step."""
        is_master = request.broker_id == MASTER_ID
        is_prime_slave = request.enable_acting_master is not None and request.broker_id == min(group.addresses)
        if not is_master and not is_prime_slave:
            return
        name = request.broker_name
        known = self._topics_of.get(name, {})
        if delete_missing and request.topics:
            for number, topic in enumerate([topic for topic in known if topic not in request.topics], 1):
                self._drop(topic, name)
                if number % STEP == 0:
                    yield
        offers: dict[tuple[int, int, int, int], QueueData] = {}
        """Most topics of a broker are alike: one object serves them all."""
        for number, (topic, config) in enumerate(request.topics.items(), 1):
            if number % STEP == 0:
                yield
            if not everything and topic in known:
                continue
            perm = config.perm & ~PERM_WRITE if not is_master and group.acting_master else config.perm
            kind = (config.read_queues, config.write_queues, perm, config.sys_flag)
            queues = offers.get(kind)
            if queues is None:
                queues = offers[kind] = QueueData(
                    broker_name=name,
                    read_queues=config.read_queues,
                    write_queues=config.write_queues,
                    perm=perm,
                    topic_sys_flag=config.sys_flag,
                )
            self._put(topic, queues)

    def _put(self, topic: str, queues: QueueData) -> None:
        """Takes the new object even if an equal one is there: `sweep` knows those of before by their identity."""
        name = queues.broker_name
        held = self._topics.setdefault(topic, {})
        before = held.get(name)
        held[name] = queues
        self._topics_of.setdefault(name, {})[topic] = queues
        if before is None:
            self._route_count += 1
        if before is not queues and before != queues:
            self.revision += 1

    def _drop(self, topic: str, broker_name: str) -> None:
        held = self._topics.get(topic)
        if held is None or held.pop(broker_name, None) is None:
            return
        self._route_count -= 1
        self.revision += 1
        if not held:
            del self._topics[topic]
        known = self._topics_of.get(broker_name)
        if known is not None:
            known.pop(topic, None)
            if not known:
                del self._topics_of[broker_name]

    @property
    def is_sweeping(self) -> bool:
        """Returns whether `sweep` has something to do."""
        return bool(self._leaving)

    def sweep(self, count_max: int = STEP) -> None:
        """Forgets so many topics of groups that left, unless such a group came back and offers them again."""
        while self._leaving and count_max > 0:
            name, topics = self._leaving[0]
            for _ in range(min(count_max, len(topics))):
                topic, queues = topics.popitem()
                if self._topics.get(topic, {}).get(name) is queues:
                    self._drop(topic, name)
                count_max -= 1
            if not topics:
                self._leaving.popleft()

    def _master_for(self, request: Registering, group: _Group) -> Registered:
        if request.broker_id == MASTER_ID:
            return Registered()
        master = group.addresses.get(MASTER_ID, "")
        living = self._live.get((group.cluster, master))
        return Registered(master, living.ha_address) if living is not None else Registered()

    # Liveness ---------------------------------------------------------------------------------------------------------

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """Removes one broker; unknown ones are ignored."""
        living = self._forget_live((cluster, address))
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
        if broker_name in self._topics_of:
            self._leaving.append((broker_name, self._topics_of.pop(broker_name)))
            if len(self._leaving) == 1:
                self.sweep()

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
        return [topic for topic in self._topics if self.is_in(topic, cluster)]

    def is_in(self, topic: str, cluster: str) -> bool:
        """Returns whether some group of a cluster has a topic."""
        return not self._clusters.get(cluster, _NOBODY).isdisjoint(self._topics.get(topic, ()))

    def is_unit(self, topic: str, unit: bool | None, subscription: bool | None) -> bool:
        """Returns whether a topic has these unit bits in its flag (None = either)."""
        held = self._topics.get(topic)
        if not held:
            return False
        flag = next(iter(held.values())).topic_sys_flag
        return (unit is None or bool(flag & _UNIT) == unit) and (
            subscription is None or bool(flag & _UNIT_SUBSCRIPTION) == subscription
        )

    def unit_topics(self, *, unit: bool | None, subscription: bool | None) -> list[str]:
        """Returns the topics with these unit bits in their flag (None = either)."""
        return [topic for topic in self._topics if self.is_unit(topic, unit, subscription)]

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
        return finished(self.perm_in_steps(broker_name, writable=False))

    def add_write_perm(self, broker_name: str) -> int:
        """Gives it back."""
        return finished(self.perm_in_steps(broker_name, writable=True))

    def perm_in_steps(self, broker_name: str, *, writable: bool) -> Generator[None, None, int]:
        """Does what `wipe_write_perm` or `add_write_perm` does and stops after every STEP topics."""
        changed: dict[int, QueueData] = {}
        known = self._topics_of.get(broker_name, {})
        before = list(known.items())  # keeps the old objects alive, so that no identity is used twice
        for number, (topic, queues) in enumerate(before, 1):
            if number % STEP == 0:
                yield
            if known.get(topic) is not queues:
                continue  # it went, or came anew meanwhile
            if id(queues) not in changed:
                perm = PERM_READ | PERM_WRITE if writable else queues.perm & ~PERM_WRITE
                changed[id(queues)] = replace(queues, perm=perm)
            self._topics[topic][broker_name] = known[topic] = changed[id(queues)]
        self.revision += bool(before)
        return len(before)

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


def finished(steps: Generator[None, None, T]) -> T:
    """Does all steps at once; returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def _check_names(request: Registering) -> None:
    """Refuses names that nobody has: what registers is kept."""
    for what, text in (
        ("clusterName", request.cluster),
        ("brokerName", request.broker_name),
        ("brokerAddr", request.address),
        ("haServerAddr", request.ha_address),
    ):
        if len(text) > NAME_LENGTH_MAX:
            raise ReplyError(_REFUSED, f"{what} has {len(text)} characters, the limit is {NAME_LENGTH_MAX}")


def _with_acting_master(group: BrokerGroup, queues: QueueData) -> BrokerGroup:
    """Returns a group without a master with its lowest slave shown as id 0: ordered and delayed work goes on."""
    if not group.acting_master or MASTER_ID in group.addresses or queues.perm & PERM_WRITE or not group.addresses:
        return group
    addresses = dict(group.addresses)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return replace(group, addresses=addresses)
