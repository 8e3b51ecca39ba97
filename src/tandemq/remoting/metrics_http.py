"""A tiny HTTP endpoint for scrapers: GET /metrics, GET /health, nothing else.

Not a web server: one request per connection, a bounded head, a deadline. Whatever is rendered comes from the owner.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from tandemq.errors import ConfigError

_HEAD_SIZE_MAX = 8192
_SECONDS_MAX = 5.0
_CONNECTIONS_MAX = 32
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Serves what `render()` returns (Prometheus text)."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None
        self._open = 0
        self.port = 0

    async def __aenter__(self) -> "MetricsEndpoint":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, host: str, port: int) -> int:
        """Listens; port 0 takes a free one."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_SIZE_MAX)
        except OSError as error:
            raise ConfigError(f"metricsPort={port} on {host}: can't listen there ({error.strerror or error})") from None
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_SECONDS_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a scraper that went away or never was one
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET only\n")
        if path == b"/health":
            return _response("200 OK", b"ok\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"try /metrics\n")
        body = self._render()
        return _response("200 OK", body if method == b"GET" else b"")


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
