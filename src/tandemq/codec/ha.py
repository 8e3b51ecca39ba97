"""The bytes of the HA port: the classic protocol and our extended session.

Classic (what every RocketMQ speaks), integers big-endian:

    slave -> master    report     int64 slave's maximum physical offset                         8
    master -> slave    transfer   int64 physical offset, int32 size, then `size` bytes     12 + size   0: heartbeat

Extended (both ends ours).  A report is never negative, so the first byte on a new connection tells the two apart:
below 0x80 classic, 0xF4 extended.  Every frame, both directions:

    magic       uint16   0xF47A
    type        uint8    FrameType
    flags       uint8    1: somebody waits for these bytes to be on disk (DATA), else 0
    size        uint32   bytes after this header
    checksum    uint32   CRC-32 of those bytes; of a bulk frame's log bytes only the first and the last 64 KiB
    header sum  uint32   CRC-32 of the twelve bytes above: a damaged size never makes us wait for gigabytes

A data frame of more than 1 MiB is history on its way to a slave that catches up.  Summing all of it costs more than
sending it (1.5 against 2 GB/s on the machine this was measured on); the ends show a stream out of step, the records'
own checksums are there for the rest.  What a producer may wait for comes in smaller frames and is summed whole.

    DATA        epoch uint64, offset uint64, confirmed uint64, then log bytes; no bytes: heartbeat, news of `confirmed`
    ACK         epoch uint64, received uint64, durable uint64, applied uint64
    the others  a JSON object, see the structs

    slave                         master
      PREAMBLE  nonce         ─▶
                              ◀─  CHALLENGE  nonce, proof of the key, the epoch it reigns in or asks for
      HELLO  who, history     ─▶              (the slave has durably promised not to serve an older epoch)
                              ◀─  WELCOME   state, history; again when an asking master has opened
      START  offset           ─▶              (after cutting to the common point)
                              ◀─  DATA …  MEMBERS
      ACK …                   ─▶
                              ◀─  TAKE  start, stop     only from an asking master: send me what I lost
      DATA …                  ─▶
      REFUSE  reason          ◀▶  REFUSE  reason      then the sender closes
"""

import hashlib
import hmac
import struct
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Final, TypeVar

import msgspec

from tandemq.codec.crc import crc32
from tandemq.errors import CodecError, FrameTooLarge

# --- classic --------------------------------------------------------------------------------------------------------

_REPORT: Final = struct.Struct(">q")
_TRANSFER: Final = struct.Struct(">qi")
TRANSFER_HEADER_SIZE: Final = _TRANSFER.size
CLASSIC_SIZE_MAX: Final = 64 << 20
"""Upstream frames carry at most haTransferBatchSize (32 KiB by default); beyond this the stream can't be right."""


def encode_report(offset: int) -> bytes:
    """A classic slave's report of its maximum offset."""
    return _REPORT.pack(offset)


def encode_transfer_header(offset: int, size: int) -> bytes:
    """What goes before `size` log bytes from `offset` in a classic session."""
    return _TRANSFER.pack(offset, size)


class ReportReader:
    """Classic reports out of a byte stream, however it is split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> list[int]:
        """The complete reports so far, oldest first."""
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

    def feed(self, data: bytes | memoryview) -> "Iterator[Head | Chunk]":
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


# --- extended -------------------------------------------------------------------------------------------------------

MAGIC: Final = 0xF47A
VERSION: Final = 1
_HEADER: Final = struct.Struct(">HBBIII")
_CHECKED_PART: Final = struct.Struct(">HBBII")
_DATA: Final = struct.Struct(">QQQ")
_ACK: Final = struct.Struct(">QQQQ")
HEADER_SIZE: Final = _HEADER.size
DATA_HEADER_SIZE: Final = HEADER_SIZE + _DATA.size
CONTROL_SIZE_MAX: Final = 1 << 20
"""A history of a thousand reigns is about 80 KB."""
DATA_SIZE_MAX: Final = 1 << 30
HISTORY_MAX: Final = 4096
NONCE_SIZE: Final = 16
BULK_SIZE_MIN: Final = 1 << 20
BULK_SUMMED: Final = 64 << 10
_FLUSH: Final = 1
_LONE: Final = 2
_TLS_HANDSHAKE: Final = 0x16


def is_extended(first_byte: int) -> bool:
    """Whether a connection that begins with this byte speaks the extended session."""
    return first_byte == MAGIC >> 8


def is_tls(first_byte: int) -> bool:
    """Whether a connection begins with a TLS ClientHello: neither a report nor a frame of ours can."""
    return first_byte == _TLS_HANDSHAKE


class FrameType(IntEnum):
    PREAMBLE = 1
    CHALLENGE = 2
    HELLO = 3
    WELCOME = 4
    START = 5
    DATA = 6
    ACK = 7
    REFUSE = 8
    TAKE = 9
    MEMBERS = 10


_DATA_KIND: Final = int(FrameType.DATA)
_ACK_KIND: Final = int(FrameType.ACK)


class Reason(Enum):
    """Why a session was refused or ended; the value is the code on the wire and in `tandemq ha status`."""

    WRONG_GROUP = "wrong-group"
    KEY_REFUSED = "key-refused"
    TLS = "tls-failed"
    VERSION = "version"
    SEGMENT_SIZE = "segment-size"
    SAME_IDENTITY = "same-identity"
    NOT_MASTER = "not-master"
    HIGHER_EPOCH = "higher-epoch"
    PROMISED = "promised-elsewhere"
    DIVERGED = "diverged"
    OFFSET_GONE = "offset-gone"
    BAD_ACK = "bad-ack"
    REPLACED = "replaced"
    DISK_FULL = "disk-full"
    LOG_POISONED = "log-poisoned"
    CORRUPT = "corrupt-frame"
    TOO_MANY = "too-many-sessions"
    CLASSIC_REFUSED = "classic-refused"
    SILENT = "silent"
    STOPPING = "stopping"
    UNREACHABLE = "unreachable"
    LOST = "connection-lost"

    @property
    def advice(self) -> str:
        """What an operator does about it."""
        return _ADVICE[self]


_ADVICE: Final = {
    Reason.WRONG_GROUP: "give both brokers the same brokerClusterName and brokerName, or correct haMasterAddress",
    Reason.KEY_REFUSED: "set the same haSharedKey on both brokers",
    Reason.TLS: "set haTlsEnable alike on both brokers, and tlsClientTrustCertPath to what vouches for the certificate",
    Reason.VERSION: "upgrade the older of the two brokers",
    Reason.SEGMENT_SIZE: "set mappedFileSizeCommitLog as the master's, with an empty store directory",
    Reason.SAME_IDENTITY: "the slave's address points to itself, or its store was copied: remove replica.json there",
    Reason.NOT_MASTER: "that broker is no master now; see its own status, or correct haMasterAddress",
    Reason.HIGHER_EPOCH: "another master has taken over; restart this one as a slave, or promote it",
    Reason.PROMISED: "the slave serves a newer master; this master will step down or ask again",
    Reason.DIVERGED: "the logs have nothing in common; the slave starts over from the master's first offset",
    Reason.OFFSET_GONE: "the master no longer has these bytes; the slave starts over from the master's first offset",
    Reason.BAD_ACK: "the peer confirmed bytes it was never sent: look for a foreign program on the HA port",
    Reason.REPLACED: "the same replica connected again; if it repeats, two brokers share a copied store",
    Reason.DISK_FULL: "free space on the slave's disk or add some",
    Reason.LOG_POISONED: "the slave's disk failed a write; replace it and start the slave with an empty store",
    Reason.CORRUPT: "bytes were damaged on the way; it reconnects by itself, look at the network if it repeats",
    Reason.TOO_MANY: "raise haSessionsMax on the master",
    Reason.CLASSIC_REFUSED: "this master has a haSharedKey, which RocketMQ slaves can't prove",
    Reason.SILENT: "the link is cut or the peer hangs; check the network and haHousekeepingInterval",
    Reason.STOPPING: "the peer is shutting down; it reconnects by itself",
    Reason.UNREACHABLE: "check the address, that the master runs, and that its HA port is open",
    Reason.LOST: "the connection broke; it reconnects by itself",
}


class EpochItem(msgspec.Struct, frozen=True, array_like=True):
    """One reign in a history: number, incarnation id, first offset."""

    number: int
    id: str
    start: int


class Preamble(msgspec.Struct, frozen=True):
    version: int
    nonce: str


class Challenge(msgspec.Struct, frozen=True):
    version: int
    nonce: str
    proof: str
    number: int
    """The epoch the master reigns in, or asks to open: what the slave promises to."""
    id: str


class Hello(msgspec.Struct, frozen=True):
    group: str
    replica: str
    proof: str
    address: str
    """Where the slave's clients find it; for people."""
    segment_size: int
    first: int
    end: int
    durable: int
    promised_number: int
    promised_id: str
    history: list[EpochItem]
    members: list[str]
    """The replicas of the group it knows of, from the last master it followed."""
    last_file_only: bool = False
    alone_from: int = -1
    """Bytes from here on are of reigns that asked nobody and that nobody joined; -1 for none."""


class Welcome(msgspec.Struct, frozen=True):
    replica: str
    """The master's own identity."""
    open: bool
    """False: the master still asks; wait for the next WELCOME."""
    number: int
    id: str
    first: int
    end: int
    start_empty_at: int
    """Where a slave begins that has nothing in common with this log."""
    history: list[EpochItem]
    members: list[str]
    in_sync: list[str]


class Start(msgspec.Struct, frozen=True):
    number: int
    offset: int
    durable: int


class Refuse(msgspec.Struct, frozen=True):
    reason: str
    text: str
    number: int = 0
    """The highest epoch the sender knows: a master that reads a higher one than its own steps down."""

    @property
    def code(self) -> Reason:
        try:
            return Reason(self.reason)
        except ValueError:
            return Reason.LOST


class Take(msgspec.Struct, frozen=True):
    number: int
    start: int
    stop: int


class Members(msgspec.Struct, frozen=True):
    members: list[str]
    in_sync: list[str]


class Ack(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    received: int
    """In the mapped log of a live process."""
    durable: int
    """fdatasync returned for everything below."""
    applied: int
    """Dispatched to the queues: what this replica's readers see."""


Control = Preamble | Challenge | Hello | Welcome | Start | Refuse | Take | Members
Event = Control | Ack | Head | Chunk

_TYPES: Final[dict[type, FrameType]] = {
    Preamble: FrameType.PREAMBLE,
    Challenge: FrameType.CHALLENGE,
    Hello: FrameType.HELLO,
    Welcome: FrameType.WELCOME,
    Start: FrameType.START,
    Refuse: FrameType.REFUSE,
    Take: FrameType.TAKE,
    Members: FrameType.MEMBERS,
}
_STRUCTS: Final[dict[int, type[Control]]] = {int(code): kind for kind, code in _TYPES.items()}
_C = TypeVar("_C", bound=Control)


def _header(kind: int, size: int, checksum: int, flags: int = 0) -> bytes:
    head = _CHECKED_PART.pack(MAGIC, kind, flags, size, checksum)
    return head + crc32(head).to_bytes(4, "big")


def encode_control(message: Control) -> bytes:
    """One frame of the JSON kinds."""
    payload = msgspec.json.encode(message)
    return _header(_TYPES[type(message)], len(payload), crc32(payload)) + payload


def encode_ack(epoch: int, received: int, durable: int, applied: int) -> bytes:
    """A slave's confirmation, also its heartbeat."""
    payload = _ACK.pack(epoch, received, durable, applied)
    return _header(_ACK_KIND, len(payload), crc32(payload)) + payload


def encode_data_header(
    epoch: int, offset: int, confirmed: int, data: bytes | memoryview, flush: bool = False, lone: bool = False
) -> bytes:
    """What goes before `data`, log bytes from `offset`; the caller sends those itself, by sendfile if it can."""
    fixed = _DATA.pack(epoch, offset, confirmed)
    if len(data) > BULK_SIZE_MIN:
        checksum = crc32(data[-BULK_SUMMED:], crc32(data[:BULK_SUMMED], crc32(fixed)))
    else:
        checksum = crc32(data, crc32(fixed))
    flags = (_FLUSH if flush else 0) | (_LONE if lone else 0)
    return _header(_DATA_KIND, len(fixed) + len(data), checksum, flags) + fixed


class FrameReader:
    """Extended frames out of a byte stream, however it is split.

    Control frames come whole and checked.  A data frame comes as a Head and Chunks; its checksum is complete only with
    the last Chunk, so the receiver must not let the bytes count before it has seen `sound` true.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self.missing = 0
        """Log bytes of the current data frame that have not arrived."""
        self._sum = 0
        self._expected = 0
        self._size = 0

    @property
    def sound(self) -> bool:
        """Whether the data frame that just became complete has the checksum it announced."""
        return self._sum == self._expected

    def feed(self, data: bytes | memoryview) -> Iterator[Event]:
        """Yields as much as `data` completes; raises CodecError for what can't be a frame."""
        view = memoryview(data)
        position, end = 0, len(view)
        while position < end:
            if self.missing:
                part = view[position : position + self.missing]
                position += len(part)
                last = self.took(part)
                yield Chunk(part, last)
            elif (
                not self._rest and end - position >= HEADER_SIZE and position + (size := _wanted(view, position)) <= end
            ):
                position += size
                yield self._decode(view, position - size, size)
            else:
                position += self._gather(view[position:])
                if len(self._rest) >= HEADER_SIZE and len(self._rest) == _wanted(self._rest, 0):
                    frame = bytes(self._rest)
                    self._rest.clear()
                    yield self._decode(memoryview(frame), 0, len(frame))

    def _gather(self, view: memoryview) -> int:
        """Keeps what comes of a frame in pieces, but nothing behind its end; how much was taken."""
        have = len(self._rest)
        wanted = (_wanted(self._rest, 0) if have >= HEADER_SIZE else HEADER_SIZE) - have
        self._rest += view[:wanted]
        return min(wanted, len(view))

    def took(self, data: memoryview) -> bool:
        """Accounts for log bytes the shell received straight into the log; True when the frame is complete."""
        if self._size > BULK_SIZE_MIN:
            start = self._size - self.missing
            self._sum = crc32(data[: max(0, BULK_SUMMED - start)], self._sum)
            self._sum = crc32(data[max(0, self._size - BULK_SUMMED - start) :], self._sum)
        else:
            self._sum = crc32(data, self._sum)
        self.missing -= len(data)
        return self.missing == 0

    @property
    def unsummed(self) -> int:
        """Log bytes from here on that the checksum of a bulk frame leaves out."""
        if self._size <= BULK_SIZE_MIN or self._size - self.missing < BULK_SUMMED:
            return 0
        return max(0, self.missing - BULK_SUMMED)

    def passed(self, size: int) -> None:
        """Accounts for that many of them: the shell has not seen them either."""
        self.missing -= size

    def _decode(self, frame: memoryview, at: int, total: int) -> Event:
        _, kind, flags, size, checksum, _ = _HEADER.unpack_from(frame, at)
        payload = frame[at + HEADER_SIZE : at + total]
        self._sum, self._expected = crc32(payload), checksum
        if kind == _DATA_KIND:
            epoch, offset, confirmed = _DATA.unpack(payload)
            self.missing = self._size = size - _DATA.size
            if not self.missing and not self.sound:
                raise CodecError("HA heartbeat with a wrong checksum")
            return Head(offset, self.missing, epoch, confirmed, bool(flags & _FLUSH), bool(flags & _LONE))
        if not self.sound:
            raise CodecError(f"HA frame of type {kind}: wrong checksum")
        if kind == _ACK_KIND:
            if size != _ACK.size:
                raise CodecError(f"HA ack of {size} bytes: must be {_ACK.size}")
            return Ack(*_ACK.unpack(payload))
        struct_type = _STRUCTS.get(kind)
        if struct_type is None:
            raise CodecError(f"HA frame of unknown type {kind}")
        return _decode_json(bytes(payload), struct_type)


def _wanted(buffer: memoryview | bytearray, at: int) -> int:
    """What must be there of the frame whose header is at `at` before it can be decoded: all of it but log bytes."""
    magic, kind, _, size, _, header_sum = _HEADER.unpack_from(buffer, at)
    if magic != MAGIC or header_sum != crc32(buffer[at : at + _CHECKED_PART.size]):
        raise CodecError(f"HA frame header {bytes(buffer[at : at + HEADER_SIZE]).hex()}: wrong magic or checksum")
    if kind == _DATA_KIND:
        if not _DATA.size <= size <= DATA_SIZE_MAX:
            raise FrameTooLarge(f"HA data frame of {size} bytes: accepted are {_DATA.size} to {DATA_SIZE_MAX}")
        return DATA_HEADER_SIZE
    if size > CONTROL_SIZE_MAX:
        raise FrameTooLarge(f"HA frame of type {kind} with {size} bytes: at most {CONTROL_SIZE_MAX}")
    return HEADER_SIZE + int(size)


def _decode_json(payload: bytes, struct_type: type[_C]) -> _C:
    try:
        return msgspec.json.decode(payload, type=struct_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(f"HA {struct_type.__name__}: {error}") from None


def key_proof(key: str, side: str, *parts: str) -> str:
    """Proof of knowing the shared key, bound to who proves and to both nonces; with no key set it proves nothing."""
    text = "\0".join(("tandemq-ha", side, *parts)).encode()
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def same_proof(given: str, expected: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
