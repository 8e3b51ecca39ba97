"""The checkpoint file: up to where the disk is known to be right. 4096 bytes.

    0 physicMsgTimestamp 8 | logicsMsgTimestamp 8 | indexMsgTimestamp 8 | masterFlushedOffset 8 | confirmPhyOffset 8
    512 ours: magic 8 | the same three timestamps 24 | viewsOffset 8 | queueEntries 8 | indexName 8 | indexCount 4
        clean 4 | bootId 16 | CRC-32 4

Upstream's part is what a RocketMQ broker needs to open the store. Ours says it in offsets: the log and every view are
durable for all records below viewsOffset. If a RocketMQ broker wrote the file since, the repeated timestamps no
longer agree and our part is not used; if the write was torn, its checksum says so. Either way the timestamps are
enough to recover, only slower.
"""

from dataclasses import dataclass, replace
from struct import Struct
from zlib import crc32

SIZE = 4096
_UPSTREAM = Struct(">qqqqq")
_OURS = Struct(">8sqqqqqqii16s")
_OURS_AT = 512
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

    @property
    def time_limit(self) -> int:
        """Everything stored up to here is durable in log and queues."""
        return max(0, min(self.log_timestamp, self.queue_timestamp) - TIME_SLACK_MS)

    def without_views(self) -> "Checkpoint":
        return replace(self, views=None)


def encode(point: Checkpoint) -> bytes:
    data = bytearray(SIZE)
    times = (point.log_timestamp, point.queue_timestamp, point.index_timestamp)
    _UPSTREAM.pack_into(data, 0, *times, point.master_flushed_offset, point.confirmed_offset)
    if point.views is not None:
        views = point.views
        ours = _OURS.pack(
            _MAGIC, *times, views.offset, views.queue_entries, int(views.index_name or 0), views.index_count,
            int(views.clean), views.boot_id,
        )  # fmt: skip
        data[_OURS_AT : _OURS_AT + len(ours)] = ours
        data[_OURS_AT + len(ours) : _OURS_AT + len(ours) + 4] = crc32(ours).to_bytes(4, "big")
    return bytes(data)


def decode(data: bytes) -> Checkpoint:
    """Tolerant: a short or strange file is an empty checkpoint, which only makes recovery read more."""
    if len(data) < _UPSTREAM.size:
        return Checkpoint()
    log, queue, index, flushed, confirmed = _UPSTREAM.unpack_from(data, 0)
    if min(log, queue, index) < 0:
        return Checkpoint()
    return Checkpoint(
        log_timestamp=log,
        queue_timestamp=queue,
        index_timestamp=index,
        master_flushed_offset=flushed,
        confirmed_offset=confirmed,
        views=_decode_ours(data, (log, queue, index)),
    )


def _decode_ours(data: bytes, times: tuple[int, int, int]) -> ViewsPoint | None:
    ours = data[_OURS_AT : _OURS_AT + _OURS.size]
    stored_crc = data[_OURS_AT + _OURS.size : _OURS_AT + _OURS.size + 4]
    if len(stored_crc) != 4 or crc32(ours).to_bytes(4, "big") != stored_crc:
        return None
    magic, log, queue, index, offset, queue_entries, name, count, clean, boot_id = _OURS.unpack(ours)
    if magic != _MAGIC or (log, queue, index) != times:
        return None
    return ViewsPoint(
        offset=offset,
        queue_entries=queue_entries,
        index_name=f"{name:017d}" if name else "",
        index_count=count,
        clean=bool(clean),
        boot_id=boot_id,
    )
