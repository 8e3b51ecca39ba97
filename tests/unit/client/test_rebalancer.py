"""When and how a consumer's share of the queues is worked out."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop, turns

from tandemq.client.allocation import Change
from tandemq.client.config import MessageModel
from tandemq.client.rebalancer import Rebalancer
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until


def queues(*ids: int, topic: str = "T") -> tuple[QueueRef, ...]:
    return tuple(QueueRef(topic, "a", i) for i in ids)


class Scene:
    def __init__(self, cluster: FakeCluster, model: MessageModel = MessageModel.CLUSTERING) -> None:
        self.cluster = cluster
        self.session = cluster.session(rebalance_interval_ms=60_000)
        self.topics = ["T"]
        self.held: set[QueueRef] = set()
        self.changes: list[Change] = []
        self.complete = True
        cluster.members["g"].add(self.session.client_id)
        self.rebalancer = Rebalancer(
            self.session,
            "g",
            model,
            topics=lambda: tuple(self.topics),
            held=lambda topic: [queue for queue in self.held if queue.topic == topic],
            apply=self._apply,
        )

    async def _apply(self, topic: str, due: Change) -> bool:
        self.changes.append(due)
        self.held |= set(due.won)
        self.held -= set(due.lost)
        return self.complete


@on_loop
async def test_the_queues_are_shared_with_the_other_members() -> None:
    scene = Scene(FakeCluster(queues=4))
    assert await scene.rebalancer.round()
    assert scene.changes == [Change(won=queues(0, 1, 2, 3), lost=())]
    scene.cluster.members["g"].add("0-first")  # sorts before us
    assert await scene.rebalancer.round()
    assert scene.changes[1] == Change(won=(), lost=queues(0, 1))


@on_loop
async def test_broadcasting_takes_everything_without_asking_for_members() -> None:
    scene = Scene(FakeCluster(queues=2), MessageModel.BROADCASTING)
    await scene.rebalancer.round()
    assert scene.held == set(queues(0, 1))
    assert scene.cluster.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == 0


@on_loop
async def test_whoever_is_not_listed_sends_a_heartbeat_and_asks_again() -> None:
    scene = Scene(FakeCluster())
    scene.cluster.members["g"].clear()
    assert await scene.rebalancer.round()
    assert scene.cluster.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == 2
    assert scene.held == set(), "nobody told the broker: somebody else may hold the queues"


@on_loop
async def test_a_question_without_an_answer_changes_nothing() -> None:
    scene = Scene(FakeCluster(queues=2))
    await scene.rebalancer.round()

    def away(*_: Any) -> Command:
        raise RemotingError("away")

    scene.cluster.on[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = away
    assert not await scene.rebalancer.round()
    assert scene.held == set(queues(0, 1))


@on_loop
async def test_a_topic_without_a_route_keeps_its_queues_and_is_tried_again() -> None:
    scene = Scene(FakeCluster())
    scene.topics = ["unknown"]
    scene.held = set(queues(0, topic="unknown"))
    assert not await scene.rebalancer.round()
    assert scene.held == set(queues(0, topic="unknown"))


@on_loop
async def test_a_topic_that_is_unsubscribed_during_a_round_is_left_alone() -> None:
    scene = Scene(FakeCluster())
    ask = scene.session.api.consumer_ids

    async def unsubscribed(address: str, group: str) -> list[str]:
        scene.topics.clear()
        return await ask(address, group)

    scene.session.api.consumer_ids = unsubscribed  # type: ignore[method-assign]
    assert await scene.rebalancer.round()
    assert scene.changes == []


@pytest.mark.parametrize("how", ["notice", "route", "soon"])
@on_loop
async def test_a_round_follows_at_once_when_something_changed(how: str) -> None:
    scene = Scene(FakeCluster(queues=2))
    task = asyncio.get_running_loop().create_task(scene.rebalancer.run())
    await until(lambda: len(scene.held) == 2, "the first round")
    scene.cluster.members["g"].add("0-first")
    if how == "notice":
        for group in ("other", "g"):
            command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            scene.session._dispatch(command.code, None, command)
    elif how == "route":
        scene.rebalancer._route_changed("other")
        scene.rebalancer._route_changed("T")
    else:
        scene.rebalancer.soon()
    await until(lambda: len(scene.held) == 1, "half given up")
    task.cancel()


@on_loop
async def test_what_could_not_be_done_is_done_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.rebalancer.SOON_S", 0.0)
    scene = Scene(FakeCluster())
    scene.complete = False
    task = asyncio.get_running_loop().create_task(scene.rebalancer.run())
    await until(lambda: len(scene.changes) == 1, "the incomplete round")
    scene.held.clear()
    await until(lambda: len(scene.changes) > 1, "another one")
    task.cancel()


@on_loop
async def test_a_closed_rebalancer_hears_nothing_any_more() -> None:
    scene = Scene(FakeCluster())
    scene.rebalancer.close()
    command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
    scene.session._dispatch(command.code, None, command)
    assert scene.session.on_routes_changed == []
    await turns()
    assert not scene.rebalancer._wanted.is_set()


@on_loop
async def test_a_broker_that_has_just_started_does_not_hide_the_other_members() -> None:
    scene = Scene(FakeCluster(queues=1, brokers={"a": {0: "a:1"}, "b": {0: "b:1"}}))
    known = {"a:1": [scene.session.client_id], "b:1": ["0-first", scene.session.client_id]}
    scene.cluster.on[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda address, _: Command(
        0, None, fastjson.dumps({"consumerIdList": known[address]})
    )
    await scene.rebalancer.round()
    assert scene.held == {QueueRef("T", "b", 0)}
    assert not scene.rebalancer.is_alone


@on_loop
async def test_a_broker_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.rebalancer.OTHERS_S", 0.01)
    scene = Scene(FakeCluster(queues=1, brokers={"a": {0: "a:1"}, "b": {0: "b:1"}}))
    scene.cluster.hung.add("a:1")
    assert await scene.rebalancer.round()
    assert len(scene.held) == 2
    assert scene.rebalancer.is_alone
