"""The attempts of a send."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, turns

from tandemq.client.encode import Outgoing
from tandemq.client.message import SendResult
from tandemq.client.message_sender import MessageSender, send_once, vip_address
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ConnectionLost, RequestTimeout, SendFailed
from tandemq.model.topic import QueueRef

ITEM = Outgoing("T", b"x", "UNIQ_KEY\x01ID\x02", 0, 0, "ID")
TWO = {"a": {0: "a:1"}, "b": {0: "b:1"}}


class Scene:
    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self.cluster = cluster
        self.session = cluster.session(**options)
        self.sender = MessageSender(self.session, "p")

    async def send(self, fixed: QueueRef | None = None, *, submitted: bool = False) -> SendResult:
        queues = await self.session.publish_queues("T")
        deadline = self.sender.deadline()
        if not submitted:
            return await self.sender.send(ITEM, queues, fixed, deadline)
        await self.sender.room.enter(1)
        return await (await self.sender.submit(ITEM, queues, fixed, deadline, 1))


def refusing(cluster: FakeCluster, code: int, *addresses: str) -> None:
    send = cluster.on[RequestCode.SEND_MESSAGE_V2]
    cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda address, command: (
        Command(code, remark="said no") if address in addresses else send(address, command)
    )


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_another_broker_takes_what_one_refuses(submitted: bool) -> None:
    scene = Scene(FakeCluster(brokers=TWO))
    refusing(scene.cluster, ResponseCode.SYSTEM_BUSY, "a:1")
    for _ in range(2):
        assert (await scene.send(submitted=submitted)).queue.broker_name == "b"


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_a_result_tells_of_the_attempts_before_it(submitted: bool) -> None:
    """Whoever gets a message twice can tell why: the first attempt may have stored it."""
    scene = Scene(FakeCluster(brokers=TWO))
    send, lost = scene.cluster.on[RequestCode.SEND_MESSAGE_V2], iter([True])

    def answered(address: str, command: Command) -> Any:
        if next(lost, False):
            raise ConnectionLost(f"{address}: closed")
        return send(address, command)

    scene.cluster.on[RequestCode.SEND_MESSAGE_V2] = answered
    (attempt,) = (await scene.send(submitted=submitted)).attempts
    assert attempt.may_be_stored
    assert "closed" in attempt.error
    assert (await scene.send(submitted=submitted)).attempts == ()


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_an_error_tells_of_every_attempt(submitted: bool) -> None:
    scene = Scene(FakeCluster(brokers=TWO), retry_times=2)
    refusing(scene.cluster, ResponseCode.SYSTEM_BUSY, "a:1", "b:1")
    with pytest.raises(SendFailed) as failure:
        await scene.send(submitted=submitted)
    assert len(failure.value.attempts) == 3
    assert {attempt.address for attempt in failure.value.attempts} == {"a:1", "b:1"}
    assert (failure.value.code, failure.value.topic) == (ResponseCode.SYSTEM_BUSY, "T")
    assert scene.sender.room.count == 0


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_a_refusal_that_is_final_is_told_at_once(submitted: bool) -> None:
    scene = Scene(FakeCluster(brokers=TWO))
    refusing(scene.cluster, ResponseCode.MESSAGE_ILLEGAL, "a:1", "b:1")
    with pytest.raises(SendFailed, match="1 attempt"):
        await scene.send(submitted=submitted)


@pytest.mark.parametrize("how", ["dead", "slave"])
@pytest.mark.parametrize("fixed", [None, QueueRef("T", "a", 0)])
@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_a_master_that_moves_is_followed(how: str, fixed: QueueRef | None, submitted: bool) -> None:
    """The name servers learn of it a little later: more attempts than retries, none of them stored."""
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    scene = Scene(cluster, retry_times=1)
    await scene.session.route("T")
    if how == "dead":
        cluster.dead.add("old:1")
    refusing(cluster, ResponseCode.SERVICE_NOT_AVAILABLE, "old:1")
    route, asked = cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC], 0

    def learns_late(address: str, command: Command) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            cluster.brokers["a"] = {0: "new:1"}
        return route(address, command)

    cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = learns_late
    assert (await scene.send(fixed, submitted=submitted)).ok
    assert [address for address, _, _ in cluster.sent] == ["new:1"]


@on_loop
async def test_after_a_silence_the_next_send_goes_to_whoever_reigns_by_then() -> None:
    """A hung master is replaced while a send waits for it: the one after that does not wait for it again."""
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    scene = Scene(cluster, send_timeout_ms=60)
    await scene.session.route("T")
    cluster.hung.add("old:1")
    with pytest.raises(SendFailed):
        await scene.send()
    cluster.brokers["a"] = {0: "new:1"}
    assert (await scene.send()).ok
    asked = len(cluster.requests)
    assert (await scene.send()).ok
    assert len(cluster.requests) == asked + 1  # it answers: nobody asks for routes any more
    assert [address for address, _, _ in cluster.sent] == ["new:1", "new:1"]


@on_loop
async def test_without_retries_there_is_one_attempt() -> None:
    scene = Scene(FakeCluster(), retry_times=0)
    await scene.session.route("T")
    scene.cluster.dead.add("a:1")
    with pytest.raises(SendFailed, match="1 attempt"):
        await scene.send()


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_the_deadline_ends_the_attempts(submitted: bool) -> None:
    scene = Scene(FakeCluster(), send_timeout_ms=60)
    await scene.session.route("T")
    scene.cluster.dead.add("a:1")
    with pytest.raises(SendFailed):
        await scene.send(submitted=submitted)
    scene.cluster.dead.clear()
    scene.cluster.hung.add("a:1")
    with pytest.raises(SendFailed, match="no answer"):
        await scene.send(submitted=submitted)


@pytest.mark.parametrize("submitted", [False, True])
@on_loop
async def test_a_fixed_queue_is_not_tried_again_when_the_message_may_be_stored(submitted: bool) -> None:
    scene = Scene(FakeCluster())

    def lost(*_: Any) -> Command:
        raise ConnectionLost("a:1: closed")

    scene.cluster.on[RequestCode.SEND_MESSAGE_V2] = lost
    with pytest.raises(SendFailed, match="1 attempt"):
        await scene.send(QueueRef("T", "a", 0), submitted=submitted)


@on_loop
async def test_a_missing_promise_is_an_error_for_those_who_ask_for_it() -> None:
    for strict in (False, True):
        scene = Scene(FakeCluster(), retry_not_stored_ok=strict, retry_times=0)
        refusing(scene.cluster, ResponseCode.FLUSH_SLAVE_TIMEOUT, "a:1")
        if strict:
            with pytest.raises(SendFailed, match="said no"):
                await scene.send(submitted=True)
        else:
            assert not (await scene.send(submitted=True)).ok


@on_loop
async def test_slow_brokers_are_avoided_if_so_configured() -> None:
    scene = Scene(FakeCluster(brokers=TWO), latency_fault=True, send_timeout_ms=100)
    await scene.session.route("T")
    scene.cluster.dead.add("a:1")
    for _ in range(3):
        assert (await scene.send()).queue.broker_name == "b"
    tries = [address for address, code in scene.cluster.requests if code == RequestCode.SEND_MESSAGE_V2]
    assert tries.count("a:1") <= 1


@on_loop
async def test_a_oneway_send_has_a_deadline() -> None:
    scene = Scene(FakeCluster(), send_timeout_ms=20)
    queues = await scene.session.publish_queues("T")
    await scene.sender.send_oneway(ITEM, queues, None, scene.sender.deadline())
    assert scene.cluster.sent == [("a:1", "T", b"x")]
    scene.cluster.hung.add("a:1")
    with pytest.raises(RequestTimeout, match="takes no data"):
        await scene.sender.send_oneway(ITEM, queues, None, scene.sender.deadline())


@on_loop
async def test_a_caller_that_gives_up_on_a_submitted_message_leaves_the_room_at_its_end() -> None:
    scene = Scene(FakeCluster())
    gate = asyncio.Event()
    send = scene.cluster.on[RequestCode.SEND_MESSAGE_V2]

    async def slow(address: str, command: Command) -> Any:
        await gate.wait()
        return send(address, command)

    scene.cluster.on[RequestCode.SEND_MESSAGE_V2] = slow
    task = asyncio.get_running_loop().create_task(scene.send(submitted=True))
    await turns()
    task.cancel()
    await turns()
    assert scene.sender.room.count == 1
    gate.set()
    await scene.sender.room.empty()


@on_loop
async def test_the_vip_channel_is_two_ports_below() -> None:
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"


@on_loop
async def test_a_consumer_s_own_message_gets_one_attempt() -> None:
    cluster = FakeCluster()
    assert (await send_once(cluster.session(), "inner", ITEM)).ok
    refusing(cluster, ResponseCode.SYSTEM_BUSY, "a:1")
    with pytest.raises(Exception, match="said no"):
        await send_once(cluster.session(), "inner", ITEM)


@on_loop
async def test_a_consumer_s_own_message_follows_a_master_that_moved() -> None:
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    session = cluster.session()
    await session.route("T")
    refusing(cluster, ResponseCode.SERVICE_NOT_AVAILABLE, "old:1")
    cluster.brokers["a"] = {0: "new:1"}
    assert (await send_once(session, "inner", ITEM)).ok
    assert [address for address, _, _ in cluster.sent] == ["new:1"]
