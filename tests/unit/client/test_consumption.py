"""From fetched messages to calls of the listener."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake_cluster import on_loop, record, turns

from tandemq.client import consumption
from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.consumption import ConcurrentConsumption, Consumption, OrderedConsumption
from tandemq.client.held_queue import HeldQueue
from tandemq.client.listener import Action, Call, ListenerCaller, ShuttingDown
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.client.process_queue import ProcessQueue
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

QUEUE = QueueRef("T", "a", 0)


def messages(*offsets: int) -> list[ReceivedMessage]:
    return list(decode_messages(b"".join(record(b"%d" % offset, offset) for offset in offsets), "a"))


class Offsets:
    """The part of an OffsetStore that is used here."""

    def __init__(self) -> None:
        self.values: dict[QueueRef, int] = {}

    def update(self, queue: QueueRef, offset: int, *, may_go_back: bool = False) -> None:
        self.values[queue] = offset


class Returns:
    def __init__(self) -> None:
        self.taken: list[int] = []
        self.buried: list[int] = []
        self.willing = True

    async def later(self, message: ReceivedMessage) -> bool:
        if self.willing:
            self.taken.append(message.queue_offset)
        return self.willing

    async def give_up(self, message: ReceivedMessage) -> bool:
        self.buried.append(message.queue_offset)
        return self.willing


class Gate:
    """A listener whose calls wait until the test lets them go on."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.waiting: dict[int, asyncio.Future[Any]] = {}

    async def __call__(self, given: list[ReceivedMessage]) -> Any:
        offset = given[0].queue_offset
        self.began.append(offset)
        self.waiting[offset] = asyncio.get_running_loop().create_future()
        return await self.waiting[offset]

    async def answer(self, offset: int, answer: Any = None) -> None:
        self.waiting[offset].set_result(answer)
        await turns()


class Scene:
    def __init__(self, *, ordered: bool, listener: Callable[..., Any] | None = None, **options: Any) -> None:
        self.offsets, self.returns, self.gate = Offsets(), Returns(), Gate()
        model = options.pop("model", MessageModel.CLUSTERING)
        config = ClientConfig(**{"consume_concurrency": 2, "suspend_ms": 1, **options})
        caller = ListenerCaller(concurrency=2, batch_size=config.consume_batch_size, timeout_s=60)
        caller.add(listener or self.gate)
        self.locked = True
        parts: tuple[Any, ...] = (caller, config, model, self.offsets, self.returns)
        self.consumption: Consumption = (
            OrderedConsumption(*parts, may_consume=lambda _: self.locked) if ordered else ConcurrentConsumption(*parts)
        )
        self.held = HeldQueue(QUEUE, ProcessQueue())

    async def fetched(self, *offsets: int) -> None:
        found = messages(*offsets)
        self.held.state.add(found)
        self.consumption.offer(self.held, found)
        await turns()

    @property
    def committed(self) -> int | None:
        return self.offsets.values.get(QUEUE)


# concurrent


@on_loop
async def test_so_many_calls_run_at_once_and_the_offset_waits_for_the_oldest() -> None:
    scene = Scene(ordered=False)
    await scene.fetched(0, 1, 2)
    assert scene.gate.began == [0, 1]
    await scene.gate.answer(1)
    assert scene.gate.began == [0, 1, 2]
    assert scene.committed == 0
    await scene.gate.answer(0)
    await scene.gate.answer(2)
    assert scene.committed == 3


@on_loop
async def test_a_failed_message_is_given_back_and_counts_as_done() -> None:
    scene = Scene(ordered=False)
    await scene.fetched(0, 1)
    await scene.gate.answer(0, Action.LATER)
    await scene.gate.answer(1)
    assert scene.returns.taken == [0]
    assert scene.committed == 2


@on_loop
async def test_a_message_that_nobody_takes_back_is_tried_again_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "LOCAL_RETRY_S", 0.0)
    scene = Scene(ordered=False)
    scene.returns.willing = False
    await scene.fetched(0)
    await scene.gate.answer(0, Action.LATER)
    await until(lambda: scene.gate.began == [0, 0], "the second try")
    assert scene.committed == 0
    await scene.gate.answer(0)
    assert scene.committed == 1


@on_loop
async def test_a_broadcast_message_is_not_given_back() -> None:
    scene = Scene(ordered=False, model=MessageModel.BROADCASTING)
    await scene.fetched(0)
    await scene.gate.answer(0, Action.LATER)
    assert scene.returns.taken == []
    assert scene.committed == 1


@on_loop
async def test_messages_are_handed_over_in_batches() -> None:
    sizes: list[int] = []

    async def listener(given: list[ReceivedMessage]) -> None:
        sizes.append(len(given))

    scene = Scene(ordered=False, listener=listener, consume_batch_size=2)
    await scene.fetched(0, 1, 2, 3, 4)
    assert sizes == [2, 2, 1]
    assert scene.committed == 5


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_call_that_is_cancelled_from_outside_comes_again(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "CANCELLED_PAUSE_S", 0.0)
    scene = Scene(ordered=ordered)
    await scene.fetched(0, 1)
    for task in [t for t in asyncio.all_tasks() if t.get_name() == "tandemq-listener"]:
        task.cancel()
    if ordered:
        await until(lambda: scene.gate.began == [0, 0], "the same message again")
        await scene.gate.answer(0)
        await scene.gate.answer(1)
    else:
        await until(lambda: sorted(scene.returns.taken) == [0, 1], "both given back")
    await until(lambda: scene.committed == 2, "the offset past both")


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_when_no_thread_can_start_nothing_is_given_back_or_committed(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: Any, **__: Any) -> Call:
        raise ShuttingDown("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ListenerCaller, "call", call)
    scene = Scene(ordered=ordered)
    await scene.fetched(0, 1, 2)
    await scene.fetched(3)
    assert (scene.returns.taken, scene.committed) == ([], None)
    assert scene.consumption.running == 0


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_after_a_stop_no_call_begins_and_what_runs_is_waited_for(ordered: bool) -> None:
    scene = Scene(ordered=ordered, consume_concurrency=1)
    await scene.fetched(0, 1)
    scene.consumption.stop()
    ended = asyncio.get_running_loop().create_task(scene.consumption.ended())
    await turns()
    assert not ended.done()
    assert scene.consumption.running == 1
    await scene.gate.answer(0)
    assert ended.done()
    assert scene.gate.began == [0]
    assert scene.committed == 1


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_call_cancelled_at_the_end_leaves_its_message_uncommitted(ordered: bool) -> None:
    scene = Scene(ordered=ordered)
    await scene.fetched(0)
    assert scene.consumption.is_call(next(t for t in asyncio.all_tasks() if t.get_name() == "tandemq-listener"))
    scene.consumption.stop()
    scene.consumption.cancel()
    await scene.consumption.ended()
    assert (scene.committed, scene.returns.taken) == (None, [])


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_dropped_queue_is_not_committed(ordered: bool) -> None:
    scene = Scene(ordered=ordered)
    await scene.fetched(0, 1)
    scene.held.drop()
    await scene.gate.answer(0)
    assert scene.committed is None


# ordered


@on_loop
async def test_the_messages_of_a_queue_follow_each_other() -> None:
    scene = Scene(ordered=True)
    await scene.fetched(0, 1, 2)
    for offset in range(3):
        assert scene.gate.began == list(range(offset + 1))
        await scene.gate.answer(offset)
        assert scene.committed == offset + 1


@on_loop
async def test_a_failed_message_holds_up_its_queue() -> None:
    scene = Scene(ordered=True)
    await scene.fetched(0, 1)
    await scene.gate.answer(0, Action.LATER)
    await until(lambda: scene.gate.began == [0, 0], "the same message again")
    await scene.gate.answer(0)
    assert scene.gate.began == [0, 0, 1]
    assert scene.returns.buried == []


@on_loop
async def test_a_message_that_used_up_its_tries_goes_to_the_dead_letters() -> None:
    scene = Scene(ordered=True, reconsume_max=1)
    await scene.fetched(0, 1)
    await scene.gate.answer(0, Action.LATER)
    await until(lambda: scene.gate.began == [0, 0], "the second try")
    await scene.gate.answer(0, Action.LATER)
    assert scene.returns.buried == [0]
    assert scene.gate.began == [0, 0, 1]
    assert scene.committed == 1


@on_loop
async def test_without_its_lock_a_queue_waits() -> None:
    scene = Scene(ordered=True)
    scene.locked = False
    await scene.fetched(0)
    assert scene.gate.began == []
    scene.locked = True
    scene.consumption.wake(scene.held)
    await turns()
    assert scene.gate.began == [0]


@pytest.mark.parametrize("reason", ["leaving", "moving"])
@on_loop
async def test_a_queue_is_quiet_only_when_its_call_has_ended(reason: str) -> None:
    scene = Scene(ordered=True)
    await scene.fetched(0, 1)
    setattr(scene.held, reason, True)
    quiet = asyncio.get_running_loop().create_task(scene.consumption.quiet(scene.held))
    await turns()
    assert not quiet.done()
    await scene.gate.answer(0)
    assert quiet.done()
    assert scene.gate.began == [0]
    setattr(scene.held, reason, False)
    scene.consumption.wake(scene.held)
    await turns()
    assert scene.gate.began == [0, 1]


@on_loop
async def test_a_concurrent_queue_is_always_quiet() -> None:
    scene = Scene(ordered=False)
    await scene.fetched(0)
    await scene.consumption.quiet(scene.held)


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_call_cancelled_while_its_message_is_given_back_gives_it_once(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a listener that cancels its own task and raises something else: the cancellation comes later."""
    monkeypatch.setattr(consumption, "CANCELLED_PAUSE_S", 0.0)

    async def fails(_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ValueError

    scene = Scene(ordered=ordered, listener=fails, reconsume_max=0)
    gate = asyncio.Event()

    class Slow(Returns):
        async def later(self, message: ReceivedMessage) -> bool:
            self.taken.append(message.queue_offset)
            await gate.wait()
            return True

        give_up = later

    slow = scene.consumption._returns = Slow()
    await scene.fetched(7)
    await until(lambda: scene.consumption.running == 1 and bool(scene.consumption._returning), "the second attempt")
    gate.set()
    await until(lambda: scene.committed == 8, "the message to be done with")
    assert slow.taken == [7]
    assert scene.consumption._returning == {}
