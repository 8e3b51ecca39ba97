"""A connection against a transport that the test controls: batching, flow control, limits. No sockets."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tandemq.codec.command import Command, decode_command, encode_request, encode_response
from tandemq.codec.frame import FrameReader
from tandemq.errors import ConnectionLost, RemotingError, ReplyError, RequestTimeout
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Budget, Connection, split_address
from tandemq.remoting.dispatch import RequestDispatcher
from tandemq.testing.waiting import until


class FakeTransport:
    """Keeps what is written; the test says when the peer reads."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.buffered = 0
        self.takes_all = True
        self.reading = True
        self.closed = self.aborted = False
        self.connection: Connection
        self._high = 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high = high

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 10911)}.get(name)

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        if not self.takes_all:
            self.buffered += len(data)
            if self.buffered > self._high and self.connection.is_writable:
                self.connection.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def peer_reads(self) -> None:
        self.buffered, self.takes_all = 0, True
        self.connection.resume_writing()

    def answers(self) -> list[Command]:
        return [decode_command(frame) for frame in FrameReader().feed(b"".join(self.writes))]


def connect(
    dispatcher: RequestDispatcher, config: RemotingConfig | None = None, **options: Any
) -> tuple[Connection, FakeTransport]:
    transport = FakeTransport()
    connection = Connection(config or RemotingConfig(), dispatcher, **options)
    transport.connection = connection
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def echo(_: Connection, command: Command) -> bytes:
    return encode_response(command.opaque, 0, None, {"n": str(command.opaque)}, bytes(command.body))


def requests(count: int, code: int = 1, body: bytes = b"", flag: int = 0) -> bytes:
    return b"".join(encode_request(Command(code, body=body, opaque=n, flag=flag)) for n in range(count))


def test_answers_of_one_read_leave_in_one_write() -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: echo}))
        connection.data_received(requests(50))
        assert len(transport.writes) == 1
        assert [answer.opaque for answer in transport.answers()] == list(range(50))
        assert (connection.peer, connection.local_port) == ("127.0.0.1:5000", 10911)
        assert connection.peer_host_bytes == b"\x7f\0\0\x01\0\0\x13\x88"

    run(story)


def test_later_answers_of_one_turn_leave_in_one_write() -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({}))
        for opaque in range(3):
            connection.send(encode_response(opaque, 0))
        connection.send_parts([b"head", memoryview(b"body")])
        assert transport.writes == []
        await asyncio.sleep(0)
        assert len(transport.writes) == 1
        assert transport.writes[0].endswith(b"headbody")

    run(story)


def test_an_answer_sent_now_takes_those_before_it_along_and_waits_only_for_the_rest_of_a_read() -> None:
    def answer_now(connection: Connection, command: Command) -> None:
        connection.send_now(encode_response(command.opaque, 0))

    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: answer_now}))
        connection.send(encode_response(0, 0))
        connection.send_now(encode_response(1, 0))
        assert [answer.opaque for answer in transport.answers()] == [0, 1]
        await asyncio.sleep(0)
        assert len(transport.writes) == 1
        connection.data_received(requests(3))
        assert len(transport.writes) == 2
        assert [answer.opaque for answer in transport.answers()] == [0, 1, 0, 1, 2]

    run(story)


def test_oneway_is_never_answered_not_even_with_an_error() -> None:
    def fails(_: Connection, command: Command) -> bytes:
        raise ReplyError(17, "no")

    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: echo, 2: fails}))
        connection.data_received(
            requests(3, code=1, flag=2) + requests(3, code=2, flag=2) + requests(1, code=9, flag=2)
        )
        assert transport.writes == []

    run(story)


def test_unknown_codes_get_code_3_and_the_connection_stays() -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({}))
        connection.data_received(requests(1, code=200050))
        assert [(a.code, a.remark) for a in transport.answers()] == [(3, " request type 200050 not supported")]
        assert not transport.is_closing()

    run(story)


def test_exceptions_become_replies() -> None:
    def fails(_: Connection, command: Command) -> bytes:
        raise ReplyError(17, "topic gone") if command.opaque == 0 else ValueError("bad value")

    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: fails}))
        connection.data_received(requests(2))
        assert [(a.code, a.remark) for a in transport.answers()] == [(17, "topic gone"), (1, "ValueError: bad value")]

    run(story)


def test_async_handlers_are_bounded_per_connection() -> None:
    gate: asyncio.Event

    async def slow(_: Connection, command: Command) -> Command:
        await gate.wait()
        return Command(0, {"slow": "yes"})

    async def story() -> None:
        nonlocal gate
        gate = asyncio.Event()
        connection, transport = connect(RequestDispatcher({1: slow}), RemotingConfig(requests_in_progress_max=2))
        connection.data_received(requests(3))
        assert [(a.code, a.opaque) for a in transport.answers()] == [(2, 2)]
        gate.set()
        await asyncio.gather(*connection.tasks)
        await asyncio.sleep(0)
        assert [(a.code, a.opaque, a.ext) for a in transport.answers()[1:]] == [
            (0, 0, {"slow": "yes"}),
            (0, 1, {"slow": "yes"}),
        ]

    run(story)


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    """Requests already received wait; they are answered when the peer reads again."""

    async def story() -> None:
        config = RemotingConfig(write_buffer_high=8192, write_buffer_low=4096)
        connection, transport = connect(RequestDispatcher({1: echo}), config)
        transport.takes_all = False
        connection.data_received(requests(40, body=bytes(1000)))
        assert not connection.is_writable
        assert not transport.reading
        assert 5 <= len(transport.answers()) <= 12
        waiting = asyncio.ensure_future(connection.wait_writable())
        await asyncio.sleep(0)
        assert not waiting.done()
        transport.peer_reads()
        await waiting
        await asyncio.sleep(0)
        assert [answer.opaque for answer in transport.answers()] == list(range(40))
        assert transport.reading

    run(story)


def test_a_client_goes_on_reading_while_its_requests_wait() -> None:
    """Its server may have stopped reading until it reads: one of the two has to go on."""

    async def story() -> None:
        config = RemotingConfig(write_buffer_high=8192, write_buffer_low=4096)
        connection, transport = connect(RequestDispatcher({}), config, serves=False)
        transport.takes_all = False
        waiting = [connection.start_invoke(Command(1, body=bytes(1000)), 5.0) for _ in range(20)]
        await asyncio.sleep(0)
        assert not connection.is_writable
        assert transport.reading
        connection.data_received(b"".join(encode_response(n, 0) for n in range(20)))
        assert all([(await answer).code == 0 for answer in waiting])

    run(story)


def test_unfinished_frames_of_all_connections_share_a_budget() -> None:
    async def story() -> None:
        budget = Budget(1_000_000)
        first, _ = connect(RequestDispatcher({}), budget=budget)
        second, refused = connect(RequestDispatcher({}), budget=budget)
        data = encode_request(Command(1, body=bytes(900_000)))
        first.data_received(data[:600_000])
        second.data_received(data[:100_000])
        assert budget.used == 700_000
        second.data_received(data[100_000:500_000])
        assert refused.aborted
        assert "no room" in second.close_reason
        second.connection_lost(None)
        assert budget.used == 600_000
        first.data_received(data[600_000:])
        assert budget.used == 0

    run(story)


def test_answers_of_others_to_a_stalled_peer_end_the_connection() -> None:
    """Long polls and notices go on while a peer is stalled: beyond the hard limit it is cut."""

    async def story() -> None:
        config = RemotingConfig(write_buffer_high=8192, write_buffer_low=4096, write_buffer_max=1024 * 1024)
        connection, transport = connect(RequestDispatcher({}), config)
        transport.takes_all = False
        for _ in range(200):
            connection.send(bytes(10_000))
            await asyncio.sleep(0)
        assert transport.aborted
        assert transport.buffered <= 1024 * 1024
        assert "does not read its answers" in connection.close_reason

    run(story)


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, encode_request(Command(1))[:8] + b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_frame_ends_the_connection(data: bytes) -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: echo}))
        connection.data_received(data)
        assert transport.aborted
        assert connection.close_reason

    run(story)


@pytest.mark.parametrize("broken", [b"\x00\x00\x00\x0a\x00\x00\x00\x05hello!", b"\xff" * 20])
def test_answers_before_a_broken_frame_still_leave(broken: bytes) -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({1: echo}))
        connection.data_received(requests(2) + broken)
        assert transport.aborted
        assert [answer.opaque for answer in transport.answers()] == [0, 1]

    run(story)


def test_invoke_gets_its_answer_by_opaque() -> None:
    async def story() -> None:
        connection, transport = connect(RequestDispatcher({}))
        first, second = (connection.start_invoke(Command(40), 5.0) for _ in range(2))
        await asyncio.sleep(0)
        sent = transport.answers()
        connection.data_received(encode_response(sent[1].opaque, 7, "b") + encode_response(sent[0].opaque, 0, "a"))
        connection.data_received(encode_response(12345, 0))  # nobody waits for it
        assert ((await first).remark, (await second).remark) == ("a", "b")
        assert connection.inflight == 0

    run(story)


def test_invoke_ends_at_its_deadline_or_with_the_connection() -> None:
    async def story() -> None:
        connection, _ = connect(RequestDispatcher({}))
        with pytest.raises(RequestTimeout):
            await connection.invoke(Command(40), 0.01)
        waiting = connection.start_invoke(Command(40), 60.0)
        connection.connection_lost(None)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await waiting
        with pytest.raises(ConnectionLost):
            await connection.invoke(Command(40), 1.0)
        with pytest.raises(ConnectionLost):
            connection.send_oneway(Command(40))

    run(story)


def test_whoever_was_away_looks_for_answers_before_giving_up() -> None:
    """The loop was busy, or the process stopped, beyond the deadline: an answer that lies in the socket counts."""

    async def story() -> None:
        connection, transport = connect(RequestDispatcher({}))
        now = [asyncio.get_running_loop().time()]
        connection._now = lambda: now[0]  # type: ignore[method-assign]
        answered, silent = (connection.start_invoke(Command(40), 0.01) for _ in range(2))
        await asyncio.sleep(0)
        now[0] += 1.0  # as seen by the first look at deadlines
        await until(lambda: connection._was_away, "the first look")
        assert connection.inflight == 2
        connection.data_received(encode_response(transport.answers()[0].opaque, 0, "late"))
        assert (await answered).remark == "late"
        now[0] += 1.0
        with pytest.raises(RequestTimeout):
            await silent
        assert not connection._was_away

    run(story)


def test_lost_connections_cancel_their_handlers_and_tell_the_owner() -> None:
    async def forever(_: Connection, command: Command) -> Command:
        await asyncio.Event().wait()
        raise AssertionError

    async def story() -> None:
        lost: list[Connection] = []
        transport = FakeTransport()
        connection = Connection(RemotingConfig(), RequestDispatcher({1: forever}), on_lost=lost.append)
        transport.connection = connection
        connection.connection_made(transport)  # type: ignore[arg-type]
        connection.data_received(requests(1))
        (task,) = connection.tasks
        await asyncio.sleep(0)
        connection.connection_lost(OSError("reset"))
        await asyncio.wait([task])
        assert task.cancelled()
        assert lost == [connection]
        assert connection.close_reason == "reset"

    run(story)


@pytest.mark.parametrize(
    ("text", "expected"), [("127.0.0.1:9876", ("127.0.0.1", 9876)), ("[::1]:80", ("::1", 80)), (" h:1 ", ("h", 1))]
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:70000", "host:x"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(RemotingError, match="host:port"):
        split_address(text)
