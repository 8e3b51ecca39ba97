"""How far each group has consumed each queue, and resets that wait for the group's next pull.

Pure but for `wall_ms`. A commit is a dictionary write; the broker saves the snapshot every few seconds and at the end,
as upstream does. A lower offset overwrites a higher one (upstream's rule: consumers rewind on purpose); negative ones
are ignored, because ali-ons sends -1 for "unknown".
"""

from collections.abc import Callable, Mapping
from typing import Any

from tandemq.codec import bodies
from tandemq.model.topic import DataVersion

NOT_FOUND = -1
KEY_SEPARATOR = "@"


class OffsetTable:
    """(group, topic, queue) -> next offset to consume."""

    def __init__(self, wall_ms: Callable[[], int], *, version_step: int = 500) -> None:
        self._wall_ms = wall_ms
        self._version_step = version_step
        self._by_key: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str], dict[int, int]] = {}
        self._commits = 0
        self.dirty = False
        """True when something changed since the last `snapshot()` for the file; set back by who saves."""
        self.version = DataVersion(0, wall_ms(), 0)
        self.state_version = 0
        self.changes = 0
        """Counts every change: what slaves compare; the version moves only every `version_step` commits."""
        self.on_change: Callable[[], None] | None = None
        self.journal: dict[tuple[str, str, int], int] | None = None
        """On a slave: what clients committed here and the master has not taken yet; None on a master."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if offset < 0:
            return
        queues = self._by_key.get((topic, group))
        if queues is None:
            queues = self._by_key[topic, group] = {}
        elif queues.get(queue_id) == offset:
            return
        queues[queue_id] = offset
        if self.journal is not None:
            self.journal[group, topic, queue_id] = offset
        self.dirty = True
        self.changes += 1
        if self.on_change is not None:
            self.on_change()
        self._commits += 1
        if self._commits >= self._version_step:
            self._commits = 0
            self.version = self.version.next(self._wall_ms(), self.state_version)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or NOT_FOUND."""
        queues = self._by_key.get((topic, group))
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """queue -> offset of one group on one topic; read only."""
        return self._by_key.get((topic, group), {})

    def topics_of(self, group: str) -> list[str]:
        """Topics on which the group has committed anything."""
        return sorted(topic for topic, g in self._by_key if g == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed anything on the topic."""
        return sorted(group for t, group in self._by_key if t == topic)

    def all(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """(topic, group) -> queue -> offset; read only."""
        return self._by_key

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """CLONE_GROUP_OFFSET: the target starts where the source is."""
        if (queues := self._by_key.get((topic, source_group))) is not None:
            self._by_key[topic, target_group] = dict(queues)
            self._changed()

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda key: key[0] == topic)

    def remove_group(self, group: str) -> None:
        self._remove(lambda key: key[1] == group)

    def set_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group's next pull of this queue is told to go on at `offset`; commits until then don't count."""
        self._resets.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get((topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of this queue, once."""
        if not self._resets or (queues := self._resets.get((topic, group))) is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[topic, group]
        return offset

    def merge(self, offsets: Mapping[str, Mapping[Any, Any]], version: DataVersion | None = None) -> None:
        """A slave takes over what its master knows ("topic@group" -> queue -> offset); keys of its own stay."""
        for (topic, group), queues in _parsed(offsets).items():
            self._by_key.setdefault((topic, group), {}).update(queues)
        if version is not None:
            self.version = version
        self.dirty = True
        self.changes += 1

    def snapshot(self) -> dict[str, Any]:
        """The shape of consumerOffset.json and of GET_ALL_CONSUMER_OFFSET; write it with unquoted integer keys."""
        return {
            "dataVersion": bodies.data_version_json(self.version),
            "offsetTable": {f"{topic}@{group}": dict(queues) for (topic, group), queues in self._by_key.items()},
        }

    def load(self, snapshot: Mapping[str, Any]) -> None:
        self._by_key = _parsed(snapshot.get("offsetTable") or {})
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])

    def _remove(self, matches: Callable[[tuple[str, str]], bool]) -> None:
        for table in (self._by_key, self._resets):
            for key in [key for key in table if matches(key)]:
                del table[key]
        self._changed()

    def _changed(self) -> None:
        self.dirty = True
        self.changes += 1
        if self.on_change is not None:
            self.on_change()
        self.version = self.version.next(self._wall_ms(), self.state_version)


def _parsed(offsets: Mapping[str, Mapping[Any, Any]]) -> dict[tuple[str, str], dict[int, int]]:
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, queues in offsets.items():
        topic, separator, group = key.partition(KEY_SEPARATOR)
        if separator and isinstance(queues, Mapping):
            found[topic, group] = {int(queue): int(offset) for queue, offset in queues.items()}
    return found
