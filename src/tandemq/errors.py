"""Every exception TandemQ raises, by whose fault it was.

TandemError
├─ ConfigError              the operator's fault: names the field, the value and what is accepted
├─ CodecError               the peer's bytes
│  ├─ FrameTooLarge
│  ├─ MalformedHeader
│  ├─ MalformedBody
│  └─ CorruptRecord
├─ RemotingError            the network
│  ├─ ConnectFailed
│  ├─ ConnectionLost
│  └─ RequestTimeout
├─ ReplyError(code)         the peer answered no
├─ ClientError              what the caller asked of the client can't be done
│  ├─ InvalidMessage        a message that no broker would take
│  ├─ NoRoute               no name server knows the topic, or it has no usable queue
│  └─ SendFailed            every attempt, and why it failed
├─ StoreError               the disk
│  ├─ OffsetOutOfRange      asked, first, next
│  ├─ DiskFull
│  ├─ CorruptLog            path, offset
│  ├─ StoreLocked           another process has the store open for writing
│  └─ LogPoisoned           a write or fsync failed; nothing after it is ever acknowledged
└─ ReplicationError         the pair

Messages carry the numbers (asked, had, limit) and say what to do next.
"""

from collections.abc import Sequence


class TandemError(Exception):
    """Anything TandemQ raises on purpose."""


class ConfigError(TandemError):
    """A setting is wrong; the message names the key, the value and what is accepted."""


class CodecError(TandemError):
    """Bytes that do not follow the format they claim."""


class FrameTooLarge(CodecError):
    """A length field beyond the limit: the connection can't be trusted any more."""


class MalformedHeader(CodecError):
    """A command header that can't be decoded."""


class MalformedBody(CodecError):
    """A request or response body that is not what its code promises: the request fails, the connection goes on."""


class CorruptRecord(CodecError):
    """A message record whose sizes, magic or checksum disagree."""


class RemotingError(TandemError):
    """The network between two nodes."""


class ConnectFailed(RemotingError):
    """No connection to the peer could be made."""


class ConnectionLost(RemotingError):
    """The connection closed before the answer came."""


class RequestTimeout(RemotingError):
    """The answer did not come before the deadline."""


class ReplyError(TandemError):
    """The peer understood and answered no; `code` is the response code on the wire."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class ClientError(TandemError):
    """What the caller asked of the client can't be done."""


class InvalidMessage(ClientError):
    """A message that no broker would take; the message names the part, its size and the limit."""


class NoRoute(ClientError):
    """No name server knows the topic, or nothing of it can be used for what was asked."""


class SendFailed(ClientError):
    """A message could not be sent; `attempts` says where it was tried and why each try failed."""

    def __init__(self, topic: str, attempts: Sequence[object], code: int | None = None) -> None:
        story = "; ".join(str(attempt) for attempt in attempts)
        super().__init__(f"message to {topic!r} not sent after {len(attempts)} attempt(s): {story}")
        self.attempts = tuple(attempts)
        self.code = code
        """The broker's last response code, if it gave one."""


class StoreError(TandemError):
    """The disk, or what is on it."""


class OffsetOutOfRange(StoreError):
    """An offset outside what the log holds."""

    def __init__(self, asked: int, first: int, next_: int) -> None:
        super().__init__(f"offset {asked} is outside the log, which holds [{first}, {next_})")
        self.asked, self.first, self.next = asked, first, next_


class DiskFull(StoreError):
    """No room for another segment, or disk use above the limit: reads go on, writes wait for space."""


class CorruptLog(StoreError):
    """The log can't be opened without losing data behind the damage; names file and offset."""


class StoreLocked(StoreError):
    """Another process has this store open for writing."""


class LogPoisoned(StoreError):
    """A write or fsync failed earlier: what the disk holds is unknown, so nothing more is acknowledged."""


class ReplicationError(TandemError):
    """The pair: a replica refused, fell behind or diverged."""
