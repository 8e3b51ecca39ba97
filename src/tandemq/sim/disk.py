"""Disks for tests: in memory, and one that forgets what was not flushed.

Faults injected here, each a thing that real disks do and the store must survive:
- power cut: of what was written since the last sync of a file every 512-byte sector independently stays, is lost, or is
  torn at any byte; of directory changes since the last directory sync only a prefix stays;
- power cut at a chosen operation (`crash_at`), to enumerate every step of a procedure;
- fdatasync fails (`sync_error`); the disk is full (`capacity`).
"""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tandemq.errors import DiskFull, StoreError, StoreLocked

SECTOR = 512


class PowerCut(BaseException):
    """The machine stopped here. Not an Exception: nothing in the store may catch it."""


class _File:
    __slots__ = ("data", "durable", "reserved", "synced_size")

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.durable = bytes(size)
        self.reserved = 0


class MemorySegment:
    def __init__(self, disk: "MemoryDisk", path: Path, file: _File, writable: bool) -> None:
        self._disk, self._path, self._file = disk, path, file
        self.size = len(file.data)
        self.view = memoryview(file.data) if writable else memoryview(file.data).toreadonly()

    def reserve(self, stop: int) -> int:
        self._disk.charge(self._file, stop, self._path)
        return stop

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.step("write", self._path)
        self.view[position : position + len(data)] = data

    def data_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        if start < stop:
            yield start, stop

    def sync(self) -> None:
        self._disk.sync_file(self._path)

    def fileno(self) -> int:
        raise StoreError(f"{self._path} is in memory: it has no file descriptor")

    def close(self) -> None:
        pass


class _SyncedFile:
    """Syncs the file that had the path when it was opened, as a descriptor does."""

    def __init__(self, disk: "MemoryDisk", path: Path, file: _File) -> None:
        self._disk, self._path, self._file = disk, path, file

    def sync(self) -> None:
        self._disk.sync_content(self._path, self._file)

    def close(self) -> None:
        pass


class _MemoryLock:
    def __init__(self, disk: "MemoryDisk", path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryDisk:
    """Files in a dict. Every call counts as one operation, at which a subclass may cut the power."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.files: dict[Path, _File] = {}
        self.directories: set[Path] = set()
        self.locked: set[Path] = set()
        self.capacity = capacity
        """Bytes that may be reserved or written; None for no limit. Raise it to give space back."""
        self.sync_error: OSError | None = None
        """Raised by every sync while it is set."""
        self.sync_count = 0
        self.boot = 0

    # -- hooks of CrashableDisk

    def step(self, what: str, path: Path) -> None:
        """Called before every operation."""

    def named(self, directory: Path, name: Path, file: _File | None) -> None:
        """Called after a name appeared (file) or went (None)."""

    def tree_renamed(self, files: list[Path], moved: Callable[[Path], Path], directory: Path) -> None:
        """Called after a directory with these files got another name, given by `moved`."""

    # -- Disk

    def create_segment(self, path: Path, size: int) -> MemorySegment:
        self.create_file(path, size)
        return MemorySegment(self, path, self.files[path], True)

    def open_segment(self, path: Path, *, writable: bool) -> MemorySegment:
        return MemorySegment(self, path, self._file(path), writable)

    def create_file(self, path: Path, size: int) -> None:
        self.step("create", path)
        if path.parent not in self.directories:
            raise StoreError(f"{path}: no such directory")
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = _File(size)
            self.named(path.parent, path, file)
        elif len(file.data) != size:
            file.data = (file.data + bytearray(size))[:size]

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        return bytes(memoryview(self._file(path).data)[position : position + size])

    def peek(self, path: Path, size: int, position: int = 0) -> tuple[int, bytes]:
        data = self._file(path).data
        return len(data), bytes(memoryview(data)[position : position + size])

    def write_at(self, path: Path, position: int, data: bytes | bytearray | memoryview) -> None:
        self.step("write", path)
        file = self._file(path)
        self.charge(file, position + len(data), path)
        if position + len(data) > len(file.data):
            file.data = file.data + bytearray(position + len(data) - len(file.data))
        memoryview(file.data)[position : position + len(data)] = data

    def sync_file(self, path: Path) -> None:
        self.sync_content(path, self.files.get(path))

    def open_to_sync(self, path: Path) -> _SyncedFile:
        return _SyncedFile(self, path, self._file(path))

    def sync_content(self, path: Path, file: _File | None) -> None:
        """Makes durable what the file holds."""
        self.step("sync", path)
        if self.sync_error is not None:
            raise self.sync_error
        self.sync_count += 1
        if file is not None:
            file.durable = bytes(file.data)

    def write_synced(self, path: Path, data: bytes) -> None:
        self.write_at(path, 0, data)
        self.sync_file(path)

    def read_file(self, path: Path) -> bytes:
        return bytes(self._file(path).data)

    def replace_file(self, path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        self.remove(beside)
        self.create_file(beside, 0)
        self.write_at(beside, 0, data)
        self.sync_file(beside)
        self.rename(beside, path)
        self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        if path in self.files:
            self.step("remove", path)
            del self.files[path]
            self.named(path.parent, path, None)

    def remove_tree(self, path: Path) -> None:
        inside = _beneath(path)
        for known in [known for known in self.files if str(known).startswith(inside)]:
            self.step("remove", known)
            del self.files[known]
            self.named(path.parent, known, None)  # one sync of the directory above makes it durable
        self.directories = {known for known in self.directories if known != path and path not in known.parents}

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename", new)
        if old in self.directories:
            self._rename_tree(old, new)
            return
        file = self.files.pop(old)
        self.files[new] = file
        self.named(old.parent, new, file)
        self.named(old.parent, old, None)

    def _rename_tree(self, old: Path, new: Path) -> None:
        def moved(path: Path) -> Path:
            return new / path.relative_to(old)

        if self.list(new):
            raise OSError(errno.ENOTEMPTY, "directory not empty", str(new))
        inside = [known for known in self.files if old in known.parents]
        for known in inside:
            self.files[moved(known)] = self.files.pop(known)
        self.directories = {moved(d) if d == old or old in d.parents else d for d in self.directories}
        self.tree_renamed(inside, moved, new.parent)

    def list(self, path: Path) -> list[str]:
        inside = _beneath(path)
        known = (str(one) for one in (*self.files, *self.directories))
        return sorted({one[len(inside) :].partition("/")[0] for one in known if one.startswith(inside)} - {""})

    def file_size(self, path: Path) -> int | None:
        file = self.files.get(path)
        return None if file is None else len(file.data)

    def make_directory(self, path: Path) -> None:
        self.directories.update((path, *path.parents))

    def sync_directory(self, path: Path) -> None:
        self.step("sync directory", path)

    def usage(self, path: Path) -> tuple[int, int]:
        used = sum(max(file.reserved, 0) for file in self.files.values())
        return used, self.capacity if self.capacity is not None else 1 << 40

    def lock(self, path: Path) -> _MemoryLock:
        if path in self.locked:
            raise StoreLocked(f"{path} is locked: another process has this store open")
        self.locked.add(path)
        return _MemoryLock(self, path)

    def boot_id(self) -> bytes:
        return self.boot.to_bytes(16, "big")

    def close(self) -> None:
        pass

    def charge(self, file: _File, stop: int, path: Path) -> None:
        """Takes room up to `stop` bytes of a file, or raises DiskFull."""
        if stop <= file.reserved:
            return
        used, total = self.usage(path)
        if self.capacity is not None and used + stop - file.reserved > total:
            raise DiskFull(f"no room for {path}: {used} of {total} bytes are used")
        file.reserved = stop

    def _file(self, path: Path) -> _File:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None


class CrashableDisk(MemoryDisk):
    """A MemoryDisk whose power can be cut; `after_crash` is the disk the next process finds."""

    def __init__(self, *, capacity: int | None = None, crash_at: int | None = None) -> None:
        super().__init__(capacity=capacity)
        self.crash_at = crash_at
        self.is_off = False
        """Whether its power was cut."""
        self.steps: list[str] = []
        self._durable_names: dict[Path, _File] = {}
        self._pending_names: list[tuple[Path, dict[Path, _File | None]]] = []
        """(directory whose sync makes it durable, names that change together)"""

    def step(self, what: str, path: Path) -> None:
        if self.crash_at is not None and len(self.steps) >= self.crash_at:
            self.is_off = True
            raise PowerCut(f"before {what} {path.name}")
        self.steps.append(f"{what} {path.name}")

    def named(self, directory: Path, name: Path, file: _File | None) -> None:
        self._pending_names.append((directory, {name: file}))

    def tree_renamed(self, files: list[Path], moved: Callable[[Path], Path], directory: Path) -> None:
        # A name inside that was not durable before is not durable after: it waits for a sync of its directory.
        pending = [(where, names) for where, names in self._pending_names if any(name in files for name in names)]
        unsettled = {name for _, names in pending for name in names}
        batch: dict[Path, _File | None] = dict.fromkeys(files)
        batch |= {moved(name): self.files[moved(name)] for name in files if name not in unsettled}
        self._pending_names.append((directory, batch))
        for where, names in pending:
            here = {name: file for name, file in names.items() if name in files}
            place = moved(where) if where in {path.parent for path in here} else directory
            self._pending_names.append((place, {moved(name): file for name, file in here.items()}))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        rest: list[tuple[Path, dict[Path, _File | None]]] = []
        for directory, names in self._pending_names:
            if directory == path:
                _settle(self._durable_names, names)
                # What happened to these names before is history: a later sync of its directory must not repeat it.
                rest = [(where, _without(earlier, names)) for where, earlier in rest]
            else:
                rest.append((directory, names))
        self._pending_names = [(where, names) for where, names in rest if names]

    def lose(self, path: Path) -> None:
        """Takes a file away while the machine is off."""
        del self.files[path]
        self._durable_names.pop(path, None)
        self._pending_names = [
            (where, {n: f for n, f in names.items() if n != path}) for where, names in self._pending_names
        ]

    def rot(self, path: Path, at: int, bit: int) -> None:
        """Flips a bit of a file, for good."""
        file = self._file(path)
        file.data[at] ^= 1 << bit
        file.durable = bytes(file.data)

    def survives(self, path: Path) -> bool:
        """Whether a power cut would leave this very file under its name."""
        return path in self.files and self._durable_names.get(path) is self.files[path]

    def after_crash(self, random: Random | None = None, *, keep_all: bool = False) -> "CrashableDisk":
        """What survives. Without `random`: only what was synced, or, with keep_all, everything (kill -9)."""
        names = dict(self.files if keep_all else self._durable_names)
        if not keep_all:
            pending = self._pending_names
            kept = random.randrange(len(pending) + 1) if random is not None else 0
            for _, changed in pending[:kept]:
                _settle(names, changed)
        found = CrashableDisk(capacity=self.capacity)
        found.directories = self.directories | {parent for name in names for parent in name.parents}
        found.boot = self.boot if keep_all else self.boot + 1
        for name, file in names.items():
            copy = found.files[name] = _File(0)
            copy.data = bytearray(file.data) if keep_all else _survivor(file, random)
            copy.durable = bytes(copy.data)
            copy.reserved = file.reserved
            found._durable_names[name] = copy
        return found


def _beneath(path: Path) -> str:
    """What the names of all inside a directory begin with: text, because `parents` is most of a run's time."""
    return str(path).rstrip("/") + "/"


def _settle(durable: dict[Path, _File], names: dict[Path, _File | None]) -> None:
    for name, file in names.items():
        if file is None:
            durable.pop(name, None)
        else:
            durable[name] = file


def _without(names: dict[Path, _File | None], settled: dict[Path, _File | None]) -> dict[Path, _File | None]:
    """Returns the changes of names that others have not overtaken."""
    if names.keys().isdisjoint(settled):
        return names
    return {name: file for name, file in names.items() if name not in settled}


def _survivor(file: _File, random: Random | None) -> bytearray:
    """Content after the cut: durable bytes, plus what happened to reach the disk of the rest."""
    size = len(file.data)
    result = bytearray(file.durable[:size].ljust(size, b"\0"))
    if random is None:
        return result
    mode = random.randrange(4)
    if mode == 0:
        return result
    if mode == 1:  # everything reached the disk, torn at one byte: a plain prefix
        stop = random.randrange(size + 1)
        result[:stop] = file.data[:stop]
        return result
    for start in range(0, size, SECTOR):  # out of order
        fresh = file.data[start : start + SECTOR]
        if fresh != result[start : start + SECTOR] and random.random() < 0.5:
            result[start : start + len(fresh)] = fresh
    if mode == 3:  # and one sector torn at any byte
        start = random.randrange(max(1, size // SECTOR)) * SECTOR
        stop = start + random.randrange(SECTOR)
        result[start:stop] = file.data[start:stop]
        result = result[:size]
    return result
