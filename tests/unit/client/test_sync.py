"""The same clients for programs without an event loop."""

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster

from tandemq import client
from tandemq.client import sync
from tandemq.client.message import ReceivedMessage
from tandemq.client.sync_loop import client_loop
from tandemq.client.transaction import TransactionState
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError
from tandemq.model.message import Message
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import wait_until

ONE = Message(topic="T", body=b"x")
QUEUE = QueueRef("T", "a", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster that every client of the test is connected to."""
    made: FakeCluster = client_loop().call(FakeCluster)

    def session_for(session: object, config: Any, namesrv: object) -> tuple[Any, bool]:
        return made.session(rebalance_interval_ms=100, in_flight_max=3), True

    for module in ("producer", "push_consumer", "pull_consumer", "admin_base"):
        monkeypatch.setattr(f"tandemq.client.{module}.session_for", session_for)
    return made


@pytest.mark.parametrize("name", ["Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "Admin"])
def test_both_faces_offer_the_same(name: str) -> None:
    """But for what only makes sense with a loop, or without one."""

    def offers(kind: type) -> set[str]:
        return {n for n, _ in inspect.getmembers(kind) if not n.startswith("_")}

    loop_only = {
        "topics", "group", "needs_all_masters", "consumer_info", "send_outgoing", "queues", "flush", "states", "move",
        "committed", "try_now", "reconsume_max", "check_outside_listener", "examined", "seek_to_begin", "seek_to_end",
    }  # fmt: skip
    assert offers(getattr(sync, name)) - offers(getattr(client, name)) <= {"close_at_exit"}
    assert offers(getattr(client, name)) - offers(getattr(sync, name)) <= loop_only


def test_a_producer_sends_in_every_way(cluster: FakeCluster) -> None:
    with sync.Producer("p") as producer:
        assert producer.send(ONE, queue=QUEUE).ok
        assert producer.submit(ONE).result().ok
        assert len(producer.send_batch([ONE, ONE])) == 2
        producer.send_oneway(ONE)
    assert len(cluster.sent) == 4


def test_threads_wait_for_room(cluster: FakeCluster) -> None:
    gate, waiting = threading.Event(), []
    send = cluster.on[RequestCode.SEND_MESSAGE_V2]

    async def slow(address: str, command: Command) -> Any:
        import asyncio

        waiting.append(1)
        await asyncio.get_running_loop().run_in_executor(None, gate.wait)
        return send(address, command)

    cluster.on[RequestCode.SEND_MESSAGE_V2] = slow
    with sync.Producer("p") as producer:
        futures: list[Any] = []
        thread = threading.Thread(target=lambda: futures.extend(producer.submit(ONE) for _ in range(8)))
        thread.start()
        wait_until(lambda: len(waiting) == 3, "a full room")
        assert thread.is_alive()
        gate.set()
        thread.join()
        assert all(future.result().ok for future in futures)
    with pytest.raises(ClientError, match="closed"):
        producer.submit(ONE).result()


def test_transactions_run_in_threads(cluster: FakeCluster) -> None:
    threads: list[str] = []

    def book(message: Message) -> TransactionState:
        threads.append(threading.current_thread().name)
        return TransactionState.COMMIT

    with sync.TransactionProducer("bank", lambda _: TransactionState.COMMIT) as producer:
        assert producer.send_in_transaction(ONE, book).state is TransactionState.COMMIT
    assert threads[0] != "tandemq-client"


def consumed(cluster: FakeCluster, listener: Callable[..., Any]) -> sync.PushConsumer:
    cluster.store(b"0")
    consumer = sync.PushConsumer("g", listener)
    consumer.subscribe("T")
    return consumer


def test_a_push_consumer_calls_in_threads_and_can_be_paused(cluster: FakeCluster) -> None:
    seen: list[bytes] = []
    consumer = consumed(cluster, lambda messages: seen.extend(m.body for m in messages))
    with consumer:
        wait_until(lambda: seen == [b"0"], "the message")
        assert QUEUE in consumer.assignment
        consumer.pause()
        consumer.resume()
        consumer.unsubscribe("T")
        assert QUEUE not in consumer.assignment
    assert cluster.offsets["g", QUEUE] == 1


def test_a_listener_may_send_but_not_close(cluster: FakeCluster) -> None:
    outcomes: list[object] = []
    with sync.Producer("p") as producer:

        def listener(messages: list[ReceivedMessage]) -> None:
            outcomes.append(producer.send(ONE).ok)
            try:
                consumer.close()
            except ClientError as error:
                outcomes.append(str(error))

        consumer = consumed(cluster, listener)
        with consumer:
            wait_until(lambda: len(outcomes) == 2, "both outcomes")
    assert outcomes[0] is True
    assert "close() waits for the listeners" in str(outcomes[1])


def test_a_plain_call_in_a_coroutine_listener_is_refused_at_once(cluster: FakeCluster) -> None:
    errors: list[str] = []
    with sync.Producer("p") as producer:

        async def listener(messages: list[ReceivedMessage]) -> None:
            for call in (lambda: producer.send(ONE), lambda: producer.submit(ONE)):
                try:
                    call()
                except ClientError as error:
                    errors.append(str(error))

        with consumed(cluster, listener):
            wait_until(lambda: len(errors) == 2, "both errors")
    assert all("would wait for itself" in error for error in errors)


def test_a_decorated_function_is_run_until_another_thread_closes(cluster: FakeCluster) -> None:
    cluster.store(b"0")
    consumer, seen = sync.PushConsumer("g"), threading.Event()

    @consumer.on("T")
    def handle(message: ReceivedMessage) -> None:
        assert message.body == b"0"
        seen.set()

    def close() -> None:
        seen.wait(20)
        consumer.close()

    closer = threading.Thread(target=close)
    closer.start()
    consumer.run(close_timeout=5)
    closer.join()
    assert cluster.offsets["g", QUEUE] == 1


def test_a_pull_consumer_is_polled_and_iterated(cluster: FakeCluster) -> None:
    cluster.store(b"0", b"1", b"2")
    with sync.PullConsumer("g") as consumer:
        assert consumer.queues("T") == (QUEUE,)
        consumer.assign([QUEUE])
        assert consumer.assignment == (QUEUE,)
        assert [m.body for m in consumer.poll(5000, 1)] == [b"0"]
        assert consumer.position(QUEUE) == 1
        for message in consumer:
            assert message.body == b"1"
            break
        consumer.pause([QUEUE])
        consumer.resume([QUEUE])
        consumer.seek(QUEUE, 0)
        assert consumer.seek_to_time(QUEUE, 5) == 0
        assert consumer.range(QUEUE) == (0, 3)
        consumer.commit({QUEUE: 2})
        assert consumer.committed(QUEUE) == 2
    assert list(consumer) == []


def test_clients_left_open_are_closed_at_the_end(cluster: FakeCluster) -> None:
    producer, pull = sync.Producer("p"), sync.PullConsumer("g2")
    push = consumed(cluster, lambda _: None)
    for each in (producer, pull, push):
        each.start()
    client_loop()._at_exit()
    with pytest.raises(ClientError, match="closed"):
        producer.send(ONE)
    with pytest.raises(ClientError, match="closed"):
        pull.poll()
    assert cluster.members["g"] == set()


def test_administration_without_a_loop(cluster: FakeCluster) -> None:
    with sync.Admin() as admin:
        assert list(admin.cluster().groups) == ["a"]
        assert admin.queue_ranges("T") == {QUEUE: (0, 0)}
        admin.set_offset("g", QUEUE, 4)
    assert cluster.offsets["g", QUEUE] == 4
