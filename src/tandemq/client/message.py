"""What users of the client hold in their hands: send results and received messages."""

import logging
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tandemq.codec.compression import decompress
from tandemq.codec.record import parse_record, walk
from tandemq.errors import CorruptRecord
from tandemq.model import message as properties_of
from tandemq.model.message import COMPRESSED, StoredMessage, offset_message_id
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")


class SendStatus(Enum):
    """How safe a stored message is; everything but SEND_OK means stored, with a promise missing."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(NamedTuple):
    """Where a message went. A tuple, because one is made for every message sent."""

    status: SendStatus
    message_id: str
    """The UNIQ_KEY the client gave (of a batch: those of all elements, joined by commas)."""
    offset_message_id: str
    """The id that names broker and physical offset; empty for a reply that was only pushed."""
    queue: QueueRef
    queue_offset: int
    transaction_id: str = ""
    remark: str = ""
    """Why the status is not SEND_OK, where the broker says so."""

    @property
    def ok(self) -> bool:
        return self.status is SendStatus.SEND_OK


class ReceivedMessage:
    """A message as a consumer sees it: body decompressed, retry topics shown as the topic they came from."""

    __slots__ = ("body", "broker_name", "properties", "reconsume_times", "stored", "topic")

    def __init__(self, stored: StoredMessage, broker_name: str) -> None:
        self.stored = stored
        self.broker_name = broker_name
        self.properties = stored.properties
        self.topic = stored.properties.get(properties_of.RETRY_TOPIC) or stored.topic
        self.body = _plain_body(stored)
        self.reconsume_times = stored.reconsume_times
        """Earlier deliveries that failed; an ordered consumer counts on while it tries again."""

    @property
    def queue(self) -> QueueRef:
        """The queue it was read from; of a retried message that is a queue of the retry topic."""
        return QueueRef(self.stored.topic, self.broker_name, self.stored.queue_id)

    @property
    def queue_id(self) -> int:
        return self.stored.queue_id

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def tags(self) -> str:
        return self.properties.get(properties_of.TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(properties_of.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The producer's id (UNIQ_KEY); the offset id if it gave none."""
        return self.properties.get(properties_of.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(self.stored.store_host, self.stored.physical_offset)

    @property
    def born_timestamp(self) -> int:
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.stored.store_timestamp

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.broker_name}/{self.queue_id}@{self.queue_offset}"
        return f"<ReceivedMessage {where} {len(self.body)} bytes>"


def _plain_body(stored: StoredMessage) -> bytes:
    """Decompressed; as stored if that can't be done, because a message nobody can skip would block its queue."""
    if not stored.sys_flag & COMPRESSED:
        return stored.body
    try:
        return decompress(stored.body, stored.sys_flag)
    except CorruptRecord as error:
        log.error("message %s is given as it is stored: %s", stored.message_id, error)
        return stored.body


def decode_messages(body: bytes | memoryview, broker_name: str) -> Iterator[ReceivedMessage]:
    """The messages of a pull, query or view reply; CorruptRecord if the bytes end inside a record."""
    end = 0
    for position, size, _ in walk(body, 0, len(body)):
        end = position + size
        yield ReceivedMessage(parse_record(body, position, end), broker_name)
    if end != len(body):
        raise CorruptRecord(f"{len(body) - end} bytes after the last whole record of a reply of {len(body)} bytes")
