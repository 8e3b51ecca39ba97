"""The checkpoint file: up to where the disk is known to be right. 4096 bytes.

    0 physicMsgTimestamp 8 | logicsMsgTimestamp 8 | indexMsgTimestamp 8 | masterFlushedOffset 8 | confirmPhyOffset 8
    512 and 1024 ours, in turn: magic 8 | sequence 8 | the same three timestamps 24 | viewsOffset 8 | queueEntries 8
        indexName 8 | indexCount 4 | clean 4 | bootId 16 | CRC-32 4

Upstream's part is what a RocketMQ broker needs to open the store. Ours says it in offsets: the log and every view are
durable for all records below viewsOffset. Two places take turns, so a torn write leaves the one before it. If neither
has the timestamps of upstream's part, a RocketMQ broker wrote the file since, or the write was torn: then our part is
only a lower bound (`certain` is false).
"""

from dataclasses import dataclass
from struct import Struct

from tandemq.formats.crc import crc32

SIZE = 4096
_UPSTREAM = Struct(">qqqqq")
_OURS = Struct(">8sqqqqqqqii16s")
_PLACES = (512, 1024)
_MAGIC = b"TandemQ1"
TIME_SLACK_MS = 3000
"""Upstream's margin below the timestamps when it looks for a place to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsPoint:
    """Our part: a record boundary below which log, queues and index are durable."""

    offset: int
    queue_entries: int
    """Sum of all queues' ends at that point: a queue that disappeared shows here."""
    index_name: str
    index_count: int
    clean: bool
    """Written by an orderly close: the log ends at `offset`."""
    boot_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    views: ViewsPoint | None = None
    certain: bool = True
    """Nobody but us wrote the file since `views`."""

    @property
    def times(self) -> tuple[int, int, int]:
        return self.log_timestamp, self.queue_timestamp, self.index_timestamp

    @property
    def time_limit(self) -> int:
        """Returns the time up to which everything stored is durable in log and queues."""
        return max(0, min(self.log_timestamp, self.queue_timestamp) - TIME_SLACK_MS)


class CheckpointFile:
    """The content of the file, kept so that each write leaves our previous part in place."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data[:SIZE].ljust(SIZE, b"\0"))
        self._sequence = max((found[0] for found in map(self._ours, _PLACES) if found is not None), default=0)

    def read(self) -> Checkpoint:
        """Reads tolerantly: a strange file is an empty checkpoint, which only makes recovery read more."""
        log, queue, index, flushed, confirmed = _UPSTREAM.unpack_from(self._data)
        places = sorted((found for found in map(self._ours, _PLACES) if found is not None), key=lambda found: found[0])
        certain = any(times == (log, queue, index) for _, times, _ in places)
        views = (places[-1] if certain else places[0])[2] if places else None
        if min(log, queue, index) < 0:
            log = queue = index = 0
        return Checkpoint(
            log_timestamp=log,
            queue_timestamp=queue,
            index_timestamp=index,
            master_flushed_offset=flushed,
            confirmed_offset=confirmed,
            views=views,
            certain=certain,
        )

    def forget(self) -> None:
        """Forgets what was written before: it vouches for views that are no longer there."""
        self._data = bytearray(SIZE)

    def written(self, point: Checkpoint) -> bytes:
        """Returns the file's next content."""
        _UPSTREAM.pack_into(self._data, 0, *point.times, point.master_flushed_offset, point.confirmed_offset)
        if point.views is not None:
            views = point.views
            self._sequence += 1
            place = _PLACES[self._sequence % 2]
            ours = _OURS.pack(
                _MAGIC, self._sequence, *point.times, views.offset, views.queue_entries, int(views.index_name or 0),
                views.index_count, int(views.clean), views.boot_id,
            )  # fmt: skip
            self._data[place : place + _OURS.size + 4] = ours + crc32(ours).to_bytes(4, "big")
        return bytes(self._data)

    def _ours(self, place: int) -> tuple[int, tuple[int, int, int], ViewsPoint] | None:
        """Returns (sequence, timestamps, what it says) of one place, None if it is not whole."""
        ours = self._data[place : place + _OURS.size]
        if crc32(ours).to_bytes(4, "big") != self._data[place + _OURS.size : place + _OURS.size + 4]:
            return None
        magic, sequence, log, queue, index, offset, queue_entries, name, count, clean, boot_id = _OURS.unpack(ours)
        if magic != _MAGIC:
            return None
        views = ViewsPoint(
            offset=offset,
            queue_entries=queue_entries,
            index_name=f"{name:017d}" if name else "",
            index_count=count,
            clean=bool(clean),
            boot_id=boot_id,
        )
        return sequence, (log, queue, index), views
