"""Calling the user's listener: whatever leaves it is an answer."""

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake_cluster import on_loop, record, turns

from tandemq.client.listener import Action, Call, ListenerCaller, ShuttingDown
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

(MESSAGE,) = decode_messages(record(b"x", 0), "a")


def caller(function: Callable[..., Any], *, timeout_s: float = 60.0, **given: Any) -> ListenerCaller:
    made = ListenerCaller(concurrency=2, batch_size=8, timeout_s=timeout_s)
    made.add(function, **given)
    return made


async def answered(function: Callable[..., Any], **given: Any) -> Action:
    made = caller(function, **given)
    try:
        return (await made.call([MESSAGE])).action
    finally:
        made.close()


def both(answer: object) -> list[Callable[..., Any]]:
    async def coroutine(_: Any) -> Any:
        return answer

    return [coroutine, lambda _: answer]


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (None, Action.SUCCESS),
        (Action.SUCCESS, Action.SUCCESS),
        (Action.LATER, Action.LATER),
        (False, Action.LATER),
        (True, Action.LATER),
        ("LATER", Action.LATER),
        ("SUCCESS", Action.LATER),
        (0, Action.LATER),
        ([], Action.LATER),
    ],
)
@on_loop
async def test_only_the_documented_answers_are_success(answer: object, action: Action) -> None:
    for function in both(answer):
        assert await answered(function) is action


def raising(error: BaseException) -> list[Callable[..., Any]]:
    async def coroutine(_: Any) -> Any:
        raise error

    def plain(_: Any) -> Any:
        raise error

    return [coroutine, plain]


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), asyncio.CancelledError(), TimeoutError("db"), StopIteration()], ids=repr
)
@on_loop
async def test_whatever_leaves_a_listener_means_later(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    for function in raising(error):
        assert await answered(function) is Action.LATER
    assert len(caplog.records) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), BaseException("odd")], ids=repr)
@on_loop
async def test_what_a_thread_raises_never_reaches_the_loop(error: BaseException) -> None:
    """A thread gets no signals: the function raised it itself. A coroutine may have been interrupted by Ctrl-C."""
    assert await answered(raising(error)[1]) is Action.LATER


@on_loop
async def test_a_timeout_of_the_listener_s_own_is_not_taken_for_ours(caplog: pytest.LogCaptureFixture) -> None:
    for function in raising(TimeoutError("the database")):
        await answered(function)
    assert all("failed" in entry.getMessage() for entry in caplog.records)
    assert not any("took more than" in entry.getMessage() for entry in caplog.records)


@on_loop
async def test_a_coroutine_is_cancelled_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def slow(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    assert await answered(slow, timeout_s=0.01) is Action.LATER
    assert ended == ["cancelled"]
    assert "took more than 0.01 s" in caplog.records[0].getMessage()


@on_loop
async def test_a_plain_function_beyond_the_limit_runs_on_and_says_when_it_ends() -> None:
    gate = threading.Event()
    made = caller(lambda _: gate.wait(), timeout_s=0.01)
    call = await made.call([MESSAGE])
    assert call.action is Action.LATER
    assert call.still_running is not None
    assert not call.still_running.done()
    assert made.in_threads == [[MESSAGE]]
    gate.set()
    await asyncio.wait([call.still_running])
    await until(lambda: made.in_threads == [], "no thread left")
    made.close()


@on_loop
async def test_a_patient_caller_waits_for_a_plain_function_and_takes_its_answer() -> None:
    gate = threading.Event()

    def slow(_: Any) -> Action:
        gate.wait()
        return Action.SUCCESS

    made = caller(slow, timeout_s=0.01)
    call = asyncio.get_running_loop().create_task(made.call([MESSAGE], patient=True))
    await until(lambda: bool(made.in_threads), "the thread")
    asyncio.get_running_loop().call_later(0.05, gate.set)
    assert await call == Call(Action.SUCCESS)
    made.close()


@on_loop
async def test_a_cancellation_of_the_calling_task_goes_through() -> None:
    made = caller(raising(ValueError())[0])

    async def cancels_itself(_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    made.add(cancels_itself)
    call = asyncio.get_running_loop().create_task(made.call([MESSAGE]))
    await turns()
    assert call.cancelled()


@on_loop
async def test_no_thread_to_be_had_is_not_the_listener_s_failure() -> None:
    made = caller(lambda _: None)
    assert (await made.call([MESSAGE])).action is Action.SUCCESS
    made.close()
    with pytest.raises(ShuttingDown):
        await made.call([MESSAGE])


@on_loop
async def test_each_topic_has_its_own_listener_with_messages_one_by_one() -> None:
    seen: list[tuple[str, object]] = []
    (other,) = decode_messages(record(b"y", 0, QueueRef("other", "a", 0)), "a")
    made = caller(lambda messages: seen.append(("all", messages)))
    made.add(lambda message: seen.append(("T", message)), "T", takes_list=False)
    await made.call([MESSAGE])
    await made.call([other])
    made.close()
    assert seen == [("T", MESSAGE), ("all", [other])]
    assert (made.batch_size("T"), made.batch_size("other"), made.batch_size("%RETRY%g")) == (1, 8, 1)


@on_loop
async def test_a_topic_without_a_listener_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    made = ListenerCaller(concurrency=1, batch_size=1, timeout_s=60)
    assert not made.serves("T")
    with caplog.at_level(logging.ERROR):
        assert (await made.call([MESSAGE])).action is Action.LATER
    made.add(print, "T")
    assert made.serves("T")


@on_loop
async def test_a_plain_function_knows_that_it_is_inside_and_sees_the_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    seen: list[tuple[bool, str]] = []
    made = caller(lambda _: seen.append((made.is_inside, variable.get())))
    variable.set("of the caller")
    await made.call([MESSAGE])
    made.close()
    assert seen == [(True, "of the caller")]
    assert not made.is_inside


@on_loop
async def test_an_object_may_be_a_coroutine_function() -> None:
    class Listener:
        async def __call__(self, messages: list[ReceivedMessage]) -> None:
            assert sys.getrefcount(messages) > 0
            assert threading.current_thread() is threading.main_thread()

    assert await answered(Listener()) is Action.SUCCESS
    assert await answered(lambda messages: Listener()(messages)) is Action.SUCCESS


@on_loop
async def test_a_listener_that_outlives_its_limit_and_goes_on_leaves_no_cancellation_behind() -> None:
    """Whoever catches the cancellation and answers is believed, and the next call is not cancelled in its place."""

    async def stubborn(_: Any) -> Action | None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await turns(1)
        return None

    made = caller(stubborn, timeout_s=0.01)
    task = asyncio.current_task()
    assert task is not None
    for _ in range(2):
        assert (await made.call([MESSAGE])).action is Action.SUCCESS
        assert task.cancelling() == 0
