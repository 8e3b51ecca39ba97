"""The client for programs without an event loop: the same names, plain calls.

    with sync.Producer("orders", namesrv="127.0.0.1:9876") as producer:
        producer.send(Message(topic="orders", body=b"..."))

One background thread runs one event loop for all clients of the process; calls may come from any thread, but not from a
callback that runs on that loop (a coroutine function as listener). Listeners are ordinary functions and run in a pool
of threads. After a fork the child makes new clients. Clients that nobody closed are closed when the program ends.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from tandemq import client
from tandemq.client.admin_ha import LINES_MAX
from tandemq.client.admin_views import (
    BrokerView,
    ClusterView,
    GroupMember,
    GroupProgress,
    HaView,
    QueueStatus,
)
from tandemq.client.arguments import check_close_timeout
from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.listener import Listener
from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.pull_consumer import ITERATION_POLL_MS
from tandemq.client.push_consumer import CLOSE_S, by_decorator
from tandemq.client.shutdown import blocking_stop_signals
from tandemq.client.subscription import ALL, TAG
from tandemq.client.sync_loop import client_loop
from tandemq.client.transaction import Check, Execute, TransactionResult
from tandemq.errors import ClientClosed, TandemError
from tandemq.model.message import Message
from tandemq.model.route import TopicRoute
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig, TopicConfig

SIGNAL_CHECK_S = 0.1
"""How soon `run` notices a signal."""

F = TypeVar("F", bound=Callable[..., Any])


class Producer:
    """Sends to any topic; see `tandemq.client.Producer`. May be used from several threads.

    with sync.Producer("shop", namesrv="127.0.0.1:9876") as producer:
        print(producer.send(Message(topic="orders", body=b"paid")).status.name)
    """

    def __init__(
        self, group: str = "DEFAULT_PRODUCER", *, namesrv: str | None = None, config: ClientConfig | None = None
    ) -> None:
        self._loop = client_loop()
        self._producer = self._made(group, namesrv, config)
        self._room = threading.BoundedSemaphore(self._producer.config.in_flight_max)
        """Places of submitted messages: threads wait here instead of filling the loop with work."""

    def _made(self, group: str, namesrv: str | None, config: ClientConfig | None) -> client.Producer:
        return self._loop.call(client.Producer, group, namesrv=namesrv, config=config)

    def start(self) -> None:
        """Joins the cluster; `with` does it too."""
        self._loop.run(self._producer.start())
        self._loop.opened(self)

    def close(self, timeout: float | None = None) -> None:
        """Waits for what is in flight, at most `timeout` seconds; then closes."""
        self._loop.closed(self)
        self._loop.run(self._producer.close(timeout))

    def close_at_exit(self, timeout: float) -> None:
        """Closes at the end of the program."""
        _quietly(lambda: self._loop.start(self._producer.close(timeout)).result(timeout + 1))

    def __enter__(self) -> Self:
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
        """Sends and returns the answer; raises what `tandemq.client.Producer.send` raises.

        with sync.Producer("shop", namesrv="127.0.0.1:9876") as producer:
            producer.send(Message(topic="orders", body=b"paid"), sharding_key="order-1")
        """
        work = self._producer.send(
            message, queue=queue, sharding_key=sharding_key, copies=copies, timeout_ms=timeout_ms
        )
        return self._loop.run(work)

    def submit(
        self,
        message: Message,
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> "Future[SendResult]":
        """Hands a message over; the future gives what `send` would. Waits while `maxInFlight` messages are on their
        way.

        with sync.Producer("shop", namesrv="127.0.0.1:9876") as producer:
            futures = [producer.submit(Message(topic="orders", body=b"%d" % number)) for number in range(100)]
            assert all(future.result().ok for future in futures)
        """
        self._loop.check_outside()
        self._room.acquire()
        try:
            work = self._producer.send(
                message, queue=queue, sharding_key=sharding_key, copies=copies, timeout_ms=timeout_ms
            )
            future = self._loop.start(work)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Writes a message to a connection and forgets it."""
        self._loop.run(self._producer.send_oneway(message, sharding_key=sharding_key))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: QueueRef | None = None,
        sharding_key: str | None = None,
        copies: str | int | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Sends messages of one topic in few requests; returns one result per message.

        with sync.Producer("shop", namesrv="127.0.0.1:9876") as producer:
            producer.send_batch([Message(topic="orders", body=b"%d" % number) for number in range(500)])
        """
        work = self._producer.send_batch(
            messages, queue=queue, sharding_key=sharding_key, copies=copies, timeout_ms=timeout_ms
        )
        return self._loop.run(work)

    def request(self, message: Message, *, timeout_ms: int | None = None) -> ReceivedMessage:
        """Sends a message and returns the reply that some consumer gives it."""
        return self._loop.run(self._producer.request(message, timeout_ms=timeout_ms))

    def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answers a message that was sent with `request`."""
        return self._loop.run(self._producer.reply(request, body))


class TransactionProducer(Producer):
    """Sends messages that become visible if a local transaction commits; see `tandemq.client.TransactionProducer`.

    def settle(message):
        return TransactionState.COMMIT

    with sync.TransactionProducer("bank", settle, namesrv="127.0.0.1:9876") as producer:
        producer.send_in_transaction(Message(topic="orders", body=b"book me"), settle)
    """

    def __init__(
        self, group: str, check: Check, *, namesrv: str | None = None, config: ClientConfig | None = None
    ) -> None:
        self._check = check
        super().__init__(group, namesrv=namesrv, config=config)

    def _made(self, group: str, namesrv: str | None, config: ClientConfig | None) -> client.Producer:
        self._transactional = self._loop.call(
            client.TransactionProducer, group, self._check, namesrv=namesrv, config=config
        )
        return self._transactional

    def send_in_transaction(
        self, message: Message, execute: Execute, *, copies: str | int | None = None
    ) -> TransactionResult:
        """Stores the half message, runs `execute` in a thread, reports its outcome."""
        return self._loop.run(self._transactional.send_in_transaction(message, execute, copies=copies))


class PushConsumer:
    """Calls a listener for messages of topics; see `tandemq.client.PushConsumer`.

        def listener(messages):
            for message in messages:
                print(message.body)

        consumer = sync.PushConsumer("printers", listener, namesrv="127.0.0.1:9876")
        consumer.subscribe("orders")
        with consumer:
            time.sleep(1)

    Or until SIGTERM or SIGINT:

        consumer = sync.PushConsumer("printers", namesrv="127.0.0.1:9876")

        @consumer.on("orders")
        def print_order(message):
            print(message.body)

        consumer.run()
    """

    def __init__(
        self,
        group: str,
        listener: Listener = by_decorator,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self._loop = client_loop()
        self._consumer = self._loop.call(
            client.PushConsumer, group, listener, namesrv=namesrv, config=config, ordered=ordered, model=model
        )
        self._closed = threading.Event()

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """Adds or replaces the subscription of a topic; also while running."""
        self._loop.call(self._consumer.subscribe, topic, expression, kind)

    def on(self, topic: str, expression: str = ALL, kind: str = TAG, *, batch: bool = False) -> Callable[[F], F]:
        """Subscribes to a topic and makes a function its listener."""

        def registered(function: F) -> F:
            self._loop.call(self._consumer.on(topic, expression, kind, batch=batch), function)
            return function

        return registered

    def unsubscribe(self, topic: str) -> None:
        """Gives the topic's queues back."""
        self._loop.run(self._consumer.unsubscribe(topic))

    def start(self) -> None:
        """Joins the group and begins to consume; `with` does it too."""
        self._loop.run(self._consumer.start())
        self._loop.opened(self)

    def close(self, timeout: float | None = CLOSE_S) -> None:
        """Drains and leaves the group; a plain function that still runs after `timeout` seconds is logged."""
        check_close_timeout(timeout)
        self._consumer.check_outside_listener("close()")
        self._loop.closed(self)
        self._loop.run(self._consumer.close(timeout))
        self._closed.set()

    def close_at_exit(self, timeout: float) -> None:
        """Closes at the end of the program, when no thread can be started any more."""
        _quietly(lambda: self._loop.start(self._consumer.close(timeout)).result(timeout + 5))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *, close_timeout: float | None = CLOSE_S) -> None:
        """Consumes until SIGTERM or SIGINT, or until another thread calls `close`; then drains. Call it in the main
        thread.

        consumer.run(close_timeout=10)
        """
        check_close_timeout(close_timeout)
        with blocking_stop_signals() as stop:
            self.start()
            try:
                while not stop.is_set() and not self._closed.wait(SIGNAL_CHECK_S):
                    pass
            finally:
                self.close(close_timeout)

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        """The queues that this consumer has now."""
        return self._loop.call(lambda: self._consumer.assignment)

    def pause(self) -> None:
        """Stops asking for messages."""
        self._loop.call(self._consumer.pause)

    def resume(self) -> None:
        """Asks for messages again."""
        self._loop.call(self._consumer.resume)


class PullConsumer:
    """Gives messages when it is asked for them; see `tandemq.client.PullConsumer`.

    consumer = sync.PullConsumer("auditors", namesrv="127.0.0.1:9876")
    consumer.subscribe("orders")
    with consumer:
        for message in consumer:
            print(message.body)
            break
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        auto_commit: bool = True,
    ) -> None:
        self._loop = client_loop()
        self._consumer = self._loop.call(
            client.PullConsumer, group, namesrv=namesrv, config=config, auto_commit=auto_commit
        )

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """Adds or replaces the subscription of a topic; also while running."""
        self._loop.call(self._consumer.subscribe, topic, expression, kind)

    def start(self) -> None:
        """Joins the group; `with` does it too."""
        self._loop.run(self._consumer.start())
        self._loop.opened(self)

    def close(self, *, handled: bool = True) -> None:
        """Commits what was handled (auto commit), leaves the group."""
        self._loop.closed(self)
        self._loop.run(self._consumer.close(handled=handled))

    def close_at_exit(self, timeout: float) -> None:
        """Closes at the end of the program; what was given last is not known to be handled."""
        _quietly(lambda: self._loop.start(self._consumer.close(handled=False)).result(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(handled=kind is None)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Gives message after message, until the consumer is closed."""
        while True:
            try:
                messages = self.poll(ITERATION_POLL_MS, 1)
            except ClientClosed:
                return
            yield from messages

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        """The queues that this consumer has now."""
        return self._loop.call(lambda: self._consumer.assignment)

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns all readable queues of a topic."""
        return self._loop.run(self._consumer.queues(topic))

    def assign(self, queues: Collection[QueueRef], expression: str = ALL, kind: str = TAG) -> None:
        """Takes exactly these queues."""
        self._loop.run(self._consumer.assign(queues, expression, kind))

    def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Returns up to `count_max` messages; none after the timeout."""
        return self._loop.run(self._consumer.poll(timeout_ms, count_max))

    def position(self, queue: QueueRef) -> int:
        """Returns the offset that `poll` gives next of a queue."""
        return self._loop.call(self._consumer.position, queue)

    def seek(self, queue: QueueRef, offset: int) -> None:
        """Goes on at an offset."""
        self._loop.call(self._consumer.seek, queue, offset)

    def seek_to_time(self, queue: QueueRef, timestamp_ms: int) -> int:
        """Goes on at the first message stored at or after a time; returns its offset."""
        return self._loop.run(self._consumer.seek_to_time(queue, timestamp_ms))

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """Returns the offsets [first, next) that the broker has of a queue."""
        return self._loop.run(self._consumer.range(queue))

    def committed(self, queue: QueueRef) -> int | None:
        """Returns the group's offset as the broker has it."""
        return self._loop.run(self._consumer.committed(queue))

    def commit(self, offsets: Mapping[QueueRef, int] | None = None) -> None:
        """Commits the given offsets, or everything polled so far."""
        self._loop.run(self._consumer.commit(offsets))

    def pause(self, queues: Iterable[QueueRef]) -> None:
        """Leaves queues out of `poll`."""
        self._loop.call(self._consumer.pause, queues)

    def resume(self, queues: Iterable[QueueRef]) -> None:
        """Takes queues in again."""
        self._loop.call(self._consumer.resume, queues)


class Admin:
    """Shows and changes a cluster; see `tandemq.client.Admin`.

    with sync.Admin(namesrv="127.0.0.1:9876") as admin:
        print(admin.topics())
    """

    def __init__(self, *, namesrv: str | None = None, config: ClientConfig | None = None) -> None:
        self._loop = client_loop()
        self._admin = self._loop.call(client.Admin, namesrv=namesrv, config=config)

    def start(self) -> None:
        """Opens the session; `with` does it too."""
        self._loop.run(self._admin.start())

    def close(self) -> None:
        """Closes the connections."""
        self._loop.run(self._admin.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cluster(self) -> ClusterView:
        """Returns every broker that the name servers know."""
        return self._loop.run(self._admin.cluster())

    def broker(self, address: str) -> BrokerView:
        """Returns run-time facts of one broker."""
        return self._loop.run(self._admin.broker(address))

    def broker_config(self, address: str) -> dict[str, str]:
        """Returns a broker's effective options."""
        return self._loop.run(self._admin.broker_config(address))

    def update_broker_config(self, address: str, values: Mapping[str, str]) -> None:
        """Changes run-time options of a broker."""
        self._loop.run(self._admin.update_broker_config(address, values))

    def ha_status(self, address: str) -> HaView:
        """Returns replication as one broker sees it."""
        return self._loop.run(self._admin.ha_status(address))

    def ha_detail(self, address: str, *, timeout_ms: int = 3_000) -> dict[str, Any]:
        """Returns `tandemq ha status --json` of one broker, with its `kind`."""
        return self._loop.run(self._admin.ha_detail(address, timeout_ms=timeout_ms))

    def events(self, address: str, *, count_max: int = LINES_MAX) -> list[dict[str, Any]]:
        """Returns what happened to a broker's replication, newest first."""
        return self._loop.run(self._admin.events(address, count_max=count_max))

    def audit(self, address: str, *, count_max: int = LINES_MAX) -> list[dict[str, Any]]:
        """Returns what administrators did on a server, newest first."""
        return self._loop.run(self._admin.audit(address, count_max=count_max))

    def counted(self, address: str, figure: str, key: str) -> dict[str, tuple[float, float]]:
        """Returns (a second, sum) of a figure over `minute`, `hour` and `day`."""
        return self._loop.run(self._admin.counted(address, figure, key))

    def topics(self) -> list[str]:
        """Returns the names of all topics."""
        return self._loop.run(self._admin.topics())

    def route(self, topic: str) -> TopicRoute:
        """Returns the route of a topic."""
        return self._loop.run(self._admin.route(topic))

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the readable queues of a topic."""
        return self._loop.run(self._admin.queues(topic))

    def create_topic(self, topic: TopicConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()) -> list[str]:
        """Creates or changes a topic; returns the masters' names."""
        return self._loop.run(self._admin.create_topic(topic, cluster=cluster, brokers=brokers))

    def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Returns broker name -> the topic's settings there."""
        return self._loop.run(self._admin.topic_configs(topic))

    def rate(self, address: str, figure: str, key: str) -> float:
        """Returns events per second over the last minute, by RocketMQ's names of figures."""
        return self._loop.run(self._admin.rate(address, figure, key))

    def readers(self, topic: str) -> list[tuple[str, str]]:
        """Returns (broker name, address to ask) of every broker that has the topic."""
        return self._loop.run(self._admin.readers(topic))

    def master_names(self, *, cluster: str | None = None, brokers: Iterable[str] = ()) -> list[str]:
        """Returns the names of the groups that have a master."""
        return self._loop.run(self._admin.master_names(cluster=cluster, brokers=brokers))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Removes a topic; returns the masters' names."""
        return self._loop.run(self._admin.delete_topic(topic, cluster=cluster))

    def topic_status(self, topic: str) -> list[QueueStatus]:
        """Returns the ranges of every queue of a topic."""
        return self._loop.run(self._admin.topic_status(topic))

    def queue_range(self, queue: QueueRef) -> tuple[int, int]:
        """Returns the offsets [first, next) of a queue."""
        return self._loop.run(self._admin.queue_range(queue))

    def queue_ranges(self, topic: str) -> dict[QueueRef, tuple[int, int]]:
        """Returns the offsets [first, next) of every readable queue of a topic."""
        return self._loop.run(self._admin.queue_ranges(topic))

    def offset_at(self, queue: QueueRef, timestamp_ms: int) -> int:
        """Returns the first offset of a queue stored at or after a time."""
        return self._loop.run(self._admin.offset_at(queue, timestamp_ms))

    def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Returns the consumer groups with their settings."""
        return self._loop.run(self._admin.groups())

    def create_group(
        self, group: SubscriptionGroupConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        """Creates or changes a consumer group; returns the masters' names."""
        return self._loop.run(self._admin.create_group(group, cluster=cluster, brokers=brokers))

    def delete_group(self, group: str, *, cluster: str | None = None, offsets: bool = True) -> list[str]:
        """Removes a consumer group; returns the masters' names."""
        return self._loop.run(self._admin.delete_group(group, cluster=cluster, offsets=offsets))

    def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """Returns how far a group has come."""
        return self._loop.run(self._admin.progress(group, topic))

    def members(self, group: str) -> list[GroupMember]:
        """Returns the running members of a group."""
        return self._loop.run(self._admin.members(group))

    def groups_of_topic(self, topic: str) -> list[str]:
        """Returns the groups that consume a topic."""
        return self._loop.run(self._admin.groups_of_topic(topic))

    def reset_offsets(self, group: str, topic: str, timestamp_ms: int, *, force: bool = True) -> dict[QueueRef, int]:
        """Moves a group to a time; returns the new offsets."""
        return self._loop.run(self._admin.reset_offsets(group, topic, timestamp_ms, force=force))

    def reset_queue(self, group: str, queue: QueueRef, offset: int) -> None:
        """Moves a group on one queue; members that run follow."""
        self._loop.run(self._admin.reset_queue(group, queue, offset))

    def delays(self, group: str, topic: str) -> dict[QueueRef, int]:
        """Returns how old (ms) the next message of a group is on each queue that it has not emptied."""
        return self._loop.run(self._admin.delays(group, topic))

    def producers(self) -> dict[str, list[GroupMember]]:
        """Returns the producers that are connected, by group."""
        return self._loop.run(self._admin.producers())

    def set_offset(self, group: str, queue: QueueRef, offset: int) -> None:
        """Writes one committed offset."""
        self._loop.run(self._admin.set_offset(group, queue, offset))

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Returns the message with an id."""
        return self._loop.run(self._admin.message_by_id(message_id, topic))

    def messages_by_key(self, topic: str, key: str, **options: Any) -> list[ReceivedMessage]:
        """Returns the messages with a key, oldest first."""
        return self._loop.run(self._admin.messages_by_key(topic, key, **options))

    def message_at(self, queue: QueueRef, offset: int) -> ReceivedMessage:
        """Returns the message at a queue offset."""
        return self._loop.run(self._admin.message_at(queue, offset))


def _quietly(close: Callable[[], object]) -> None:
    """Closes a client at the program's end: whatever goes wrong then, nobody can mend it any more."""
    try:
        close()
    except (TandemError, TimeoutError, RuntimeError):
        return
