"""A store's files as one image, read while its broker writes: what a kill at one position of its log would leave.

The order makes it one. Tables are read first, so none of them runs ahead of the log. Then the end of the log is looked
up, and every file below it is opened: a file that is open can be read to its end, whatever retention deletes meanwhile.
The history of the log is read last, since an epoch is durable before its first byte. A slave whose log is cut back in
between is noticed by its history, and the image is taken again.
"""

import contextlib
import os
import resource
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.formats.checkpoint import CheckpointFile
from tandemq.formats.crc import crc32
from tandemq.formats.record import check_record
from tandemq.replication import replica_file
from tandemq.replication.epochs import ReplicaRecord, common_point
from tandemq.store.config import StoreConfig
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk, MappedSegment
from tandemq.store.recovery import last_record_end, scan_segment

PIECE = 8 << 20
ATTEMPTS = 20
"""A file that disappears between two looks is rare: retention deletes some in minutes, a slave is cut in days."""
LOOK_AGAIN_S = 0.05
"""Between two looks at a record that is not whole; a broker that lost the processor has it back after a few."""
_PASSED_OVER = (".bak", ".tmp")


class SourceChanged(StoreError):
    """What was read does not belong together; reading it again helps."""


@dataclass(slots=True)
class LogFile:
    """One open file of the log, up to the position of the image."""

    base: int
    size: int
    fd: int
    path: Path

    def mapped(self) -> MappedSegment:
        """Returns the whole file in memory, for the caller to close."""
        return MappedSegment(self.path, os.dup(self.fd), os.fstat(self.fd).st_size, False)

    def pieces(self, stop: int | None = None) -> Iterator[bytes]:
        """Yields the bytes below `stop`, all by default."""
        at, stop = 0, self.size if stop is None else stop
        while at < stop:
            piece = os.pread(self.fd, min(PIECE, stop - at), at)
            if not piece:
                raise StoreError(f"{self.path} ends after {at} bytes, not after {stop}")
            yield piece
            at += len(piece)

    def checksum(self, stop: int) -> int:
        crc = 0
        for piece in self.pieces(stop):
            crc = crc32(piece, crc)
        return crc


@dataclass(slots=True)
class Image:
    """A store at one position."""

    root: Path
    config: StoreConfig
    position: int
    logs: list[LogFile]
    files: dict[str, bytes]
    """Tables and what lies beside the log, by path; without the replica record."""
    before: ReplicaRecord | None
    record: ReplicaRecord | None = field(default=None)

    def settle(self) -> None:
        """Reads the history after everything was copied. Raises SourceChanged if the log was cut meanwhile."""
        self.record = replica_file.load(FileDisk(1), self.root)
        if self.before is None or self.record is None:
            return  # never replicated, or for the first time: nothing was cut
        agreed = common_point(self.before.history, self.position, self.record.history, self.position)
        if agreed is None and not self.before.history.epochs:
            return
        if agreed is None or agreed < self.position:
            raise SourceChanged(f"the log was cut below {self.position}")

    def close(self) -> None:
        for log in self.logs:
            os.close(log.fd)
        self.logs = []


def take_image(root: Path) -> Image:
    """Returns an image of the store under `root`; close it. StoreError if there is no store."""
    allow_many_files()
    for _ in range(ATTEMPTS):
        with contextlib.suppress(SourceChanged):
            return _image(root)
    raise StoreError(f"{root} changed each of {ATTEMPTS} times it was read: is something else deleting its files?")


def allow_many_files() -> None:
    """Raises the limit of open files as far as the system allows: every file of a log is open at once."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _image(root: Path) -> Image:
    disk = FileDisk(4)
    try:
        before = replica_file.load(disk, root)
        files = dict(_tables(root / layout.CONFIG))
        starts = _read(root / layout.QUEUE_STARTS)
        bases = [int(name) for name in disk.list(root / layout.COMMIT_LOG) if layout.is_segment_name(name)]
        if not bases:
            raise StoreError(
                f"{root} holds no store: {root / layout.COMMIT_LOG} has no log files. "
                "Give the directory that storePathRootDir names"
            )
        config = discover_config(disk, root)
        checkpoint = CheckpointFile(_read(root / layout.CHECKPOINT) or b"").read()
        known = checkpoint.views.offset if checkpoint.views is not None and checkpoint.certain else 0
    finally:
        disk.close()
    logs: list[LogFile] = []
    try:
        for base in bases:
            path = root / layout.COMMIT_LOG / layout.segment_name(base)
            logs.append(LogFile(base, config.commit_log_segment_size, _open(path), path))
        while os.fstat(logs[-1].fd).st_size == 0 and len(logs) > 1:
            os.close(logs.pop().fd)  # it is being made
        _check_chain(logs)
        position = _end(logs, known)
        if position == logs[0].base:
            raise StoreError(f"{root} has no message yet: there is nothing to back up")
        if _read(root / layout.QUEUE_STARTS) != starts:
            raise SourceChanged("retention deleted files")
    except BaseException:
        for log in logs:
            os.close(log.fd)
        raise
    if starts is not None:
        files[layout.QUEUE_STARTS] = starts
    image = Image(root, config, position, [], files, before)
    for log in logs:
        if log.base < position:
            log.size = min(log.size, position - log.base)
            image.logs.append(log)
        else:
            os.close(log.fd)
    return image


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise SourceChanged(str(path)) from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}: raise the limit of open files (ulimit -n)") from error


def _check_chain(logs: list[LogFile]) -> None:
    for number, log in enumerate(logs):
        if log.base != logs[0].base + number * log.size:
            raise StoreError(f"{log.path}: the log has a hole before it; `tandemq store verify` tells more")
        if (found := os.fstat(log.fd).st_size) != log.size:
            raise StoreError(f"{log.path} has {found} bytes, the others {log.size}; bring it back from a replica")


def _end(logs: list[LogFile], known: int) -> int:
    """Returns where the last whole record ends: looked for from `known`, a record's boundary that a checkpoint names.

    A slave receives records in pieces; what is there of the last one does not count, which its checksum tells. Whole
    records behind one that is not are another matter: an image that ended there would lose them in silence.
    """
    segment_size = logs[0].size
    first, stop = logs[0].base, logs[-1].base + segment_size
    position = known if first <= known < stop else first
    while position < stop:
        at = position % segment_size
        log = logs[(position - first) // segment_size]
        segment = log.mapped()
        try:
            end = scan_segment(segment.view, log.base, at, True, deque(maxlen=1))
            if end < segment_size:
                behind = (last_record_end(segment.view, log.base, *r) for r in segment.data_ranges(end, segment_size))
                last = max(behind, default=0)
                if last <= log.base + end:
                    return log.base + end
                if not _becomes_whole(segment.view, end, segment_size):
                    raise StoreError(
                        f"the log has no whole record at offset {log.base + end}, but some behind it up to {last}: "
                        "`tandemq store verify` lists the damage; bring the file back from a replica before you back up"
                    )
            position = log.base + end
        finally:
            segment.close()
    return position


def _becomes_whole(view: memoryview, at: int, limit: int) -> bool:
    """Returns whether a record is whole, now or soon.

    The processor may copy several records at once from the last to the first, and the broker may lose the processor
    meanwhile: for a moment whole records lie after one that is not. A damaged one stays as it is.
    """
    pause = threading.Event()
    for _ in range(ATTEMPTS):
        if check_record(view, at, limit) is None:
            return True
        pause.wait(LOOK_AGAIN_S)
    return False


def _tables(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yields every table's file, and with it the journal that belongs to it."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file() and not path.name.endswith(_PASSED_OVER) and path.suffix != ".journal":
            for name, data in _with_journal(path):
                yield f"{layout.CONFIG}/{name}", data


def _with_journal(path: Path) -> list[tuple[str, bytes]]:
    """Reads a file with its journal.

    The file must be the same before and after, because a journal belongs to one version of it.
    """
    journal = layout.journal_path(path)
    for _ in range(ATTEMPTS):
        data, changes = _read(path), _read(journal)
        if data is None:
            return []
        if _read(path) == data:
            return [(path.name, data), *([(journal.name, changes)] if changes else [])]
    raise SourceChanged(str(path))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
