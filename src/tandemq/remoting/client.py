"""Connections by address: opened when first needed, shared by all requests to that address, reopened after a loss."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType

from tandemq.codec.acl import sign
from tandemq.codec.command import Command
from tandemq.errors import ConnectFailed, ConnectionLost, RequestTimeout
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection, split_address
from tandemq.remoting.dispatch import Dispatcher, Handler
from tandemq.remoting.tls import client_context

log = logging.getLogger("tandemq.remoting")


class RemotingClient:
    """`invoke` and `invoke_oneway` by "host:port"; requests that servers push go to `handlers`."""

    def __init__(
        self,
        config: RemotingConfig,
        handlers: Mapping[int, Handler] | None = None,
        *,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self.config = config
        self._on_lost = on_lost
        """Told the address of a connection that closed, whoever closed it."""
        self._dispatcher = Dispatcher(handlers or {})
        self._tls = client_context(config)
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Future[Connection]] = {}
        self._closed = False

    async def __aenter__(self) -> "RemotingClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def handlers(self) -> dict[int, Handler]:
        """Code -> handler of requests pushed by servers; may be changed at any time."""
        return self._dispatcher.handlers

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        """The answer, whatever its code, within `timeout` seconds, connecting included.

        ConnectFailed, ConnectionLost or RequestTimeout otherwise.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout)
        self._sign(command)
        started = loop.time()
        try:
            return await connection.start_invoke(command, deadline - started)
        except RequestTimeout:
            if connection.last_received < started:  # not one byte since: the peer may be gone without a word
                connection.abort(f"silent for {timeout:g} s")
            raise RequestTimeout(f"{address}: no answer to request code {command.code} within {timeout:g} s") from None

    async def invoke_oneway(self, address: str, command: Command, timeout: float = 3.0) -> None:
        """Sends without waiting for anything but the connection and room in its buffer."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout)
        if not connection.is_writable:
            try:
                async with asyncio.timeout(timeout):
                    await connection.wait_writable()
            except TimeoutError:
                raise RequestTimeout(f"{address}: does not read what we send, waited {timeout:g} s") from None
        self._sign(command)
        connection.send_oneway(command)

    def _sign(self, command: Command) -> None:
        if self.config.access_key:
            command.ext = sign(command.ext, command.body, self.config.access_key, self.config.secret_key)

    async def connection(self, address: str, timeout: float = 3.0) -> Connection:
        """The open connection to an address, made if there is none."""
        found = self._connections.get(address)
        return found if found is not None and found.is_open else await self._connect(address, timeout)

    def disconnect(self, address: str) -> None:
        """Closes the connection to one address, if any; the next request opens another."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Closes every connection; requests that wait get ConnectionLost."""
        self._closed = True
        for connecting in list(self._connecting.values()):
            connecting.cancel()
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close("the client was closed")
        await asyncio.sleep(0)  # transports report their loss in the next turn of the loop
        for connection in connections:
            if connection.unsent_size == 0:
                connection.abort("the client was closed")

    async def _connect(self, address: str, timeout: float) -> Connection:
        """One connection attempt per address at a time; everybody who needs it waits for the same one."""
        if self._closed:
            raise ConnectionLost(f"{address}: the client was closed")
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.ensure_future(self._open(address))
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda done: self._connected(address, done))
        # Not wait_for: until Python 3.12 it swallows a cancellation that comes in the same moment as the outcome.
        await asyncio.wait([connecting], timeout=timeout)
        if not connecting.done():
            raise ConnectFailed(f"{address}: no connection within {timeout:g} s")
        if connecting.cancelled():
            raise ConnectionLost(f"{address}: the client was closed")
        return connecting.result()

    def _connected(self, address: str, done: "asyncio.Future[Connection]") -> None:
        self._connecting.pop(address, None)
        if not done.cancelled():
            done.exception()  # seen, even if nobody waits any more

    async def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()

        def factory() -> Connection:
            return Connection(
                self.config, self._dispatcher, on_lost=lambda lost: self._lost(address, lost), serves=False
            )

        seconds = self.config.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    factory, host, port, ssl=self._tls, server_hostname=host if self._tls is not None else None
                )
        except TimeoutError:
            raise ConnectFailed(f"{address}: no connection within {seconds:g} s (connectTimeoutMillis)") from None
        except OSError as error:
            raise ConnectFailed(f"{address}: {error.strerror or error}") from None
        self._connections[address] = connection
        return connection

    def _lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
            if self._on_lost is not None:
                self._on_lost(address)
