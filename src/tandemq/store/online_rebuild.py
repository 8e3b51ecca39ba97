"""Consume queues and index built anew from the log while the store goes on: beside the live ones, then swapped.

    root/rebuild/consumequeue, root/rebuild/index    fresh views, filled by a dispatcher of their own in bounded steps
    root/rebuilt                                     the decision: from here on the fresh views are the store's

A crash before the decision leaves the old views (opening removes what was begun), after it the new ones (opening
finishes the swap). The file of the decision holds the checkpoint that belongs to the fresh views: it vouches for what
was durable of them; what came later is dispatched again, as after any crash.

The work is a generator, `OnlineRebuild.steps`: its owner's thread takes the steps, what would block (reading cold log,
syncing) is handed out to be done anywhere before the next step.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tandemq.errors import StoreError
from tandemq.formats import checkpoint, layout
from tandemq.formats.crc import crc32
from tandemq.store.commit_log import CommitLog
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk
from tandemq.store.dispatch import LogDispatcher
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable

STEP_SIZE = 1 << 20
"""Log dispatched in one step: some milliseconds of the owner's time."""
STEP_SIZE_MAX = 1 << 24
"""A store that is written faster than it is rebuilt gets larger steps, up to this."""
PENDING_MAX = 1 << 20
"""Bytes of queue entries held in memory before they are written."""
REMOVED_PER_STEP = 32
"""Directories of old queues removed in one step."""

Key = tuple[str, int]
Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class RebuildStatus:
    """How far a rebuild is, or what came of it."""

    phase: str
    """building, syncing, cleaning, done; or given up"""
    first_offset: int
    position: int
    """The log below is in the fresh views."""
    end_offset: int
    """How far the live views are."""
    queues: int
    queue_entries: int
    index_files: int
    queues_corrected: int = 0
    """Queues whose end was another one in the views that were replaced."""


@dataclass(frozen=True, slots=True)
class SyncedPoint:
    """What is durable of the fresh views."""

    position: int
    timestamp: int
    counts: dict[Key, int]
    index_name: str
    index_count: int


class Owner(Protocol):
    """The store, as far as a rebuild needs it."""

    @property
    def dispatched(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    def adopt(self, rebuild: "OnlineRebuild") -> int:
        """Makes the fresh views the store's own; how many queues had another end before."""
        ...


class OnlineRebuild:
    """One rebuild. `queues` and `index` are the fresh views until the owner has adopted them."""

    def __init__(
        self,
        owner: Owner,
        disk: Disk,
        root: Path,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        delays_ms: tuple[int, ...],
        step_size: int,
    ) -> None:
        self._owner = owner
        self._disk = disk
        self._root = root
        self._log = log
        self._step_size = step_size
        self.queues = queues
        self.queues.keeps_deleted = False
        self.index = index
        self.dispatcher = LogDispatcher(log, queues, index, delays_ms, log.first_offset)
        self.dispatcher.restarts = True
        self._begin = log.first_offset
        self.unsynced: set[Key] = set()
        """Queues that changed since the last sync."""
        self.synced = SyncedPoint(0, 0, {}, "", 1)
        self.cancelled = ""
        """Why it can't go on; said by the owner."""
        self._phase = "building"
        self._corrected = 0
        self.is_decided = False
        """The swap was announced: there is no way back."""

    @property
    def is_running(self) -> bool:
        return self._phase in ("building", "syncing", "cleaning") and not self.cancelled

    def status(self) -> RebuildStatus:
        return RebuildStatus(
            phase=self._phase,
            first_offset=self._begin,
            position=self.dispatcher.position,
            end_offset=self._owner.dispatched,
            queues=len(self.queues.table),
            queue_entries=sum(queue.count - queue.first for queue in self.queues.table.values()),
            index_files=len(self.index.names) if self.index is not None else 0,
            queues_corrected=self._corrected,
        )

    # -- the work

    def steps(self) -> Generator[Work, None, None]:
        """Yields steps to run in any thread, each before asking for the next.

        The rebuild is complete when there is none.
        """
        try:
            discard(self._disk, self._root)
            self._make_directories()
            yield from self._follow()
            self._phase = "syncing"
            self._write_tails()
            point = self._point()
            yield self._sync_work()
            self._check()
            self.synced = point
            yield from self._follow()
            self._corrected = self._owner.adopt(self)
            self._phase = "cleaning"
            yield from self._clean()
            self._phase = "done"
        finally:
            if self._phase in ("building", "syncing"):
                self._phase = "given up"
                if not self.is_decided and self._owner.is_open:
                    self._give_up()

    def _follow(self) -> Iterator[Work]:
        """Dispatches until what is left is one step."""
        size, behind = self._step_size, self._owner.dispatched - self.dispatcher.position
        while behind > self._step_size:
            yield self._read_ahead(size)
            self._check()
            self._step(size)
            left = self._owner.dispatched - self.dispatcher.position
            if left >= behind:
                size = min(size * 2, STEP_SIZE_MAX)
            behind = left

    def catch_up(self) -> None:
        """Takes the last step before the swap: exactly as far as the live views are, and written."""
        self._check()
        while self.dispatcher.position < self._owner.dispatched:
            self._step(STEP_SIZE_MAX)
        self._write_tails()

    def _step(self, size: int) -> None:
        before = self.dispatcher.position
        self.unsynced.update(self.dispatcher.run(self._owner.dispatched, size))
        self.unsynced &= self.queues.table.keys()  # the log may say that a topic was deleted
        if self.dispatcher.position == before:
            raise StoreError(
                f"the rebuild stopped at offset {before}: {self.dispatcher.problem or 'no whole record there'}; "
                "`tandemq store verify` tells more"
            )
        if self.dispatcher.pending_size > PENDING_MAX:
            self._write_tails()

    def _write_tails(self) -> None:
        self.queues.write_tails(sorted(self.unsynced))
        self.dispatcher.pending_size = 0

    def _check(self) -> None:
        if self.cancelled:
            raise StoreError(f"the rebuild was given up: {self.cancelled}; start it again")

    def _read_ahead(self, size: int) -> Work:
        """Brings the log of the next step into memory: a mapped page that is on disk only would stop the owner."""
        log = self._log
        start = max(self.dispatcher.position, log.first_offset)
        stop = min(start + size, start - start % log.segment_size + log.segment_size, log.appended)
        part = log.slice(start, max(0, stop - start))

        def read() -> None:
            crc32(part)  # lets go of the interpreter while it reads

        return read

    # -- making it durable

    def _make_directories(self) -> None:
        self._disk.make_directory(self._root / layout.REBUILD / layout.CONSUME_QUEUE)
        if self.index is not None:
            self._disk.make_directory(self._root / layout.REBUILD / layout.INDEX)

    def _point(self) -> SyncedPoint:
        newest = self.index.newest if self.index is not None else None
        return SyncedPoint(
            position=self.dispatcher.position,
            timestamp=self.dispatcher.last_timestamp,
            counts={key: queue.count for key, queue in self.queues.table.items()},
            index_name=newest.path.name if newest is not None else "",
            index_count=newest.count if newest is not None else 1,
        )

    def _sync_work(self) -> Work:
        disk, rebuild = self._disk, self._root / layout.REBUILD
        files: list[Path] = []
        directories = {self._root, rebuild, rebuild / layout.CONSUME_QUEUE}
        for key in sorted(self.unsynced & self.queues.table.keys()):
            queue = self.queues.table[key]
            files += queue.take_dirty()[0]
            directories.update((queue.directory, queue.directory.parent))
        self.unsynced.clear()
        self.queues.forget_new()
        if self.index is not None:
            files += self.index.take_dirty()[0]
            directories.add(rebuild / layout.INDEX)

        def sync() -> None:
            for path in files:
                disk.sync_file(path)
            # The deepest first, and always in one order, so that a simulation can be repeated.
            for directory in sorted(directories, key=lambda path: (-len(path.parts), path)):
                disk.sync_directory(directory)

        return sync

    # -- the swap, called by the owner while nothing else happens

    def match(self, live: dict[Key, ConsumeQueue]) -> tuple[int, int]:
        """Gives fresh queues what only the live ones know: deleted ones, where empty ones stand, offsets given out.

        Returns (sum of the ends that are durable, how many queues had another end).
        """
        for key in [key for key in self.queues.table if key not in live]:
            self.queues.table.pop(key).destroy()  # its topic was deleted; the log still has the messages
            self.unsynced.discard(key)
        durable = corrected = 0
        for key, old in live.items():
            queue = self.queues.table.get(key) or self.queues.create(*key)
            if queue is None:
                continue
            if queue.count == 0 and (end := _end_below(old, self.dispatcher.position)) > 0:
                durable += self._carry_over(queue, end)
            else:
                durable += self.synced.counts.get(key, 0)
            corrected += queue.count != old.count
        return durable, corrected

    def _carry_over(self, queue: ConsumeQueue, end: int) -> int:
        """Lets the numbers of a queue go on where they were: all its messages have expired."""
        self.queues.advance(queue, end)
        return end

    def _clean(self) -> Iterator[Work]:
        """Removes the old views, a few directories at a time."""
        old = self._root / layout.REBUILD
        for name in self._disk.list(old):
            for number, topic in enumerate(self._disk.list(old / name)):
                for queue in self._disk.list(old / name / topic):
                    self._disk.remove_tree(old / name / topic / queue)
                if number % REMOVED_PER_STEP == 0:
                    yield _nothing
        discard(self._disk, self._root)

    def _give_up(self) -> None:
        if self.index is not None:
            self.index.close()
        discard(self._disk, self._root)


def _end_below(queue: ConsumeQueue, position: int) -> int:
    try:
        return queue.lower_bound(position)
    except (OSError, ValueError):  # its files are gone: that is why somebody rebuilds
        return queue.count


def _nothing() -> None:
    pass


# -- the decision and its execution


def announce(disk: Disk, root: Path, checkpoint_data: bytes) -> None:
    """Makes the fresh views the store's from here on."""
    disk.replace_file(root / layout.REBUILT, checkpoint_data + crc32(checkpoint_data).to_bytes(4, "big"))


def is_announced(disk: Disk, root: Path) -> bool:
    if disk.file_size(root / layout.REBUILT) != checkpoint.SIZE + 4:
        return False
    data = disk.read_file(root / layout.REBUILT)
    return crc32(data[: checkpoint.SIZE]).to_bytes(4, "big") == data[checkpoint.SIZE :]


def swap(disk: Disk, root: Path) -> None:
    """Puts announced views in their place, with their checkpoint. May be begun again at any point."""
    beside = root / layout.REBUILD
    for name in (layout.CONSUME_QUEUE, layout.INDEX):
        if name not in disk.list(beside):
            continue
        if name in disk.list(root):
            disk.remove_tree(beside / f"old-{name}")
            disk.rename(root / name, beside / f"old-{name}")
        disk.rename(beside / name, root / name)
    disk.make_directory(beside)
    disk.sync_directory(beside)
    disk.sync_directory(root)
    path = root / layout.CHECKPOINT
    if disk.file_size(path) is None:
        disk.create_file(path, checkpoint.SIZE)
        disk.sync_directory(root)
    disk.write_at(path, 0, disk.read_at(root / layout.REBUILT, 0, checkpoint.SIZE))
    disk.sync_file(path)
    disk.remove(root / layout.REBUILT)
    disk.sync_directory(root)


def discard(disk: Disk, root: Path) -> None:
    """Removes what an unfinished rebuild, or a finished one, left behind."""
    if layout.REBUILD in disk.list(root):
        disk.remove_tree(root / layout.REBUILD)
        disk.sync_directory(root)


def settle(disk: Disk, root: Path) -> None:
    """Finishes, before a store opens, a rebuild that was decided; undoes any other."""
    if is_announced(disk, root):
        swap(disk, root)
    discard(disk, root)
