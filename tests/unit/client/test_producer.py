"""The producer: what it refuses, how it bounds what is in flight, what close does."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import NAMESRV, FakeCluster, on_loop, turns

from tandemq.client.producer import Producer
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import (
    ClientClosed,
    ClientError,
    InvalidMessage,
    NoRoute,
    RequestTimeout,
    SendFailed,
    TandemError,
)
from tandemq.model.message import Message, decode_properties
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

ONE = Message(topic="T", body=b"x")


def gated(cluster: FakeCluster) -> tuple[asyncio.Event, list[int]]:
    """Holds sends back; gives the event that lets them go and the numbers of sends that waited at once."""
    gate, waiting, peaks = asyncio.Event(), 0, [0]
    send = cluster.on[RequestCode.SEND_MESSAGE_V2]

    async def slow(address: str, command: Command) -> Any:
        nonlocal waiting
        waiting += 1
        peaks.append(waiting)
        await gate.wait()
        waiting -= 1
        return send(address, command)

    cluster.on[RequestCode.SEND_MESSAGE_V2] = slow
    return gate, peaks


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue": QueueRef("other", "a", 0)}, "is of topic 'other'"),
        ({"queue": 3}, "queue=3"),
        ({"sharding_key": 5}, "sharding_key=5"),
        ({"copies": 0}, "copies=0"),
        ({"timeout_ms": "300"}, "timeout_ms='300'"),
        ({"timeout_ms": 0}, "timeout_ms=0"),
        ({"select": "first"}, "select='first'"),
        ({"select": lambda q, m: q[0], "sharding_key": "k"}, "give one of them"),
        ({"select": lambda q, m: QueueRef("T", "z", 9)}, "select returned"),
    ],
    ids=lambda value: str(value)[:30],
)
@on_loop
async def test_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], words: str) -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session()) as producer:
        with pytest.raises(ClientError, match=words):
            await producer.send(ONE, **arguments)
    assert cluster.sent == []


@on_loop
async def test_every_way_of_sending_checks_the_message() -> None:
    async with Producer("p", session=FakeCluster().session()) as producer:
        bad: Any = Message(topic="T", body="text")  # type: ignore[arg-type]
        for attempt in (producer.send, producer.submit, producer.send_oneway, producer.request):
            with pytest.raises(InvalidMessage, match="body='text'"):
                await attempt(bad)
        for batch in ([bad], [], bad, 5):
            with pytest.raises(InvalidMessage):
                await producer.send_batch(batch)


@on_loop
async def test_a_wrong_group_is_refused() -> None:
    with pytest.raises(ClientError, match="group"):
        Producer("a b")
    with pytest.raises(ClientError, match="group=None"):
        Producer(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["send", "submit", "batch"])
@on_loop
async def test_at_most_so_many_are_in_flight(how: str) -> None:
    cluster = FakeCluster()
    gate, peaks = gated(cluster)
    cluster.on[RequestCode.SEND_BATCH_MESSAGE] = cluster.on[RequestCode.SEND_MESSAGE_V2]

    async def one(producer: Producer) -> Any:
        if how == "send":
            return await producer.send(ONE)
        if how == "submit":
            return await (await producer.submit(ONE))
        return (await producer.send_batch([ONE]))[0]

    async with Producer("p", session=cluster.session(in_flight_max=10)) as producer:
        tasks = [asyncio.get_running_loop().create_task(one(producer)) for _ in range(200)]
        await until(lambda: max(peaks) == 10, "a full room")
        await turns()
        gate.set()
        results = await asyncio.gather(*tasks)
    assert max(peaks) == 10
    assert all(result.ok for result in results)
    assert len(cluster.sent) == 200


@on_loop
async def test_bytes_in_flight_are_bounded() -> None:
    cluster = FakeCluster()
    gate, peaks = gated(cluster)
    large = Message(topic="T", body=bytes(1000))
    async with Producer("p", session=cluster.session(in_flight_bytes_max=3500, compress_over=1 << 20)) as producer:
        tasks = [asyncio.get_running_loop().create_task(producer.send(large)) for _ in range(20)]
        await until(lambda: max(peaks) == 3, "three of them")
        await turns()
        gate.set()
        await asyncio.gather(*tasks)
    assert max(peaks) == 3


@on_loop
async def test_a_oneway_send_takes_room_until_it_is_written() -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session(in_flight_max=4)) as producer:
        await asyncio.gather(*(producer.send_oneway(ONE) for _ in range(50)))
        assert producer._sender.room.count == 0
    assert len(cluster.sent) == 50


@on_loop
async def test_waiting_for_room_does_not_use_up_the_deadline() -> None:
    cluster = FakeCluster()
    gate, _ = gated(cluster)
    async with Producer("p", session=cluster.session(in_flight_max=1, send_timeout_ms=60_000)) as producer:
        first = asyncio.get_running_loop().create_task(producer.send(ONE))
        await until(lambda: producer._sender.room.count == 1, "the first in flight")
        second = asyncio.get_running_loop().create_task(producer.send(ONE, timeout_ms=200))
        done, _ = await asyncio.wait([second], timeout=0.25)
        assert not done
        gate.set()
        assert (await first).ok
        assert (await second).ok


@on_loop
async def test_the_deadline_covers_the_route() -> None:
    cluster = FakeCluster()
    cluster.hung.add(NAMESRV)
    async with Producer("p", session=cluster.session()) as producer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for attempt in (producer.send(ONE, timeout_ms=30), producer.send_batch([ONE], timeout_ms=30)):
            with pytest.raises(RequestTimeout, match="no route of 'T' before the deadline"):
                await attempt
        assert loop.time() - started < producer.config.api_timeout_ms / 1000


@on_loop
async def test_an_unknown_topic_is_told_at_once_and_a_known_one_waited_for() -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session()) as producer:
        with pytest.raises(NoRoute, match="topic create other"):
            await producer.send(Message(topic="other", body=b"x"))
        await producer.send(ONE)
        cluster.brokers["a"] = {1: "slave:1"}
        await producer.session.route("T", refresh=True)
        waiting = asyncio.get_running_loop().create_task(producer.send(ONE))
        await turns()
        assert not waiting.done()
        cluster.brokers["a"] = {0: "slave:1"}
        assert (await waiting).ok
        cluster.brokers["a"] = {1: "slave:1"}
        await producer.session.route("T", refresh=True)
        with pytest.raises((NoRoute, SendFailed)):
            await producer.send(ONE, timeout_ms=40)


# close


@on_loop
async def test_close_waits_for_what_is_in_flight_and_refuses_the_rest() -> None:
    cluster = FakeCluster()
    gate, _ = gated(cluster)
    producer = Producer("p", session=cluster.session(in_flight_max=1))
    await producer.start()
    sends = [asyncio.get_running_loop().create_task(producer.send(ONE)) for _ in range(3)]
    await until(lambda: producer._sender.room.waiting == 2, "two that wait for room")
    closing = asyncio.get_running_loop().create_task(producer.close())
    await turns()
    assert not closing.done()
    gate.set()
    await closing
    assert sends[0].result().ok
    for send in sends[1:]:
        with pytest.raises(ClientClosed, match="'p' was closed"):
            send.result()
    with pytest.raises(ClientClosed):
        await producer.send(ONE)
    with pytest.raises(ClientClosed):
        await producer.start()


@on_loop
async def test_close_with_a_timeout_ends_and_a_pending_send_gets_an_error_of_ours() -> None:
    cluster = FakeCluster()
    cluster.hung.add(NAMESRV)
    session = cluster.session()
    producer = Producer("p", session=session)
    producer._owns_session = True
    await producer.start()
    pending = asyncio.get_running_loop().create_task(producer.send(ONE))
    await turns()
    await producer.close(timeout=0.01)
    with pytest.raises(ClientClosed):
        await pending
    with pytest.raises(ClientError, match="timeout='x'"):
        await producer.close("x")  # type: ignore[arg-type]


# what travels


@on_loop
async def test_keys_and_copies_travel_as_properties() -> None:
    cluster = FakeCluster(queues=4)
    async with Producer("p", session=cluster.session()) as producer:
        results = [await producer.send(ONE, sharding_key="order-1", copies="2:durable") for _ in range(3)]
        chosen = await producer.send(ONE, select=lambda queues, message: queues[2])
        fixed = await producer.send(ONE, queue=QueueRef("T", "a", 3))
    assert len({result.queue for result in results}) == 1
    assert (chosen.queue.queue_id, fixed.queue.queue_id) == (2, 3)
    command = next(c for c in cluster.commands if c.code == RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(command.ext["i"].encode())
    assert (properties["__SHARDINGKEY"], properties["__TQ_COPIES"]) == ("order-1", "2:durable")
    assert len(properties["UNIQ_KEY"]) == 32


@on_loop
async def test_a_long_list_is_sent_in_parts_with_a_result_for_each_message() -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session(batch_count_max=3)) as producer:
        results = await producer.send_batch([Message(topic="T", body=b"%d" % i) for i in range(8)], copies=2)
        await producer.flush()
    assert len(results) == len({result.message_id for result in results}) == 8
    assert cluster.count(RequestCode.SEND_BATCH_MESSAGE) == 3


@on_loop
async def test_a_first_send_to_a_topic_is_followed_by_a_heartbeat() -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session()) as producer:
        assert producer.topics() == ()
        await producer.send(ONE)
        assert producer.topics() == ("T",)
        assert producer.consumer_info() is None
        assert producer.session._heartbeat_wanted.is_set()


@pytest.mark.parametrize("how", ["refused", "slave"])
@pytest.mark.parametrize("oneway", [False, True])
@on_loop
async def test_a_producer_without_retries_finds_a_new_master_for_its_next_send(how: str, oneway: bool) -> None:
    """The send that meets the old master fails, as asked for; the route is asked for at once all the same."""
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    async with Producer("p", session=cluster.session(retry_times=0, route_interval_ms=600_000)) as producer:
        send = producer.send_oneway if oneway and how == "refused" else producer.send
        await send(ONE)
        cluster.brokers["a"] = {0: "new:1"}
        if how == "refused":
            cluster.dead.add("old:1")
        else:
            taken = cluster.on[RequestCode.SEND_MESSAGE_V2]
            cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda address, command: (
                Command(ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")
                if address == "old:1"
                else taken(address, command)
            )
        with pytest.raises(TandemError):
            await send(ONE)
        await until(lambda: producer.session.routes.master("a") == "new:1", "the new route", seconds=10)
        await send(ONE)
    assert [address for address, _, _ in cluster.sent] == ["old:1", "new:1"]
