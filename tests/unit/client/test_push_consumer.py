"""The push consumer: its queues, its life, what it refuses."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, turns

from tandemq.client import push_consumer
from tandemq.client.config import MessageModel
from tandemq.client.listener import Action
from tandemq.client.message import ReceivedMessage
from tandemq.client.push_consumer import PushConsumer
from tandemq.client.subscription import SQL92
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientClosed, ClientError, RemotingError, ReplyError
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

QUEUE, RETRY = QueueRef("T", "a", 0), QueueRef("%RETRY%g", "a", 0)


class Inbox:
    """Remembers what it got; a message in `held` waits for its event."""

    def __init__(self) -> None:
        self.began: list[bytes] = []
        self.done: list[bytes] = []
        self.running = self.most = 0
        self.held: dict[bytes, asyncio.Event] = {}

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        body = messages[0].body
        self.began.append(body)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if body in self.held:
                await self.held[body].wait()
            self.done.append(body)
        finally:
            self.running -= 1


def made(cluster: FakeCluster, listener: Callable[..., Any], *, group: str = "g", **given: Any) -> PushConsumer:
    options = {"rebalance_interval_ms": 100, **given.pop("options", {})}
    consumer = PushConsumer(group, listener, session=cluster.session(**options), **given)
    consumer._owns_session = True
    consumer.subscribe("T")
    return consumer


def committed(cluster: FakeCluster, queue: QueueRef = QUEUE) -> int | None:
    return cluster.offsets.get(("g", queue))


# queues


@on_loop
async def test_messages_are_consumed_and_committed_at_the_end() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox) as consumer:
        await until(lambda: inbox.done == [b"0", b"1"], "both messages")
        await until(lambda: consumer.assignment == (RETRY, QUEUE), "both queues")
        assert set(consumer.states()) == {RETRY, QUEUE}
    assert committed(cluster) == 2
    assert cluster.members["g"] == set()
    assert consumer.assignment == ()


@on_loop
async def test_the_place_of_a_new_group_is_stored_before_its_first_message() -> None:
    from tandemq.client.config import ConsumeFrom

    cluster = FakeCluster()
    cluster.store(b"old")
    async with made(cluster, Inbox(), options={"consume_from": ConsumeFrom.LAST_OFFSET}):
        await until(lambda: committed(cluster) == 1, "the place on the broker")


@on_loop
async def test_a_filter_changed_while_running_counts_from_the_next_pull() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    consumer = made(cluster, inbox)
    consumer.subscribe("T", "A")
    async with consumer:
        await until(lambda: QUEUE in consumer.assignment, "the queue")
        await turns()
        consumer.subscribe("T", "A || B")
        await turns()
        cluster.store(b"b", TAGS="B")
        await until(lambda: inbox.done == [b"b"], "the message of the added tag")


@on_loop
async def test_a_topic_that_is_unsubscribed_is_given_back_with_its_offset() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    cluster.topics["other"] = 1
    cluster.store(b"0")
    consumer = made(cluster, inbox)
    consumer.subscribe("other")
    async with consumer:
        await until(lambda: inbox.done == [b"0"] and len(consumer.assignment) == 3, "all queues")
        await consumer.unsubscribe("T")
        assert consumer.assignment == (RETRY, QueueRef("other", "a", 0))
        assert committed(cluster) == 1


@on_loop
async def test_a_topic_unsubscribed_while_its_queue_is_taken_is_not_begun() -> None:
    cluster = FakeCluster()
    query, consumer = cluster.on[RequestCode.QUERY_CONSUMER_OFFSET], made(cluster, Inbox(), ordered=True)
    cluster.topics["other"] = 1
    consumer.subscribe("other")

    async def meanwhile(address: str, command: Command) -> Any:
        if command.ext["topic"] == "T":
            await consumer.unsubscribe("T")
        return query(address, command)

    cluster.on[RequestCode.QUERY_CONSUMER_OFFSET] = meanwhile
    async with consumer:
        await until(lambda: QueueRef("other", "a", 0) in consumer.assignment, "the other topic")
        assert QUEUE not in consumer.assignment
        assert ("g", QUEUE) not in cluster.locks


@on_loop
async def test_queues_won_while_paused_wait_for_the_resume() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    cluster.store(b"0")
    consumer = made(cluster, inbox)
    consumer.pause()
    async with consumer:
        await until(lambda: QUEUE in consumer.assignment, "the queue")
        await turns(50)
        assert inbox.began == []
        consumer.resume()
        await until(lambda: inbox.done == [b"0"], "the message")


@on_loop
async def test_a_rebalancer_that_fails_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.background.RESTART_S", 0.0)
    cluster = FakeCluster()
    ask = cluster.on[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
    fails = [KeyError("a mistake of our own")]

    def once(address: str, command: Command) -> Any:
        if fails:
            raise fails.pop()
        return ask(address, command)

    cluster.on[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = once
    consumer = made(cluster, Inbox())
    consumer._background = push_consumer.Background("g", restart_s=0.0)
    async with consumer:
        await until(lambda: QUEUE in consumer.assignment, "the queue after the failed round")


# ordered


@on_loop
async def test_an_ordered_queue_is_given_up_only_when_its_call_has_ended() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox, ordered=True) as consumer:
        await until(lambda: inbox.began == [b"0"], "the call")
        cluster.members["g"].add("0-first")  # sorts first and gets every queue
        consumer._rebalance_soon()
        await until(lambda: consumer._held[QUEUE].leaving, "the decision to give it up")
        await turns(50)
        assert cluster.locks["g", QUEUE] == consumer.session.client_id
        inbox.held[b"0"].set()
        await until(lambda: consumer.assignment == (), "nothing left")
        assert ("g", QUEUE) not in cluster.locks
        assert committed(cluster) == 1
        assert inbox.began == [b"0"]


@on_loop
async def test_an_ordered_queue_that_is_won_again_meanwhile_stays() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox, ordered=True) as consumer:
        await until(lambda: inbox.began == [b"0"], "the call")
        cluster.members["g"].add("0-first")
        consumer._rebalance_soon()
        await until(lambda: consumer._held[QUEUE].leaving, "the decision to give it up")
        cluster.members["g"].discard("0-first")
        consumer._rebalance_soon()
        await until(lambda: not consumer._held[QUEUE].leaving, "the decision to keep it")
        inbox.held[b"0"].set()
        await until(lambda: inbox.done == [b"0", b"1"], "the next message")
        assert inbox.most == 1


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_reset_moves_a_queue_and_an_ordered_one_after_its_call(ordered: bool) -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"1"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox, ordered=ordered) as consumer:
        await until(lambda: b"1" in inbox.began, "the second call")
        consumer.move(QUEUE, 0)
        await turns(50)
        if ordered:
            assert inbox.began == [b"0", b"1"]
        inbox.held.pop(b"1").set()
        await until(lambda: inbox.done.count(b"0") == 2 and inbox.done.count(b"1") == 2, "everything again")
        assert inbox.most == 1 or not ordered
        await until(lambda: consumer.committed(QUEUE) == 2, "the offset")


@on_loop
async def test_a_lock_that_another_member_holds_ends_our_claim_and_writes_no_offset() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox, ordered=True) as consumer:
        await until(lambda: inbox.began == [b"0"], "the call")
        cluster.locks["g", QUEUE] = "somebody"
        cluster.offsets["g", QUEUE] = 1
        await consumer._locks.renew(consumer.states(), consumer._lost_lock, consumer._regained_lock)
        inbox.held[b"0"].set()
        await until(lambda: inbox.running == 0, "the end of the call")
        await turns(50)
        assert inbox.began == [b"0"]
        assert committed(cluster) == 1
        assert cluster.locks["g", QUEUE] == "somebody"
        del cluster.locks["g", QUEUE]
        await until(lambda: inbox.done == [b"0", b"1"], "the rest, from the other's offset, once the lock is free")


@on_loop
async def test_without_its_master_an_ordered_queue_waits_for_its_lock() -> None:
    """The master died and forgot its locks: until ours is granted anew, no other call begins."""
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, inbox, ordered=True) as consumer:
        await until(lambda: inbox.began == [b"0"], "the call")

        def away(*_: Any) -> Command:
            raise RemotingError("away")

        granting, cluster.on[RequestCode.LOCK_BATCH_MQ] = cluster.on[RequestCode.LOCK_BATCH_MQ], away
        consumer.session._connection_lost("a:1")
        inbox.held[b"0"].set()
        await until(lambda: inbox.done == [b"0"], "the end of the call")
        await turns(50)
        assert inbox.began == [b"0"]
        cluster.on[RequestCode.LOCK_BATCH_MQ] = granting
        await until(lambda: inbox.done == [b"0", b"1"], "the rest, with the lock")


@on_loop
async def test_a_lock_is_renewed_before_a_member_that_comes_asks_for_it() -> None:
    cluster, first, second = FakeCluster(), Inbox(), Inbox()
    first.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    async with made(cluster, first, ordered=True) as owner:
        await until(lambda: first.began == [b"0"], "the call")
        cluster.locks.clear()  # a new master knows nothing of it
        newcomer = made(cluster, second, ordered=True)
        newcomer.session.client_id = "0-first"  # sorts first and gets every queue
        async with newcomer:
            notice = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
            owner.session._dispatch(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, None, notice)
            await until(lambda: owner._held[QUEUE].leaving, "the decision to give it up")
            assert cluster.locks["g", QUEUE] == owner.session.client_id
            assert second.began == []
            first.held[b"0"].set()
            await until(lambda: second.done == [b"1"], "the rest, at the new owner")
        assert first.began == [b"0"]


# close


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_close_waits_for_calls_begins_no_other_and_commits(ordered: bool) -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    consumer = made(cluster, inbox, ordered=ordered, options={"consume_concurrency": 1})
    await consumer.start()
    await until(lambda: inbox.began == [b"0"], "the call")
    closing = [asyncio.get_running_loop().create_task(consumer.close()) for _ in range(2)]
    await turns(50)
    assert not closing[0].done()
    inbox.held[b"0"].set()
    await asyncio.gather(*closing)
    assert (inbox.began, inbox.running) == ([b"0"], 0)
    assert committed(cluster) == 1
    assert cluster.locks == {}
    with pytest.raises(ClientClosed):
        await consumer.start()


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_close_cancels_what_does_not_end_in_time(ordered: bool) -> None:
    cluster, inbox = FakeCluster(), Inbox()
    inbox.held[b"0"] = asyncio.Event()
    cluster.store(b"0", b"1")
    consumer = made(cluster, inbox, ordered=ordered)
    await consumer.start()
    await until(lambda: inbox.running == 1, "the call")
    await consumer.close(timeout=0.01)
    assert inbox.running == 0
    assert b"0" not in inbox.done
    assert committed(cluster) == 0


@on_loop
async def test_a_plain_function_that_can_not_be_ended_is_said_and_keeps_its_lock(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(push_consumer, "CANCEL_S", 0.01)
    cluster, gate, began = FakeCluster(), threading.Event(), threading.Event()
    cluster.store(b"0", b"1")

    def stuck(messages: list[ReceivedMessage]) -> None:
        began.set()
        gate.wait()

    consumer = made(cluster, stuck, ordered=True)
    await consumer.start()
    await until(began.is_set, "the call")
    with caplog.at_level(logging.ERROR):
        await consumer.close(timeout=0.0)
    gate.set()
    assert any("a plain function still has" in entry.getMessage() for entry in caplog.records)
    assert cluster.locks == {("g", QUEUE): consumer.session.client_id}
    assert committed(cluster) == 0


@on_loop
async def test_close_inside_a_listener_is_refused_at_once() -> None:
    cluster, errors = FakeCluster(), []
    cluster.store(b"0")

    async def listener(messages: list[ReceivedMessage]) -> None:
        try:
            await consumer.close()
        except ClientError as error:
            errors.append(str(error))

    consumer = made(cluster, listener)
    async with consumer:
        await until(lambda: bool(errors), "the error")
    assert "waits for the listeners of group 'g'" in errors[0]
    assert committed(cluster) == 1


@on_loop
async def test_unsubscribe_inside_a_listener_does_not_wait_for_itself() -> None:
    cluster, done = FakeCluster(), []
    cluster.store(b"0")

    async def listener(messages: list[ReceivedMessage]) -> None:
        await consumer.unsubscribe("T")
        done.append(1)

    consumer = made(cluster, listener, ordered=True)
    async with consumer:
        await until(lambda: done == [1] and QUEUE not in consumer.assignment, "the queue given back")
        assert committed(cluster) == 1


# start


@on_loop
async def test_what_can_not_be_started_is_named() -> None:
    cluster = FakeCluster()
    for listener, words in ((None, "listener=None"), ("f", "listener='f'"), (lambda: None, "one argument")):
        with pytest.raises(ClientError, match=words):
            PushConsumer("g", listener, session=cluster.session())  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="model='BROADCASTING'"):
        PushConsumer("g", Inbox(), session=cluster.session(), model="BROADCASTING")  # type: ignore[arg-type]
    consumer = PushConsumer("g", Inbox(), session=cluster.session())
    with pytest.raises(ClientError, match="subscribes to nothing"):
        await consumer.start()
    decorated = PushConsumer("g", session=cluster.session())
    decorated.subscribe("T")
    with pytest.raises(ClientError, match="nothing handles topic 'T'"):
        await decorated.start()


@on_loop
async def test_a_start_that_failed_leaves_nothing_behind_and_may_be_repeated() -> None:
    cluster, inbox = FakeCluster(), Inbox()
    cluster.store(b"0", a="7")
    cluster.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda *_: Command(ResponseCode.SYSTEM_ERROR, remark="SQL is off")
    consumer = made(cluster, inbox)
    consumer.subscribe("T", "a > 5", SQL92)
    for _ in range(2):
        with pytest.raises(ReplyError, match="SQL is off"):
            await consumer.start()
    assert not [task for task in asyncio.all_tasks() if "group g" in task.get_name()]
    assert consumer.session.on_routes_changed == []
    cluster.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda *_: Command(0)
    await consumer.start()
    with pytest.raises(ClientError, match="started already"):
        await consumer.start()
    await until(lambda: inbox.done == [b"0"], "the message")
    await consumer.close()


@on_loop
async def test_broadcasting_members_need_names_of_their_own(tmp_path: Path) -> None:
    cluster = FakeCluster()
    options = {"offset_dir": str(tmp_path), "instance_name": "one"}
    async with made(cluster, Inbox(), model=MessageModel.BROADCASTING, options=options) as first:
        assert first.topics() == ("T",)
        second = made(cluster, Inbox(), model=MessageModel.BROADCASTING, options=options)
        with pytest.raises(ClientError, match="instanceName"):
            await second.start()
        await second.close()


@on_loop
async def test_a_disk_that_refuses_does_not_end_the_saving_of_broadcast_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tandemq.client.offsets import LocalOffsets

    cluster, inbox, save, refused = FakeCluster(), Inbox(), LocalOffsets._save, []

    def flaky(self: LocalOffsets, data: bytes) -> None:
        if not refused:
            refused.append(1)
            raise OSError(28, "No space left on device")
        save(self, data)

    monkeypatch.setattr(LocalOffsets, "_save", flaky)
    cluster.store(b"0")
    options = {"offset_dir": str(tmp_path), "persist_interval_ms": 50}
    async with made(cluster, inbox, model=MessageModel.BROADCASTING, options=options):
        await until(lambda: any(tmp_path.rglob("offsets.json")), "the file, written at the second try")
    assert refused == [1]


# other ways to run


@on_loop
async def test_functions_are_given_by_decorator_one_for_each_topic() -> None:
    cluster, seen = FakeCluster(), []
    cluster.topics["other"] = 1
    consumer = PushConsumer("g", session=cluster.session(consume_batch_size=8))

    @consumer.on("T", "A || B")
    async def handle(message: ReceivedMessage) -> None:
        seen.append(("T", message.body))

    @consumer.on("other", batch=True)
    def count(messages: list[ReceivedMessage]) -> Action:
        seen.append(("other", b"%d" % len(messages)))
        return Action.SUCCESS

    cluster.store(b"0", b"1", TAGS="A")
    cluster.store(b"2", b"3", queue=QueueRef("other", "a", 0))
    async with consumer:
        await until(lambda: len(seen) == 3, "all messages")
    assert sorted(seen) == [("T", b"0"), ("T", b"1"), ("other", b"2")]
    with pytest.raises(ClientError, match="one argument"):
        consumer.on("T")(lambda: None)


@on_loop
async def test_a_second_function_does_not_silently_take_a_topic_from_the_first() -> None:
    """`on("T", "A")` and `on("T", "B")`: a topic has one filter, so the first would never be called again."""
    consumer = PushConsumer("g", session=FakeCluster().session())
    first = consumer.on("T", "A")(lambda message: None)
    with pytest.raises(ClientError, match=r"'T' is handled by .*lambda.* already"):
        consumer.on("T", "B")(lambda message: None)
    consumer.on("T", "A || B")(first)
    await consumer.unsubscribe("T")
    consumer.on("T", "B")(lambda message: None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@on_loop
async def test_run_drains_at_a_signal(number: signal.Signals) -> None:
    cluster, inbox = FakeCluster(), Inbox()
    cluster.store(b"0")
    consumer = made(cluster, inbox)
    running = asyncio.get_running_loop().create_task(consumer.run(close_timeout=5))
    await until(lambda: inbox.done == [b"0"], "the message")
    signal.raise_signal(number)
    await running
    assert committed(cluster) == 1


@on_loop
async def test_run_ends_when_somebody_closes() -> None:
    consumer = made(FakeCluster(), Inbox())
    running = asyncio.get_running_loop().create_task(consumer.run())
    await until(lambda: QUEUE in consumer.assignment, "the queue")
    await consumer.close()
    await running


@on_loop
async def test_a_message_is_shown_to_the_listener_outside_of_all_queues() -> None:
    cluster = FakeCluster()
    cluster.store(b"0")
    async with made(cluster, lambda messages: Action.LATER) as consumer:
        await until(lambda: bool(cluster.sent_back), "the message given back")
        from tandemq.client.message import decode_messages

        (message,) = decode_messages(cluster.records[QUEUE][0], "a")
        assert await consumer.try_now(message) is Action.LATER
