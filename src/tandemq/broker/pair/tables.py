"""The broker's tables as replication sees them: what changed, taking over the master's, offsets committed here.

What tells how far somebody has come (consumer and delay offsets) is true at a position of the master's log, and waits
here until this node's readers see that position: progress is never ahead of the log it speaks of.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tandemq.broker.pair.told_tables import IN_PARTS, Told, read_told
from tandemq.broker.tables.changes import Changes
from tandemq.codec import bodies
from tandemq.model.topic import DataVersion
from tandemq.replication.metadata import LocalOffset

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker


FOLLOW_THE_LOG: Final = frozenset({"offsets", "delay", "timers"})
"""Tables of progress; the others are configuration, and good as soon as they are known."""
NEVER: Final = -1


class HeldTables:
    """Tables that are true at a position this node has not reached. Pure.

    Two of each wait at most: the oldest, so that a slave that stays behind learns something at all, and the newest.
    Parts that come after both join the newest.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, Told]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def hold(self, position: int, told: Told) -> None:
        """Keeps a table until `reached` names its position."""
        waiting = self._waiting.setdefault(told.table, [])
        if told.is_part and len(waiting) > 1:
            told = waiting[1][1].followed_by(told)
        del waiting[1:]
        waiting.append((position, told))

    def reached(self, position: int) -> list[tuple[int, Told]]:
        """Returns (position, table) of those that are true now, oldest first, and forgets them; a whole table replaces
        those before it."""
        found = []
        for table, waiting in list(self._waiting.items()):
            due = [held for held in waiting if held[0] <= position]
            if due:
                found += due if due[-1][1].is_part else due[-1:]
                self._waiting[table] = [held for held in waiting if held[0] > position]
        return found

    def clear(self) -> None:
        self._waiting.clear()

    def drop(self, table: str) -> None:
        self._waiting.pop(table, None)


class _Base(NamedTuple):
    """What a table that is told in parts builds on."""

    mark: str
    """Up to which of its master's changes it is complete, what is held included."""
    number: int
    """How many changes it had itself by then: more are not the master's."""


class BrokerTables:
    """Implements replication.metadata.Tables on a broker."""

    def __init__(self, broker: "Broker", reached: Callable[[], int] = lambda: NEVER) -> None:
        """`reached`: up to which position of the master's log this node's readers see it; NEVER if it follows none."""
        self._broker = broker
        self._reached = reached
        self._held = HeldTables()
        self._bases: dict[str, _Base] = {}
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

    def held_to(self, table: str) -> str | None:
        if table not in IN_PARTS:
            return None
        base = self._bases.get(table)
        return base.mark if base is not None and self._is_masters(table, base.number) else ""

    def _is_masters(self, table: str, number: int) -> bool:
        """Returns whether what changed here since then is known to be this node's own, and settled with the master
        later: offsets that clients committed here, topics that only the log knew."""
        changed = self._changes(table).since(number)
        if not changed:
            return changed is not None
        if table == "offsets":
            journal = self._broker.offsets.journal or {}
            return all((group, topic, queue_id) in journal for topic, group, queue_id in changed)
        return table == "topics" and self._broker.topics.adopted.issuperset(changed)

    def _changes(self, table: str) -> Changes[Any]:
        broker = self._broker
        if table == "topics":
            return broker.topics.changes
        return broker.groups.changes if table == "groups" else broker.offsets.changes

    def read(self, table: str, body: bytes, is_part: bool = False) -> Told:
        return read_told(table, body, is_part)

    def take(self, told: Told, position: int | None = None, mark: str = "", *, is_of_rocketmq: bool = False) -> None:
        table = told.table
        told = replace(told, is_of_rocketmq=is_of_rocketmq)
        self._bases.pop(table, None)
        if table in FOLLOW_THE_LOG and position is not None and self._reached() < position:
            self._held.hold(position, told)
        else:
            if told.is_part:
                self.dispatched()
            self._held.drop(table)
            self._take(told, position, is_of_rocketmq=not mark)
        if mark and table in IN_PARTS and not (table == "topics" and self._broker.topics.adopted):
            self._bases[table] = _Base(mark, self._changes(table).count)

    def dispatched(self) -> None:
        """Readers see more of the log: what waited for that may be true now."""
        if self._held:
            for position, told in self._held.reached(self._reached()):
                self._take(told, position)
                self._rebase(told.table)

    def _rebase(self, table: str) -> None:
        """Takes what was held for the master's: the changes it makes here are not ours."""
        if (base := self._bases.get(table)) is not None:
            self._bases[table] = base._replace(number=self._changes(table).count)

    def settle(self, log_end: int | None = None) -> None:
        """Ends following: takes what is true in a log that ends here, None for none; what runs ahead never was."""
        self._bases.clear()
        if log_end is not None:
            for position, told in self._held.reached(log_end):
                self._take(told, position)
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
                self._take(read_told(table, body), position)
            return
        mine = {"topics": broker.topics.version, "groups": broker.groups.version}
        if broker.accounts is not None:
            mine["users"] = broker.accounts.users.version
        version = bodies.data_version_of(found["dataVersion"]) if found.get("dataVersion") else DataVersion()
        if table in mine and _is_newer(version, mine[table]):
            self._take(read_told(table, body), None)
        elif table == "topics" and broker.topics.adopted:
            topics, _ = bodies.topic_table_of(found)
            broker.topics.put_all([topics[name] for name in broker.topics.adopted if name in topics])

    def _take(self, told: Told, position: int | None, *, is_of_rocketmq: bool = False) -> None:
        broker, table, version = self._broker, told.table, told.version
        if table == "topics":
            if told.is_part:
                broker.topics.take_part(told.entries, version)
            elif version != broker.topics.version or broker.topics.adopted:
                broker.topics.replace_all(told.entries.values(), version, keeps_adopted=is_of_rocketmq)
        elif table == "groups":
            if told.is_part:
                broker.groups.take_part(told.entries, version, told.forbidden)
            elif version != broker.groups.version:
                broker.groups.replace_all(told.entries.values(), version, told.forbidden)
        elif table == "offsets":
            offsets = self._without_local(told.entries)
            if told.is_part:
                broker.offsets.take_part(offsets, version)
            else:
                broker.offsets.merge(offsets, version)
            self.true_at = position if position is not None else NEVER
        elif table == "delay":
            broker.delay_schedule.load(told.found, None if told.is_of_rocketmq else position)
            broker.delay_file.mark()
        elif table == "timers" and told.timers is not None:
            broker.timer_checkpoint.take(told.timers)
        elif table == "users" and broker.accounts is not None:
            broker.accounts.users.load(told.found)
            broker.users_file.mark()
            broker.drop_unknown_accounts()

    def _without_local(self, offsets: dict[str, Any]) -> dict[str, Any]:
        """Keeps what clients committed here and the master has not taken yet."""
        for group, topic, queue_id, offset in self.local_offsets():
            queues = offsets.get(f"{topic}@{group}")
            if queues is not None and (told := queues.get(queue_id)) is not None and told < offset:
                queues.pop(queue_id)
        return offsets

    def local_offsets(self) -> list[LocalOffset]:
        journal = self._broker.offsets.journal or {}
        return [(group, topic, queue_id, offset) for (group, topic, queue_id), offset in journal.items()]

    def delivered(self, offsets: list[LocalOffset]) -> None:
        journal = self._broker.offsets.journal
        self._bases.pop("offsets", None)  # where the master was ahead of them, only the whole table says so
        for group, topic, queue_id, offset in offsets:
            if journal is not None and journal.get((group, topic, queue_id)) == offset:
                del journal[group, topic, queue_id]


def _is_newer(version: DataVersion, than: DataVersion) -> bool:
    return (version.state_version, version.counter) > (than.state_version, than.counter)
