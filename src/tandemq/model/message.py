"""A message, its properties text, tags, system flags and ids.

Layout facts are RocketMQ's (MessageDecoder, MessageSysFlag, MessageConst); the byte record itself is `codec.record`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

# sysFlag bits
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300
"""Written by Java 5.x producers; 0 means zlib too (4.x)."""

# property names
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED_FLAG = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
UNIQUE_KEY = "UNIQ_KEY"
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
SHARDING_KEY = "__SHARDINGKEY"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
CORRELATION_ID = "CORRELATION_ID"
MESSAGE_TTL = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
ACK_COPIES = "__TQ_COPIES"
"""Ours: required copies of this message: a number, `majority` or `all`, with `:durable` for copies on disk."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Returns the properties text as Java writes it, with the trailing separator."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def decode_properties(text: bytes) -> dict[str, str]:
    """Parses a properties text. Like upstream it skips entries without a name, separator or value."""
    found = {}
    for entry in text.decode("utf-8", "replace").split("\x02"):
        name, separator, value = entry.partition("\x01")
        if name and separator and value:
            found[name] = value
    return found


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode: signed 32 bit, over UTF-16 units."""
    h = 0
    if text.isascii():
        for unit in text.encode():
            h = (31 * h + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - 0x1_0000_0000 if h >= 0x8000_0000 else h


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Returns what the consume queue keeps of TAGS: its Java hash, 0 for none."""
    return java_hash(tags) if tags else 0


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Returns the id a broker gives: upper-case hex of store host (ip + port, 8 or 20 bytes) and physical offset."""
    return (store_host + physical_offset.to_bytes(8, "big")).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[bytes, int]:
    """Returns (store host bytes, physical offset) of an offset message id; raises ValueError if it is none."""
    if len(message_id) not in (32, 56) or not set(message_id) <= _HEX_DIGITS:
        raise ValueError(
            f"message id {message_id!r}: 32 or 56 hexadecimal digits expected, as `tandemq send` prints them"
        )
    raw = bytes.fromhex(message_id)
    return raw[:-8], int.from_bytes(raw[-8:], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a producer hands over.

        message = Message(topic="orders", body=b"paid", tags="new", keys=("order-1",), properties={"price": "7"})

    `tags` is what consumers filter by, `keys` what administrators search for. `delay_level` 1 (1 s) to 18 (2 h) delays
    it.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A record of the log, decoded. `body` is as stored: see `formats.compression` for what sys_flag says about it.

    A struct of msgspec, because a consumer makes one for each message and a frozen dataclass takes far longer to make.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: bytes
    """ip (4 or 16 bytes) + port (4 bytes)"""
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: Mapping[str, str]

    @property
    def message_id(self) -> str:
        """Returns the offset message id."""
        return offset_message_id(self.store_host, self.physical_offset)
