"""What the store asks of a file system: the `Disk` and `Segment` protocols, and their implementation by mmap.

The only importer of mmap. Rules kept here:
- A segment's blocks are reserved before they are written (`reserve`), so a full disk is a DiskFull error at a known
  place and never a SIGBUS in the middle of a memory write.
- Durable means fdatasync returned. Never `mmap.flush()`: it holds the interpreter lock for its whole duration.
- No descriptor is kept per consume queue: files opened by path are kept in a small least-recently-used table.
- Views of a mapping may outlive its segment: closing drops our reference, the last reader unmaps.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

from tandemq.errors import DiskFull, NoDescriptors, StoreError, StoreLocked

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
RESERVE_CHUNK = 64 * 1024 * 1024
"""Blocks are reserved this far ahead: one call per 64 MiB written, little taken from an almost empty store."""


class Segment(Protocol):
    """One file of fixed size, mapped into memory."""

    @property
    def size(self) -> int: ...

    @property
    def view(self) -> memoryview:
        """Returns the whole file; writable unless opened read-only."""
        ...

    def reserve(self, stop: int) -> int:
        """Makes sure that [0, stop) has blocks on disk, or raises DiskFull. Returns how far they now reach."""
        ...

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Writes in bulk, where blocks are already reserved; the view shows it."""
        ...

    def data_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of [start, stop) that may hold something else than zeros; holes of the file are left out."""
        ...

    def sync(self) -> None:
        """Makes durable, by fdatasync, what was written before the call."""
        ...

    def fileno(self) -> int:
        """Returns the descriptor, for sendfile."""
        ...

    def close(self) -> None: ...


class SyncFile(Protocol):
    """A file that is kept open to be synced again and again. Used by one thread."""

    def sync(self) -> None:
        """Makes the file durable, as `Segment.sync` does."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Creation, renaming and removal are durable only after `sync_directory`."""

    def create_segment(self, path: Path, size: int) -> Segment: ...

    def open_segment(self, path: Path, *, writable: bool) -> Segment: ...

    def create_file(self, path: Path, size: int) -> None:
        """Creates a zero-filled file that takes no room until written."""
        ...

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer at the end of the file."""
        ...

    def peek(self, path: Path, size: int, position: int = 0) -> tuple[int, bytes]:
        """Returns a file's size and up to `size` bytes of it, for one look, in any thread: nothing is kept open."""
        ...

    def write_at(self, path: Path, position: int, data: bytes | bytearray | memoryview) -> None: ...

    def sync_file(self, path: Path) -> None:
        """Makes durable what was written to a file. From any thread."""
        ...

    def open_to_sync(self, path: Path) -> SyncFile:
        """Opens a file that will be synced often. From any thread."""
        ...

    def write_synced(self, path: Path, data: bytes) -> None:
        """Overwrites the start of a small file, durable when it returns. From any thread."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replaces a file's content: it has either the old or the new, durably the new one on return."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file; does nothing if it is not there."""
        ...

    def remove_tree(self, path: Path) -> None: ...

    def rename(self, old: Path, new: Path) -> None:
        """Renames a file, or a directory with everything in it."""
        ...

    def list(self, path: Path) -> list[str]:
        """Returns the names in a directory, sorted; none if it does not exist."""
        ...

    def file_size(self, path: Path) -> int | None:
        """Returns the size, None if there is no such file."""
        ...

    def make_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def usage(self, path: Path) -> tuple[int, int]:
        """Returns (used, total) bytes of the file system."""
        ...

    def lock(self, path: Path) -> Lock: ...

    def boot_id(self) -> bytes:
        """Returns 16 bytes that change when the machine restarts, and with it the page cache is lost."""
        ...

    def close(self) -> None: ...


class MappedSegment:
    """A file through mmap."""

    __slots__ = ("_fd", "_map", "_path", "_reserved", "size", "view")

    def __init__(self, path: Path, fd: int, size: int, writable: bool) -> None:
        self._path = path
        self.size = size
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._map = mmap.mmap(fd, size, access=access)
        self._fd = fd  # ours only now: without a mapping the caller closes it
        self.view = memoryview(self._map)
        self._reserved = 0

    def reserve(self, stop: int) -> int:
        if stop > self._reserved:
            goal = min(self.size, -(-stop // RESERVE_CHUNK) * RESERVE_CHUNK)
            try:
                os.posix_fallocate(self._fd, self._reserved, goal - self._reserved)
            except OSError as error:
                raise store_error(error, self._path) from error
            # The flush thread reserves ahead while the owner writes: what one of them reached, both keep.
            self._reserved = max(self._reserved, goal)
        return self._reserved

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        # Fresh pages through the mapping cost a fault each, which on ext4 takes longer than the bytes: measured with a
        # 1 GiB file, 0.2 to 0.4 GB/s through the mapping (populated in advance or not), 3 GB/s by pwrite.
        rest = memoryview(data)
        while len(rest):
            try:
                written = os.pwrite(self._fd, rest, position)
            except OSError as error:
                raise store_error(error, self._path) from error
            position += written
            rest = rest[written:]

    def data_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        while start < stop:
            try:
                start = os.lseek(self._fd, start, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end of the file
                    return
                yield start, stop  # this file system can't tell
                return
            end = min(stop, os.lseek(self._fd, start, os.SEEK_HOLE))
            if start < end:
                yield start, end
            start = end

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.view = memoryview(b"")
            # Readers may still hold slices; then the mapping goes with the last of them.
            with contextlib.suppress(BufferError):
                self._map.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


class StandInSegment:
    """Read-only bytes in place of a file that is missing or has a wrong size; everything after them is zero."""

    __slots__ = ("_map", "size", "view")

    def __init__(self, content: bytes, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size)  # takes no memory for what is zero
        self._map[: len(content)] = content
        self.view = memoryview(self._map).toreadonly()

    def reserve(self, stop: int) -> int:
        raise StoreError("a missing log file can't be written")

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        raise StoreError("a missing log file can't be written")

    def data_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        yield from ()

    def sync(self) -> None:
        pass

    def fileno(self) -> int:
        raise StoreError("a missing log file can't be sent")

    def close(self) -> None:
        self.view = memoryview(b"")
        with contextlib.suppress(BufferError):  # as with a MappedSegment
            self._map.close()


def store_error(error: OSError, path: Path | str) -> StoreError:
    """Returns what a failed write means to the store."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no room for {path}: free some space or lower fileReservedTime ({error.strerror})")
    return StoreError(f"{path}: {error.strerror or error}")


def make_private_directory(path: Path) -> None:
    """Makes a directory and what is missing above it for this user alone: the store holds everybody's messages."""
    if not path.is_dir():
        make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


@cache
def _boot_id() -> bytes:
    """Returns Linux's id of this boot.

    Elsewhere every process counts as a new boot, which only makes recovery read more.
    """
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return os.urandom(16)


class OpenFile:
    """A descriptor that is kept to sync a file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


class DescriptorReserve:
    """Descriptors kept back, so that a process whose clients took all others can still write its files.

    Thread-safe. An open that finds none left gives one of the reserve back to the system and takes that.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._held)  # a store that nobody closed keeps none

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Opens a file, with a descriptor of the reserve if need be; raises NoDescriptors if that is used up too."""
        try:
            fd = os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            return self._open_from_reserve(path, flags, mode)
        if len(self._held) < self._count:
            self._fill()
        return fd

    def _open_from_reserve(self, path: Path, flags: int, mode: int) -> int:
        with self._lock:
            while self._held:
                os.close(self._held.pop())
                try:
                    return os.open(path, flags | os.O_CLOEXEC, mode)
                except OSError as error:
                    if error.errno not in _NO_DESCRIPTORS:
                        raise
        raise NoDescriptors(
            f"{path} can't be opened: the process has no file descriptor left; raise its limit (ulimit -n), or lower "
            "the number of connections"
        )

    def give_back(self) -> bool:
        """Gives one descriptor back to the system. Returns whether there was one."""
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def _fill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Gives the reserve back."""
        with self._lock:
            _close_all(self._held)


class FileLock:
    """An advisory lock that dies with its process, so a crash never leaves a store locked."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # POSIX record locks, as Java's FileChannel.lock takes them: a RocketMQ broker and we exclude each other.
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise StoreLocked(
                f"{path} is locked: another process has this store open; stop it, or give this one another directory"
            ) from error
        os.pwrite(self._fd, b"lock", 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileDisk:
    """The operating system's files."""

    def __init__(self, open_files_max: int = 128, reserved_descriptors: int = 16) -> None:
        self._open_files_max = open_files_max
        self._reserve = DescriptorReserve(reserved_descriptors)
        self._open: OrderedDict[Path, int] = OrderedDict()
        """Used by the owner's thread; others may only make it forget files that nobody uses any more."""
        self._changing = threading.Lock()

    def create_segment(self, path: Path, size: int) -> MappedSegment:
        fd = self._reserve.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            os.ftruncate(fd, size)
            return self._mapped(path, fd, size, True)
        except OSError as error:
            os.close(fd)
            with contextlib.suppress(OSError):
                path.unlink()
            raise store_error(error, path) from error

    def open_segment(self, path: Path, *, writable: bool) -> MappedSegment:
        fd = self._reserve.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            return self._mapped(path, fd, os.fstat(fd).st_size, writable)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise StoreError(f"{path}: can't be mapped: {error}") from error

    def _mapped(self, path: Path, fd: int, size: int, writable: bool) -> MappedSegment:
        try:
            return MappedSegment(path, fd, size, writable)
        except OSError as error:
            # A mapping keeps a copy of its descriptor.
            if error.errno not in _NO_DESCRIPTORS or not self._reserve.give_back():
                raise
        return MappedSegment(path, fd, size, writable)

    def create_file(self, path: Path, size: int) -> None:
        fd = self._reserve.open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise store_error(error, path) from error
        finally:
            os.close(fd)

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        return os.pread(self._descriptor(path), size, position)

    def peek(self, path: Path, size: int, position: int = 0) -> tuple[int, bytes]:
        fd = self._reserve.open(path, os.O_RDONLY)
        try:
            return os.fstat(fd).st_size, os.pread(fd, size, position)
        finally:
            os.close(fd)

    def write_at(self, path: Path, position: int, data: bytes | bytearray | memoryview) -> None:
        try:
            written = os.pwrite(self._descriptor(path, writing=True), data, position)
        except OSError as error:
            raise store_error(error, path) from error
        if written != len(data):
            raise DiskFull(f"only {written} of {len(data)} bytes could be written to {path}: free some space")

    def sync_file(self, path: Path) -> None:
        # Own descriptor: the flush thread calls this while the owner uses the table.
        fd = self._reserve.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def open_to_sync(self, path: Path) -> OpenFile:
        return OpenFile(self._reserve.open(path, os.O_RDONLY))

    def write_synced(self, path: Path, data: bytes) -> None:
        fd = self._reserve.open(path, os.O_WRONLY)  # its own, as in sync_file
        try:
            if os.pwrite(fd, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def replace_file(self, path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        try:
            fd = self._reserve.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(beside, path)
        except OSError as error:
            raise store_error(error, path) from error
        self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        self._forget(path)
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        self._forget_below(path)
        shutil.rmtree(path, ignore_errors=True)

    def rename(self, old: Path, new: Path) -> None:
        for path in (old, new):
            self._forget(path)
            self._forget_below(path)
        os.replace(old, new)

    def list(self, path: Path) -> list[str]:
        while True:
            try:
                return sorted(os.listdir(path))
            except (FileNotFoundError, NotADirectoryError):
                return []
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                if not self._reserve.give_back():
                    raise NoDescriptors(f"{path} can't be listed: the process has no file descriptor left") from error

    def file_size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make_directory(self, path: Path) -> None:
        make_private_directory(path)

    def sync_directory(self, path: Path) -> None:
        fd = self._reserve.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: Path) -> tuple[int, int]:
        # As df counts: blocks kept back for root or by a quota are neither used nor to be had.
        found = shutil.disk_usage(path)
        return found.used, found.used + found.free

    def lock(self, path: Path) -> FileLock:
        return FileLock(path)

    def boot_id(self) -> bytes:
        return _boot_id()

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._reserve.close()

    def _descriptor(self, path: Path, writing: bool = False) -> int:
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        try:
            fd = self._reserve.open(path, os.O_RDWR)
        except PermissionError:
            if writing:
                raise
            fd = self._reserve.open(path, os.O_RDONLY)
        with self._changing:
            while len(self._open) >= self._open_files_max:
                os.close(self._open.popitem(last=False)[1])
            self._open[path] = fd
        return fd

    def _forget_below(self, path: Path) -> None:
        with self._changing:
            for known in [known for known in self._open if path in known.parents]:
                os.close(self._open.pop(known))

    def _forget(self, path: Path) -> None:
        with self._changing:
            fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)
