"""The pull consumer: what it gives, what counts as handled, what it refuses."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, turns

from tandemq.client.config import ConsumeFrom
from tandemq.client.pull_consumer import PullConsumer
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientClosed, ClientError
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

QUEUE, OTHER = QueueRef("T", "a", 0), QueueRef("T", "a", 1)


def made(cluster: FakeCluster, *, auto_commit: bool = True, **options: Any) -> PullConsumer:
    session = cluster.session(**{"rebalance_interval_ms": 100, "persist_interval_ms": 50, **options})
    return PullConsumer("g", session=session, auto_commit=auto_commit)


def committed(cluster: FakeCluster, queue: QueueRef = QUEUE) -> int | None:
    return cluster.offsets.get(("g", queue))


async def polled(consumer: PullConsumer, count: int = 32) -> list[bytes]:
    return [message.body for message in await consumer.poll(5000, count)]


@on_loop
async def test_a_message_counts_as_handled_when_the_next_is_asked_for() -> None:
    cluster = FakeCluster()
    cluster.store(b"0", b"1", b"2")
    async with made(cluster) as consumer:
        consumer.subscribe("T")
        assert await polled(consumer, 2) == [b"0", b"1"]
        written = cluster.count(RequestCode.UPDATE_CONSUMER_OFFSET)
        await consumer._persist(consumer.assignment)
        assert committed(cluster) == 0
        assert await polled(consumer, 2) == [b"2"]
        await until(lambda: committed(cluster) == 2, "what was given before, committed")
        assert cluster.count(RequestCode.UPDATE_CONSUMER_OFFSET) > written
    assert committed(cluster) == 3


@on_loop
async def test_an_exception_makes_the_last_messages_come_again() -> None:
    cluster = FakeCluster()
    cluster.store(b"0", b"1")

    async def handling_fails() -> None:
        async with made(cluster) as consumer:
            consumer.subscribe("T")
            assert await polled(consumer, 1) == [b"0"]
            assert await polled(consumer, 1) == [b"1"]
            raise ValueError("the handling failed")

    with pytest.raises(ValueError, match="the handling failed"):
        await handling_fails()
    assert committed(cluster) == 1


@on_loop
async def test_messages_come_one_after_the_other_in_a_loop() -> None:
    cluster = FakeCluster()
    cluster.store(b"0", b"1", b"2")
    seen = []
    async with made(cluster) as consumer:
        consumer.subscribe("T")
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 2:
                break
    assert seen == [b"0", b"1"]
    assert committed(cluster) == 2


@on_loop
async def test_a_loop_ends_when_the_consumer_is_closed() -> None:
    cluster = FakeCluster()
    cluster.store(b"0")
    consumer = made(cluster)
    consumer.subscribe("T")
    await consumer.start()
    seen = []

    async def loop() -> None:
        async for message in consumer:
            seen.append(message.body)

    task = asyncio.get_running_loop().create_task(loop())
    await until(lambda: seen == [b"0"], "the message")
    await turns()
    await consumer.close()
    await consumer.close()
    await task
    with pytest.raises(ClientClosed):
        await consumer.poll()
    with pytest.raises(ClientClosed):
        await consumer.start()


@on_loop
async def test_without_auto_commit_only_commit_counts() -> None:
    cluster = FakeCluster(queues=2)
    cluster.store(b"0", b"1")
    async with made(cluster, auto_commit=False) as consumer:
        await consumer.assign([QUEUE, OTHER])
        assert await polled(consumer, 2) == [b"0", b"1"]
        assert await consumer.poll(1) == []
        assert committed(cluster) is None
        await consumer.commit()
        assert (committed(cluster), await consumer.committed(QUEUE)) == (2, 2)
        await consumer.commit({OTHER: 7})
        assert committed(cluster, OTHER) == 7
        assert await polled_again(consumer) == []
    assert committed(cluster) == 2


async def polled_again(consumer: PullConsumer) -> list[bytes]:
    return [message.body for message in await consumer.poll(1)]


@on_loop
async def test_the_place_of_a_new_group_is_stored_also_without_auto_commit() -> None:
    cluster = FakeCluster()
    cluster.store(b"old")
    consumer = made(cluster, auto_commit=False, consume_from=ConsumeFrom.LAST_OFFSET)
    consumer.subscribe("T")
    async with consumer:
        await until(lambda: committed(cluster) == 1, "the place on the broker")


@on_loop
async def test_a_topic_subscribed_while_running_is_polled() -> None:
    cluster = FakeCluster()
    cluster.store(b"0")
    async with made(cluster) as consumer:
        with pytest.raises(ClientError, match="nothing to wait for"):
            await consumer.poll(10)
        consumer.subscribe("T")
        assert await polled(consumer) == [b"0"]


@on_loop
async def test_queues_take_turns_and_a_paused_one_waits() -> None:
    cluster = FakeCluster(queues=2)
    cluster.store(b"a", b"b")
    cluster.store(b"c", queue=OTHER)
    async with made(cluster) as consumer:
        await consumer.assign([QUEUE, OTHER])
        await until(lambda: all(consumer._held[q].waiting for q in (QUEUE, OTHER)), "both fetched")
        assert {*await polled(consumer, 1), *await polled(consumer, 1)} == {b"a", b"c"}
        consumer.pause([QUEUE])
        assert await consumer.poll(1) == []
        consumer.resume([QUEUE])
        assert await polled(consumer) == [b"b"]


@on_loop
async def test_positions_are_moved() -> None:
    cluster = FakeCluster()
    cluster.store(*(b"%d" % i for i in range(5)))
    cluster.on[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda *_: Command(0, {"offset": "3"})
    async with made(cluster) as consumer:
        assert await consumer.queues("T") == (QUEUE,)
        await consumer.assign([QUEUE])
        assert await consumer.range(QUEUE) == (0, 5)
        consumer.seek(QUEUE, 4)
        assert await polled(consumer) == [b"4"]
        assert consumer.position(QUEUE) == consumer.examined(QUEUE) == 5
        assert await consumer.seek_to_time(QUEUE, 1000) == 3
        assert await polled(consumer, 1) == [b"3"]
        await consumer.seek_to_begin(QUEUE)
        assert await polled(consumer, 1) == [b"0"]
        await consumer.seek_to_end(QUEUE)
        assert consumer.position(QUEUE) == 5
        for wrong in (-1, "3", True):
            with pytest.raises(ClientError, match="offset="):
                consumer.seek(QUEUE, wrong)  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="not assigned"):
            consumer.position(OTHER)


@on_loop
async def test_what_makes_no_sense_is_refused() -> None:
    cluster = FakeCluster()
    consumer = made(cluster)
    with pytest.raises(ClientError, match="not started"):
        await consumer.poll()
    with pytest.raises(ClientError, match="not started"):
        await consumer.assign([QUEUE])
    async with consumer:
        with pytest.raises(ClientError, match="started already"):
            await consumer.start()
        await consumer.assign([QUEUE])
        with pytest.raises(ClientError, match="don't mix"):
            consumer.subscribe("T")
        for arguments, words in (((0,), "timeout_ms=0"), ((1, 0), "count_max=0"), ((1, "x"), "count_max='x'")):
            with pytest.raises(ClientError, match=words):
                await consumer.poll(*arguments)
    async with made(cluster) as subscribed:
        subscribed.subscribe("T")
        with pytest.raises(ClientError, match="don't mix"):
            await subscribed.assign([QUEUE])


@on_loop
async def test_a_start_that_failed_may_be_repeated() -> None:
    cluster = FakeCluster()
    cluster.store(b"0")
    consumer = made(cluster)
    consumer.subscribe("T", "a > 5", "SQL92")
    cluster.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda *_: Command(1, remark="SQL is off")
    with pytest.raises(Exception, match="SQL is off"):
        await consumer.start()
    consumer.subscribe("T")
    async with consumer:
        assert await polled(consumer) == [b"0"]


@on_loop
async def test_a_queue_that_is_lost_is_given_up_with_what_was_handled() -> None:
    cluster = FakeCluster()
    cluster.store(b"0", b"1")
    consumer = made(cluster)
    consumer.subscribe("T")
    async with consumer:
        assert await polled(consumer, 1) == [b"0"]
        assert await polled(consumer, 1) == [b"1"]
        cluster.members["g"].add("0-first")
        consumer._share_queues().soon()
        await until(lambda: consumer.assignment == () and committed(cluster) == 1, "the queue given up")
