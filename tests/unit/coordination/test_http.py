"""HTTP answers as servers send them, and what is no HTTP."""

import asyncio

import pytest

from tandemq.coordination.endpoints import Endpoint
from tandemq.coordination.http import BODY_MAX, Answer, ConnectionBroken, HttpConnection


def answered(raw: bytes) -> tuple[Answer, bool]:
    """What a client makes of these bytes, and whether it may use the connection again."""

    async def play() -> tuple[Answer, bool]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(raw)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            connection = await HttpConnection.open(Endpoint("127.0.0.1", port), None)
            try:
                return await connection.post("/v3/x", b"{}"), connection.is_reusable
            finally:
                connection.close()

    return asyncio.run(play())


def test_an_answer_with_a_length() -> None:
    assert answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") == (Answer(200, b"{}"), True)


def test_an_answer_in_chunks() -> None:
    raw = b'HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    assert answered(raw) == (Answer(404, b'{"a":1}'), True)


def test_an_answer_that_ends_with_the_connection() -> None:
    assert answered(b"HTTP/1.0 200 OK\r\n\r\n{}") == (Answer(200, b"{}"), False)


def test_a_connection_that_is_to_be_closed_is_not_kept() -> None:
    raw = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    assert answered(raw) == (Answer(200, b"{}"), False)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + str(BODY_MAX + 1).encode() + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 17) + b"\r\n\r\n",
    ],
)
def test_what_is_broken_or_too_large_is_told(raw: bytes) -> None:
    with pytest.raises(ConnectionBroken):
        answered(raw)
