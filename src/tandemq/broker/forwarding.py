"""What only a master can do, asked of a broker that is none: it hands the request to its master, and the answer back.

A client's route may be half a minute old. Until it learns of a hand-over it sends to a former master, which carries
such requests on while it knows who reigns. During a hand-over, when for a moment nobody is open, requests wait, at most
`forwardTimeoutMillis`; on a node that opens meanwhile they go to its own handlers.

    client ──310──▶ former master ──FORWARD(310)──▶ master: its own handler, checks and ack rules decide
           ◀──────────────────────────────────────  the answer, unchanged

**Never twice.** A request travels inside a FORWARD, which nobody forwards: a receiver that is not open says so
(`NOT_OPEN`) and the sender looks again who reigns.

**Who asks.** The forwarding broker lets pass what access control lets pass, as if it were the master, and names the
account. The master believes that name only from one who may do everything anyway: the holder of the group's key, or a
super user, and checks the account's permissions itself, anew. A broker with access control that has neither key nor
super account refuses as it did before; so does a master that has access control while the forwarder has none.

**What is not known is not guessed.** A request that left and got no answer may have been carried out: it is answered
with an error and not sent again.
"""

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from tandemq.clock import Clock
from tandemq.codec.acl import without_signature
from tandemq.codec.codes import RequestCode, ResponseCode, code_name
from tandemq.codec.command import Command
from tandemq.errors import ConnectFailed, RemotingError, ReplyError
from tandemq.model.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tandemq.remoting.access.accounts import Accounts
from tandemq.remoting.access.needs import UPDATE, needs, on_cluster
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.connection import Connection, split_address
from tandemq.remoting.dispatch import Gate, Handler, Reply, RequestDispatcher
from tandemq.replication.metadata import PairCode

log = logging.getLogger(__name__)

FORWARDED: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    }
)
"""Requests of clients that only a master can answer."""

CODE, CALLER, PEER, VERSION = "tandemqCode", "tandemqCaller", "tandemqPeer", "tandemqVersion"
"""Ext fields of a FORWARD beside those of the request in it: its code, account, client's address and version."""
NOT_OPEN = "tandemqNotOpen"
"""Ext field of the answer of one that is no open master; its value is the master it knows of."""

PENDING_MAX = 8192
PENDING_BYTES_MAX = 64 << 20
"""Requests, and bytes of their bodies, that may be on their way at a time; more are answered SYSTEM_BUSY."""
ANSWER_SECONDS = 15.0
"""How long an answer is waited for once a request has left: the master's own deadlines are shorter."""
PAUSE_SECONDS = 0.05
"""How often it is tried again during a hand-over, if nothing that happens says so earlier."""
DEAF_SECONDS = 30.0
"""How long a master that does not know FORWARD is not asked again: an older one, or a RocketMQ broker."""


class Forwarder:
    """Both sides: `divert` hands requests on, `take` answers those that another broker hands to this one."""

    def __init__(
        self,
        gate: Gate,
        client: RemotingClient,
        clock: Clock,
        *,
        master: Callable[[], str],
        timeout_ms: Callable[[], int],
        accounts: Accounts | None = None,
        may_sign: Callable[[], bool] = lambda: True,
    ) -> None:
        """`master` gives the address of whoever reigns, empty if that is not known or this node itself.

        `may_sign` tells whether the master will believe what this node says about who asks.
        """
        self._gate = gate
        self._client = client
        self._clock = clock
        self._master = master
        self._timeout_ms = timeout_ms
        self._accounts = accounts
        self._may_sign = may_sign
        self.dispatcher: RequestDispatcher | None = None
        """This node's own handlers; set once they are put together."""
        self._holds_until = float("-inf")
        self._changed = asyncio.Event()
        self._deaf: dict[str, float] = {}
        self._pending = self._pending_bytes = 0
        self.forwarded = self.refused = 0
        """Requests that a master answered, and that were refused after all; for metrics."""

    def handlers(self) -> dict[int, Handler]:
        return {PairCode.FORWARD: self.take}

    def expect_hand_over(self) -> None:
        """Makes requests wait for a moment for whoever opens, instead of refusing them: the reign changes now."""
        self._holds_until = self._clock.monotonic() + self._timeout_ms() / 1000
        self.changed()

    def changed(self) -> None:
        """Lets what waits look again: somebody opened, or another master is known."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- handing on ---------------------------------------------------------------------------------------------------

    def divert(self, connection: Connection, command: Command) -> Awaitable[Reply] | None:
        """Returns what will answer a request that this node can't; None if it is to be refused here and now."""
        if command.code not in FORWARDED or self._timeout_ms() == 0 or not self._may_sign():
            return None
        now = self._clock.monotonic()
        if now >= self._holds_until and not self._known_master(now):
            return None
        if command.code == RequestCode.END_TRANSACTION and not _is_decided(command):
            return None  # nobody answers "unknown", so nobody is asked
        size = len(command.body)
        if self._pending >= PENDING_MAX or self._pending_bytes + size > PENDING_BYTES_MAX:
            raise ReplyError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy: {self._pending} requests of {self._pending_bytes} bytes are on their way to "
                "the master",
            )
        self._pending += 1
        self._pending_bytes += size
        command.body = bytes(command.body)  # the view of the receive buffer ends with this turn
        return self._carried(connection, command, now + self._timeout_ms() / 1000)

    async def _carried(self, connection: Connection, command: Command, deadline: float) -> Reply:
        try:
            return await self._carry(connection, command, deadline)
        except ReplyError:
            self.refused += 1
            raise
        finally:
            self._pending -= 1
            self._pending_bytes -= len(command.body)

    async def _carry(self, connection: Connection, command: Command, deadline: float) -> Reply:
        while True:
            changed, refusal = self._changed, self._gate.refusal
            if refusal is None:
                return await self._here(connection, command)
            now = self._clock.monotonic()
            address = self._known_master(now)
            reply = await self._ask(address, connection, command) if address else None
            if reply is not None:
                self.forwarded += 1
                return reply
            limit = min(deadline, self._holds_until)
            if self._clock.monotonic() >= limit:
                raise self._gate.refusal or refusal
            await self._pause(changed, PAUSE_SECONDS)

    async def _here(self, connection: Connection, command: Command) -> Reply:
        """Gives the request to this node's own handlers: it has opened meanwhile."""
        assert self.dispatcher is not None
        answer = self.dispatcher.run(connection, command)
        reply: Reply = await answer if inspect.isawaitable(answer) else answer
        return reply

    async def _ask(self, address: str, connection: Connection, command: Command) -> Command | None:
        """Returns the master's answer; None if it took nothing, and the request may be given to somebody else."""
        try:
            reply = await self._client.invoke(address, self._wrapped(connection, command), ANSWER_SECONDS)
        except ConnectFailed as error:
            log.debug("master %s can't be reached: %s", address, error)
            return None
        except RemotingError as error:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"{code_name(command.code)} was handed to the master at {address}, which did not answer: {error}; "
                "whether it was carried out is not known",
            ) from error
        if NOT_OPEN in reply.ext:
            return None
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._deaf[address] = self._clock.monotonic() + DEAF_SECONDS
            log.warning("master %s takes no forwarded requests: clients that send to this broker are refused", address)
            return None
        return reply

    def _wrapped(self, connection: Connection, command: Command) -> Command:
        ext = without_signature(command.ext)
        ext.pop(CALLER, None)
        ext |= {CODE: str(command.code), PEER: connection.peer, VERSION: str(command.version)}
        if command.caller is not None:
            ext[CALLER] = command.caller.name
        return Command(PairCode.FORWARD, ext, command.body)

    def _known_master(self, now: float) -> str:
        address = self._master()
        return address if self._deaf.get(address, 0.0) <= now else ""

    @staticmethod
    async def _pause(changed: asyncio.Event, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass

    # --- taking what another broker hands on --------------------------------------------------------------------------

    @needs(on_cluster(UPDATE), audited=False, key=True)
    def take(self, connection: Connection, command: Command) -> Any:
        """Answers the request inside a FORWARD as if its client had come here."""
        code = command.ext.get(CODE, "")
        if not code.isdecimal() or int(code) not in FORWARDED:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"request {code[:10]!r} is none that brokers forward")
        if self._gate.refusal is not None:
            reply = Command(ResponseCode.SERVICE_NOT_AVAILABLE, {NOT_OPEN: self._master()})
            reply.remark = self._gate.refusal.remark
            return reply
        inner = self._unwrapped(command, int(code))
        assert self.dispatcher is not None
        client = ForwardedConnection(connection, command.ext.get(PEER, ""), getattr(inner.caller, "name", ""))
        return self.dispatcher.run(cast(Connection, client), inner)

    def _unwrapped(self, command: Command, code: int) -> Command:
        ext = {name: value for name, value in without_signature(command.ext).items() if name not in _MARKS}
        version = command.ext.get(VERSION, "")
        inner = Command(code, ext, command.body, opaque=command.opaque)
        inner.version = int(version) if version.isdecimal() else command.version
        if self._accounts is not None:
            if command.caller is None or not command.caller.is_admin:
                raise ReplyError(
                    ResponseCode.NO_PERMISSION, "access refused: only the group's brokers speak for others"
                )
            inner.caller = self._accounts.control.caller(command.ext.get(CALLER, ""), _host(command.ext.get(PEER, "")))
        return inner


_MARKS = frozenset({CODE, CALLER, PEER, VERSION})


class ForwardedConnection:
    """A client's connection as the master sees it: answers go to the broker that forwards, the address is the client's.

    It stands in for a `Connection` at the handlers of `FORWARDED`, which send answers and look who is there.
    """

    is_forwarded = True
    __slots__ = ("_link", "account", "peer", "peer_host_bytes")

    def __init__(self, link: Connection, peer: str, account: str) -> None:
        self._link = link
        self.peer = peer or link.peer
        self.peer_host_bytes = _host_bytes(self.peer) or link.peer_host_bytes
        self.account = account

    @property
    def host(self) -> str:
        return _host(self.peer)

    def send(self, data: bytes) -> None:
        self._link.send(data)

    def send_now(self, data: bytes) -> None:
        self._link.send_now(data)


def _host(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]")


def _host_bytes(peer: str) -> bytes:
    """Returns the client's address as records hold it; nothing for a text that is no address."""
    try:
        host, port = split_address(peer)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.inet_pton(family, host) + port.to_bytes(4, "big")
    except (RemotingError, OSError):
        return b""


def _is_decided(command: Command) -> bool:
    return command.ext.get("commitOrRollback") in (str(TRANSACTION_COMMIT), str(TRANSACTION_ROLLBACK))
