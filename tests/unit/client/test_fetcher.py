"""The pull loop of one queue."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, pull_answer, record, turns

from tandemq.client.fetcher import QueueFetcher
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import RemoteOffsets
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.subscription import TAG, subscription
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

QUEUE = QueueRef("T", "a", 0)


class Scene:
    def __init__(self, cluster: FakeCluster, expression: str = "*", **options: Any) -> None:
        self.cluster = cluster
        self.session = cluster.session(**{"pull_error_delay_ms": 1, **options})
        self.state = ProcessQueue()
        self.offsets = RemoteOffsets(self.session, "g")
        self.expression = expression
        self.got: list[ReceivedMessage] = []
        self.moved: list[int] = []
        self.fetcher = QueueFetcher(
            self.session,
            "g",
            QUEUE,
            self.state,
            lambda: subscription("T", self.expression, TAG, 1),
            offsets=self.offsets,
            deliver=self.got.extend,
            moved=self._move,
        )

    def _move(self, to: int) -> None:
        self.moved.append(to)
        self.state.drop()

    async def __aenter__(self) -> "Scene":
        await self.session.route("T")
        self.task = asyncio.get_running_loop().create_task(self.fetcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]


@on_loop
async def test_messages_are_cached_and_handed_over_in_order() -> None:
    cluster = FakeCluster()
    cluster.store(b"0", b"1")
    async with Scene(cluster, pull_batch_size=1) as scene:
        await until(lambda: scene.bodies == [b"0", b"1"], "both messages")
        cluster.store(b"2")
        await until(lambda: scene.bodies == [b"0", b"1", b"2"], "the one that came while the pull waited")
        assert (scene.state.count, scene.state.next_offset) == (3, 3)


@on_loop
async def test_a_pull_that_finds_nothing_stores_the_place() -> None:
    """A group that starts at the end must not lose its place before its first message."""
    cluster = FakeCluster()
    cluster.on[RequestCode.PULL_MESSAGE] = lambda _, c: pull_answer(ResponseCode.PULL_NOT_FOUND, 5)
    scene = Scene(cluster)
    scene.state.next_offset = 5
    async with scene:
        await until(lambda: scene.offsets.current(QUEUE) == 5, "the place")
        assert QUEUE in scene.offsets.dirty


@on_loop
async def test_while_messages_are_cached_an_empty_pull_moves_no_offset() -> None:
    cluster = FakeCluster()
    answers = [pull_answer(0, 1, record(b"0", 0))]
    cluster.on[RequestCode.PULL_MESSAGE] = lambda *_: (
        answers.pop() if answers else pull_answer(ResponseCode.PULL_NOT_FOUND, 9)
    )
    async with Scene(cluster) as scene:
        await until(lambda: scene.state.next_offset == 9, "the empty answer")
        assert scene.offsets.current(QUEUE) is None


@on_loop
async def test_tags_are_compared_themselves_and_what_does_not_match_is_consumed() -> None:
    cluster = FakeCluster()
    cluster.store(b"b", TAGS="B")
    async with Scene(cluster, "A") as scene:
        await until(lambda: scene.offsets.current(QUEUE) == 1, "the offset past the other tag")
        cluster.store(b"a", TAGS="A")
        await until(lambda: scene.bodies == [b"a"], "the wanted tag")


@on_loop
async def test_the_subscription_is_asked_before_each_pull() -> None:
    cluster = FakeCluster()
    async with Scene(cluster, "A", pull_suspend_ms=0) as scene:
        await until(lambda: cluster.count(RequestCode.PULL_MESSAGE) > 1, "a pull")
        scene.expression = "A || B"
        asked = cluster.count(RequestCode.PULL_MESSAGE)
        await until(lambda: cluster.count(RequestCode.PULL_MESSAGE) > asked + 1, "another pull")
        assert cluster.commands[-1].ext["subscription"] == "A || B"
        cluster.store(b"b", TAGS="B")
        await until(lambda: scene.bodies == [b"b"], "the added tag")


@on_loop
async def test_an_offset_out_of_range_goes_on_elsewhere() -> None:
    cluster = FakeCluster()
    cluster.on[RequestCode.PULL_MESSAGE] = lambda *_: pull_answer(ResponseCode.PULL_OFFSET_MOVED, 40)
    async with Scene(cluster) as scene:
        await until(lambda: scene.moved == [40], "the new place")
        await turns()
        assert scene.task.done()


@on_loop
async def test_what_was_fetched_is_handled_before_going_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that lags, or a new master, has less than we have read: what waits in the cache must not be skipped."""
    monkeypatch.setattr("tandemq.client.fetcher.MOVED_PAUSE_S", 0.001)
    cluster = FakeCluster()
    cluster.store(b"0", b"1", b"2")
    async with Scene(cluster) as scene:
        await until(lambda: len(scene.got) == 3, "the messages")
        cluster.on[RequestCode.PULL_MESSAGE] = lambda *_: pull_answer(ResponseCode.PULL_OFFSET_MOVED, 2)
        asked = cluster.count(RequestCode.PULL_MESSAGE)
        cluster.store(b"3")  # wakes the pull that waits
        await until(lambda: cluster.count(RequestCode.PULL_MESSAGE) > asked + 3, "the question, again and again")
        assert scene.moved == []
        while scene.state.count:
            scene.state.remove(scene.got)
            await turns()
        await until(lambda: scene.moved == [2], "the new place, now that nothing is left")


@on_loop
async def test_a_member_that_does_not_answer_is_replaced_by_another() -> None:
    cluster = FakeCluster(brokers={"a": {0: "master:1", 1: "slave:1"}})
    cluster.dead.add("master:1")
    cluster.store(b"0")
    async with Scene(cluster) as scene:
        await until(lambda: scene.bodies == [b"0"], "the message from the slave")
        assert not scene.session.reachable("master:1")


@pytest.mark.parametrize("problem", ["refused", "nonsense", "bug"])
@on_loop
async def test_no_problem_ends_the_loop(problem: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.store(b"0")
    pull = cluster.on[RequestCode.PULL_MESSAGE]
    tries: list[int] = []

    def answer(address: str, command: Command) -> Any:
        tries.append(1)
        if len(tries) > 3:
            return pull(address, command)
        if problem == "refused":
            return Command(ResponseCode.NO_PERMISSION, remark="not you")
        if problem == "nonsense":
            return pull_answer(0, 1, b"these bytes are no record")
        raise KeyError("a mistake of our own")

    cluster.on[RequestCode.PULL_MESSAGE] = answer
    async with Scene(cluster) as scene:
        await until(lambda: scene.bodies == [b"0"], "the message at last")
    assert caplog.records


@on_loop
async def test_pulling_waits_while_the_queue_is_paused_or_full() -> None:
    cluster = FakeCluster()
    cluster.store(*(b"%d" % i for i in range(10)))
    scene = Scene(cluster, pull_batch_size=4, queue_cache_max=4)
    scene.state.paused = True
    async with scene:
        await turns()
        assert cluster.count(RequestCode.PULL_MESSAGE) == 0
        scene.state.paused = False
        scene.fetcher.wake()
        await until(lambda: len(scene.got) == 4, "the first four")
        await turns()
        assert cluster.count(RequestCode.PULL_MESSAGE) == 1
        scene.fetcher.wake()
        assert not scene.fetcher._wake.is_set(), "there is no room yet: the loop is not roused for nothing"
        scene.state.remove(scene.got[:1])
        scene.fetcher.wake()
        await until(lambda: len(scene.got) == 8, "four more")


@on_loop
async def test_a_broker_that_forgot_the_subscription_gets_a_heartbeat() -> None:
    cluster = FakeCluster()
    cluster.on[RequestCode.PULL_MESSAGE] = lambda *_: Command(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="who?")
    async with Scene(cluster) as scene:
        await until(lambda: scene.session._heartbeat_wanted.is_set(), "a heartbeat asked for")
