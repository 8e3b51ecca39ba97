"""HTTP/1.1 as far as a JSON gateway needs it: one POST, one answer, whole or line by line.

Plain asyncio streams, no dependency.  Every read is bounded in size; the caller bounds the time.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

from tandemq.coordination.endpoints import Endpoint
from tandemq.errors import CoordinatorError

HEADER_LINES_MAX: Final = 100
LINE_MAX: Final = 64 << 10
BODY_MAX: Final = 4 << 20
"""Of one answer, and of one message of a stream: a register has a few kilobytes."""


class ConnectionBroken(CoordinatorError):
    """The connection ended or spoke something else than HTTP; whether the request was carried out is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class HttpConnection:
    """One connection to one endpoint, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self.is_reusable = True
        self.was_used = False
        """An idle connection may have been closed by the other end; who meets that tries a new one."""

    @classmethod
    async def open(cls, endpoint: Endpoint, tls: ssl.SSLContext | None) -> "HttpConnection":
        """Connects; OSError or ssl.SSLError if that is not possible."""
        name = endpoint.host if tls is not None else None
        reader, writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=tls, server_hostname=name, limit=LINE_MAX
        )
        return cls(reader, writer, str(endpoint))

    def close(self) -> None:
        self.is_reusable = False
        self._writer.close()

    async def post(self, path: str, body: bytes, token: str = "") -> Answer:
        """Returns the whole answer."""
        self.is_reusable = False  # until this answer was read to its end
        status, headers = await self._ask(path, body, token)
        data = bytearray()
        async for piece in self._pieces(headers):
            data += piece
            if len(data) > BODY_MAX:
                raise ConnectionBroken(f"{self._host} answers {path} with more than {BODY_MAX} bytes")
        self.is_reusable = headers.get("connection", "").lower() != "close" and _has_end(headers)
        self.was_used = True
        return Answer(status, bytes(data))

    async def stream(self, path: str, body: bytes, token: str = "") -> AsyncGenerator[bytes, None]:
        """Yields the lines of an answer as they come, until the other end closes it."""
        self.is_reusable = False
        status, headers = await self._ask(path, body, token)
        pending = bytearray()
        async for piece in self._pieces(headers):
            pending += piece
            while (stop := pending.find(b"\n")) >= 0:
                line = bytes(pending[:stop])
                del pending[: stop + 1]
                if line.strip():
                    yield line
            if len(pending) > BODY_MAX:
                raise ConnectionBroken(f"{self._host} sends a message of more than {BODY_MAX} bytes")
        if pending.strip():
            yield bytes(pending)
        if status != 200:
            raise ConnectionBroken(f"{self._host} answers {path} with status {status}")

    async def _ask(self, path: str, body: bytes, token: str) -> tuple[int, dict[str, str]]:
        head = [f"POST {path} HTTP/1.1", f"Host: {self._host}", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}"]
        if token:
            head.append(f"Authorization: {token}")
        self._writer.write("\r\n".join((*head, "", "")).encode("latin-1") + body)
        try:
            await self._writer.drain()
            return await self._head()
        except (OSError, EOFError, ValueError) as error:
            raise ConnectionBroken(f"{self._host}: {error or 'the connection was closed'}") from error

    async def _head(self) -> tuple[int, dict[str, str]]:
        words = (await self._line()).split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise ConnectionBroken(f"{self._host} does not answer in HTTP")
        headers: dict[str, str] = {}
        for _ in range(HEADER_LINES_MAX):
            line = await self._line()
            if not line:
                return int(words[1]), headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raise ConnectionBroken(f"{self._host} sends more than {HEADER_LINES_MAX} header lines")

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line.decode("latin-1").rstrip("\r\n")

    async def _pieces(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        try:
            if "chunked" in headers.get("transfer-encoding", "").lower():
                while size := await self._chunk_size():
                    yield await self._reader.readexactly(size)
                    await self._line()
                while await self._line():
                    pass
            elif "content-length" in headers:
                size = int(headers["content-length"])
                if not 0 <= size <= BODY_MAX:
                    raise ConnectionBroken(f"{self._host} announces {size} bytes, at most {BODY_MAX} are read")
                yield await self._reader.readexactly(size)
            else:
                while piece := await self._reader.read(LINE_MAX):
                    yield piece
        except (OSError, EOFError, ValueError) as error:
            raise ConnectionBroken(f"{self._host}: {error or 'the connection was closed'}") from error

    async def _chunk_size(self) -> int:
        size = int((await self._line()).partition(";")[0], 16)
        if not 0 <= size <= BODY_MAX:
            raise ConnectionBroken(f"{self._host} sends a piece of {size} bytes, at most {BODY_MAX} are read")
        return size


def _has_end(headers: dict[str, str]) -> bool:
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
