"""The Python client: producers, consumers and admin for TandemQ and for any RocketMQ 4.9 or 5.x broker.

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message(topic="orders", body=b"..."))

It is asyncio throughout. `tandemq.client.sync` has the same for programs without an event loop, `tandemq.client.bulk`
moves raw records by the million, `tandemq.client.otel` reports to OpenTelemetry. Everything that a program needs to
import is here, the errors that it may catch among it:

    TandemError                everything below
    ├─ ConfigError             an option has a wrong type or value
    ├─ ClientError             what was asked can't be done
    │  ├─ InvalidMessage       a message that no broker would take
    │  ├─ NoRoute              no name server knows the topic, or it has no usable queue
    │  ├─ SendFailed           every attempt of a send, and why it failed
    │  └─ ClientClosed         the client was closed before or while it was asked
    ├─ RemotingError           the network
    │  ├─ ConnectFailed
    │  ├─ ConnectionLost
    │  └─ RequestTimeout       no answer in time
    ├─ ReplyError              a broker or name server refused; carries its code
    └─ CodecError              bytes that can't be read
       └─ CorruptRecord
          └─ BodyTooLarge      a compressed body that grows beyond `maxDecompressedSize`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tandemq.errors import (
    Attempt,
    BodyTooLarge,
    ClientClosed,
    ClientError,
    CodecError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    CorruptRecord,
    InvalidMessage,
    NoRoute,
    RemotingError,
    ReplyError,
    RequestTimeout,
    SendFailed,
    TandemError,
)
from tandemq.model.message import Message
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig, TopicConfig

if TYPE_CHECKING:
    from tandemq.client.admin import Admin
    from tandemq.client.config import Allocation, ClientConfig, Compression, ConsumeFrom, MessageModel
    from tandemq.client.listener import Action, Handler, Listener
    from tandemq.client.message import ReceivedMessage, SendResult, SendStatus
    from tandemq.client.producer import Producer, QueueSelector
    from tandemq.client.pull_consumer import PullConsumer
    from tandemq.client.push_consumer import PushConsumer
    from tandemq.client.session import Session
    from tandemq.client.shutdown import stop_signals
    from tandemq.client.subscription import SQL92, TAG
    from tandemq.client.transaction import Check, Execute, TransactionProducer, TransactionResult, TransactionState
else:
    # Imported when they are first asked for: a program that uses one part (the command line, a worker of Spark) starts
    # a seventh of a second sooner without the others.
    _PARTS = {
        "tandemq.client.admin": ("Admin",),
        "tandemq.client.config": (
            "Allocation",
            "ClientConfig",
            "Compression",
            "ConsumeFrom",
            "MessageModel",
        ),
        "tandemq.client.listener": (
            "Action",
            "Handler",
            "Listener",
        ),
        "tandemq.client.message": (
            "ReceivedMessage",
            "SendResult",
            "SendStatus",
        ),
        "tandemq.client.producer": (
            "Producer",
            "QueueSelector",
        ),
        "tandemq.client.pull_consumer": ("PullConsumer",),
        "tandemq.client.push_consumer": ("PushConsumer",),
        "tandemq.client.session": ("Session",),
        "tandemq.client.shutdown": ("stop_signals",),
        "tandemq.client.subscription": (
            "SQL92",
            "TAG",
        ),
        "tandemq.client.transaction": (
            "Check",
            "Execute",
            "TransactionProducer",
            "TransactionResult",
            "TransactionState",
        ),
    }
    _HOMES = {name: module for module, names in _PARTS.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found


__all__ = [
    "SQL92",
    "TAG",
    "Action",
    "Admin",
    "Allocation",
    "Attempt",
    "BodyTooLarge",
    "Check",
    "ClientClosed",
    "ClientConfig",
    "ClientError",
    "CodecError",
    "Compression",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "CorruptRecord",
    "Execute",
    "Handler",
    "InvalidMessage",
    "Listener",
    "Message",
    "MessageModel",
    "NoRoute",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueRef",
    "QueueSelector",
    "ReceivedMessage",
    "RemotingError",
    "ReplyError",
    "RequestTimeout",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Session",
    "SubscriptionGroupConfig",
    "TandemError",
    "TopicConfig",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "stop_signals",
]
