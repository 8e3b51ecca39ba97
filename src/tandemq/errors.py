"""Every exception TandemQ raises on purpose, by whose fault it was.

TandemError
├─ ConfigError              the operator's fault: names the field, the value and what is accepted
├─ CodecError               the peer's bytes do not follow the format they claim
│  ├─ FrameTooLarge
│  ├─ MalformedHeader
│  ├─ MalformedBody
│  ├─ CorruptRecord
│  │  └─ BodyTooLarge       a compressed body that grows beyond the reader's limit
│  ├─ CorruptTable          formats.table_files: changes of a table that can't be read, with others after them
│  └─ SealBroken            codec.ha_seal: a frame is not what the holder of the group's key sent next
├─ RemotingError            the network between two nodes
│  ├─ ConnectFailed
│  ├─ ConnectionLost
│  ├─ RequestTimeout
│  └─ KeyWanted             replication.metadata: a broker of ours has a key, and we another one or none
├─ ReplyError               the peer answered no; carries the response code
│  └─ WriteRefused          broker.write_gate: this broker takes no writes at the moment
├─ InvalidRequest           what a client asked of a broker makes no sense
│  ├─ BadExpression         broker.subscriptions: a tag expression that can't be parsed
│  ├─ BadTimer              broker.services.timers: a time that is no number or too far away
│  └─ SqlError              broker.sql92: a SQL-92 filter that can't be compiled, with the position
├─ AccessProblem            remoting.access.users: a change of users or policies that can't be made
├─ TopicTableFull           broker.tables.topics: one more topic than the broker keeps
├─ ClientError              what the caller asked of the client can't be done
│  ├─ InvalidMessage        a message that no broker would take
│  ├─ NoRoute               no name server knows the topic, or it has no usable queue
│  │  └─ NoMaster           spark.sink.routes: a broker group has no master at the moment
│  ├─ SendFailed            every attempt, and why it failed
│  ├─ ClientClosed          the client was closed before or while it was asked
│  └─ ShuttingDown          client.listener: the program ends and can start no more threads
├─ StoreError               the disk, or what is on it
│  ├─ OffsetOutOfRange      carries asked, first, next
│  ├─ DiskFull
│  ├─ MessageTooLarge       names the sizes and the limits; trying again does not help
│  ├─ CorruptLog            names the path and the offset
│  ├─ StoreLocked           another process has the store open for writing
│  ├─ LogPoisoned           a write or fsync failed; nothing after it is ever acknowledged
│  ├─ NoDescriptors         the process has no file descriptor left; nothing is lost, it is tried again
│  ├─ SourceChanged         backup.source: what was read for a backup does not belong together; it is read again
│  └─ ViewsDamaged          store.recovery: queues and index must be rebuilt from the log
├─ ReplicationError         the pair
│  └─ NotFollowable         replication.slave: there is no master to connect to, and it is known why
├─ CoordinatorError         etcd does not answer, or answers no
│  ├─ ConnectionBroken      coordination.http: a connection ended; whether the request was carried out is not known
│  ├─ Refused               coordination.etcd: etcd understood a call and did not carry it out; has gRPC's code
│  └─ WatchLost             coordination.etcd: changes may have been missed, so it is read again
├─ NotDelivered             spark.sink.outbox: a message was not stored as asked; counts what was
├─ CannotBeExact            spark.sink.ledger: this write can't be exactly once, and why
├─ DataLost                 spark.source.offsets: messages were deleted before Spark read them
├─ ClusterError             cli.local_cluster: the cluster of `tandemq up` can't be started or stopped
└─ SupervisorError          cli.groups: a group of `tandemq broker --groups N` could not be started

An exception whose line names a module is declared there, beside the only code that raises it; the others are below. A
message carries the numbers (asked, had, limit) and says what to do next. A mistake of our own is an AssertionError.
`tests/unit/test_errors.py` compares this tree with the classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


class TandemError(Exception):
    """Anything TandemQ raises on purpose.

    try:
        await producer.send(Message(topic="orders", body=b"paid"))
    except TandemError as error:
        print("not sent:", error)
    """


class ConfigError(TandemError):
    """A setting is wrong; the message names the key, the value and what is accepted.

    try:
        config = ClientConfig(send_timeout_ms=-1)
    except ConfigError as error:
        print(error)
    """


class CodecError(TandemError):
    """Bytes that do not follow the format they claim.

    try:
        message = await admin.message_by_id("7F0000010000")
    except CodecError as error:
        print("the broker answered nonsense:", error)
    """


class FrameTooLarge(CodecError):
    """A length field beyond the limit: the connection can't be trusted any more."""


class MalformedHeader(CodecError):
    """A command header that can't be decoded."""


class MalformedBody(CodecError):
    """A request or response body that is not what its code promises: the request fails, the connection goes on."""


class CorruptRecord(CodecError):
    """A message record whose sizes, magic or checksum disagree, or a body that can't be decompressed.

    try:
        text = message.body.decode()
    except CorruptRecord as error:
        print("as it is stored:", message.stored.body, error)
    """


class BodyTooLarge(CorruptRecord):
    """A compressed body that would grow beyond the reader's limit; the message names both sizes.

    try:
        text = message.body.decode()
    except BodyTooLarge as error:
        print(error)
    """


class RemotingError(TandemError):
    """The network between two nodes.

    try:
        print(await admin.topics())
    except RemotingError as error:
        print("nobody answers:", error)
    """


class ConnectFailed(RemotingError):
    """No connection to the peer could be made.

    try:
        offset = await consumer.committed(queue)
    except ConnectFailed as error:
        print("the broker is away:", error)
    """


class ConnectionLost(RemotingError):
    """The connection closed before the answer came: the request may have been carried out or not.

    try:
        await consumer.commit()
    except ConnectionLost as error:
        print("perhaps committed:", error)
    """


class RequestTimeout(RemotingError):
    """The answer did not come before the deadline: the request may have been carried out or not.

    try:
        reply = await producer.request(Message(topic="questions", body=b"2 + 2"), timeout_ms=5000)
    except RequestTimeout as error:
        print("nobody replied:", error)
    """


class ReplyError(TandemError):
    """The peer understood and answered no; `code` is the response code on the wire.

    try:
        await consumer.start()
    except ReplyError as error:
        print("refused:", error.code, error.remark)
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class InvalidRequest(TandemError):
    """A request that a broker understood and can't carry out as it is written."""


class ClientError(TandemError):
    """What the caller asked of the client can't be done; the message names the argument and its value.

    try:
        await producer.send(Message(topic="orders", body=b"paid"), timeout_ms=0)
    except ClientError as error:
        print(error)
    """


class InvalidMessage(ClientError):
    """A message that no broker would take; the message names the part, its size and the limit.

    try:
        await producer.send(Message(topic="orders", body=b"x" * 100_000_000))
    except InvalidMessage as error:
        print(error)
    """


class NoRoute(ClientError):
    """No name server knows the topic, or nothing of it can be used for what was asked.

    try:
        await producer.send(Message(topic="unheard-of", body=b"paid"))
    except NoRoute as error:
        print(error)
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send: where it went, how long it took, why it failed.

    try:
        await producer.send(Message(topic="orders", body=b"paid"))
    except SendFailed as error:
        print([(attempt.address, attempt.elapsed_ms, attempt.error) for attempt in error.attempts])
    """

    broker_name: str
    address: str
    queue_id: int
    elapsed_ms: int
    error: str
    may_be_stored: bool = False
    """Whether the message may be stored all the same: no answer came, or one that leaves it open."""

    def __str__(self) -> str:
        return f"{self.broker_name} ({self.address}) queue {self.queue_id}, {self.elapsed_ms} ms: {self.error}"


class SendFailed(ClientError):
    """A message could not be sent; `attempts` says where it was tried and why each try failed.

        try:
            await producer.send(Message(topic="orders", body=b"paid"))
        except SendFailed as error:
            print(error.topic, error.code, len(error.attempts))

    After a timeout or a lost connection the message may be stored all the same.
    """

    def __init__(self, topic: str, attempts: Sequence[Attempt], code: int | None = None) -> None:
        super().__init__(f"message to {topic!r} not sent after {len(attempts)} attempt(s): {_story(attempts)}")
        self.topic = topic
        self.attempts = tuple(attempts)
        self.code = code
        """The broker's last response code, if it gave one."""


def _story(attempts: Sequence[Attempt]) -> str:
    """Tells of every attempt; of several with one reason at one broker only the first, and how many they were."""
    told = []
    alike = lambda attempt: (attempt.address, attempt.error)  # noqa: E731
    for _, group in groupby(attempts, key=alike):
        first, *others = group
        told.append(f"{first} ({len(others)} more with the same answer)" if others else str(first))
    return "; ".join(told)


class ClientClosed(ClientError):
    """The client was closed before or while it was asked.

    try:
        messages = await consumer.poll()
    except ClientClosed:
        print("somebody closed it")
    """


class StoreError(TandemError):
    """The disk, or what is on it."""


class OffsetOutOfRange(StoreError):
    """An offset outside what the log holds."""

    def __init__(self, asked: int, first: int, next_: int) -> None:
        super().__init__(f"offset {asked} is outside the log, which holds [{first}, {next_})")
        self.asked, self.first, self.next = asked, first, next_


class DiskFull(StoreError):
    """No room for another segment, or disk use above the limit: reads go on, writes wait for space."""


class MessageTooLarge(StoreError):
    """A message that is beyond a limit, or that no segment of this log can hold: trying again does not help."""


class CorruptLog(StoreError):
    """The log can't be opened without losing the data after the damage; names file and offset."""


class StoreLocked(StoreError):
    """Another process has this store open for writing."""


class LogPoisoned(StoreError):
    """A write or fsync failed earlier: what the disk holds is unknown, so nothing more is acknowledged."""


class NoDescriptors(StoreError):
    """The process has no file descriptor left to open a file with: nothing is lost, it is tried again."""


class ReplicationError(TandemError):
    """The pair: a replica refused, fell behind or diverged."""


class CoordinatorError(TandemError):
    """The coordinator of a group does not answer, or answers no."""
