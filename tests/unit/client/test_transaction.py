"""Transactions: half messages, their outcome, and the broker's questions."""

import asyncio
import sys
from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, FakeConnection, on_loop, record, turns

from tandemq.client.transaction import TransactionProducer, TransactionState
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, InvalidMessage, SendFailed
from tandemq.model.message import TRANSACTION_PREPARED, Message, decode_properties
from tandemq.testing.waiting import until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
MESSAGE = Message(topic="T", body=b"book me")


def ends(cluster: FakeCluster) -> list[Command]:
    return [command for command in cluster.commands if command.code == RequestCode.END_TRANSACTION]


def question(key: str = "ID", place: int = 7, group: str = "bank") -> Command:
    body = record(b"book me", place, UNIQ_KEY=key, PGROUP=group)
    ext = {"tranStateTableOffset": str(place), "commitLogOffset": str(place * 1000), "msgId": key, "bname": "a"}
    return Command(RequestCode.CHECK_TRANSACTION_STATE, ext, body)


class Scene:
    def __init__(self, check: Any = lambda _: COMMIT, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.producer = TransactionProducer("bank", check, session=self.cluster.session())
        self.connection = FakeConnection(None, "a:1")  # type: ignore[arg-type]

    def ask(self, command: Command) -> None:
        self.producer.session._dispatch(RequestCode.CHECK_TRANSACTION_STATE, self.connection, command)

    @property
    def answers(self) -> list[tuple[str, str]]:
        return [(c.ext["tranStateTableOffset"], c.ext["commitOrRollback"]) for c in self.connection.oneways]


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
@on_loop
async def test_the_outcome_of_a_transaction_is_told(state: TransactionState) -> None:
    scene = Scene()
    async with scene.producer as producer:
        result = await producer.send_in_transaction(MESSAGE, lambda message: state, copies=2)
    assert (result.state, result.error) == (state, None)
    (end,) = ends(scene.cluster)
    assert end.ext["commitOrRollback"] == str(state.value)
    half = next(c for c in scene.cluster.commands if c.code == RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(half.ext["i"].encode())
    assert (properties["TRAN_MSG"], properties["PGROUP"], properties["__TQ_COPIES"]) == ("true", "bank", "2")
    assert int(half.ext["f"]) & TRANSACTION_PREPARED


@on_loop
async def test_an_exception_leaves_the_outcome_to_the_check() -> None:
    def fails(message: Message) -> TransactionState:
        raise ValueError("no")

    def exits(message: Message) -> TransactionState:
        sys.exit(3)

    def nonsense(message: Message) -> Any:
        return "COMMIT"

    async with Scene().producer as producer:
        for execute, kind in ((fails, ValueError), (exits, RuntimeError), (nonsense, TypeError)):
            result = await producer.send_in_transaction(MESSAGE, execute)
            assert result.state is UNKNOWN
            assert isinstance(result.error, kind)


@on_loop
async def test_a_half_message_without_its_promise_is_rolled_back() -> None:
    scene = Scene()
    send = scene.cluster.on[RequestCode.SEND_MESSAGE_V2]

    def flushed_late(address: str, command: Command) -> Command:
        answer: Command = send(address, command)
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        return answer

    scene.cluster.on[RequestCode.SEND_MESSAGE_V2] = flushed_late
    executed: list[Message] = []
    async with scene.producer as producer:
        result = await producer.send_in_transaction(MESSAGE, lambda m: executed.append(m) or COMMIT)
    assert (result.state, executed) == (ROLLBACK, [])


@on_loop
async def test_what_can_not_be_a_transaction_is_refused() -> None:
    with pytest.raises(ClientError, match="check=None"):
        TransactionProducer("bank", None)  # type: ignore[arg-type]
    async with Scene().producer as producer:
        with pytest.raises(InvalidMessage, match="delay_level=3"):
            await producer.send_in_transaction(Message(topic="T", body=b"x", delay_level=3), lambda _: COMMIT)
        with pytest.raises(ClientError, match="execute=5"):
            await producer.send_in_transaction(MESSAGE, 5)  # type: ignore[arg-type]
    cluster = FakeCluster()
    cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda *_: Command(ResponseCode.MESSAGE_ILLEGAL, remark="no")
    async with Scene(cluster=cluster).producer as producer:
        with pytest.raises(SendFailed):
            await producer.send_in_transaction(MESSAGE, lambda _: COMMIT)


@on_loop
async def test_every_master_knows_the_group_before_the_first_send() -> None:
    cluster = FakeCluster(brokers={"a": {0: "a:1"}, "b": {0: "b:1"}})
    async with Scene(cluster=cluster).producer:
        await until(
            lambda: {a for a, code in cluster.requests if code == RequestCode.HEART_BEAT} == {"a:1", "b:1"},
            "a heartbeat to every master",
        )


@on_loop
async def test_a_question_is_answered_with_the_place_of_the_half_message() -> None:
    scene = Scene(lambda message: COMMIT if message.body == b"book me" else ROLLBACK)
    async with scene.producer:
        scene.ask(question(place=7))
        await until(lambda: scene.answers == [("7", "8")], "the answer")
        answer = scene.connection.oneways[0].ext
        assert (answer["fromTransactionCheck"], answer["msgId"], answer["bname"]) == ("true", "ID", "a")
        scene.ask(question(group="somebody"))
        scene.ask(Command(RequestCode.CHECK_TRANSACTION_STATE, {}, b"nonsense"))
        await turns()
        assert len(scene.answers) == 1


@on_loop
async def test_questions_asked_again_during_a_check_get_one_answer_for_the_newest_place() -> None:
    gate, checks = asyncio.Event(), 0

    async def slow(_: Any) -> TransactionState:
        nonlocal checks
        checks += 1
        await gate.wait()
        return COMMIT

    scene = Scene(slow)
    async with scene.producer:
        for place in (7, 8, 9):
            scene.ask(question(place=place))
            await turns()
        gate.set()
        await until(lambda: bool(scene.answers), "an answer")
        await turns()
        assert (scene.answers, checks) == ([("9", "8")], 1)
        scene.ask(question(place=10))
        await until(lambda: len(scene.answers) == 2, "a later question is a new one")


@on_loop
async def test_checks_are_bounded_and_end_with_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.transaction.CHECKS_MAX", 2)
    began = 0

    async def hangs(_: Any) -> TransactionState:
        nonlocal began
        began += 1
        await asyncio.Event().wait()
        return COMMIT

    scene = Scene(hangs)
    await scene.producer.start()
    for number in range(4):
        scene.ask(question(f"ID{number}"))
    await turns()
    assert began == 2
    await scene.producer.close()
    assert scene.answers == []
    scene.ask(question())
    await turns()
    assert began == 2


@pytest.mark.parametrize("error", [StopIteration(), KeyboardInterrupt(), SystemExit(3)], ids=repr)
@on_loop
async def test_whatever_a_plain_function_raises_leaves_the_outcome_open(error: BaseException) -> None:
    scene = Scene()

    def execute(_: Message) -> TransactionState:
        raise error

    async with scene.producer as producer:
        result = await producer.send_in_transaction(MESSAGE, execute)
    assert result.state is UNKNOWN
    assert result.error is error or repr(error) in str(result.error)
