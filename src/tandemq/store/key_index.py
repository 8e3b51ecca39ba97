"""The key index of a store: its files, oldest first, and the one being written. The layout is in formats/index_file."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tandemq.errors import CorruptLog
from tandemq.formats.index_file import HEADER_SIZE, SLOT_SIZE, IndexFile, file_size
from tandemq.store.disk import Disk, Segment
from tandemq.store.zeros import zero

MAPPED_MAX = 4
"""Index files mapped at a time: the newest for writing, and those a query reads."""


class MappedIndexFile(IndexFile):
    """An index file on disk, mapped into memory."""

    def __init__(self, path: Path, segment: Segment, slots: int, entries: int) -> None:
        super().__init__(segment.view, slots, entries, segment.reserve)
        self.path = path
        self.segment = segment

    def rebuild_slots(self, count: int, physical_limit: int) -> None:
        """Trusts entries [1, count) below the limit and nothing else: makes the slots anew from them."""
        zero(self.segment, HEADER_SIZE, self.entries_at)
        self.segment.reserve(self.entries_at)
        self.make_slots(count, physical_limit)
        zero(self.segment, self.entry_at(self.count), self.segment.size)
        if self.count > 1:
            self.begin_physical = self.entry(1)[1]
        self.header_from_last()

    def close(self) -> None:
        """Unmaps the file."""
        super().close()
        self.segment.close()


class KeyIndex:
    """All index files of a store, oldest first."""

    def __init__(
        self, disk: Disk, directory: Path, slots: int, entries: int, wall_ms: Callable[[], int], writable: bool = True
    ) -> None:
        self._disk = disk
        self.directory = directory
        self._slots = slots
        self._entries = entries
        self._wall_ms = wall_ms
        self._writable = writable
        self.names: list[str] = []
        self._mapped: dict[str, MappedIndexFile] = {}
        self._newest: MappedIndexFile | None = None
        self.dirty: set[Path] = set()
        self._marked: MappedIndexFile | None = None
        """The newest file, once it is known to be in `dirty`."""
        self._has_new_name = False
        """Whether a file was made since the directory was handed over to be synced."""

    def load(self) -> bool:
        """Finds the files. Returns False if one has another size than the settings say."""
        self.names = [name for name in self._disk.list(self.directory) if name.isdecimal()]
        size = file_size(self._slots, self._entries)
        return all(self._disk.file_size(self.directory / name) == size for name in self.names)

    def file(self, name: str) -> MappedIndexFile:
        found = self._mapped.get(name)
        if found is None:
            path = self.directory / name
            segment = self._disk.open_segment(path, writable=self._writable)
            if segment.size != file_size(self._slots, self._entries):
                raise CorruptLog(f"{path} has {segment.size} bytes: maxHashSlotNum or maxIndexNum differ from its own")
            found = self._remember(MappedIndexFile(path, segment, self._slots, self._entries))
        return found

    def _remember(self, file: MappedIndexFile) -> MappedIndexFile:
        self._mapped[file.path.name] = file
        for name in list(self._mapped):
            if len(self._mapped) <= MAPPED_MAX:
                break
            if name != self.names[-1] and name != file.path.name:
                self._mapped.pop(name).close()
        return file

    @property
    def newest(self) -> MappedIndexFile | None:
        if self._newest is None and self.names:
            self._newest = self.file(self.names[-1])
        return self._newest

    @property
    def end_physical(self) -> int:
        """Returns the offset below which messages are indexed already, -1 for an empty index."""
        newest = self.newest
        if newest is None or (newest.count <= 1 and newest.end_physical == 0):
            return -1
        return newest.end_physical

    def put(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        """Adds key hashes with their messages' physical offsets and store times, in log order, in new files as old
        ones fill up."""
        marked = self._marked
        if len(hashes) == 1 and marked is not None and marked.put_one(hashes[0], offsets[0], times[0]):
            return
        done = 0
        while done < len(hashes):
            done = self._with_room().put_some(hashes, offsets, times, done)

    def put_arrays(self, hashes: Any, offsets: Any, times: Any) -> None:
        """Does what `put` does, for numpy arrays."""
        from tandemq.formats.index_arrays import put_some  # numpy takes a tenth of a second to load

        done = 0
        while done < len(hashes):
            done = put_some(self._with_room(), hashes, offsets, times, done)

    def _with_room(self) -> MappedIndexFile:
        """Returns the file that takes the next key, marked as about to change."""
        file = self._newest or self.newest
        if file is None or file.count >= file.entries_max:
            file = self._add()
        if file is not self._marked:
            self.dirty.add(file.path)
            self._marked = file
        return file

    def _add(self) -> MappedIndexFile:
        before = self.newest
        self._disk.make_directory(self.directory)
        path = self.directory / self._new_name()
        segment = self._disk.create_segment(path, file_size(self._slots, self._entries))
        # Slots are written at random: all of them get their blocks now. A file without them is not kept.
        try:
            segment.reserve(HEADER_SIZE + SLOT_SIZE * self._slots)
        except BaseException:
            segment.close()
            self._disk.remove(path)
            raise
        # Its name becomes durable with the next checkpoint: syncing the directory here would stop the owner.
        self._has_new_name = True
        self.names.append(path.name)
        file = MappedIndexFile(path, segment, self._slots, self._entries)
        if before is not None:
            file.inherit(before)
        file.write_header()
        self._newest, self._marked = self._remember(file), None
        return file

    def _new_name(self) -> str:
        moment = datetime.fromtimestamp(self._wall_ms() / 1000, tz=UTC).astimezone()
        name = moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
        if self.names and name <= self.names[-1]:  # the clock went back, or two files in one millisecond
            name = str(int(self.names[-1]) + 1)
        return name

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yields the physical offsets of candidates, newest first; the caller compares topic and key."""
        for name in reversed(self.names):
            file = self.file(name)
            if file.count > 1 and file.begin_timestamp <= end_ms and file.end_timestamp + 999 >= begin_ms:
                yield from file.find(key_hash, begin_ms, end_ms)

    def cut(self, physical_limit: int) -> None:
        """Forgets every message at or above the limit."""
        while self.names:
            file = self.file(self.names[-1])
            file.cut(physical_limit)
            self.dirty.add(file.path)
            if file.count > 1 or len(self.names) == 1:
                break
            self._drop(self.names[-1])
        self._newest = self._marked = None

    def rebuild_from(self, name: str, count: int, physical_limit: int, *, deeper: bool) -> None:
        """Removes, after a machine crash, files newer than `name`.

        Makes its slots anew from its first `count` entries.

        `deeper`: a cut was under way and may have touched older files too; they are made anew until one has entries
        left.
        """
        self.drop_newer_than(name)
        while self.names:
            file = self.file(self.names[-1])
            file.rebuild_slots(file.entries_max if deeper else max(1, count), physical_limit)
            self.dirty.add(file.path)
            if not deeper or file.count > 1 or len(self.names) == 1:
                break
            self._drop(self.names[-1])
        self._newest = self._marked = None

    def drop_newer_than(self, name: str) -> None:
        while self.names and self.names[-1] > name:
            self._drop(self.names[-1])

    def drop_from(self, name: str) -> None:
        while self.names and self.names[-1] >= name:
            self._drop(self.names[-1])

    def drop_before(self, physical_offset: int) -> int:
        """Removes files that hold nothing at or above an offset. Returns how many. The newest stays."""
        dropped = 0
        while len(self.names) > 1 and self.file(self.names[0]).end_physical < physical_offset:
            self._drop(self.names[0])
            dropped += 1
        return dropped

    def destroy(self) -> None:
        while self.names:
            self._drop(self.names[-1])
        self._disk.remove_tree(self.directory)
        self._disk.sync_directory(self.directory.parent)

    def _drop(self, name: str) -> None:
        mapped = self._mapped.pop(name, None)
        if mapped is self._newest:
            self._newest = self._marked = None
        if mapped is not None:
            mapped.close()
        self.names.remove(name)
        self._disk.remove(self.directory / name)
        self.dirty.discard(self.directory / name)

    def adopt(self, fresh: "KeyIndex") -> None:
        """Forgets its files for those of another index, which now lie where ours were."""
        self.close()
        self.load()
        self.dirty = {self.directory / path.name for path in fresh.dirty}
        self._has_new_name = fresh._has_new_name
        self._marked = None

    def take_dirty(self) -> tuple[list[Path], bool]:
        """Returns the files to sync, and whether there is a name that only a sync of the directory makes durable."""
        paths, named = sorted(self.dirty), self._has_new_name
        self.dirty.clear()
        self._has_new_name = False
        self._marked = None
        return paths, named

    def close(self) -> None:
        for file in self._mapped.values():
            file.close()
        self._mapped.clear()
        self._newest = self._marked = None
