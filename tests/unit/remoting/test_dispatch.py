"""Sends reach their handler decoded in one pass or by the slow road; everything else as a Command."""

import asyncio
import json
import struct

import pytest
from msgspec.structs import replace

from tandemq.codec.command import Command, decode_command, encode_request, encode_response
from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import ReplyError
from tandemq.remoting.access.needs import Rule
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import RequestDispatcher

SEND = SendHeader(
    producerGroup="g", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=1, sysFlag=0,
    bornTimestamp=17, flag=2, properties="k\x01v\x02",
)  # fmt: skip


class Recorder(Connection):
    """A connection that keeps what is sent."""

    def __init__(self, dispatcher: RequestDispatcher, **options: frozenset[int]) -> None:
        super().__init__(RemotingConfig(), dispatcher, **options)  # type: ignore[arg-type]
        self.sent: list[Command] = []

    def send(self, data: bytes) -> None:
        self.sent.append(decode_command(FrameReader().feed(data)[0]))


def deliver(dispatcher: RequestDispatcher, data: bytes, **options: frozenset[int]) -> list[Command]:
    async def story() -> list[Command]:
        connection = Recorder(dispatcher, **options)
        for frame in FrameReader().feed(data):
            dispatcher(connection, frame)
        return connection.sent

    return asyncio.run(story())


def answer(connection: Connection, opaque: int, flag: int, header: SendHeader, body: memoryview) -> bytes:
    ext = {"topic": header.topic, "version": str(header.version), "size": str(len(body))}
    return encode_response(opaque, 0, None, ext)


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
@pytest.mark.parametrize("code", [10, 310, 320, 324, 325])
@pytest.mark.parametrize("with_acl", [False, True])
def test_sends_of_every_code_and_encoding(encoding: int, code: int, with_acl: bool) -> None:
    ext = send_ext(SEND, short=code in (310, 320, 325))
    data = encode_request(Command(code, ext, b"body", opaque=4, version=317), encoding)
    hook = (lambda connection, command, rule, size: None) if with_acl else None
    (reply,) = deliver(RequestDispatcher({}, send_handlers={code: answer}, admit=hook), data)
    assert (reply.opaque, reply.ext) == (4, {"topic": "T", "version": "317", "size": "4"})


def test_send_with_a_missing_field_is_answered() -> None:
    ext = send_ext(SEND, short=True)
    del ext["b"]
    (reply,) = deliver(RequestDispatcher({}, send_handlers={310: answer}), encode_request(Command(310, ext, opaque=4)))
    assert (reply.code, reply.opaque) == (1, 4)
    assert "topic" in (reply.remark or "")


def test_send_handlers_may_answer_later_fail_or_be_oneway() -> None:
    def later(*_: object) -> None:
        return None

    def fails(*_: object) -> bytes:
        raise ReplyError(14, "full")

    data = encode_request(Command(310, send_ext(SEND, short=True), opaque=4))
    oneway = encode_request(Command(310, send_ext(SEND, short=True), opaque=4, flag=2))
    assert deliver(RequestDispatcher({}, send_handlers={310: later}), data) == []
    assert deliver(RequestDispatcher({}, send_handlers={310: answer}), oneway) == []
    assert deliver(RequestDispatcher({}, send_handlers={310: fails}), oneway) == []
    assert [(r.code, r.remark) for r in deliver(RequestDispatcher({}, send_handlers={310: fails}), data)] == [
        (14, "full")
    ]


def test_codes_excluded_on_a_port_are_not_supported_there() -> None:
    """The VIP port serves no pulls; a send is served there too unless excluded."""
    dispatcher = RequestDispatcher({11: lambda c, m: Command(0)}, send_handlers={310: answer})
    send = encode_request(Command(310, send_ext(SEND, short=True), opaque=1))
    pull = encode_request(Command(11, opaque=2))
    without = frozenset({11})
    assert [r.code for r in deliver(dispatcher, send + pull, excluded_codes=without)] == [0, 3]
    assert [r.code for r in deliver(dispatcher, send, excluded_codes=frozenset({310}))] == [3]


def test_authentication_comes_before_every_handler() -> None:
    def refuse(connection: Connection, command: Command, rule: Rule | None, size: int) -> None:
        raise ReplyError(16, "who are you")

    data = (
        encode_request(Command(310, send_ext(SEND, short=True)))
        + encode_request(Command(34))
        + encode_request(Command(9))
    )
    dispatcher = RequestDispatcher({34: lambda c, m: Command(0)}, send_handlers={310: answer}, admit=refuse)
    assert [(r.code, r.remark) for r in deliver(dispatcher, data)] == [(16, "who are you")] * 3


def test_default_handler_takes_what_has_none() -> None:
    dispatcher = RequestDispatcher({}, default=lambda c, m: Command(0, {"code": str(m.code)}))
    assert deliver(dispatcher, encode_request(Command(77)))[0].ext == {"code": "77"}


@pytest.mark.parametrize("with_acl", [False, True])
@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
def test_what_sends_put_off_is_done_before_any_other_request(encoding: int, with_acl: bool) -> None:
    """Sends themselves leave it to be done, with access control and by the slow road too."""
    order: list[str] = []

    def send(connection: Connection, opaque: int, flag: int, send: SendHeader, body: memoryview) -> bytes:
        order.append("send")
        return encode_response(opaque, 0)

    def pull(connection: Connection, command: Command) -> Command:
        order.append("pull")
        return Command(0)

    dispatcher = RequestDispatcher(
        {11: pull},
        send_handlers={310: send},
        before=lambda: order.append("before"),
        admit=(lambda connection, command, rule, size: None) if with_acl else None,
    )
    sent = encode_request(Command(310, send_ext(SEND, short=True)), encoding)
    deliver(dispatcher, sent + encode_request(Command(11)))
    assert order == ["send", "before", "pull"]


@pytest.mark.parametrize(
    "tail",
    [
        b',"code":10}',
        b',"extFields":{"a":"g","b":"secret","c":"TBW102","d":"4","e":"1","f":"0","g":"17","h":"2"}}',
    ],
    ids=["another code", "other fields"],
)
def test_what_is_admitted_is_what_the_handler_gets(tail: bytes) -> None:
    """A header that says everything twice is read the same way by the gate and by the handler."""
    admitted: list[str] = []
    handled: list[str] = []

    def admit(connection: Connection, command: Command, rule: Rule | None, size: int) -> None:
        admitted.append(command.ext["b" if command.code == 310 else "topic"])

    def send(connection: Connection, opaque: int, flag: int, send: SendHeader, body: memoryview) -> bytes:
        handled.append(send.topic)
        return encode_response(opaque, 0)

    fields = json.dumps({**send_ext(SEND, short=True), **send_ext(replace(SEND, topic="open"), short=False)})
    header = b'{"code":310,"extFields":' + fields.encode() + tail
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    deliver(RequestDispatcher({}, send_handlers={10: send, 310: send}, admit=admit), frame)
    assert admitted == handled != []
