"""The message record: the same bytes in the commit log, in a pull reply and in the HA stream.

    at  field                      size       at  field                      size
     0  totalSize                  4          56  storeTimestamp (ms)        8      12 later with an IPv6 born host
     4  magic (v1, v2)             4          64  storeHost: ip + port       8      20 if sysFlag has 0x20
     8  bodyCRC                    4          72  reconsumeTimes             4
    12  queueId                    4          76  preparedTransactionOffset  8
    16  flag                       4          84  bodyLen                    4      88 with IPv4 hosts, up to 112
    20  queueOffset                8              body                       bodyLen
    28  physicalOffset             8              topicLen                   1 (v1) or 2 (v2)
    36  sysFlag                    4              topic                      topicLen
    40  bornTimestamp (ms)         8              propertiesLen              2
    48  bornHost: ip + port        8              properties                 propertiesLen
                                   20 if sysFlag has 0x10

All integers are big-endian. A host is an address (4 or 16 bytes) and a port (4). Version 2 is written when the topic is
longer than 127 bytes. The rest of a segment that cannot take the next record is one *blank*: size, magic, anything.

`HEAD_FIELDS` is that table; every position, struct and array type of a record's head is made from it. The functions are
pure and take bytes-like objects; every length is checked against the limit before it is used.
"""

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

from tandemq.errors import CorruptRecord
from tandemq.formats.crc import crc32
from tandemq.model.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    StoredMessage,
    decode_properties,
)

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE_MIN = 8
CRC_MASK = 0x7FFFFFFF
TOPIC_V1_MAX = 127
"""Longest topic, in bytes, that a v1 record holds: the length is a signed byte for Java."""
PROPERTIES_MAX = 0x7FFF

HEAD_FIELDS = (
    ("size", "I"),
    ("magic", "I"),
    ("crc", "I"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_timestamp", "q"),
    ("born_host", "8s"),
    ("store_timestamp", "q"),
    ("store_host", "8s"),
    ("reconsume_times", "i"),
    ("prepared_offset", "q"),
    ("body_size", "I"),
)
"""Name and struct format of each field before the body, with IPv4 hosts."""
V6_EXTRA = 12
"""Bytes that an IPv6 host takes more than an IPv4 one."""


def _position(name: str) -> int:
    names = [field for field, _ in HEAD_FIELDS]
    return struct.calcsize(">" + "".join(kind for _, kind in HEAD_FIELDS[: names.index(name)]))


def head_struct(*names: str) -> struct.Struct:
    """Returns a struct that unpacks only these fields of a head with IPv4 hosts, and skips the others."""
    kinds = (kind if field in names else f"{struct.calcsize('>' + kind)}x" for field, kind in HEAD_FIELDS)
    return struct.Struct(">" + "".join(kinds))


def _whole_head(*host_sizes: int) -> struct.Struct:
    sizes = iter(host_sizes)
    return struct.Struct(">" + "".join(f"{next(sizes)}s" if kind == "8s" else kind for _, kind in HEAD_FIELDS))


WHOLE_HEADS = (_whole_head(8, 8), _whole_head(20, 8), _whole_head(8, 20), _whole_head(20, 20))
"""Everything before the body, by (sysFlag >> 4) & 3: bit 0 = IPv6 born host, bit 1 = IPv6 store host."""

# Positions inside a record, for readers that need one field only; with IPv4 hosts from STORE_TIMESTAMP_AT on.
SIZE_AT = _position("size")
MAGIC_AT = _position("magic")
CRC_AT = _position("crc")
QUEUE_ID_AT = _position("queue_id")
FLAG_AT = _position("flag")
QUEUE_OFFSET_AT = _position("queue_offset")
PHYSICAL_OFFSET_AT = _position("physical_offset")
SYS_FLAG_AT = _position("sys_flag")
BORN_TIMESTAMP_AT = _position("born_timestamp")
BORN_HOST_AT = _position("born_host")
STORE_TIMESTAMP_AT = _position("store_timestamp")
STORE_HOST_AT = _position("store_host")
RECONSUME_TIMES_AT = _position("reconsume_times")
PREPARED_OFFSET_AT = _position("prepared_offset")
BODY_SIZE_AT = _position("body_size")
BODY_AT = WHOLE_HEADS[0].size

FIXED_SIZE_V4 = BODY_AT + 1 + 2
"""Size of a v1 record with two IPv4 hosts and nothing in it: the smallest record there is."""

HEAD = struct.Struct(">" + "".join(kind for _, kind in HEAD_FIELDS[:8]))
"""size, magic, body CRC, queue id, flag, queue offset, physical offset, sysFlag: the same in every record."""
PLAIN_HEAD = head_struct(
    "size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_size"
)
"""What views are derived from, of a head with IPv4 hosts."""
NOT_PLAIN = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_PREPARED
"""sysFlags of v1 records that are laid out or treated differently; TRANSACTION_ROLLBACK has the bit of PREPARED."""
SIZE_MAGIC = struct.Struct(">II")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">I")
_SHORT = struct.Struct(">H")


def store_timestamp(buffer: Buffer, position: int, sys_flag: int | None = None) -> int:
    """Returns when the broker stored the record (ms); `sys_flag` only spares reading it."""
    if sys_flag is None:
        sys_flag = _INT.unpack_from(buffer, position + SYS_FLAG_AT)[0]
    at = position + STORE_TIMESTAMP_AT + (V6_EXTRA if sys_flag & BORN_HOST_V6 else 0)
    return int(_LONG.unpack_from(buffer, at)[0])


def walk(buffer: Buffer, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yields (position, size, magic) of each record in [start, stop), and of the blank that ends a segment.

    Ends silently at the first place that is not a whole record: zeros, an unknown magic, a size beyond `stop`. Contents
    are not checked; see `check_record`.
    """
    unpack = SIZE_MAGIC.unpack_from
    position, last = start, stop - 8
    while position <= last:
        size, magic = unpack(buffer, position)
        if size < 8 or size > stop - position:
            return
        if magic in (MAGIC_V1, MAGIC_V2):
            if size < FIXED_SIZE_V4:
                return
        elif magic != MAGIC_BLANK:
            return
        yield position, size, magic
        position += size


def body_bounds(buffer: Buffer, position: int, sys_flag: int) -> tuple[int, int]:
    """Returns [start, stop) of the body of a record already known to be whole."""
    start = position + WHOLE_HEADS[(sys_flag >> 4) & 3].size
    length: int = _INT.unpack_from(buffer, start - 4)[0]
    return start, start + length


def tail_bounds(buffer: Buffer, position: int) -> tuple[int, int, int, int]:
    """Returns (topic start, stop, properties start, stop) of a record already known to be whole."""
    size, magic, _, _, _, _, _, sys_flag = HEAD.unpack_from(buffer, position)
    at = position + WHOLE_HEADS[(sys_flag >> 4) & 3].size
    at += _INT.unpack_from(buffer, at - 4)[0]
    if magic == MAGIC_V1:
        topic_start = at + 1
        topic_stop = topic_start + buffer[at]
    else:
        topic_start = at + 2
        topic_stop = topic_start + _SHORT.unpack_from(buffer, at)[0]
    return topic_start, topic_stop, topic_stop + 2, position + size


def check_record(buffer: Buffer, position: int, limit: int, *, crc: bool = True) -> str | None:
    """Returns what is wrong with the record at `position`: sizes, lengths or checksum; None if nothing is.

    `limit` is where readable bytes end. The physical offset is the caller's to compare: it knows where the buffer lies.
    """
    parts = _parts(buffer, position, limit)
    if isinstance(parts, str):
        return parts
    return _crc_problem(buffer, parts[0], parts[1]) if crc else None


def _parts(buffer: Buffer, position: int, limit: int) -> tuple[tuple[Any, ...], int, int, int] | str:
    """Returns (fields of the head, body start, topic start, topic stop) of a record, or what its sizes get wrong."""
    if position + FIXED_SIZE_V4 > limit:
        return f"only {max(0, limit - position)} bytes are left, a record has at least {FIXED_SIZE_V4}"
    size, magic, _, _, _, _, _, sys_flag = HEAD.unpack_from(buffer, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return f"unknown magic 0x{magic:08X}"
    stop = position + size
    if size < FIXED_SIZE_V4 or stop > limit:
        return f"size {size} is outside [{FIXED_SIZE_V4}, {limit - position}]"
    head = WHOLE_HEADS[(sys_flag >> 4) & 3]
    body_at = position + head.size
    if body_at > stop:
        return f"size {size} is too small for its fixed part"
    fields = head.unpack_from(buffer, position)
    body_size: int = fields[-1]
    at = body_at + body_size
    length_size = 1 if magic == MAGIC_V1 else 2
    if at + length_size > stop:
        return f"body length {body_size} goes beyond the record's {size} bytes"
    topic_size = buffer[at] if magic == MAGIC_V1 else _SHORT.unpack_from(buffer, at)[0]
    topic_at = at + length_size
    at = topic_at + topic_size
    if at + 2 > stop:
        return f"topic length {topic_size} goes beyond the record's {size} bytes"
    properties_size: int = _SHORT.unpack_from(buffer, at)[0]
    if at + 2 + properties_size != stop:
        return f"the fields make {at + 2 + properties_size - position} bytes, the record says {size}"
    return fields, body_at, topic_at, at


def _crc_problem(buffer: Buffer, fields: tuple[Any, ...], body_at: int) -> str | None:
    """Returns that the body of a record does not agree with its checksum, or None; an empty body has none."""
    body_size: int = fields[-1]
    if body_size and crc32(memoryview(buffer)[body_at : body_at + body_size]) & CRC_MASK != fields[2]:
        return f"the body's CRC-32 is not the stored 0x{fields[2]:08X}"
    return None


def verify_crc(buffer: Buffer, position: int) -> bool:
    """Returns whether the body of a whole record agrees with its checksum (an empty body has none)."""
    _, _, stored, _, _, _, _, sys_flag = HEAD.unpack_from(buffer, position)
    start, stop = body_bounds(buffer, position, sys_flag)
    return start == stop or crc32(memoryview(buffer)[start:stop]) & CRC_MASK == stored


def parse_record(buffer: Buffer, position: int = 0, limit: int | None = None, *, crc: bool = False) -> StoredMessage:
    """Returns the record at `position`, decoded; raises CorruptRecord with what does not add up."""
    limit = len(buffer) if limit is None else min(limit, len(buffer))
    parts = _parts(buffer, position, limit)
    if isinstance(parts, str):
        raise CorruptRecord(f"record at {position}: {parts}")
    fields, body_at, topic_start, topic_stop = parts
    if crc and (problem := _crc_problem(buffer, fields, body_at)) is not None:
        raise CorruptRecord(f"record at {position}: {problem}")
    (
        size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
        born_timestamp, born_host, stored_at, store_host, reconsume_times, prepared, body_size,
    ) = fields  # fmt: skip
    try:
        topic = str(buffer[topic_start:topic_stop], "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"record at {position}: the topic is not UTF-8: {error}") from None
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size=size,
        flag=flag,
        sys_flag=sys_flag,
        body_crc=body_crc,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=stored_at,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body=bytes(buffer[body_at : body_at + body_size]),
        properties=decode_properties(bytes(buffer[topic_stop + 2 : position + size])),
    )


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """Returns the sysFlag bits that two hosts of these lengths need."""
    flags = 0
    for host, name, bit in ((born_host, "born", BORN_HOST_V6), (store_host, "store", STORE_HOST_V6)):
        if len(host) == 20:
            flags |= bit
        elif len(host) != 8:
            raise CorruptRecord(f"the {name} host has {len(host)} bytes; 8 (IPv4) or 20 (IPv6) expected")
    return flags


def encode_record(
    *,
    topic: str | bytes,
    queue_id: int,
    flag: int = 0,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int = 0,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    body: Buffer,
    properties: bytes = b"",
) -> bytes:
    """Returns one record. The host bits of sysFlag follow the hosts; the version follows the topic's length."""
    name = topic.encode() if isinstance(topic, str) else topic
    if len(properties) > PROPERTIES_MAX:
        raise CorruptRecord(f"the properties have {len(properties)} bytes, the limit is {PROPERTIES_MAX}")
    if len(name) > PROPERTIES_MAX:
        raise CorruptRecord(f"the topic has {len(name)} bytes, the limit is {PROPERTIES_MAX}")
    sys_flag = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_flags(born_host, store_host)
    head = WHOLE_HEADS[(sys_flag >> 4) & 3]
    v1 = len(name) <= TOPIC_V1_MAX
    topic_size = len(name).to_bytes(1 if v1 else 2, "big")
    size = head.size + len(body) + len(topic_size) + len(name) + 2 + len(properties)
    fixed = head.pack(
        size, MAGIC_V1 if v1 else MAGIC_V2, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical_offset,
        sys_flag, born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
        prepared_transaction_offset, len(body),
    )  # fmt: skip
    return b"".join((fixed, body, topic_size, name, _SHORT.pack(len(properties)), properties))
