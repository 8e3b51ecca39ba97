"""The Python client: producers, consumers and admin for TandemQ and for any RocketMQ 4.9 or 5.x broker.

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message(topic="orders", body=b"..."))

asyncio throughout; `tandemq.client.sync` has the same for programs without an event loop, `tandemq.client.bulk` moves
raw records by the million.
"""

from tandemq.client.admin import Admin
from tandemq.client.config import Allocation, ClientConfig, Compression, ConsumeFrom, MessageModel
from tandemq.client.consumption import Action
from tandemq.client.message import ReceivedMessage, SendResult, SendStatus
from tandemq.client.producer import Producer
from tandemq.client.pull_consumer import PullConsumer
from tandemq.client.push_consumer import PushConsumer
from tandemq.client.session import Session
from tandemq.client.subscription import SQL92, TAG
from tandemq.client.transaction import TransactionProducer, TransactionResult, TransactionState
from tandemq.model.message import Message
from tandemq.model.topic import QueueRef

__all__ = [
    "SQL92",
    "TAG",
    "Action",
    "Admin",
    "Allocation",
    "ClientConfig",
    "Compression",
    "ConsumeFrom",
    "Message",
    "MessageModel",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueRef",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Session",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
