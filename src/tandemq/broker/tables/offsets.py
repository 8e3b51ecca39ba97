"""How far each group has consumed each queue, and resets that wait for the group's next pull.

Pure but for `wall_ms`. A commit is a dictionary write; the broker saves what changed every few seconds and at the end.
A lower offset overwrites a higher one (upstream's rule: consumers rewind on purpose); negative ones are ignored,
because ali-ons sends -1 for "unknown".
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tandemq.broker.tables.changes import KEYS_MAX, Changes
from tandemq.codec import bodies
from tandemq.errors import MalformedBody
from tandemq.model.topic import DataVersion

NOT_FOUND = -1
ENTRIES_MAX = 2_000_000
"""Queues with an offset, of all groups: some 200 MiB. A commit beyond it is not kept, and its group starts anew."""
KEY_SEPARATOR = "@"

OffsetKey = tuple[str, str, int]
"""(topic, group, queue id)"""


class OffsetTable:
    """(group, topic, queue) -> next offset to consume."""

    def __init__(self, wall_ms: Callable[[], int], *, version_step: int = 500) -> None:
        self._wall_ms = wall_ms
        self._version_step = version_step
        self._by_key: dict[tuple[str, str], dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        """group -> topics; the keys of `_by_key` by their second part"""
        self._groups_of: dict[str, dict[str, None]] = {}
        """topic -> groups; the keys of `_by_key` by their first part"""
        self._resets: dict[tuple[str, str], dict[int, int]] = {}
        self._count = 0
        """Entries that commits added; those of a file or a master are not counted, because they are theirs to bound."""
        self._commits = 0
        self.dirty = False
        """Whether something changed since the broker last asked for a save; set back by whoever saves."""
        self.changes: Changes[OffsetKey] = Changes()
        """What slaves and the file compare; the version moves only every `version_step` commits."""
        self.version = DataVersion(0, wall_ms(), 0)
        self.state_version = 0
        self.on_change: Callable[[], None] | None = None
        self.journal: dict[tuple[str, str, int], int] | None = None
        """On a slave: what clients committed here and the master has not taken yet; None on a master."""

    def __len__(self) -> int:
        """Returns the number of pairs of a topic and a group."""
        return len(self._by_key)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes the next offset that a group consumes from a queue."""
        if offset < 0:
            return
        queues = self._by_key.get((topic, group))
        if queues is None or queue_id not in queues:
            if self._count >= ENTRIES_MAX:
                return
            self._count += 1
            queues = self._new(topic, group) if queues is None else queues
        elif queues[queue_id] == offset:
            return
        queues[queue_id] = offset
        if self.journal is not None:
            self.journal[group, topic, queue_id] = offset
        self.dirty = True
        self.changes.note((topic, group, queue_id))
        if self.on_change is not None:
            self.on_change()
        self._commits += 1
        if self._commits >= self._version_step:
            self._commits = 0
            self.version = self.version.next(self._wall_ms(), self.state_version)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the committed offset, or NOT_FOUND."""
        queues = self._by_key.get((topic, group))
        return NOT_FOUND if queues is None else queues.get(queue_id, NOT_FOUND)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns queue -> offset of one group on one topic; read only."""
        return self._by_key.get((topic, group), {})

    def topics_of(self, group: str) -> list[str]:
        """Returns the topics on which the group has committed anything."""
        return sorted(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Returns the groups that have committed anything on the topic."""
        return sorted(self._groups_of.get(topic, ()))

    def all(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Returns (topic, group) -> queue -> offset; read only."""
        return self._by_key

    def clone(self, source_group: str, target_group: str, topic: str) -> bool:
        """Lets the target group start where the source group is (CLONE_GROUP_OFFSET); returns False if there is no
        room."""
        if (queues := self._by_key.get((topic, source_group))) is not None and source_group != target_group:
            if self._count + len(queues) > ENTRIES_MAX:
                return False
            self._drop(topic, target_group)
            self._new(topic, target_group).update(queues)
            self._count += len(queues)
            self._note(topic, target_group, queues)
            self._changed()
        return True

    def remove_topic(self, topic: str) -> None:
        """Forgets every group's offsets on a topic."""
        self._remove([(topic, group) for group in self._groups_of.get(topic, ())])
        self._resets = {key: queues for key, queues in self._resets.items() if key[0] != topic}

    def remove_group(self, group: str) -> None:
        """Forgets a group's offsets on every topic."""
        self._remove([(topic, group) for topic in self._topics_of.get(group, ())])
        self._resets = {key: queues for key, queues in self._resets.items() if key[1] != group}

    def set_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Lets the group's next pull of this queue go on at `offset`; commits until then don't count.

        Of a group without room for its offset no reset is kept either.
        """
        held = self._by_key.get((topic, group))
        if self._count < ENTRIES_MAX or (held is not None and queue_id in held):
            self._resets.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get((topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns the pending reset of this queue, once."""
        if not self._resets or (queues := self._resets.get((topic, group))) is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[topic, group]
        return offset

    def advance(self, offsets: Mapping[str, Mapping[Any, Any]]) -> None:
        """Takes what another replica of the group knows where it is ahead: an offset does not go back by itself."""
        ahead: dict[str, dict[int, int]] = {}
        for (topic, group), queues in _parsed(offsets):
            found = {queue: offset for queue, offset in queues.items() if offset > self.query(group, topic, queue)}
            if found:
                ahead[_text(topic, group)] = found
        if ahead:
            self.merge(ahead)
            self._changed()

    def clamp(self, end_of: Callable[[str, int], int]) -> list[OffsetKey]:
        """Takes offsets beyond the end of their queue back to it: the log has less than the group has consumed.

        Else the group would skip as many of the messages to come. `end_of`: (topic, queue id) -> the queue's next
        number. Returns what was taken back.
        """
        found: list[OffsetKey] = []
        for (topic, group), queues in self._by_key.items():
            for queue_id, offset in queues.items():
                if offset > (end := end_of(topic, queue_id)):
                    queues[queue_id] = end
                    found.append((topic, group, queue_id))
        for topic, group, queue_id in found:
            self._note(topic, group, (queue_id,))
            if self.journal is not None and (group, topic, queue_id) in self.journal:
                self.journal[group, topic, queue_id] = self._by_key[topic, group][queue_id]
        if found:
            self._changed()
        return found

    def merge(self, offsets: Mapping[str, Mapping[Any, Any]], version: DataVersion | None = None) -> None:
        """Takes over what the master knows ("topic@group" -> queue -> offset), on its slave; other keys stay."""
        for (topic, group), queues in _parsed(offsets):
            held = self._by_key.get((topic, group))
            if held is None:
                held = self._new(topic, group)
            different = [queue for queue, offset in queues.items() if held.get(queue) != offset]
            held.update(queues)
            self._note(topic, group, different)
        if version is not None:
            self.version = version

    def take_part(self, part: Mapping[str, Mapping[int, int | None] | None], version: DataVersion) -> None:
        """Takes over what changed at the master, on its slave; None for what is gone there."""
        self.merge(
            {key: {q: o for q, o in queues.items() if o is not None} for key, queues in part.items() if queues}, version
        )
        for text, queues in part.items():
            topic, _, group = text.partition(KEY_SEPARATOR)
            held = self._by_key.get((topic, group))
            if held is None:
                continue
            gone = [queue for queue in list(held) if queues is None or (queue in queues and queues[queue] is None)]
            kept = [queue for queue in gone if self.journal is not None and (group, topic, queue) in self.journal]
            if len(gone) == len(held) and not kept:
                self._drop(topic, group)
            else:
                for queue in set(gone).difference(kept):
                    del held[queue]
                    self._note(topic, group, (queue,))

    # the file ---------------------------------------------------------------------------------------------------------

    def members(self) -> dict[str, Any]:
        """Returns the small members of consumerOffset.json."""
        return {"dataVersion": bodies.data_version_json(self.version)}

    def maps(self) -> Iterable[tuple[str, Iterable[tuple[str, Any]]]]:
        """Returns the map of consumerOffset.json; iterating survives changes of the table."""
        entries = ((_text(topic, group), queues) for (topic, group), queues in list(self._by_key.items()))
        return [("offsetTable", entries)]

    def change(self, keys: Iterable[OffsetKey]) -> dict[str, Any]:
        """Returns the part of consumerOffset.json that holds these keys, None for those that are gone."""
        entries: dict[str, dict[int, int | None] | None] = {}
        for topic, group, queue_id in keys:
            queues, text = self._by_key.get((topic, group)), _text(topic, group)
            if queues is None:
                entries[text] = None
            else:
                part = entries.setdefault(text, {})
                assert part is not None
                part[queue_id] = queues.get(queue_id)
        return {**self.members(), "offsetTable": entries}

    def snapshot(self) -> dict[str, Any]:
        """Returns all of it as consumerOffset.json has it, with integers as keys."""
        return {**self.members(), **{name: dict(entries) for name, entries in self.maps()}}

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Takes over what was read from consumerOffset.json; raises MalformedBody for what is no offset."""
        for table in (self._by_key, self._topics_of, self._groups_of):
            table.clear()
        for (topic, group), queues in _parsed(bodies.object_of(snapshot.get("offsetTable") or {}, "offsetTable")):
            self._new(topic, group).update(queues)
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])

    # keys -------------------------------------------------------------------------------------------------------------

    def _new(self, topic: str, group: str) -> dict[int, int]:
        queues = self._by_key[topic, group] = {}
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, {})[group] = None
        return queues

    def _drop(self, topic: str, group: str, *, noted: bool = True) -> None:
        queues = self._by_key.pop((topic, group), None)
        if queues is None:
            return
        self._count = max(0, self._count - len(queues))
        for index, key, other in ((self._topics_of, group, topic), (self._groups_of, topic, group)):
            del index[key][other]
            if not index[key]:
                del index[key]
        if noted:
            self._note(topic, group, queues)

    def _remove(self, keys: list[tuple[str, str]]) -> None:
        many = sum(len(self._by_key[key]) for key in keys) > KEYS_MAX
        for topic, group in keys:
            self._drop(topic, group, noted=not many)
        if many:
            self._replaced()
        self._changed()

    def _note(self, topic: str, group: str, queues: Collection[int]) -> None:
        if len(queues) > KEYS_MAX:
            self._replaced()
            return
        for queue_id in queues:
            self.dirty = True
            self.changes.note((topic, group, queue_id))

    def _replaced(self) -> None:
        """Notes that so much changed that nobody is told one by one: that takes longer than the whole table."""
        self.dirty = True
        self.changes.replaced()

    def _changed(self) -> None:
        self.version = self.version.next(self._wall_ms(), self.state_version)
        if self.on_change is not None:
            self.on_change()


def _text(topic: str, group: str) -> str:
    return f"{topic}{KEY_SEPARATOR}{group}"


def _parsed(offsets: Mapping[str, Any]) -> Iterable[tuple[tuple[str, str], dict[int, int]]]:
    """Yields what a file or a master says, key by key."""
    for key, queues in offsets.items():
        topic, separator, group = str(key).partition(KEY_SEPARATOR)
        if separator and isinstance(queues, Mapping):
            try:
                yield (topic, group), {int(queue): int(offset) for queue, offset in queues.items()}
            except (TypeError, ValueError):
                raise MalformedBody(f"offsetTable: {key}: queue ids and offsets must be whole numbers") from None
