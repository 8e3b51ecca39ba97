"""All consume queues of a store, by (topic, queue id)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.layout import CONSUME_QUEUE, DELETED_QUEUES, queue_directory, segment_name
from tandemq.formats.queue_entry import ENTRY_SIZE
from tandemq.formats.queue_starts import QueueStarts
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk

_ASIDE = "d"
"""What names of directories put aside begin with: a name of digits would be a queue to RocketMQ."""
EVERYTHING = 1 << 62
"""Above every offset of a log."""
NAME_BYTES_MAX = 255
"""What a file system takes as one name."""


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


class Gone(NamedTuple):
    """The queues of a topic that was deleted."""

    position: int
    queues: list[ConsumeQueue]
    directory: Path
    """Where their files are now."""


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
        self._new: set[tuple[str, int]] = set()
        """Queues whose directories have names that are not durable yet, or no directory yet."""
        self._renamed: set[Path] = set()
        """Directories put aside, whose names are not durable yet."""
        self.removals = 0
        """Moves when files or queues went away: what was collected from the table before is not the table any more."""
        self.keeps_deleted = True
        """Whether files of deleted topics are put aside until a checkpoint knows of it."""
        self._gone: deque[Gone] = deque()
        """Queues deleted of which it is not known yet what may be asked for, in the order of the log."""
        self._numbers_deleted: list[tuple[int, tuple[str, int], int, int]] = []
        """(position, queue, its next number, where its last message lies) of queues deleted since the first offset."""
        self.starts_changed = False
        """Whether a queue began above 0 since this was set back: `queue-starts` must say so."""

    def load(self) -> list[ConsumeQueue]:
        """Finds the queues on disk; returns those whose files are damaged."""
        damaged = []
        directory = self._root / CONSUME_QUEUE
        for topic in self._disk.list(directory):
            if topic == DELETED_QUEUES:
                continue
            of_topic = directory / topic
            for name in self._disk.list(of_topic):
                if name.isdecimal():
                    of_queue = of_topic / name
                    queue = self._queue(topic, int(name), of_queue)
                    if queue.load(of_queue):
                        self.table[topic, int(name)] = queue
                    elif self._disk.list(queue.directory):
                        damaged.append(queue)
        return damaged

    def _queue(self, topic: str, queue_id: int, directory: Path | None = None) -> ConsumeQueue:
        directory = directory if directory is not None else queue_directory(self._root, topic, queue_id)
        return ConsumeQueue(self._disk, directory, self._file_size, topic, queue_id, self._writable)

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Creates a queue. Returns None if its name can't be a directory.

        Names come from the log, the log may come from a peer.
        """
        if "/" in topic or "\0" in topic or topic in ("", ".", "..") or len(topic.encode()) > NAME_BYTES_MAX:
            return None
        if queue_id < 0:
            return None
        queue = self.table[topic, queue_id] = self._queue(topic, queue_id)
        self._new.add((topic, queue_id))
        return queue

    def take_new_directories(self, queue: ConsumeQueue) -> list[Path]:
        """Returns the directories whose names are to be made durable with a queue's first file, the highest first."""
        if queue.key not in self._new or not queue.has_files:
            return []
        self._new.discard(queue.key)
        topic = queue.directory.parent
        return [self._root, topic.parent, topic, queue.directory]

    def take_renamed_directories(self) -> list[Path]:
        """Returns directories that were put aside, with those above them."""
        found: list[Path] = []
        for directory in sorted(self._renamed):
            found += (directory, directory.parent, directory.parent.parent, self._root)
        self._renamed.clear()
        return found

    def forget_new(self) -> None:
        """Forgets new names: all are durable, or synced in another way."""
        self._new.clear()
        self._renamed.clear()

    def entries(self) -> int:
        """Returns the sum of all queues' ends."""
        return sum(queue.count for queue in self.table.values())

    # -- topics that were deleted

    def delete_topic(self, topic: str, position: int) -> int:
        """Forgets a topic's queues at a position of the log. Returns how many there were.

        Their files are put aside, where `settle_deleted` finds them if no checkpoint comes to know of it.
        """
        gone = list(map(self.table.pop, [key for key in self.table if key[0] == topic]))
        self.starts_changed = self.starts_changed or any(queue.is_fileless for queue in gone)
        if (route := self.routes.get(topic.encode())) is not None:
            route.queues.clear()  # templates look in there too
        self.removals += 1
        number, directory = len(gone), self._root / CONSUME_QUEUE
        if not self._writable:
            self._gone.append(Gone(position, gone, directory / topic))
        elif self.keeps_deleted:
            aside = directory / DELETED_QUEUES / f"{_ASIDE}{segment_name(position)}-{topic}"
            self._gone.append(Gone(position, gone, aside))
            if topic in self._disk.list(directory):
                self._disk.make_directory(aside.parent)
                self._disk.remove_tree(aside)
                self._disk.rename(directory / topic, aside)
                self._renamed.add(aside)
        else:
            self._gone.append(Gone(position, gone, directory / topic))
            for _ in self.note_gone():
                pass  # all of them, before their files go
            self._disk.remove_tree(directory / topic)
        return number

    def has_deleted_from(self, position: int) -> bool:
        """Returns whether queues with messages were deleted at or above a position, dispatched or on the way there."""
        found = any(at >= position for at, *_ in self._numbers_deleted)
        return found or any(gone.position >= position and any(q.count for q in gone.queues) for gone in self._gone)

    def note_gone(self) -> Iterator[None]:
        """Keeps of the queues that were deleted only what may be asked for, queue by queue: thousands take long."""
        while self._gone:
            position, queues, directory = self._gone[0]
            while queues:
                queue = queues.pop()
                self._note_gone(position, queue, directory)
                yield
            if self._gone and self._gone[0].queues is queues:  # else another went through them in between
                self._gone.popleft()

    def _note_gone(self, position: int, queue: ConsumeQueue, directory: Path) -> None:
        if queue.key not in self.table:  # else its topic was made anew, and is new
            self._new.discard(queue.key)
        if queue.count:
            queue.moved_to(directory / str(queue.queue_id))
            last = queue.last_physical if queue.count > queue.first else -1
            self._numbers_deleted.append((position, queue.key, queue.count, last))

    def deleted_below(self, position: int) -> list[Path]:
        """Returns the files put aside for deletions below a position, which a checkpoint there need not keep."""
        return [path for at, _, path in self._put_aside() if at < position]

    def settle_deleted(self, position: int) -> None:
        """Removes, before loading, what was deleted below the checkpoint's position.

        Brings back what was deleted later.

        The log is dispatched again from there and so meets the deletion again.
        """
        directory = self._root / CONSUME_QUEUE
        for at, topic, path in sorted(self._put_aside(), reverse=True):
            if at < position:
                self._disk.remove_tree(path)
            else:
                self._disk.remove_tree(directory / topic)
                self._disk.rename(path, directory / topic)

    def _put_aside(self) -> list[tuple[int, str, Path]]:
        """Returns (position, topic, directory) of each deletion whose files are still there."""
        directory = self._root / CONSUME_QUEUE / DELETED_QUEUES
        found = []
        for name in self._disk.list(directory):
            position, _, topic = name.removeprefix(_ASIDE).partition("-")
            if position.isdecimal() and topic:
                found.append((int(position), topic, directory / name))
        return found

    # -- all of them

    def starts(self, first_offset: int, durable: int = EVERYTHING) -> QueueStarts:
        """Returns what the queues look like at an offset that the log will begin at.

        What the log holds from `durable` on may be gone after a crash, and tells nothing then.
        """
        found = QueueStarts(first_offset)
        for _ in self.starts_steps(found, durable):
            pass
        return found

    def starts_steps(self, found: QueueStarts, durable: int = EVERYTHING) -> Iterator[None]:
        """Puts what the queues look like at its offset into `found`, queue by queue."""
        yield from self.note_gone()
        first_offset = found.offset
        # A crash may take the mark of a deletion back; the queue is there at this offset all the same.
        self._numbers_deleted = [deleted for deleted in self._numbers_deleted if deleted[0] >= first_offset]
        found.idle.update(
            (key, count) for _, key, count, last in reversed(self._numbers_deleted) if last < first_offset
        )
        for key, queue in list(self.table.items()):
            if queue.count and queue.is_idle(first_offset):
                found.idle.setdefault(key, queue.count)
            elif queue.count and queue.last_physical >= durable and (number := queue.lower_bound(first_offset)):
                found.idle.setdefault(key, number)  # its next message has it, if the log keeps that one
            if begin := queue.begin_after(first_offset):
                found.begin[key] = begin
            if queue.is_fileless:
                found.fileless[key] = queue.count
            yield

    def start_idle(self, idle: Mapping[tuple[str, int], int]) -> None:
        """Lets queues that have fewer messages begin at these numbers: those before have expired."""
        for key, number in idle.items():
            queue = self.table.get(key) or self.create(*key)
            if queue is not None and queue.count < number:
                self.advance(queue, number)

    def advance(self, queue: ConsumeQueue, number: int) -> None:
        """Brings a queue to a number although the log does not have the messages before it."""
        if queue.count == queue.first:
            queue.start_at(number)
            self.starts_changed = True
        elif number - queue.count <= self.file_entries:
            queue.fill_to(number)
        else:
            queue.destroy()
            self.removals += 1
            queue.start_at(number)
            self.starts_changed = True

    def adopt(self, fresh: "QueueTable", unsynced: Iterable[tuple[str, int]]) -> None:
        """Replaces its queues by those of another table, whose files now lie where ours were."""
        self.clear()
        for key, queue in fresh.table.items():
            queue.moved_to(queue_directory(self._root, *key))
            self.table[key] = queue
        self._new = set(unsynced)

    def clear(self) -> None:
        """Forgets the queues, not their files."""
        self.table.clear()
        self.removals += 1
        self._new.clear()
        self._gone.clear()
        self._numbers_deleted.clear()
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
