"""The client for programs without an event loop: the same names, plain calls.

    with sync.Producer("orders", namesrv="127.0.0.1:9876") as producer:
        producer.send(Message(topic="orders", body=b"..."))

One background thread runs one event loop for all clients of the process; calls may come from any thread. Listeners of a
PushConsumer are ordinary functions and run in a pool of threads.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from tandemq import client
from tandemq.client.admin_views import (
    BrokerView,
    ClusterView,
    GroupMember,
    GroupProgress,
    HaView,
    QueueStatus,
)
from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.consumption import Listener
from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.subscription import ALL, TAG
from tandemq.client.transaction import Check, Execute, TransactionResult
from tandemq.model.message import Message
from tandemq.model.route import TopicRoute
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig, TopicConfig

T = TypeVar("T")


class _Loop:
    """The background loop: started by the first client, a daemon, so it never keeps a program alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="tandemq-client", daemon=True).start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.get())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result()

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """A plain function on the loop's thread, which owns all client state."""

        async def on_loop() -> T:
            return function(*args, **kwargs)

        return self.run(on_loop())


_loop = _Loop()


class Producer:
    """See `tandemq.client.Producer`."""

    def __init__(
        self, group: str = "DEFAULT_PRODUCER", *, namesrv: str | None = None, config: ClientConfig | None = None
    ) -> None:
        self._producer = _loop.call(client.Producer, group, namesrv=namesrv, config=config)

    def start(self) -> None:
        _loop.run(self._producer.start())

    def close(self) -> None:
        _loop.run(self._producer.close())

    def __enter__(self) -> "Producer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        message: Message,
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        work = self._producer.send(
            message, queue=queue, sharding_key=sharding_key, copies=copies, timeout_ms=timeout_ms
        )
        return _loop.run(work)

    def submit(self, message: Message, **options: Any) -> "Future[SendResult]":
        """Like `send`, without waiting; the future is a `concurrent.futures` one."""
        return _loop.start(self._producer.send(message, **options))

    def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        _loop.run(self._producer.send_oneway(message, sharding_key=sharding_key))

    def send_batch(self, messages: Sequence[Message], **options: Any) -> list[SendResult]:
        return _loop.run(self._producer.send_batch(messages, **options))

    def request(self, message: Message, *, timeout_ms: int | None = None) -> ReceivedMessage:
        return _loop.run(self._producer.request(message, timeout_ms=timeout_ms))

    def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        return _loop.run(self._producer.reply(request, body))


class TransactionProducer(Producer):
    """See `tandemq.client.TransactionProducer`."""

    def __init__(
        self, group: str, check: Check, *, namesrv: str | None = None, config: ClientConfig | None = None
    ) -> None:
        self._transactional = _loop.call(client.TransactionProducer, group, check, namesrv=namesrv, config=config)
        self._producer = self._transactional

    def send_in_transaction(
        self, message: Message, execute: Execute, *, copies: str | int | None = None
    ) -> TransactionResult:
        return _loop.run(self._transactional.send_in_transaction(message, execute, copies=copies))


class PushConsumer:
    """See `tandemq.client.PushConsumer`."""

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self._consumer = _loop.call(
            client.PushConsumer, group, listener, namesrv=namesrv, config=config, ordered=ordered, model=model
        )

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        _loop.call(self._consumer.subscribe, topic, expression, kind)

    def start(self) -> None:
        _loop.run(self._consumer.start())

    def close(self) -> None:
        _loop.run(self._consumer.close())

    def __enter__(self) -> "PushConsumer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        return _loop.call(lambda: self._consumer.assignment)


class PullConsumer:
    """See `tandemq.client.PullConsumer`."""

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        auto_commit: bool = True,
    ) -> None:
        self._consumer = _loop.call(client.PullConsumer, group, namesrv=namesrv, config=config, auto_commit=auto_commit)

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        _loop.call(self._consumer.subscribe, topic, expression, kind)

    def start(self) -> None:
        _loop.run(self._consumer.start())

    def close(self) -> None:
        _loop.run(self._consumer.close())

    def __enter__(self) -> "PullConsumer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        return _loop.call(lambda: self._consumer.assignment)

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        return _loop.run(self._consumer.queues(topic))

    def assign(self, queues: Collection[QueueRef], expression: str = ALL, kind: str = TAG) -> None:
        _loop.run(self._consumer.assign(queues, expression, kind))

    def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        return _loop.run(self._consumer.poll(timeout_ms, count_max))

    def position(self, queue: QueueRef) -> int:
        return _loop.call(self._consumer.position, queue)

    def seek(self, queue: QueueRef, offset: int) -> None:
        _loop.call(self._consumer.seek, queue, offset)

    def seek_to_time(self, queue: QueueRef, timestamp_ms: int) -> int:
        return _loop.run(self._consumer.seek_to_time(queue, timestamp_ms))

    def range(self, queue: QueueRef) -> tuple[int, int]:
        return _loop.run(self._consumer.range(queue))

    def committed(self, queue: QueueRef) -> int | None:
        return _loop.run(self._consumer.committed(queue))

    def commit(self, offsets: Mapping[QueueRef, int] | None = None) -> None:
        _loop.run(self._consumer.commit(offsets))

    def pause(self, queues: Iterable[QueueRef]) -> None:
        _loop.call(self._consumer.pause, queues)

    def resume(self, queues: Iterable[QueueRef]) -> None:
        _loop.call(self._consumer.resume, queues)


class Admin:
    """See `tandemq.client.Admin`."""

    def __init__(self, *, namesrv: str | None = None, config: ClientConfig | None = None) -> None:
        self._admin = _loop.call(client.Admin, namesrv=namesrv, config=config)

    def start(self) -> None:
        _loop.run(self._admin.start())

    def close(self) -> None:
        _loop.run(self._admin.close())

    def __enter__(self) -> "Admin":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cluster(self) -> ClusterView:
        return _loop.run(self._admin.cluster())

    def broker(self, address: str) -> BrokerView:
        return _loop.run(self._admin.broker(address))

    def broker_config(self, address: str) -> dict[str, str]:
        return _loop.run(self._admin.broker_config(address))

    def update_broker_config(self, address: str, values: Mapping[str, str]) -> None:
        _loop.run(self._admin.update_broker_config(address, values))

    def ha_status(self, address: str) -> HaView:
        return _loop.run(self._admin.ha_status(address))

    def topics(self) -> list[str]:
        return _loop.run(self._admin.topics())

    def route(self, topic: str) -> TopicRoute:
        return _loop.run(self._admin.route(topic))

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        return _loop.run(self._admin.queues(topic))

    def create_topic(self, topic: TopicConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()) -> list[str]:
        return _loop.run(self._admin.create_topic(topic, cluster=cluster, brokers=brokers))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        return _loop.run(self._admin.delete_topic(topic, cluster=cluster))

    def topic_status(self, topic: str) -> list[QueueStatus]:
        return _loop.run(self._admin.topic_status(topic))

    def queue_range(self, queue: QueueRef) -> tuple[int, int]:
        return _loop.run(self._admin.queue_range(queue))

    def queue_ranges(self, topic: str) -> dict[QueueRef, tuple[int, int]]:
        return _loop.run(self._admin.queue_ranges(topic))

    def offset_at(self, queue: QueueRef, timestamp_ms: int) -> int:
        return _loop.run(self._admin.offset_at(queue, timestamp_ms))

    def groups(self) -> dict[str, SubscriptionGroupConfig]:
        return _loop.run(self._admin.groups())

    def create_group(
        self, group: SubscriptionGroupConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        return _loop.run(self._admin.create_group(group, cluster=cluster, brokers=brokers))

    def delete_group(self, group: str, *, cluster: str | None = None, offsets: bool = True) -> list[str]:
        return _loop.run(self._admin.delete_group(group, cluster=cluster, offsets=offsets))

    def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        return _loop.run(self._admin.progress(group, topic))

    def members(self, group: str) -> list[GroupMember]:
        return _loop.run(self._admin.members(group))

    def groups_of_topic(self, topic: str) -> list[str]:
        return _loop.run(self._admin.groups_of_topic(topic))

    def reset_offsets(self, group: str, topic: str, timestamp_ms: int, *, force: bool = True) -> dict[QueueRef, int]:
        return _loop.run(self._admin.reset_offsets(group, topic, timestamp_ms, force=force))

    def set_offset(self, group: str, queue: QueueRef, offset: int) -> None:
        _loop.run(self._admin.set_offset(group, queue, offset))

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        return _loop.run(self._admin.message_by_id(message_id, topic))

    def messages_by_key(self, topic: str, key: str, **options: Any) -> list[ReceivedMessage]:
        return _loop.run(self._admin.messages_by_key(topic, key, **options))

    def message_at(self, queue: QueueRef, offset: int) -> ReceivedMessage:
        return _loop.run(self._admin.message_at(queue, offset))
