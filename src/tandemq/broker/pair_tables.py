"""The broker's tables as replication sees them: what changed, taking over the master's, offsets committed here.

What tells how far somebody has come (consumer and delay offsets) is true at a position of the master's log, and waits
here until this node's readers see that position: progress is never ahead of the log it speaks of.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tandemq.codec import bodies
from tandemq.model.topic import DataVersion
from tandemq.replication.metadata import LocalOffset

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker


FOLLOW_THE_LOG: Final = frozenset({"offsets", "delay"})
"""Tables of progress; the others are configuration, and good as soon as they are known."""
NEVER: Final = -1


class HeldTables:
    """Tables that are true at a position this node has not reached. Pure.

    Two of each wait at most: the oldest, so that a slave that stays behind learns something at all, and the newest.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, bytes]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def hold(self, table: str, position: int, body: bytes) -> None:
        """Keeps a table until `reached` names its position."""
        waiting = self._waiting.setdefault(table, [])
        del waiting[1:]
        waiting.append((position, body))

    def reached(self, position: int) -> list[tuple[str, int, bytes]]:
        """Returns the newest (table, position, body) of each table that are true now, and forgets the older ones."""
        found = []
        for table, waiting in list(self._waiting.items()):
            due = [held for held in waiting if held[0] <= position]
            if due:
                found.append((table, *due[-1]))
                self._waiting[table] = [held for held in waiting if held[0] > position]
        return found

    def clear(self) -> None:
        self._waiting.clear()

    def drop(self, table: str) -> None:
        self._waiting.pop(table, None)


class BrokerTables:
    """Implements replication.metadata.Tables on a broker."""

    def __init__(self, broker: "Broker", reached: Callable[[], int] = lambda: NEVER) -> None:
        """`reached`: up to which position of the master's log this node's readers see it; NEVER if it follows none."""
        self._broker = broker
        self._reached = reached
        self._held = HeldTables()
        self.true_at = NEVER
        """Position of the log at which this node, which is no master, has its consumer offsets."""
        self._boot = secrets.token_hex(4)
        """Marks of two runs never look alike, although their counters may."""

    def marks(self) -> Mapping[str, str]:
        broker = self._broker
        versions = {
            "topics": broker.topics.version,
            "groups": broker.groups.version,
            "delay": broker.delay_schedule.version,
        }
        if broker.accounts is not None:
            versions["users"] = broker.accounts.users.version
        marks = {
            name: f"{self._boot}.{version.state_version}.{version.timestamp}.{version.counter}"
            for name, version in versions.items()
        }
        marks["offsets"] = f"{self._boot}.{broker.offsets.changes.count}"
        return marks

    def take(self, table: str, body: bytes, position: int | None = None) -> None:
        if table in FOLLOW_THE_LOG and position is not None and self._reached() < position:
            self._held.hold(table, position, body)
            return
        self._held.drop(table)
        self._take(table, body, position)

    def dispatched(self) -> None:
        """Readers see more of the log: what waited for that may be true now."""
        if self._held:
            for table, position, body in self._held.reached(self._reached()):
                self._take(table, body, position)

    def settle(self, log_end: int | None = None) -> None:
        """Ends following: takes what is true in a log that ends here, None for none; what runs ahead never was."""
        if log_end is not None:
            for table, position, body in self._held.reached(log_end):
                self._take(table, body, position)
        self._held.clear()

    def merge(self, table: str, body: bytes, position: int | None) -> None:
        """Takes a table of another replica of the group if it is newer than ours, before this node opens.

        Changes of topics, groups and users are counted. Offsets are as new as the position at which they are true.
        """
        broker, found = self._broker, bodies.load_object(body, table)
        if table == "offsets":
            if position is None or position <= self.true_at:
                return
            if self.true_at == NEVER:  # only what the last process saved is known here, and not at which position
                broker.offsets.advance(bodies.offset_table_of(found)[0])
            else:
                self._take(table, body, position)
            return
        mine = {"topics": broker.topics.version, "groups": broker.groups.version}
        if broker.accounts is not None:
            mine["users"] = broker.accounts.users.version
        version = bodies.data_version_of(found["dataVersion"]) if found.get("dataVersion") else DataVersion()
        if table in mine and _is_newer(version, mine[table]):
            self._take(table, body, None)
        elif table == "topics" and broker.topics.adopted:
            topics, _ = bodies.topic_table_of(found)
            broker.topics.put_all([topics[name] for name in broker.topics.adopted if name in topics])

    def _take(self, table: str, body: bytes, position: int | None) -> None:
        broker, found = self._broker, bodies.load_object(body, table)
        if table == "topics":
            topics, version = bodies.topic_table_of(found)
            if version != broker.topics.version:
                broker.topics.replace_all(topics.values(), version)
        elif table == "groups":
            groups, version = bodies.group_table_of(found)
            if version != broker.groups.version:
                forbidden = bodies.object_of(found.get("forbiddenTable") or {}, "forbiddenTable")
                broker.groups.replace_all(groups.values(), version, forbidden)
        elif table == "offsets":
            offsets, version = bodies.offset_table_of(found)
            broker.offsets.merge(self._without_local(offsets), version)
            self.true_at = position if position is not None else NEVER
        elif table == "delay":
            broker.delay_schedule.load(found, position)
            broker.delay_file.mark()
        elif table == "users" and broker.accounts is not None:
            broker.accounts.users.load(found)
            broker.users_file.mark()
            broker.drop_unknown_accounts()

    def _without_local(self, offsets: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
        """What clients committed here and the master has not taken yet stays as it is."""
        for group, topic, queue_id, offset in self.local_offsets():
            queues = offsets.get(f"{topic}@{group}")
            if queues is not None and queues.get(queue_id, -1) < offset:
                queues.pop(queue_id, None)
        return offsets

    def local_offsets(self) -> list[LocalOffset]:
        journal = self._broker.offsets.journal or {}
        return [(group, topic, queue_id, offset) for (group, topic, queue_id), offset in journal.items()]

    def delivered(self, offsets: list[LocalOffset]) -> None:
        journal = self._broker.offsets.journal
        for group, topic, queue_id, offset in offsets:
            if journal is not None and journal.get((group, topic, queue_id)) == offset:
                del journal[group, topic, queue_id]


def _is_newer(version: DataVersion, than: DataVersion) -> bool:
    return (version.state_version, version.counter) > (than.state_version, than.counter)
