"""What users of the client hold in their hands: send results and received messages."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tandemq.errors import Attempt, CorruptRecord
from tandemq.formats.compression import DECOMPRESSED_SIZE_MAX, decompress
from tandemq.formats.record import parse_record, walk
from tandemq.model import message as properties_of
from tandemq.model.message import COMPRESSED, StoredMessage, offset_message_id
from tandemq.model.topic import QueueRef


class SendStatus(Enum):
    """How safe a stored message is; everything but SEND_OK means stored, with a promise missing.

    result = await producer.send(Message(topic="orders", body=b"paid"), copies=2)
    if result.status is not SendStatus.SEND_OK:
        print("stored, but", result.status.name, result.remark)
    """

    SEND_OK = "SEND_OK"
    """Stored as the broker and the message's `copies` ask for."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but not known to be on the master's disk in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored by the master, but not known to be copied in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored by the master; there is no slave that could have a copy."""


class SendResult(NamedTuple):
    """Where a message went.

    result = await producer.send(Message(topic="orders", body=b"paid"))
    print(result.status.name, result.queue.queue_id, result.queue_offset, result.message_id)
    """

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
    attempts: tuple[Attempt, ...] = ()
    """What failed before this attempt; one that `may_be_stored` can have stored the message a second time."""

    @property
    def ok(self) -> bool:
        """Whether the status is SEND_OK: stored, with every promise kept."""
        return self.status is SendStatus.SEND_OK


class ReceivedMessage:
    """A message as a consumer sees it; a retried one shows the topic that it came from.

    async def listener(messages):
        for message in messages:
            print(message.topic, message.tags, message.keys, message.body.decode())
    """

    __slots__ = ("_body", "_body_size_max", "broker_name", "properties", "reconsume_times", "stored", "topic")

    def __init__(self, stored: StoredMessage, broker_name: str, *, body_size_max: int = DECOMPRESSED_SIZE_MAX) -> None:
        self.stored = stored
        """The record as the broker has it; its body may be compressed."""
        self.broker_name = broker_name
        """The broker group that it was read from."""
        self.properties = stored.properties
        """All properties, those of the user and RocketMQ's own."""
        self.topic = stored.properties.get(properties_of.RETRY_TOPIC) or stored.topic
        """The topic it was sent to."""
        self.reconsume_times = stored.reconsume_times
        """Earlier deliveries that failed; an ordered consumer counts on while it tries again."""
        self._body: bytes | None = None if stored.sys_flag & COMPRESSED else stored.body
        self._body_size_max = body_size_max

    @property
    def body(self) -> bytes:
        """The body as it was sent.

        A compressed one is decompressed when it is first read, so that messages that wait in a consumer's cache cost no
        more than what the broker sent. Raises BodyTooLarge beyond `maxDecompressedSize` and CorruptRecord for bytes
        that can't be read; `message.stored.body` has them as they are.
        """
        if self._body is None:
            self._body = decompress(self.stored.body, self.stored.sys_flag, size_max=self._body_size_max)
        return self._body

    @property
    def queue(self) -> QueueRef:
        """The queue it was read from; of a retried message that is a queue of the retry topic."""
        return QueueRef(self.stored.topic, self.broker_name, self.stored.queue_id)

    @property
    def queue_id(self) -> int:
        """The number of that queue."""
        return self.stored.queue_id

    @property
    def queue_offset(self) -> int:
        """The place in that queue."""
        return self.stored.queue_offset

    @property
    def tags(self) -> str:
        """The tag that consumers may filter by; empty if it has none."""
        return self.properties.get(properties_of.TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which administrators find it."""
        return tuple(self.properties.get(properties_of.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The producer's id (UNIQ_KEY); the offset id if it gave none."""
        return self.properties.get(properties_of.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id, which names the broker and the place in its log."""
        return offset_message_id(self.stored.store_host, self.stored.physical_offset)

    @property
    def born_timestamp(self) -> int:
        """When the producer sent it, by its clock: milliseconds since 1970."""
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, by its clock: milliseconds since 1970."""
        return self.stored.store_timestamp

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.broker_name}/{self.queue_id}@{self.queue_offset}"
        return f"<ReceivedMessage {where} {self.stored.size} bytes>"


def decode_messages(
    body: bytes | memoryview, broker_name: str, *, body_size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[ReceivedMessage]:
    """Yields the messages of a pull, query or view reply; CorruptRecord if the bytes end inside a record."""
    end = 0
    for position, size, _ in walk(body, 0, len(body)):
        end = position + size
        yield ReceivedMessage(parse_record(body, position, end), broker_name, body_size_max=body_size_max)
    if end != len(body):
        raise CorruptRecord(f"{len(body) - end} bytes after the last whole record of a reply of {len(body)} bytes")
