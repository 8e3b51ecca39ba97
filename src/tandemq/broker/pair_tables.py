"""The broker's tables as replication sees them: what changed, taking over the master's, offsets committed here."""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tandemq.codec import bodies
from tandemq.replication.metadata import LocalOffset

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker


class BrokerTables:
    """Implements replication.metadata.Tables on a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._boot = secrets.token_hex(4)
        """Marks of two runs never look alike, although their counters may."""

    def marks(self) -> Mapping[str, str]:
        broker = self._broker
        versions = {
            "topics": broker.topics.version,
            "groups": broker.groups.version,
            "delay": broker.delay_schedule.version,
        }
        marks = {
            name: f"{self._boot}.{version.state_version}.{version.timestamp}.{version.counter}"
            for name, version in versions.items()
        }
        marks["offsets"] = f"{self._boot}.{broker.offsets.changes}"
        return marks

    def take(self, table: str, body: bytes) -> None:
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
        elif table == "delay":
            broker.delay_schedule.load(found)
            broker.delay_file.mark()

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
