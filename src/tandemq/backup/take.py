"""Takes a backup: what the target lacks of a store's image, file by file, then the list that makes it count."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandemq.backup import manifest as manifests
from tandemq.backup.manifest import FilePart, Manifest, SegmentPart
from tandemq.backup.source import ATTEMPTS, Image, LogFile, SourceChanged, take_image
from tandemq.backup.target import Target
from tandemq.clock import Clock
from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.formats.crc import crc32
from tandemq.replication import replica_file
from tandemq.replication.epochs import History, common_point

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a backup did."""

    manifest: Manifest
    copied: int
    """Files of the log that were written."""
    copied_bytes: int
    kept: int
    """Files of the log that an earlier backup had written."""
    removed: int
    """Objects that no backup needs any more."""


def back_up(root: Path, target: Target, clock: Clock, progress: Progress = lambda done, total: None) -> Taken:
    """Brings the backup in `target` up to the end of the store's log, while its broker runs or not."""
    old = read_manifest(target)
    for _ in range(ATTEMPTS):
        image = take_image(root)
        try:
            return _Backup(image, target, old, clock.wall_ms(), progress).run()
        except SourceChanged:
            continue
        finally:
            image.close()
    raise StoreError(f"{root}: its log was cut back each of {ATTEMPTS} times it was read")


def read_manifest(target: Target) -> Manifest | None:
    """Returns what the newest backup in `target` consists of, None if there is none."""
    pieces = target.read(manifests.NAME)
    if pieces is None:
        return None
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > manifests.SIZE_MAX:
            raise StoreError(
                f"{target.where(manifests.NAME)} has more than {manifests.SIZE_MAX} bytes: it is no backup"
            )
    return manifests.decode(bytes(data), target.where(manifests.NAME))


def read_file(target: Target, part: FilePart | SegmentPart) -> Iterator[bytes]:
    """Yields the pieces of an object, up to the size that the backup needs; StoreError if they are not what they were.

    The error comes behind the last piece that it should have.
    """
    where = target.where(part.name)
    pieces = target.read(part.name)
    if pieces is None:
        raise StoreError(f"{where} is missing: the backup can't be restored; take it anew")
    size = crc = 0
    for piece in pieces:
        size, crc = size + len(piece), crc32(piece, crc)
        if size > part.size:
            raise StoreError(f"{where} is damaged: it has more than {part.size} bytes")
        yield piece
    if (size, crc) != (part.size, part.crc):
        raise StoreError(f"{where} is damaged: {size} of {part.size} bytes, checksum {crc:08x} not {part.crc:08x}")


class _Backup:
    """One image on its way into a target."""

    def __init__(self, image: Image, target: Target, old: Manifest | None, taken: int, progress: Progress) -> None:
        self._image = image
        self._target = target
        self._old = old
        self._taken = taken
        self._progress = progress
        self._copied = self._copied_bytes = self._kept = self._done = 0
        self._total = sum(log.size for log in image.logs)

    def run(self) -> Taken:
        image, config = self._image, self._image.config
        self._progress(0, self._total)
        segments = self._segments()
        image.settle()
        if image.record is not None:
            image.files[layout.REPLICA] = replica_file.encode(image.record)
        files = [self._file(path, data) for path, data in sorted(image.files.items())]
        manifest = Manifest(
            position=image.position,
            taken=self._taken,
            segment_size=config.commit_log_segment_size,
            queue_file_size=config.consume_queue_segment_size,
            index_slots=config.index_slots,
            index_entries=config.index_entries,
            delay_levels=config.message_delay_level,
            segments=segments,
            files=files,
        )
        self._target.write(manifests.NAME, iter([manifests.encode(manifest)]))
        unused = sorted(self._old.names - manifest.names) if self._old is not None else []
        for name in unused:
            self._target.remove(name)
        return Taken(manifest, self._copied, self._copied_bytes, self._kept, len(unused))

    # -- the log

    def _segments(self) -> list[SegmentPart]:
        old = {part.base: part for part in self._old.segments} if self._old is not None else {}
        agreed = self._agreed()
        parts: list[SegmentPart] = []
        met = same = 0
        for log in self._image.logs:
            before = old.get(log.base)
            is_same = before is not None and before.size <= log.size and self._is_same(log, before, agreed)
            met, same = met + (before is not None), same + is_same
            if met and not same and agreed is None:
                self._refuse_another_log()
            if before is not None and is_same and before.size == log.size and self._is_there(before):
                parts.append(before)
                self._kept += 1
            else:
                parts.append(self._copy(log))
            self._done += log.size
            self._progress(self._done, self._total)
        return parts

    def _agreed(self) -> int | None:
        """Returns up to where the log of the last backup and this one are the same by their histories, if they tell."""
        part = next((part for part in self._old.files if part.path == layout.REPLICA), None) if self._old else None
        if self._old is None or part is None or self._image.before is None:
            return None
        record = replica_file.decode(b"".join(read_file(self._target, part)), self._target.where(part.name))
        now: History = self._image.before.history
        return common_point(record.history, self._old.position, now, self._image.position)

    def _is_same(self, log: LogFile, before: SegmentPart, agreed: int | None) -> bool:
        """Histories tell without reading; where they don't, the bytes are read and compared."""
        return (agreed is not None and before.end <= agreed) or log.checksum(before.size) == before.crc

    def _is_there(self, part: SegmentPart) -> bool:
        return self._target.size(part.name) == part.size

    def _refuse_another_log(self) -> None:
        raise StoreError(
            f"{self._target.where(manifests.NAME)} is of another log than {self._image.root}: "
            "the same offsets hold other messages. Give each store a TARGET of its own"
        )

    def _copy(self, log: LogFile) -> SegmentPart:
        name = self._free_name(log)
        crc = 0

        def pieces() -> Iterator[bytes]:
            nonlocal crc
            for piece in log.pieces():
                crc = crc32(piece, crc)
                yield piece

        self._target.write(name, pieces())
        self._copied, self._copied_bytes = self._copied + 1, self._copied_bytes + log.size
        return SegmentPart(log.base, name, log.size, crc)

    def _free_name(self, log: LogFile) -> str:
        """Returns a name that the last backup does not use: that one must stay whole until this one is."""
        name = f"{layout.COMMIT_LOG}/{layout.segment_name(log.base)}"
        if log.size < self._image.config.commit_log_segment_size:
            name += f"+{log.size}"
        taken = self._old.names if self._old is not None else set()
        return name if name not in taken else f"{name}-{self._taken}"

    # -- tables

    def _file(self, path: str, data: bytes) -> FilePart:
        name = f"tables/{self._image.position:020d}-{self._taken}/{path}"
        self._target.write(name, iter([data]))
        return FilePart(path, name, len(data), crc32(data))
