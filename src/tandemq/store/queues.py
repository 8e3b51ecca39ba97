"""All consume queues of a store, by (topic, queue id)."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tandemq.store.config import ENTRY_SIZE
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk
from tandemq.store.key_hash import TopicHasher
from tandemq.store.layout import CONSUME_QUEUE, queue_directory

NAME_BYTES_MAX = 255
"""What a file system takes as one name."""


KeyPlaces: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""Where in a record's text its unique key and the user's keys lie: [start, stop) each, empty if it has none."""


class Template(NamedTuple):
    """What the text of a record says, whatever its keys are."""

    queue_of: Callable[[int], ConsumeQueue | None]
    """A queue of its topic by id; None if nothing was dispatched to it yet."""
    tags: int
    hash_start: int
    """Where hashes of unique keys start."""
    hasher: TopicHasher


class Route:
    """What dispatch needs to know about a topic."""

    __slots__ = ("hasher", "queues", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.queues: dict[int, ConsumeQueue] = {}
        """Those dispatched to, by id."""
        self.hasher = TopicHasher(topic)


class QueueTable:
    def __init__(self, disk: Disk, root: Path, file_size: int, writable: bool = True) -> None:
        self._disk = disk
        self._writable = writable
        self._root = root
        self._file_size = file_size
        self.file_entries = file_size // ENTRY_SIZE
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        self.routes: dict[bytes, Route] = {}
        """Dispatch's short cut from a record's topic bytes to its queues; forgotten whenever a queue goes."""
        self.templates: dict[tuple[int | bytes, ...], Template] = {}
        """Dispatch's shorter cut, from a record's text around its keys, and the length of its unique key; forgotten
        likewise."""
        self._new_directories: set[Path] = set()

    def load(self) -> list[ConsumeQueue]:
        """Finds the queues on disk; returns those whose files are damaged."""
        damaged = []
        directory = self._root / CONSUME_QUEUE
        for topic in self._disk.list(directory):
            for name in self._disk.list(directory / topic):
                if name.isdecimal():
                    queue = self._queue(topic, int(name))
                    if queue.load():
                        self.table[topic, int(name)] = queue
                    elif self._disk.list(queue.directory):
                        damaged.append(queue)
        return damaged

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = queue_directory(self._root, topic, queue_id)
        return ConsumeQueue(self._disk, directory, self._file_size, topic, queue_id, self._writable)

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A new queue; None if its name can't be a directory: names come from the log, the log may come from a peer."""
        if "/" in topic or "\0" in topic or topic in ("", ".", "..") or len(topic.encode()) > NAME_BYTES_MAX:
            return None
        if queue_id < 0:
            return None
        queue = self.table[topic, queue_id] = self._queue(topic, queue_id)
        self._new_directories.add(queue.directory)
        return queue

    def take_new_directories(self) -> list[Path]:
        """Directories whose names are to be made durable, with those above them."""
        found: set[Path] = set()
        for directory in self._new_directories:
            found.update((directory, directory.parent, directory.parent.parent, self._root))
        self._new_directories.clear()
        return sorted(found, key=lambda path: len(path.parts))

    def entries(self) -> int:
        """Sum of all queues' ends."""
        return sum(queue.count for queue in self.table.values())

    def delete_topic(self, topic: str) -> int:
        """Forgets a topic's queues; the log keeps its messages until they expire. How many queues there were."""
        keys = [key for key in self.table if key[0] == topic]
        for key in keys:
            del self.table[key]
        self._forget_short_cuts()
        self._disk.remove_tree(self._root / CONSUME_QUEUE / topic)
        if keys:
            with contextlib.suppress(FileNotFoundError):  # asked about, never written: there may be no directory yet
                self._disk.sync_directory(self._root / CONSUME_QUEUE)
        return len(keys)

    def adopt(self, fresh: "QueueTable", unsynced: Iterable[tuple[str, int]]) -> None:
        """Replaces its queues by those of another table, whose files now lie where ours were."""
        self.clear()
        for key, queue in fresh.table.items():
            queue.moved_to(queue_directory(self._root, *key))
            self.table[key] = queue
        self._new_directories = {self.table[key].directory for key in unsynced}

    def clear(self) -> None:
        """Forgets the queues, not their files."""
        self.table.clear()
        self._forget_short_cuts()

    def _forget_short_cuts(self) -> None:
        self.routes.clear()
        self.templates.clear()

    def destroy(self) -> None:
        self.clear()
        self._disk.remove_tree(self._root / CONSUME_QUEUE)
        self._disk.sync_directory(self._root)

    def write_tails(self, keys: Iterable[tuple[str, int]]) -> None:
        for key in keys:
            queue = self.table.get(key)
            if queue is not None:
                queue.write_tail()
