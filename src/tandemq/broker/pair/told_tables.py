"""A table as its master tells it, decoded: whole, or the part of it that changed since a mark. Pure.

A part names each entry that is new, different or gone (None). It completes a table that has everything up to the mark
it was asked for; two parts that follow one another make one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tandemq.codec import bodies
from tandemq.formats.timer_checkpoint import TimerCheckpoint
from tandemq.model.topic import DataVersion

IN_PARTS: Final = frozenset({"topics", "groups", "offsets"})
"""Tables that may be told in parts; the others are small."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a master said of one table."""

    table: str
    is_part: bool
    version: DataVersion
    entries: dict[str, Any] = field(default_factory=dict)
    """By name: a config, or queue -> offset; None where it is gone."""
    forbidden: dict[str, Any] = field(default_factory=dict)
    """Of groups: topic -> mask by group, None where nothing is forbidden."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """The whole answer, for tables that are not told in parts."""
    timers: TimerCheckpoint | None = None
    """Of a RocketMQ 5 master: how far it has come with timer messages; None if it keeps none."""
    is_of_rocketmq: bool = False
    """Such a master writes no progress of its own into the log."""

    def followed_by(self, newer: "Told") -> "Told":
        """Returns what both parts say together."""
        entries = dict(self.entries)
        for key, value in newer.entries.items():
            held = entries.get(key)
            entries[key] = held | value if isinstance(value, dict) and isinstance(held, dict) else value
        return replace(newer, entries=entries, forbidden=self.forbidden | newer.forbidden)


def read_told(table: str, body: bytes, is_part: bool = False) -> Told:
    """Decodes an answer; raises MalformedBody. May run in any thread: a large table takes its time."""
    if table == "timers":
        return Told(table, False, DataVersion(), timers=TimerCheckpoint.decode(body))
    found = bodies.load_object(body, table)
    version = bodies.data_version_of(found["dataVersion"]) if found.get("dataVersion") else DataVersion()

    def entries(name: str, decode: Callable[[Any, str], Any]) -> dict[str, Any]:
        members = bodies.object_of(found.get(name), name).items()
        if is_part:
            return {str(key): None if value is None else decode(value, str(key)) for key, value in members}
        return {str(key): decode(value, str(key)) for key, value in members}

    if table == "topics":
        return Told(table, is_part, version, entries("topicConfigTable", bodies.topic_config_of))
    if table == "groups":
        configs = entries("subscriptionGroupTable", bodies.group_config_of)
        return Told(table, is_part, version, configs, entries("forbiddenTable", bodies.object_of))
    if table == "offsets":
        return Told(table, is_part, version, entries("offsetTable", bodies.offsets_of))
    return Told(table, False, version, found=found)
