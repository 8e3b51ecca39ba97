"""A listening server: accepts connections, gives their frames to the dispatcher, closes the idle and the stalled."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType

from tandemq.clock import SystemClock
from tandemq.codec.acl import CHALLENGE, CHALLENGE_SIZE, SERVER_TIME, SessionCheck
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.codec.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, decode_command, encode_response
from tandemq.codec.frame import Frame
from tandemq.errors import ConfigError
from tandemq.remoting.access.needs import needs
from tandemq.remoting.bursts import Burst
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.remoting.connection import Budget, Connection
from tandemq.remoting.dispatch import (
    Admit,
    Audit,
    Divert,
    Gate,
    Handler,
    OnError,
    RequestDispatcher,
    SendHandler,
    default_on_error,
)
from tandemq.remoting.tls import HANDSHAKE_BYTE, server_context
from tandemq.remoting.turn_log import TurnLog
from tandemq.remoting.turns import NOTHING, LoopTurns, Turn

log = logging.getLogger("tandemq.remoting")

OnConnection = Callable[[Connection], None]

_STALL_CHECK_SECONDS = 1.0
_TLS_CHOICE_SECONDS = 10.0
"""How long a connection to a permissive port may take to send its first byte."""
_SURPLUS_SECONDS = 5.0
"""How long a connection beyond `connectionsPerAddressMax` may take to ask for something and be told why not."""
LOST_IN_TURN = 64
"""Connections whose end is told in one turn of the loop: a few milliseconds. Thousands may close at once."""
CHOOSING_MAX = 512
"""Connections to a permissive port that have sent nothing yet; beyond it, the oldest makes room for the newest."""


@needs(is_open=True)
def _challenge(connection: Connection, command: Command) -> bytes:
    """Gives a connection what its requests are to be signed with. A second request gets another and ends the first."""
    now, wall_ms = asyncio.get_running_loop().time(), SystemClock().wall_ms()
    challenge = secrets.token_bytes(CHALLENGE_SIZE)
    connection.session_check = SessionCheck(challenge, wall_ms, int(now * 1000))
    answer = {CHALLENGE: challenge.hex(), SERVER_TIME: str(wall_ms)}
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A snapshot for metrics and `status` commands."""

    connections: int = 0
    connections_refused: int = 0
    connections_total: int = 0
    requests: int = 0
    failures: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    unsent_size: int = 0
    longest_turn: Turn = NOTHING


class RemotingServer:
    """`start()`, `stop()`, or `async with`; port 0 takes a free one, `listen` adds further ports."""

    def __init__(
        self,
        config: RemotingConfig,
        handlers: Mapping[int, Handler],
        *,
        default: Handler | None = None,
        send_handlers: Mapping[int, SendHandler] | None = None,
        on_connect: OnConnection | None = None,
        on_disconnect: OnConnection | None = None,
        on_error: OnError = default_on_error,
        admit: Admit | None = None,
        audit: Audit | None = None,
        before: Callable[[], None] | None = None,
        gate: Gate | None = None,
        divert: Divert | None = None,
    ) -> None:
        self.config = config
        self.turns = LoopTurns()
        self._turn_log: TurnLog | None = None
        self.dispatcher = RequestDispatcher(
            {OperatorCode.CHALLENGE: _challenge, **handlers},
            default=default,
            send_handlers=send_handlers,
            on_error=on_error,
            admit=admit,
            audit=audit,
            before=before,
            gate=gate,
            divert=divert,
            turns=self.turns,
        )
        self.connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        """Of `connections`, those from each address."""
        self.port = 0
        """The main port, once started."""
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._tls = server_context(config)
        self._listeners: list[asyncio.Server] = []
        self._acceptors: set[asyncio.Task[None]] = set()
        self._choosing: dict[asyncio.Task[None], str] = {}
        """Connections to a permissive port that have sent nothing yet -> host; the oldest first."""
        self._listening_sockets: list[socket.socket] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._receiving = Budget(config.receive_buffer_total_max)
        self._burst: Burst | None = None
        self._stopping = False
        self._all_lost = asyncio.Event()
        self._lost_in_turn = 0
        self._to_tell: deque[Connection] = deque()
        """Lost connections of which `on_disconnect` is still to be told."""
        self._refused = 0
        self._accepted = 0
        self._closed_bytes_in = 0
        self._closed_bytes_out = 0

    async def __aenter__(self) -> "RemotingServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> int:
        """Listens on the configured port and returns it (the one taken, when it was 0)."""
        self.port = await self.listen(self.config.listen_port)
        return self.port

    async def listen(self, port: int, *, without: frozenset[int] = frozenset()) -> int:
        """Listens on one more port, on which the request codes in `without` are not supported (VIP port)."""
        loop = asyncio.get_running_loop()
        self.turns.watch(loop)
        self._burst = self._burst or Burst(loop)
        if self.config.turn_log_ms and self._turn_log is None:
            self._turn_log = TurnLog(self.config.turn_log_ms / 1000)
            self._turn_log.start(loop)
        dispatch = self.dispatcher.__call__  # the bound method: calling the object takes a detour, for every frame

        def connection() -> Connection:
            return Connection(
                self.config,
                dispatch,
                on_made=self._made,
                on_lost=self._lost,
                on_stalled=self._stalled,
                budget=self._receiving,
                burst=self._burst,
                excluded_codes=without,
            )

        host = self.config.bind_address or None
        try:
            if self.config.tls_mode is TlsMode.PERMISSIVE:
                return self._listen_permissive(host or "0.0.0.0", port, connection)
            listener = await loop.create_server(
                connection, host, port, ssl=self._tls, backlog=self.config.backlog, reuse_address=True
            )
        except OSError as error:
            raise ConfigError(
                f"listenPort={port}, bindAddress={host or 'any'}: can't listen there "
                f"({os.strerror(error.errno).lower() if error.errno else error}); another process may have the port"
            ) from None
        self._listeners.append(listener)
        self._arm_sweep()
        return int(listener.sockets[0].getsockname()[1])

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """Takes no new connections, answers accepted requests within the grace, then closes everything."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for acceptor in list(self._acceptors):
            acceptor.cancel()
        for listening in self._listening_sockets:
            listening.close()
        if self._sweep is not None:
            self._sweep.cancel()
        self.turns.stop()
        if self._turn_log is not None:
            self._turn_log.stop()
            self._turn_log = None
        running = [task for connection in self.connections for task in connection.tasks]
        if running:
            await asyncio.wait(running, timeout=grace_seconds)
        for connection in list(self.connections):
            connection.close("the server is stopping")
        if self.connections:
            with contextlib.suppress(TimeoutError):  # a slow reader may still be taking its last answers
                async with asyncio.timeout(grace_seconds):
                    await self._all_lost.wait()
        for connection in list(self.connections):
            connection.abort("the server is stopping")
        if self.connections:
            await self._all_lost.wait()
        self._tell_lost(len(self._to_tell))
        self._listeners.clear()

    def close_accounts(self, is_known: Callable[[str], bool]) -> None:
        """Closes the connections of accounts that exist no longer."""
        for connection in list(self.connections):
            if connection.account and not is_known(connection.account):
                connection.close(f"account {connection.account!r} was removed or disabled")

    def status(self) -> ServerStatus:
        """Returns what has passed through this server, for metrics."""
        return ServerStatus(
            connections=len(self.connections),
            connections_refused=self._refused,
            connections_total=self._accepted,
            requests=self.dispatcher.requests,
            failures=self.dispatcher.failures,
            bytes_in=self._closed_bytes_in + sum(c.bytes_in for c in self.connections),
            bytes_out=self._closed_bytes_out + sum(c.bytes_out for c in self.connections),
            unsent_size=sum(c.unsent_size for c in self.connections),
            longest_turn=self.turns.longest(),
        )

    # Connections ------------------------------------------------------------------------------------------------------

    def _made(self, connection: Connection) -> None:
        if self._stopping or len(self.connections) >= self.config.connections_max:
            self._refused += 1
            log.warning(
                "connection refused peer=%s connections=%d serverConnectionsMax=%d",
                connection.peer,
                len(self.connections),
                self.config.connections_max,
            )
            connection.abort("too many connections")
            return
        self.connections.add(connection)
        self._all_lost.clear()
        self._per_host[connection.host] += 1
        if self._per_host[connection.host] > self.config.connections_per_address_max:
            self._refused += 1
            connection.serve_by(self._refuse)
            asyncio.get_running_loop().call_later(_SURPLUS_SECONDS, connection.abort, "too many from one address")
            return
        self._accepted += 1
        if self._on_connect is not None:
            self._on_connect(connection)

    def _refuse(self, connection: Connection, frame: Frame) -> None:
        """Answers the first request of a connection beyond the limit of its address, and closes the connection."""
        command, limit = decode_command(frame), self.config.connections_per_address_max
        remark = f"too many connections from {connection.host}: connectionsPerAddressMax={limit}"
        log.warning("connection refused peer=%s reason=%r", connection.peer, remark)
        if not command.flag & (RESPONSE_FLAG | ONEWAY_FLAG):
            connection.send(encode_response(command.opaque, ResponseCode.SYSTEM_BUSY, remark))
        connection.close(remark)

    def _lost(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]
        if not self.connections:
            self._all_lost.set()
        self._closed_bytes_in += connection.bytes_in
        self._closed_bytes_out += connection.bytes_out
        if self._on_disconnect is not None:
            self._to_tell.append(connection)
            if not self._lost_in_turn:
                asyncio.get_running_loop().call_soon(self._next_lost)
            if self._lost_in_turn < LOST_IN_TURN:
                self._tell_lost(1)

    def _next_lost(self) -> None:
        """Goes on with the connections that closed together with many others, a few in each turn of the loop."""
        self._lost_in_turn = 0
        if self._to_tell:
            asyncio.get_running_loop().call_soon(self._next_lost)
            self._tell_lost(LOST_IN_TURN)

    def _tell_lost(self, count: int) -> None:
        self._lost_in_turn += count
        while count and self._to_tell and self._on_disconnect is not None:
            count -= 1
            self._on_disconnect(self._to_tell.popleft())

    def _stalled(self, _: Connection) -> None:
        """Watches a peer that does not read its answers, and gives up on the worst if there are too many."""
        self._arm_sweep()
        unsent = {c: c.unsent_size for c in self.connections if c.stalled_since is not None}
        if sum(unsent.values()) > self.config.write_buffer_total_max:
            worst = max(unsent, key=lambda connection: unsent[connection])
            worst.abort(
                f"{unsent[worst]} unsent bytes are the most of {sum(unsent.values())} that slow readers hold, "
                f"writeBufferTotalMax is {self.config.write_buffer_total_max}"
            )

    def _arm_sweep(self) -> None:
        """Wakes rarely: an eighth of the idle limit, or each second while a peer is stalled."""
        if self._sweep is not None:
            self._sweep.cancel()
        stalled = any(connection.stalled_since is not None for connection in self.connections)
        delay = _STALL_CHECK_SECONDS if stalled else self.config.idle_seconds_max / 8
        self._sweep = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            stalled = connection.stalled_since
            if stalled is not None:
                if now - stalled >= self.config.write_stall_seconds_max:
                    connection.abort(
                        f"did not read its answers for {now - stalled:.0f} s, "
                        f"writeStallSecondsMax is {self.config.write_stall_seconds_max}"
                    )
            elif now - connection.last_activity >= self.config.idle_seconds_max:
                connection.close(f"idle for {now - connection.last_activity:.0f} s")
        self._arm_sweep()

    # Both plain and TLS on one port -----------------------------------------------------------------------------------

    def _listen_permissive(self, host: str, port: int, factory: Callable[[], Connection]) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind((host, port))
            listening.listen(self.config.backlog)
        except OSError:
            listening.close()
            raise
        self._listening_sockets.append(listening)
        self._own(self._accept(listening, factory))
        self._arm_sweep()
        return int(listening.getsockname()[1])

    def _own(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._acceptors.add(task)
        task.add_done_callback(self._acceptors.discard)
        return task

    async def _accept(self, listening: socket.socket, factory: Callable[[], Connection]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors: the connections in the backlog wait
                log.warning("accept failed error=%r", str(error))
                await asyncio.sleep(0.1)
                continue
            if len(self._choosing) >= CHOOSING_MAX:
                self._drop_a_silent_one()
            task = self._own(self._choose(accepted, factory))
            self._choosing[task] = str(address[0])
            task.add_done_callback(lambda done: self._choosing.pop(done, None))

    def _drop_a_silent_one(self) -> None:
        """Makes room: the oldest goes of the host that has most. A client sends its first byte at once."""
        by_host = Counter(self._choosing.values())
        oldest = max(self._choosing, key=lambda task: by_host[self._choosing[task]])
        del self._choosing[oldest]
        oldest.cancel()
        self._refused += 1

    async def _choose(self, accepted: socket.socket, factory: Callable[[], Connection]) -> None:
        """Looks at the first byte without taking it, then hands the socket to a plain or a TLS transport."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_TLS_CHOICE_SECONDS):
                first = await _peek(accepted)
                tls = self._tls if first == HANDSHAKE_BYTE else None
                await loop.connect_accepted_socket(factory, accepted, ssl=tls)
        except (OSError, TimeoutError):
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise


async def _peek(accepted: socket.socket) -> int | None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(accepted.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted.fileno())
    first = accepted.recv(1, socket.MSG_PEEK)
    return first[0] if first else None
