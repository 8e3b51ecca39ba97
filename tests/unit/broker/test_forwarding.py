"""What only a master can do, asked of a broker that is none."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import ManualClock, on_loop, turns

from tandemq.broker import forwarding
from tandemq.broker.forwarding import CALLER, CODE, NOT_OPEN, PEER, VERSION, ForwardedConnection, Forwarder
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_request, encode_response
from tandemq.codec.frame import FrameReader
from tandemq.errors import ConnectFailed, ConnectionLost, ReplyError
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import RequestDispatcher
from tandemq.replication.metadata import PairCode
from tandemq.testing.broker_parts import FakeConnection
from tandemq.testing.waiting import until

CLIENT = "10.0.0.9:40000"
BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)


class Gate:
    refusal: ReplyError | None = ReplyError(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave")


class FakeClient:
    """Keeps what is handed to the master and answers in turn."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Command]] = []
        self.answers: list[Command | Exception] = []
        self.gate: asyncio.Event | None = None

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append((address, command))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else Command(0, {"msgId": "A1"}, remark="stored")
        if isinstance(answer, Exception):
            raise answer
        return answer


class Scene:
    """A node that is no master, with its dispatcher; `handled` is what its own handler saw."""

    def __init__(self, timeout_ms: int = 2500) -> None:
        self.gate, self.client, self.clock = Gate(), FakeClient(), ManualClock()
        self.master = "10.0.0.1:10911"
        self.handled: list[tuple[Any, Command]] = []
        self.forwarder = Forwarder(
            self.gate,
            self.client,  # type: ignore[arg-type]
            self.clock,
            master=lambda: self.master,
            timeout_ms=lambda: timeout_ms,
        )
        self.dispatcher = RequestDispatcher(
            {BACK: self._handle, int(RequestCode.END_TRANSACTION): self._handle, **self.forwarder.handlers()},
            gate=self.gate,
            divert=self.forwarder.divert,
        )
        self.forwarder.dispatcher = self.dispatcher
        self.connection = FakeConnection(CLIENT)
        self.connection.tasks = set()  # type: ignore[attr-defined]
        self.connection.excluded_codes = frozenset()  # type: ignore[attr-defined]

        class Config:
            requests_in_progress_max = 100

        self.connection.config = Config()  # type: ignore[attr-defined]

    def _handle(self, connection: Connection, command: Command) -> bytes:
        self.handled.append((connection, command))
        if self.gate.refusal is not None:
            raise self.gate.refusal
        return encode_response(command.opaque, 0, "done here")

    async def ask(self, command: Command) -> list[Command]:
        """Sends a request as a client does; returns the answers so far."""
        (frame,) = FrameReader().feed(encode_request(command))
        self.dispatcher(self.connection, frame)  # type: ignore[arg-type]
        await turns()
        return self.connection.sent


def request(code: int = BACK, *, opaque: int = 7, flag: int = 0, body: bytes = b"x", **ext: str) -> Command:
    return Command(code, {"group": "g", **ext}, body, opaque=opaque, flag=flag, version=317)


@on_loop
async def test_the_master_is_asked_and_its_answer_passed_on_unchanged() -> None:
    scene = Scene()
    scene.client.answers.append(Command(11, {"queueId": "3"}, b"body", remark="no slave"))
    (answer,) = await scene.ask(request())
    assert (answer.code, answer.ext, bytes(answer.body), answer.remark, answer.opaque) == (
        11, {"queueId": "3"}, b"body", "no slave", 7,
    )  # fmt: skip
    ((address, asked),) = scene.client.asked
    assert (address, asked.code, asked.body) == (scene.master, PairCode.FORWARD, b"x")
    assert asked.ext == {"group": "g", CODE: str(BACK), PEER: CLIENT, VERSION: "317"}
    assert (scene.handled, scene.forwarder.forwarded) == ([], 1)


@on_loop
async def test_nobody_is_asked_while_no_master_is_known_or_it_is_switched_off() -> None:
    for scene in (Scene(), Scene(timeout_ms=0)):
        scene.master = scene.master if scene.forwarder._timeout_ms() == 0 else ""
        (answer,) = await scene.ask(request())
        assert (answer.code, answer.remark, scene.client.asked) == (14, "a slave", [])


@on_loop
async def test_a_forwarded_request_is_not_forwarded_again() -> None:
    """The receiver that is not open says so; only who has it from the client looks further."""
    scene = Scene()
    (answer,) = await scene.ask(Command(PairCode.FORWARD, {CODE: str(BACK), PEER: CLIENT}, b"x"))
    assert (answer.code, answer.ext) == (14, {NOT_OPEN: scene.master})
    assert (scene.client.asked, scene.handled) == ([], [])


@on_loop
async def test_a_master_answers_as_if_the_client_had_come_itself() -> None:
    scene = Scene()
    scene.gate.refusal = None
    ext = {CODE: str(BACK), PEER: "10.1.2.3:99", VERSION: "121", CALLER: "nobody checks here", "group": "g"}
    (answer,) = await scene.ask(Command(PairCode.FORWARD, ext, b"x", opaque=5))
    assert (answer.remark, answer.opaque) == ("done here", 5)
    ((connection, command),) = scene.handled
    assert (command.code, command.ext, command.version) == (BACK, {"group": "g"}, 121)
    assert (connection.peer, connection.peer_host_bytes) == ("10.1.2.3:99", bytes([10, 1, 2, 3, 0, 0, 0, 99]))
    assert connection.is_forwarded
    assert connection.host == "10.1.2.3"


@pytest.mark.parametrize("code", ["", "105", "32102", "x" * 99, str(PairCode.FORWARD)])
@on_loop
async def test_only_requests_of_clients_are_taken(code: str) -> None:
    scene = Scene()
    scene.gate.refusal = None
    (answer,) = await scene.ask(Command(PairCode.FORWARD, {CODE: code}, b""))
    assert (answer.code, scene.handled) == (ResponseCode.NO_PERMISSION, [])


@on_loop
async def test_during_a_hand_over_requests_wait_for_this_node_to_open() -> None:
    scene = Scene()
    scene.master = ""
    scene.forwarder.expect_hand_over()
    assert await scene.ask(request()) == []
    scene.gate.refusal = None
    scene.forwarder.changed()
    await until(lambda: scene.connection.sent, "the answer")
    assert scene.connection.sent[0].remark == "done here"
    assert scene.handled[0][0] is scene.connection


@pytest.mark.parametrize(
    "before", [ConnectFailed("refused"), Command(14, {NOT_OPEN: ""}, remark="it asks first")], ids=["away", "not open"]
)
@on_loop
async def test_during_a_hand_over_the_next_master_is_waited_for(before: Command | Exception) -> None:
    scene = Scene()
    scene.client.answers.append(before)
    scene.forwarder.expect_hand_over()
    assert await scene.ask(request()) == []
    scene.master = "10.0.0.2:10911"
    scene.forwarder.changed()
    await until(lambda: scene.connection.sent, "the answer")
    assert [address for address, _ in scene.client.asked] == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert scene.connection.sent[0].remark == "stored"


@on_loop
async def test_a_hand_over_that_ends_without_a_master_is_a_refusal() -> None:
    scene = Scene()
    scene.master = ""
    scene.forwarder.expect_hand_over()
    assert await scene.ask(request()) == []
    scene.clock.now += 10
    scene.forwarder.changed()
    await until(lambda: scene.connection.sent, "the refusal")
    assert (scene.connection.sent[0].code, scene.forwarder.refused) == (14, 1)


@on_loop
async def test_a_request_without_an_answer_is_not_sent_again() -> None:
    """It may have been carried out."""
    scene = Scene()
    scene.forwarder.expect_hand_over()
    scene.client.answers.append(ConnectionLost("reset"))
    (answer,) = await scene.ask(request())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not known" in (answer.remark or "")
    assert len(scene.client.asked) == 1


@on_loop
async def test_what_is_on_its_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "PENDING_MAX", 2)
    scene = Scene()
    scene.client.gate = asyncio.Event()
    for opaque in range(3):
        await scene.ask(request(opaque=opaque))
    assert [(answer.opaque, answer.code) for answer in scene.connection.sent] == [(2, ResponseCode.SYSTEM_BUSY)]
    scene.client.gate.set()
    await turns()
    assert len(scene.connection.sent) == 3
    assert (await scene.ask(request(opaque=9)))[-1].remark == "stored", "there is room again"
    monkeypatch.setattr(forwarding, "PENDING_BYTES_MAX", 10)
    assert (await scene.ask(request(body=b"x" * 11)))[-1].code == ResponseCode.SYSTEM_BUSY


@on_loop
async def test_a_master_that_does_not_know_the_request_is_left_alone() -> None:
    scene = Scene()
    scene.client.answers.append(Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?"))
    assert (await scene.ask(request()))[-1].remark == "a slave"
    assert (await scene.ask(request()))[-1].remark == "a slave"
    assert len(scene.client.asked) == 1
    scene.clock.now += forwarding.DEAF_SECONDS
    assert (await scene.ask(request()))[-1].remark == "stored"


@on_loop
async def test_one_way_requests_arrive_and_are_not_answered() -> None:
    scene = Scene()
    ends = int(RequestCode.END_TRANSACTION)
    assert await scene.ask(request(ends, flag=ONEWAY_FLAG, commitOrRollback="8")) == []
    assert await scene.ask(request(ends, flag=ONEWAY_FLAG, commitOrRollback="0")) == [], "nobody answers that one"
    assert [command.ext["commitOrRollback"] for _, command in scene.client.asked] == ["8"]


def test_an_address_that_is_none_is_not_believed() -> None:
    link = FakeConnection()
    for peer in ("", "nonsense", "host.example:7", "1.2.3.4:999999"):
        found = ForwardedConnection(link, peer, "")  # type: ignore[arg-type]
        assert found.peer_host_bytes == link.peer_host_bytes
    v6 = ForwardedConnection(link, "[2001:db8::1]:80", "")  # type: ignore[arg-type]
    assert (v6.host, len(v6.peer_host_bytes)) == ("2001:db8::1", 20)
