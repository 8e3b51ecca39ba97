"""Serves the console over HTTP until it is told to stop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from tandemq.client.config import ClientConfig
from tandemq.clock import Clock
from tandemq.console.app import Console
from tandemq.errors import ConfigError

CONNECTIONS_MAX = 256
"""Open connections; each browser tab holds one for its live stream and a few for its pages."""
STOP_SECONDS = 2


def parse_listen(text: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`; ConfigError says what is expected."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise ConfigError(f"--listen {text!r}: HOST:PORT is expected, such as 127.0.0.1:8088 or [::1]:8088")
    return host, int(port)


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals to the command that runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """`async with`: listens, and looks at the cluster; port 0 takes a free one."""

    def __init__(
        self,
        config: ClientConfig,
        host: str,
        port: int,
        *,
        clock: Clock | None = None,
        keyed: ClientConfig | None = None,
    ) -> None:
        self.console = Console(config, listen_host=host, clock=clock, keyed=keyed)
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._server = _Server(
            uvicorn.Config(
                self.console.app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                http="h11",
                ws="none",
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
                proxy_headers=False,  # nobody may say where a request comes from but the connection itself
            )
        )

    @property
    def url(self) -> str:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((self._host, self._port))
        except OSError as error:
            found.close()
            raise ConfigError(
                f"--listen {self._host}:{self._port}: {error.strerror}; choose another port, 0 takes a free one"
            ) from error
        self._socket = found
        await self.console.start()
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="console http")
        ready = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

    async def _serve(self) -> None:
        assert self._socket is not None
        await self._server.serve(sockets=[self._socket])

    async def stop(self) -> None:
        self.console.end_streams()
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self.console.stop()
        if self._socket is not None:
            self._socket.close()

    async def __aenter__(self) -> "ConsoleServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
