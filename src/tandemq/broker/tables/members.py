"""Who is connected: producers and consumers by group, as their heartbeats tell.

A member is a connection; the same connection with another client id replaces it. Pure: connections are only compared
and handed back, `now` (monotonic seconds) is an argument. Methods that change a consumer group return whether its
members or subscriptions changed, and the caller tells the group (NOTIFY_CONSUMER_IDS_CHANGED).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from tandemq.broker.subscriptions import Subscription
from tandemq.remoting.connection import Connection

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"

GROUPS_PER_CONNECTION_MAX = 4096
"""Groups one heartbeat may name; more is a broken or hostile client."""

SUBSCRIPTIONS_SIZE_MAX = 64 << 20
"""Bytes of the subscriptions of all groups."""
SUBSCRIPTION_SIZE = 300
"""Bytes of a subscription besides its texts."""

ASKERS_PER_CONNECTION_MAX = 16
"""Client ids one connection may ask for; real clients have one."""

CLAIMS_PER_CONNECTION_MAX = 1024
"""Client ids one connection may have; a proxy speaks for several clients."""


@dataclass(slots=True, eq=False)
class Member:
    """One connection of a client in one group."""

    client_id: str
    connection: Connection
    language: str
    version: int
    seen: float
    """Monotonic time of the last heartbeat."""


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """The live side of a consumer group; it exists while it has members."""

    name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    subscriptions_size: int = 0

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Returns every member once, in the order of arrival."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Member | None:
        """Returns the newest connection of a client: an older one may be half dead."""
        return next((m for m in reversed(self.members.values()) if m.client_id == client_id), None)


class Members:
    """Live producer and consumer groups of a broker."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Connection, set[tuple[bool, str]]] = {}
        """connection -> (is consumer, group): what a closed connection leaves behind, without a scan."""
        self.subscriptions_size = 0
        """Bytes of the subscriptions of all groups, about."""
        self._askers: dict[str, Connection] = {}
        """client id -> the connection its last request came by."""
        self._asked_by: dict[Connection, set[str]] = {}
        self._holders: dict[str, tuple[str, set[Connection]]] = {}
        """client id -> (account, the connections that told it, all of this account)."""
        self._held_by: dict[Connection, set[str]] = {}

    def claim(self, client_id: str, connection: Connection, account: str) -> bool:
        """Notes that a connection told this client id. Returns False, and notes nothing, if a live connection of
        another account has it: whoever holds an id is handed the answers and questions that are meant for it."""
        ids = self._held_by.get(connection, set())
        if not account or client_id in ids:  # without accounts nobody can be told from anybody else
            return True
        owner, holders = self._holders.get(client_id, (account, set()))
        if owner != account or len(ids) >= CLAIMS_PER_CONNECTION_MAX:
            return False
        self._holders[client_id] = owner, holders
        self._held_by[connection] = ids
        holders.add(connection)
        ids.add(client_id)
        return True

    # producers

    def register_producer(
        self, group: str, connection: Connection, client_id: str, language: str, version: int, now: float
    ) -> None:
        if self._note(connection, False, group):
            members = self._producers.setdefault(group, {})
            _upsert(members, connection, client_id, language, version, now)

    def unregister_producer(self, group: str, connection: Connection) -> None:
        members = self._producers.get(group)
        if members is not None and members.pop(connection, None) is not None:
            self._forget(connection, False, group)
            if not members:
                del self._producers[group]

    def producers(self, group: str) -> list[Member]:
        """Returns the live connections of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> Mapping[str, Mapping[Connection, Member]]:
        return self._producers

    def note_asker(self, client_id: str, connection: Connection, account: str) -> None:
        """Remembers a client that sent a request that wants a reply: it may not have sent a heartbeat yet."""
        before = self._askers.get(client_id)
        if before is connection or not self.claim(client_id, connection, account):
            return
        ids = self._asked_by.setdefault(connection, set())
        if len(ids) < ASKERS_PER_CONNECTION_MAX:
            if before is not None:
                self._asked_by[before].discard(client_id)
            ids.add(client_id)
            self._askers[client_id] = connection

    def find_asker(self, client_id: str) -> Connection | None:
        """Returns where a reply goes.

        The newest connection of a producing client, whatever its group, or where it asked.
        """
        for members in self._producers.values():
            for member in reversed(members.values()):
                if member.client_id == client_id:
                    return member.connection
        return self._askers.get(client_id)

    # consumers

    def has_room(self, group: str, connection: Connection, subscriptions: Iterable[Subscription] | None) -> bool:
        """Returns whether a heartbeat about this group can be taken in."""
        groups = self._groups_of.get(connection, ())
        if len(groups) >= GROUPS_PER_CONNECTION_MAX and (True, group) not in groups:
            return False
        found = self._consumers.get(group)
        held = found.subscriptions_size if found is not None else 0
        return self.subscriptions_size - held + _size(subscriptions or ()) <= SUBSCRIPTIONS_SIZE_MAX

    def register_consumer(
        self,
        group: str,
        connection: Connection,
        client_id: str,
        language: str,
        version: int,
        now: float,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[Subscription] | None,
    ) -> bool:
        """Returns whether members or subscriptions changed; None for `subscriptions` leaves them (heartbeat V2)."""
        if not self._note(connection, True, group):
            return False
        found = self._consumers.get(group)
        if found is None:
            found = self._consumers[group] = ConsumerGroup(group)
        found.consume_type, found.message_model = consume_type, message_model
        found.consume_from_where = consume_from_where
        changed = _upsert(found.members, connection, client_id, language, version, now)
        if subscriptions is not None:
            changed = _update_subscriptions(found.subscriptions, subscriptions) or changed
            size = _size(found.subscriptions.values())
            self.subscriptions_size += size - found.subscriptions_size
            found.subscriptions_size = size
        return changed

    def unregister_consumer(self, group: str, connection: Connection) -> bool:
        found = self._consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return False
        self._forget(connection, True, group)
        if not found.members:
            del self._consumers[group]
            self.subscriptions_size -= found.subscriptions_size
        return True

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Returns the live groups that read a topic."""
        return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)

    # both

    def drop_connection(self, connection: Connection) -> set[str]:
        """Unregisters everything on a connection that closed. Returns the consumer groups that changed."""
        changed = set()
        for client_id in self._asked_by.pop(connection, ()):
            del self._askers[client_id]
        for client_id in self._held_by.pop(connection, ()):
            _, holders = self._holders[client_id]
            holders.discard(connection)
            if not holders:
                del self._holders[client_id]
        for is_consumer, group in list(self._groups_of.get(connection, ())):
            if is_consumer:
                if self.unregister_consumer(group, connection):
                    changed.add(group)
            else:
                self.unregister_producer(group, connection)
        return changed

    def expire(self, now: float, age_max: float, count_max: int) -> tuple[set[str], set[Connection], int]:
        """Drops members silent for longer than `age_max` seconds, so many consumers and so many producers at most.

        Returns changed consumer groups, connections left empty, and how many members went; call it until none does.
        """
        changed, stale, dropped = set(), set(), 0
        older = self._older(lambda m: now - m.seen > age_max, self._consumer_members())
        for group, connection in list(islice(older, count_max)):
            self.unregister_consumer(group, connection)
            changed.add(group)
            stale.add(connection)
            dropped += 1
        older = self._older(lambda m: now - m.seen > age_max, self._producer_members())
        for group, connection in list(islice(older, count_max)):
            self.unregister_producer(group, connection)
            stale.add(connection)
            dropped += 1
        return changed, {connection for connection in stale if connection not in self._groups_of}, dropped

    def counts(self) -> tuple[int, int]:
        """Returns the numbers of live producers and live consumers."""
        return (
            sum(len(members) for members in self._producers.values()),
            sum(len(group.members) for group in self._consumers.values()),
        )

    def _consumer_members(self) -> Iterator[tuple[str, Member]]:
        return ((g.name, member) for g in self._consumers.values() for member in g.members.values())

    def _producer_members(self) -> Iterator[tuple[str, Member]]:
        return ((name, member) for name, members in self._producers.items() for member in members.values())

    @staticmethod
    def _older(
        is_old: Callable[[Member], bool], members: Iterator[tuple[str, Member]]
    ) -> Iterator[tuple[str, Connection]]:
        return ((group, member.connection) for group, member in members if is_old(member))

    def _note(self, connection: Connection, is_consumer: bool, group: str) -> bool:
        groups = self._groups_of.setdefault(connection, set())
        if len(groups) >= GROUPS_PER_CONNECTION_MAX and (is_consumer, group) not in groups:
            return False
        groups.add((is_consumer, group))
        return True

    def _forget(self, connection: Connection, is_consumer: bool, group: str) -> None:
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard((is_consumer, group))
            if not groups:
                del self._groups_of[connection]


def _upsert(
    members: dict[Connection, Member], connection: Connection, client_id: str, language: str, version: int, now: float
) -> bool:
    member = members.get(connection)
    if member is not None and member.client_id == client_id:
        member.seen = now
        member.language, member.version = language, version
        return False
    members[connection] = Member(client_id, connection, language, version, now)
    return True


def _update_subscriptions(known: dict[str, Subscription], told: Iterable[Subscription]) -> bool:
    """Replaces subscriptions by newer versions.

    Drops topics no longer listed (ConsumerGroupInfo.updateSubscription).
    """
    by_topic = {subscription.topic: subscription for subscription in told}
    changed = False
    for topic, subscription in by_topic.items():
        old = known.get(topic)
        if old is None or subscription.version > old.version:
            # A newer version of the same text is no news for the group, but the pull checks compare it.
            changed = changed or old is None or _differs(old, subscription)
            known[topic] = subscription
    for topic in [topic for topic in known if topic not in by_topic]:
        del known[topic]
        changed = True
    return changed


def _size(subscriptions: Iterable[Subscription]) -> int:
    return sum(SUBSCRIPTION_SIZE + len(one.topic) + len(one.expression) for one in subscriptions)


def _differs(old: Subscription, new: Subscription) -> bool:
    return (old.expression, old.expression_type) != (new.expression, new.expression_type)
