"""Connections by address: opened when first needed, shared by all requests to that address, reopened after a loss."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType

from tandemq.codec.acl import ClassicSigner, Credentials, session_signer
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import CodecError, ConnectFailed, ConnectionLost, RemotingError, RequestTimeout
from tandemq.remoting.access.accounts import own_credentials
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection, split_address
from tandemq.remoting.dispatch import Handler, RequestDispatcher
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
        credentials: Credentials | None = None,
    ) -> None:
        self.config = config
        self._credentials = credentials or own_credentials(config)
        """The account that signs every request, if there is one."""
        self._on_lost = on_lost
        """Told the address of a connection that closed, whoever closed it."""
        self._dispatcher = RequestDispatcher(handlers or {})
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
        """Returns code -> handler of requests that servers push; it may be changed at any time."""
        return self._dispatcher.handlers

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        """Returns the answer, whatever its code. Takes at most `timeout` seconds, connecting included.

        Raises ConnectFailed, ConnectionLost or RequestTimeout otherwise.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout)
        started = loop.time()
        try:
            return await connection.start_invoke(command, deadline - started)
        except RequestTimeout:
            if connection.last_received < started:  # not one byte since: the peer may be gone unnoticed
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
        connection.send_oneway(command)

    async def connection(self, address: str, timeout: float = 3.0) -> Connection:
        """Returns the open connection to an address; makes one if there is none."""
        found = self._connections.get(address)
        return found if found is not None and found.is_open else await self._connect(address, timeout)

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
        """Makes one connection attempt per address at a time; all callers that need it wait for the same one."""
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
            # A server that speaks no TLS closes a handshake without a word, and the error has none either.
            silent = (
                "closed the TLS handshake: does it speak TLS?" if self._tls is not None else "closed the connection"
            )
            raise ConnectFailed(f"{address}: {error.strerror or str(error) or silent}") from None
        if self._credentials is not None:
            await self._prepare_to_sign(address, connection, self._credentials)
        self._connections[address] = connection
        return connection

    async def _prepare_to_sign(self, address: str, connection: Connection, credentials: Credentials) -> None:
        """Asks for a challenge. A server that does not know the request is not ours and gets RocketMQ's signatures."""
        loop = asyncio.get_running_loop()
        try:
            answer = await connection.invoke(Command(OperatorCode.CHALLENGE), self.config.connect_timeout_ms / 1000)
            if answer.code != ResponseCode.SUCCESS:
                connection.signer = ClassicSigner(credentials)
            else:
                connection.signer = session_signer(credentials, answer, lambda: int(loop.time() * 1000))
        except (RemotingError, CodecError) as error:
            connection.abort("no challenge to sign with")
            # The cause tells whoever explains this that the peer took the connection and closed it.
            raise ConnectFailed(f"{address}: {str(error).removeprefix(f'{address}: ')}") from error
        except BaseException:
            connection.abort("the client was closed")
            raise

    def _lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
            if self._on_lost is not None:
                self._on_lost(address)
