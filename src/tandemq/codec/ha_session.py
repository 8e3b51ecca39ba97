"""The session between two nodes of ours on the HA port: its frames, and what they say.

A report of the classic protocol is never negative, so the first byte on a new connection tells the two apart: below
0x80 classic, 0xF4 a session.  Every frame, both directions:

    magic       uint16   0xF47A
    type        uint8    FrameType
    flags       uint8    DATA 1: somebody waits for these bytes to be on disk, 2: a single send waits, 64: fast sum;
                         all 128: sealed
    size        uint32   bytes after this header and the seal
    checksum    uint32   CRC-32 of those bytes; of a bulk frame's log bytes only the first and the last 64 KiB
    header sum  uint32   CRC-32 of the twelve bytes above: a damaged size never makes us wait for gigabytes
    seal        bytes    16, only in sealed frames, whose checksum is 0

In a group with a shared key every frame after CHALLENGE is sealed, both directions (`ha_seal`); without one, none is.

A data frame of more than 1 MiB is history on its way to a slave that catches up.  Summing all of it costs more than
sending it (1.5 against 2 GB/s on the machine this was measured on); the ends show a stream out of step, the records'
own checksums are there for the rest.  What a producer may wait for comes in smaller frames and is summed whole.

    DATA        epoch uint64, offset uint64, confirmed uint64, then log bytes; no bytes: heartbeat, news of `confirmed`
    PACKED      as DATA, but the size of the log bytes uint32 before them, and they are zstd; for a slave that asked
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
                              ◀─  REGISTER  whole       before a master opens, and whenever it changes
      REGISTERED  revision    ─▶              (it is on the replica's disk)
                              ◀─  TAKE  start, stop     only from an asking master: send me what I lost
      DATA …                  ─▶
                              ◀─  VOUCH  number         while etcd is away: don't stand for a lease
      VOUCHED  number         ─▶
      REFUSE  reason          ◀▶  REFUSE  reason      then the sender closes
"""

import hashlib
import hmac
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Final, TypeVar

import msgspec

from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_seal import SEAL_SIZE, SEALED_VERSION, LogSum, Seal, SealBroken
from tandemq.errors import BodyTooLarge, CodecError, CorruptRecord, FrameTooLarge
from tandemq.formats.compression import compress, decompress
from tandemq.formats.crc import crc32
from tandemq.model.message import COMPRESSED, COMPRESSION_ZSTD

MAGIC: Final = 0xF47A
VERSION: Final = 1
"""The version of a session without a key; with one it is SEALED_VERSION."""
VERSIONS: Final = (VERSION, SEALED_VERSION)
_HEADER: Final = struct.Struct(">HBBIII")
_CHECKED_PART: Final = struct.Struct(">HBBII")
_DATA: Final = struct.Struct(">QQQ")
_PACKED: Final = struct.Struct(">QQQI")
_ACK: Final = struct.Struct(">QQQQ")
HEADER_SIZE: Final = _HEADER.size
CONTROL_SIZE_MAX: Final = 1 << 20
"""A history of a thousand reigns is about 80 KB."""
PREAMBLE_SIZE_MAX: Final = 4 << 10
"""What a peer may send of a frame before anything is known about it."""
DATA_SIZE_MAX: Final = 1 << 30
HISTORY_MAX: Final = 4096
NUMBER_MAX: Final = (1 << 63) - 1
"""Epochs and offsets have 63 bits."""
NAME_SIZE_MAX: Final = 1024
ZSTD: Final = "zstd"
PACK_SIZE_MAX: Final = 256 << 10
"""Log bytes of a packed frame: a millisecond to pack, and a whole frame fits where control frames do."""
PACK_LEVEL: Final = 3
BULK_SIZE_MIN: Final = 1 << 20
BULK_SUMMED: Final = 64 << 10
_FLUSH: Final = 1
_LONE: Final = 2
_FAST: Final = 64
_SEALED: Final = 128
_TLS_HANDSHAKE: Final = 0x16


def is_extended(first_byte: int) -> bool:
    """Returns whether a connection that begins with this byte speaks the extended session."""
    return first_byte == MAGIC >> 8


def is_tls(first_byte: int) -> bool:
    """Returns whether a connection begins with a TLS ClientHello: neither a report nor a frame of ours can."""
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
    PACKED = 11
    REGISTER = 12
    REGISTERED = 13
    VOUCH = 14
    VOUCHED = 15


_DATA_KIND: Final = int(FrameType.DATA)
_ACK_KIND: Final = int(FrameType.ACK)
_PACKED_KIND: Final = int(FrameType.PACKED)


Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_SIZE_MAX)]


class EpochItem(msgspec.Struct, frozen=True, array_like=True):
    """One reign in a history: number, incarnation id, first offset."""

    number: Number
    id: Name
    start: Number


Epochs = Annotated[list[EpochItem], msgspec.Meta(max_length=HISTORY_MAX)]


class Preamble(msgspec.Struct, frozen=True):
    version: int
    nonce: Name


class Challenge(msgspec.Struct, frozen=True):
    version: int
    nonce: Name
    proof: Name
    number: Number
    """The epoch the master reigns in, or asks to open: what the slave promises to."""
    id: Name
    replica: Name = ""
    """The master's own identity: a replica whose register does not name it promises nothing."""
    register: Register | None = None


class Hello(msgspec.Struct, frozen=True):
    group: Name
    replica: Name
    proof: Name
    """Of the key, where there is none: then it proves only that both have none. Else the seal proves it."""
    address: Name
    """Where the slave's clients find it; for people."""
    segment_size: Number
    first: Number
    end: Number
    durable: Number
    promised_number: Number
    promised_id: Name
    history: Epochs
    members: list[Name]
    """The replicas of the group it knows of, from the last master it followed."""
    last_file_only: bool = False
    alone_from: Annotated[int, msgspec.Meta(ge=-1, le=NUMBER_MAX)] = -1
    """Bytes from here on are of reigns that asked nobody and that nobody joined; -1 for none."""
    registers: bool = False
    """It knows what a register is; the version before does not."""
    register: Register | None = None
    clean: bool = True
    """Its machine has not crashed since it last had everything its master had."""
    broker_id: Number = 0
    """The id it was configured with."""
    observer: bool = False
    """It follows without being a member: its acks count for nothing, and nobody waits for it."""
    compression: Name = ""
    """How log bytes are to come: ZSTD for PACKED frames. A master that does not know the word sends DATA."""
    refused: Name = ""
    """Why it did not promise what the challenge asked for."""
    vouches: bool = False
    """It has a coordinator and answers VOUCH."""
    sums: Name = ""
    """Which sums of log bytes it knows besides SHA-256, in a group with a key: `ha_seal.POLY1305`."""


class Welcome(msgspec.Struct, frozen=True):
    replica: Name
    """The master's own identity."""
    open: bool
    """False: the master still asks; wait for the next WELCOME."""
    number: Number
    id: Name
    first: Number
    end: Number
    start_empty_at: Number
    """Where a slave begins that has nothing in common with this log."""
    history: Epochs
    members: list[Name]
    in_sync: list[Name]
    register: Register | None = None


class Start(msgspec.Struct, frozen=True):
    number: Number
    offset: Number
    durable: Number


class Refuse(msgspec.Struct, frozen=True):
    reason: Name
    text: str
    number: Number = 0
    """The highest epoch the sender knows: a master that reads a higher one than its own steps down."""

    @property
    def code(self) -> Reason:
        try:
            return Reason(self.reason)
        except ValueError:
            return Reason.LOST


class Farewell(msgspec.Struct, frozen=True):
    """A REFUSE without a seal where one is due: the peer may not know the key, so it tells why it goes, no more."""

    code: Reason
    text: str


class Take(msgspec.Struct, frozen=True):
    number: Number
    start: Number
    stop: Number


class Members(msgspec.Struct, frozen=True):
    members: list[Name]
    in_sync: list[Name]


class NewRegister(msgspec.Struct, frozen=True):
    """Store it durably, then say so."""

    register: Register


class Registered(msgspec.Struct, frozen=True):
    """A replica has this register on its disk."""

    epoch: Number
    revision: Number


class Vouch(msgspec.Struct, frozen=True):
    """The master asks for the word of a member not to stand for election for a lease."""

    epoch: Number
    number: Number
    """Of the question."""


class Vouched(msgspec.Struct, frozen=True):
    number: Number
    refused: str = ""
    """Why the word is not given; empty: it is."""


class Ack(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    received: int
    """In the mapped log of a live process."""
    durable: int
    """fdatasync returned for everything below."""
    applied: int
    """Dispatched to the queues: what this replica's readers see."""


class Packed(msgspec.Struct, frozen=True, gc=False):
    """A whole data frame that came packed: what its Head and only Chunk would have been."""

    head: Head
    data: bytes


Control = (
    Preamble
    | Challenge
    | Hello
    | Welcome
    | Start
    | Refuse
    | Take
    | Members
    | NewRegister
    | Registered
    | Vouch
    | Vouched
)
Event = Control | Farewell | Ack | Head | Chunk | Packed

_TYPES: Final[dict[type, FrameType]] = {
    Preamble: FrameType.PREAMBLE,
    Challenge: FrameType.CHALLENGE,
    Hello: FrameType.HELLO,
    Welcome: FrameType.WELCOME,
    Start: FrameType.START,
    Refuse: FrameType.REFUSE,
    Take: FrameType.TAKE,
    Members: FrameType.MEMBERS,
    NewRegister: FrameType.REGISTER,
    Registered: FrameType.REGISTERED,
    Vouch: FrameType.VOUCH,
    Vouched: FrameType.VOUCHED,
}
_STRUCTS: Final[dict[int, type[Control]]] = {int(code): kind for kind, code in _TYPES.items()}
_C = TypeVar("_C", bound=Control)


def _header(kind: int, size: int, checksum: int, flags: int = 0) -> bytes:
    head = _CHECKED_PART.pack(MAGIC, kind, flags, size, checksum)
    return head + crc32(head).to_bytes(4, "big")


def encode_control(message: Control) -> bytes:
    """Returns one frame of the JSON kinds."""
    payload = msgspec.json.encode(message)
    return _header(_TYPES[type(message)], len(payload), crc32(payload)) + payload


def encode_ack(epoch: int, received: int, durable: int, applied: int) -> bytes:
    """Returns a slave's confirmation, which is also its heartbeat."""
    payload = _ACK.pack(epoch, received, durable, applied)
    return _header(_ACK_KIND, len(payload), crc32(payload)) + payload


def encode_data_header(
    epoch: int, offset: int, confirmed: int, data: bytes | memoryview, flush: bool = False, lone: bool = False
) -> bytes:
    """Returns what goes before `data`, log bytes from `offset` that the caller sends itself, by sendfile if it can."""
    fixed = _DATA.pack(epoch, offset, confirmed)
    if len(data) > BULK_SIZE_MIN:
        checksum = crc32(data[-BULK_SUMMED:], crc32(data[:BULK_SUMMED], crc32(fixed)))
    else:
        checksum = crc32(data, crc32(fixed))
    flags = (_FLUSH if flush else 0) | (_LONE if lone else 0)
    return _header(_DATA_KIND, len(fixed) + len(data), checksum, flags) + fixed


def packed(data: bytes | memoryview) -> bytes:
    """Returns log bytes as a packed frame holds them; takes a millisecond for PACK_SIZE_MAX of them."""
    return compress(data, COMPRESSION_ZSTD, level=PACK_LEVEL)[0]


def encode_packed(
    epoch: int,
    offset: int,
    confirmed: int,
    data: bytes | memoryview,
    flush: bool = False,
    lone: bool = False,
    text: bytes = b"",
) -> bytes:
    """Returns a whole frame of log bytes from `offset`, at most PACK_SIZE_MAX; `text` is them packed already."""
    payload = _PACKED.pack(epoch, offset, confirmed, len(data)) + (text or packed(data))
    flags = (_FLUSH if flush else 0) | (_LONE if lone else 0)
    return _header(_PACKED_KIND, len(payload), crc32(payload), flags) + payload


def sealed(frame: bytes, seal: Seal) -> bytes:
    """Returns a frame without log bytes as it is sent in a group with a key: the next one of its direction."""
    _, kind, flags, size, _, _ = _HEADER.unpack_from(frame)
    header = _header(kind, size, 0, flags | _SEALED)
    payload = frame[HEADER_SIZE:]
    return header + seal.next(header, payload) + payload


def encode_sealed_data_header(
    seal: Seal,
    epoch: int,
    offset: int,
    confirmed: int,
    size: int,
    digest: bytes,
    flush: bool,
    lone: bool,
    fast: bool = False,
) -> bytes:
    """Does what `encode_data_header` does, for `size` log bytes, more than none, whose sum is `digest`."""
    fixed = _DATA.pack(epoch, offset, confirmed)
    flags = _SEALED | (_FLUSH if flush else 0) | (_LONE if lone else 0) | (_FAST if fast else 0)
    header = _header(_DATA_KIND, len(fixed) + size, 0, flags)
    return header + seal.next(header, fixed + digest) + fixed


class SessionReader:
    """Extended frames out of a byte stream, however it is split.

    Control frames come whole and checked.  A data frame comes as a Head and Chunks; its checksum is complete only with
    the last Chunk, so the receiver must not let the bytes count before it has seen `sound` true.
    """

    def __init__(self, control_size_max: int = CONTROL_SIZE_MAX) -> None:
        self.control_size_max = control_size_max
        """Bytes of a frame that carries no log bytes: they are gathered before anything is known about them."""
        self._rest = bytearray()
        self.missing = 0
        """Log bytes of the current data frame that have not arrived."""
        self._sum = 0
        self._expected = 0
        self._size = 0
        self._seal: Seal | None = None
        self._sealed_head = self._given_seal = b""
        self._digest: LogSum = hashlib.sha256()
        self._seal_fits = False

    def secure(self, seal: Seal) -> None:
        """Demands a seal on every frame from the next one on."""
        self._seal = seal

    @property
    def sound(self) -> bool:
        """Whether the data frame that just became complete has the checksum, or the seal, that it announced."""
        return self._sum == self._expected if self._seal is None else self._seal_fits

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
                not self._rest
                and end - position >= HEADER_SIZE
                and position + (size := self._wanted(view, position)) <= end
            ):
                position += size
                yield self._decode(view, position - size, size)
            else:
                position += self._gather(view[position:])
                if len(self._rest) >= HEADER_SIZE and len(self._rest) == self._wanted(self._rest, 0):
                    frame = bytes(self._rest)
                    self._rest.clear()
                    yield self._decode(memoryview(frame), 0, len(frame))

    def _gather(self, view: memoryview) -> int:
        """Keeps what comes of a frame in pieces, but nothing past its end. Returns how much was taken."""
        have = len(self._rest)
        wanted = (self._wanted(self._rest, 0) if have >= HEADER_SIZE else HEADER_SIZE) - have
        self._rest += view[:wanted]
        return min(wanted, len(view))

    def took(self, data: memoryview) -> bool:
        """Accounts for log bytes the shell received straight into the log. Returns whether the frame is complete."""
        if self._seal is not None:
            self._digest.update(data)
        elif self._size > BULK_SIZE_MIN:
            start = self._size - self.missing
            self._sum = crc32(data[: max(0, BULK_SUMMED - start)], self._sum)
            self._sum = crc32(data[max(0, self._size - BULK_SUMMED - start) :], self._sum)
        else:
            self._sum = crc32(data, self._sum)
        self.missing -= len(data)
        if self.missing == 0 and self._seal is not None:
            self._check_log_bytes(self._seal)
        return self.missing == 0

    def _check_log_bytes(self, seal: Seal) -> None:
        head = self._sealed_head
        payload = head[HEADER_SIZE:] + self._digest.digest()
        self._seal_fits = seal.fits(self._given_seal, head[:HEADER_SIZE], payload)

    @property
    def unsummed(self) -> int:
        """Returns how many log bytes from here on the checksum of a bulk frame leaves out; a seal leaves none out."""
        if self._seal is not None or self._size <= BULK_SIZE_MIN or self._size - self.missing < BULK_SUMMED:
            return 0
        return max(0, self.missing - BULK_SUMMED)

    def passed(self, size: int) -> None:
        """Accounts for that many of them: the shell has not seen them either."""
        self.missing -= size

    def _decode(self, frame: memoryview, at: int, total: int) -> Event:
        _, kind, flags, size, checksum, _ = _HEADER.unpack_from(frame, at)
        if flags & _SEALED:
            payload = frame[at + HEADER_SIZE + SEAL_SIZE : at + total]
            self._check_seal(frame[at : at + HEADER_SIZE + SEAL_SIZE], payload, kind, flags, size)
        else:
            payload = frame[at + HEADER_SIZE : at + total]
            self._sum, self._expected = crc32(payload), checksum
            if self._sum != checksum and (kind != _DATA_KIND or size == _DATA.size):
                raise CodecError(f"HA frame of type {kind}: wrong checksum")
            if self._seal is not None:
                return _farewell(bytes(payload), kind)
        if kind == _DATA_KIND:
            epoch, offset, confirmed = _DATA.unpack(payload)
            _check_numbers(epoch | offset | confirmed)
            self.missing = self._size = size - _DATA.size
            return Head(offset, self.missing, epoch, confirmed, bool(flags & _FLUSH), bool(flags & _LONE))
        if kind == _PACKED_KIND:
            return self._unpacked(payload, flags)
        if kind == _ACK_KIND:
            if size != _ACK.size:
                raise CodecError(f"HA ack of {size} bytes: must be {_ACK.size}")
            ack = Ack(*_ACK.unpack(payload))
            _check_numbers(ack.epoch | ack.received | ack.durable | ack.applied)
            return ack
        struct_type = _STRUCTS.get(kind)
        if struct_type is None:
            raise CodecError(f"HA frame of unknown type {kind}")
        return _decode_json(bytes(payload), struct_type)

    def _unpacked(self, payload: memoryview, flags: int) -> Packed:
        if len(payload) < _PACKED.size:
            raise CodecError(f"packed HA frame of {len(payload)} bytes: at least {_PACKED.size}")
        epoch, offset, confirmed, size = _PACKED.unpack_from(payload)
        _check_numbers(epoch | offset | confirmed)
        if not 0 < size <= PACK_SIZE_MAX:
            raise FrameTooLarge(f"packed HA frame of {size} log bytes: accepted are 1 to {PACK_SIZE_MAX}")
        try:
            data = decompress(payload[_PACKED.size :], COMPRESSED | COMPRESSION_ZSTD, size_max=size)
        except (CorruptRecord, BodyTooLarge) as error:
            raise CodecError(f"packed HA frame: {error}") from None
        if len(data) != size:
            raise CodecError(f"packed HA frame: {len(data)} log bytes came out of it, it says {size}")
        self._sum, self._seal_fits = self._expected, True  # it came whole: checksum or seal were checked
        return Packed(Head(offset, size, epoch, confirmed, bool(flags & _FLUSH), bool(flags & _LONE)), data)

    def _check_seal(self, head: memoryview, payload: memoryview, kind: int, flags: int, size: int) -> None:
        """Raises SealBroken; the seal of a frame with log bytes is checked when they are complete."""
        if self._seal is None:
            raise SealBroken("a sealed HA frame, but no key was agreed on")
        header, given = bytes(head[:HEADER_SIZE]), bytes(head[HEADER_SIZE:])
        if kind == _DATA_KIND and size > _DATA.size:
            self._sealed_head, self._given_seal = header + bytes(payload), given
            self._digest, self._seal_fits = self._seal.running_sum(bool(flags & _FAST)), False
        elif not self._seal.fits(given, header, bytes(payload)):
            raise SealBroken(f"HA frame of type {kind}: its seal does not fit")

    def _wanted(self, buffer: memoryview | bytearray, at: int) -> int:
        """Returns how much must be there of the frame whose header is at `at` before it can be decoded.

        All but log bytes.
        """
        magic, kind, flags, size, _, header_sum = _HEADER.unpack_from(buffer, at)
        if magic != MAGIC or header_sum != crc32(buffer[at : at + _CHECKED_PART.size]):
            raise CodecError(f"HA frame header {bytes(buffer[at : at + HEADER_SIZE]).hex()}: wrong magic or checksum")
        before = HEADER_SIZE + SEAL_SIZE if flags & _SEALED else HEADER_SIZE
        if kind == _DATA_KIND:
            if not _DATA.size <= size <= DATA_SIZE_MAX:
                raise FrameTooLarge(f"HA data frame of {size} bytes: accepted are {_DATA.size} to {DATA_SIZE_MAX}")
            return before + _DATA.size
        if size > self.control_size_max:
            raise FrameTooLarge(f"HA frame of type {kind} with {size} bytes: at most {self.control_size_max}")
        return before + int(size)


def claim_of(id: str, replica: str, register: Register | None) -> str:
    """Returns what a master says of itself in CHALLENGE, for the proof to cover.

    Its epoch's id, who it is, its register.
    """
    text = msgspec.json.encode([id, replica, register])
    return f"{id} {hashlib.sha256(text).hexdigest()}"


def _check_numbers(all_bits: int) -> None:
    if all_bits > NUMBER_MAX:
        raise CodecError(f"HA frame with an epoch or offset above {NUMBER_MAX}")


def _farewell(payload: bytes, kind: int) -> Farewell:
    """Returns why the peer goes; a frame without a seal where one is due is good for nothing else."""
    if kind != FrameType.REFUSE:
        raise SealBroken(f"HA frame of type {kind} without a seal: its sender did not prove the shared key")
    refuse = _decode_json(payload, Refuse)
    return Farewell(refuse.code, refuse.text[:NAME_SIZE_MAX])


def _decode_json(payload: bytes, struct_type: type[_C]) -> _C:
    try:
        return msgspec.json.decode(payload, type=struct_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(f"HA {struct_type.__name__}: {error}") from None


def key_proof(key: str, side: str, *parts: str) -> str:
    """Returns the proof for a session without a key: only that the other end has none either."""
    text = "\0".join(("tandemq-ha", side, *parts)).encode()
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def same_proof(given: str, expected: str) -> bool:
    """Returns whether two proofs are equal, compared in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
