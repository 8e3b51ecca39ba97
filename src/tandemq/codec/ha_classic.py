"""RocketMQ's own HA protocol, the language of the HA port that every RocketMQ speaks.  Integers are big-endian.

    slave -> master    report     int64 slave's maximum physical offset                         8
    master -> slave    transfer   int64 physical offset, int32 size, then `size` bytes     12 + size   0: heartbeat

Two nodes of ours speak `ha_session` there instead.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from tandemq.errors import CodecError

_REPORT: Final = struct.Struct(">q")
_TRANSFER: Final = struct.Struct(">qi")
TRANSFER_HEADER_SIZE: Final = _TRANSFER.size
CLASSIC_SIZE_MAX: Final = 64 << 20
"""Upstream frames carry at most haTransferBatchSize (32 KiB by default); beyond this the stream can't be right."""

OBSERVER_REPORT: Final = -(1 << 32)
"""What an observer of ours reports to a RocketMQ broker: further from the end of any log than haMaxGapNotInSync, which
is an int of Java, can be."""


def encode_report(offset: int) -> bytes:
    """Returns a classic slave's report of its maximum offset."""
    return _REPORT.pack(offset)


def encode_transfer_header(offset: int, size: int) -> bytes:
    """Returns what goes before `size` log bytes from `offset` in a classic session."""
    return _TRANSFER.pack(offset, size)


class ReportReader:
    """Classic reports out of a byte stream, however it is split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> list[int]:
        """Takes bytes and returns the reports that they complete, oldest first."""
        joined = self._rest + bytes(data)
        whole = len(joined) // _REPORT.size * _REPORT.size
        self._rest = joined[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(joined[:whole])]


class Head(msgspec.Struct, frozen=True, gc=False):
    """The beginning of a data frame of either protocol; `size` log bytes follow."""

    offset: int
    size: int
    epoch: int = 0
    confirmed: int = -1
    """-1 in a classic session, which has no such field."""
    flush: bool = False
    """Somebody waits for these bytes to be on the slave's disk."""
    lone: bool = False
    """A single send waits for the ack, so that its sender's next one may be soon to come."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Some of the log bytes announced by the last Head; `last` when they are complete."""

    data: memoryview
    last: bool


class TransferReader:
    """Classic transfer frames out of a byte stream: a Head, then its Chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.missing = 0
        """Log bytes of the current frame that have not arrived."""

    def feed(self, data: bytes | memoryview) -> Iterator[Head | Chunk]:
        """Yields as much as `data` completes.  A Chunk's bytes are valid until the next step of the iterator."""
        view = memoryview(data)
        while len(view):
            if self.missing:
                part = view[: self.missing]
                self.missing -= len(part)
                view = view[len(part) :]
                yield Chunk(part, self.missing == 0)
                continue
            wanted = TRANSFER_HEADER_SIZE - len(self._rest)
            self._rest += view[:wanted]
            view = view[wanted:]
            if len(self._rest) == TRANSFER_HEADER_SIZE:
                offset, size = _TRANSFER.unpack(self._rest)
                self._rest.clear()
                if offset < 0 or not 0 <= size <= CLASSIC_SIZE_MAX:
                    raise CodecError(f"transfer header with offset {offset}, size {size}: not a classic HA stream")
                self.missing = size
                yield Head(offset, size)

    def took(self, data: memoryview) -> bool:
        """Accounts for log bytes the shell received straight into the log; True when the frame is complete."""
        self.missing -= len(data)
        return self.missing == 0
