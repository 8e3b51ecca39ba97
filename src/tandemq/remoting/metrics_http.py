"""A tiny HTTP endpoint for scrapers: GET /metrics, GET /health, nothing else.

It is no web server: one request per connection, a bounded head, a deadline. What is rendered comes from the owner, in
pieces; between two slices of SLICE_SECONDS the loop serves its clients.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType

from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError

SLICE_SECONDS = 0.001
_HEAD_SIZE_MAX = 8192
_SECONDS_MAX = 5.0
_CONNECTIONS_MAX = 32
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Serves the pieces of text that `render()` gives, at once or when it is awaited."""

    def __init__(
        self, render: Callable[[], Iterable[str] | Awaitable[Iterable[str]]], clock: Clock | None = None
    ) -> None:
        self._render = render
        self._clock = clock or SystemClock()
        self._server: asyncio.Server | None = None
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections that have asked for nothing yet, the oldest first."""
        self._open = 0
        self._rendering: asyncio.Task[bytes] | None = None
        self.port = 0

    async def __aenter__(self) -> "MetricsEndpoint":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port; port 0 takes a free one."""
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
        if self._rendering is not None:
            self._rendering.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._silent[writer] = None
        if len(self._silent) > _CONNECTIONS_MAX:  # whoever stays silent makes room for whoever comes to ask
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                if self._open <= 2 * _CONNECTIONS_MAX:
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a scraper that went away or never was one
        finally:
            self._silent.pop(writer, None)
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET only\n")
        if path == b"/health":
            return _response("200 OK", b"ok\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"try /metrics\n")
        body = await self._shared_text() if method == b"GET" else b""
        return _response("200 OK", body)

    async def _shared_text(self) -> bytes:
        """Returns a text that begins to be rendered now, or is being rendered: many who ask at once cost one."""
        if self._rendering is None or self._rendering.done():
            self._rendering = asyncio.get_running_loop().create_task(self._text())
        return await asyncio.shield(self._rendering)

    async def _text(self) -> bytes:
        """Returns the rendered text, made in slices."""
        now = self._clock.monotonic
        pieces = []
        end = now() + SLICE_SECONDS
        given = self._render()
        for piece in given if isinstance(given, Iterable) else await given:
            pieces.append(piece.encode())
            if now() >= end:
                await asyncio.sleep(0)
                end = now() + SLICE_SECONDS
        return b"".join(pieces)


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
