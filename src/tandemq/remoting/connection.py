"""One TCP link, of a server or a client: frames in, frames out, requests of our own and their answers, flow control.

Writing: `send` collects; everything collected during one read of the socket (or one turn of the loop) leaves in one
write. Reading stops while the peer does not read its answers (more than `write_buffer_high` unsent bytes): the frames
already received wait in a backlog of at most one read. A peer that stays stalled too long, or for whom more than
`write_buffer_max` bytes pile up because others (long polls, notifications) keep answering it, is disconnected.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from tandemq.codec.acl import SessionCheck
from tandemq.codec.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, encode_request
from tandemq.codec.frame import Frame, FrameReader
from tandemq.errors import CodecError, ConnectionLost, RemotingError, RequestTimeout
from tandemq.remoting.bursts import Burst
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.inflight import Inflight

log = logging.getLogger("tandemq.remoting")

Buffer = bytes | bytearray | memoryview
Dispatch = Callable[["Connection", Frame], None]
"""Takes every frame of a connection; raises CodecError for one that must end it."""

_SMALL = 64 * 1024
"""Unfinished frames up to this size are not accounted for: the connection limit bounds them well enough."""

_NO_CODES: frozenset[int] = frozenset()

SLICE_S = 0.01
"""Requests that came in one read of the socket share so much of the loop's time; the rest of them waits a turn."""

AWAY_S = 0.25
"""Deadlines that are checked this much too late were missed by us: the loop was busy or the process stopped."""
GRACE_S = 5.0
"""How much longer answers are waited for then, at most; otherwise as long as we were away."""


class AnswerWaiter(Protocol):
    """Who waits for an answer: a future, or anything that is told the same way. Called once, on the loop."""

    def done(self) -> bool: ...

    def set_result(self, result: Command, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Signer(Protocol):
    """Adds to a request what proves who makes it (`codec.acl`)."""

    def sign(self, command: Command, /) -> None: ...


class Budget:
    """Bytes that may be held together by all who share it."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def change(self, size: int) -> bool:
        """Takes, or with a negative number gives back. Returns False, with nothing taken, if it would be too much."""
        if size > 0 and self.used + size > self.limit:
            return False
        self.used += size
        return True


class Connection(asyncio.Protocol):
    """Created per link by the server or the client. All methods belong to the loop's thread."""

    is_forwarded = False
    """Whether the peer is not at the other end: another broker hands its requests on (`broker.forwarding`)."""

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_batching",
        "_budget",
        "_burst",
        "_dispatch",
        "_expires_at",
        "_expiry",
        "_held",
        "_inflight",
        "_loop",
        "_now",
        "_on_lost",
        "_on_made",
        "_on_stalled",
        "_out",
        "_out_has_views",
        "_out_size",
        "_reader",
        "_serves",
        "_transport",
        "_turn",
        "_was_away",
        "_writable_waiters",
        "account",
        "bytes_in",
        "bytes_out",
        "close_reason",
        "config",
        "excluded_codes",
        "is_open",
        "is_writable",
        "last_activity",
        "last_received",
        "local_port",
        "peer",
        "peer_host_bytes",
        "session_check",
        "signer",
        "spent",
        "stalled_since",
        "state",
        "tasks",
    )

    def __init__(
        self,
        config: RemotingConfig,
        dispatch: Dispatch,
        *,
        on_made: Callable[["Connection"], None] | None = None,
        on_lost: Callable[["Connection"], None] | None = None,
        on_stalled: Callable[["Connection"], None] | None = None,
        budget: Budget | None = None,
        burst: Burst | None = None,
        serves: bool = True,
        excluded_codes: frozenset[int] = _NO_CODES,
    ) -> None:
        self.config = config
        self._dispatch = dispatch
        self._on_made = on_made
        self._on_lost = on_lost
        self._on_stalled = on_stalled
        self._budget = budget
        """Shared by the connections of a server: bounds what unfinished frames hold."""
        self._burst = burst
        """Likewise: bounds what all of them may do in one turn of the loop."""
        self._turn = -1
        """In which turn this one was read last."""
        self._held = 0
        self._serves = serves
        """A server reads no requests from a peer that does not read its answers. A client must go on reading: its
        server may be waiting for just that."""
        self.excluded_codes = excluded_codes
        """Request codes not served on the port this connection came in by."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._reader = FrameReader(config.frame_size_max, config.header_size_max)
        self._transport: asyncio.Transport | None = None
        self._inflight: Inflight[AnswerWaiter] = Inflight(config.inflight_max)
        self._expiry: asyncio.Handle | None = None
        self._expires_at = 0.0
        """When `_expiry` is due. The handle does not always know: uvloop gives one without a time for what is past."""
        self._was_away = False
        """Whether the answers that are due already are waited for once more."""
        self._out: list[Buffer] = []
        self._out_size = 0
        self._out_has_views = False
        self._batching = False
        self._backlog: deque[Frame] = deque()
        self._writable_waiters: list[asyncio.Future[None]] = []
        self.peer = "?"
        """ "ip:port" of the other side."""
        self.peer_host_bytes = b"\0" * 8
        """The other side as records hold it: ip (4 or 16 bytes) and port (4 bytes)."""
        self.local_port = 0
        self.is_open = False
        """From the connection made until `close`, `abort` or the peer ends it."""
        self.is_writable = True
        """False while the peer reads slower than we answer."""
        self.stalled_since: float | None = None
        self.close_reason = ""
        self.last_activity = self._now()
        self.last_received = self.last_activity
        self.bytes_in = 0
        self.bytes_out = 0
        self.state: dict[str, Any] = {}
        """Free for the owner of the server: who this peer is, what it waits for."""
        self.account = ""
        """The access key of the last request that access control let pass; empty without access control."""
        self.session_check: SessionCheck | None = None
        """A server's side: checks requests that are signed for this connection, once the peer asked for a challenge."""
        self.signer: Signer | None = None
        """A client's side: signs the requests that leave by this connection."""
        self.spent = 0.0
        """Seconds that requests of the read at hand took so far, as far as the dispatcher counts them."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests of this connection whose handler is still running."""

    # asyncio's side ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of asyncio's
        self._transport = transport
        transport.set_write_buffer_limits(self.config.write_buffer_high, self.config.write_buffer_low)
        self.peer, self.peer_host_bytes = _host_of(transport.get_extra_info("peername"))
        local = transport.get_extra_info("sockname")
        self.local_port = local[1] if isinstance(local, tuple) else 0
        self.is_open = True
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        now = self.last_activity = self.last_received = self._now()
        self.bytes_in += len(data)
        reader = self._reader
        frames = reader.feed(data) if reader.error is None else []
        held = reader.pending_size
        if held > _SMALL or self._held:
            self._hold(held if held > _SMALL else 0)
        if self._backlog:
            self._backlog.extend(frames)
        elif frames:
            burst = self._burst
            if burst is None:
                self._process(frames)
            else:
                has_time = burst.reads(now, self._turn)
                self._turn = burst.turn
                if has_time:
                    self._process(frames)
                else:
                    self._pause(frames)
        if reader.error is not None and not self._backlog:
            self._end_broken()

    def _end_broken(self) -> None:
        """Ends a connection whose next frame can't be found, once what came before it was served."""
        self._flush()
        self.abort(str(self._reader.error))

    def _hold(self, size: int) -> None:
        """Accounts for the start of a large frame whose rest has not come."""
        if self._budget is not None and not self._budget.change(size - self._held):
            self.abort(f"no room for more of its frame: unfinished ones hold {self._budget.used} bytes in all")
            return
        self._held = size

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        reason = self.close_reason or (str(error) if error else "closed by the peer")
        self.close_reason = reason
        if self._expiry is not None:
            self._expiry.cancel()
        for waiter in self._inflight.take_all():
            if not waiter.done():
                waiter.set_exception(ConnectionLost(f"{self.peer}: {reason}"))
        for writable in self._writable_waiters:
            if not writable.done():
                writable.set_exception(ConnectionLost(f"{self.peer}: {reason}"))
        for task in self.tasks:
            task.cancel()
        if self._budget is not None:
            self._budget.change(-self._held)
            self._held = 0
        self._writable_waiters.clear()
        self._backlog.clear()
        self._out.clear()
        if self._on_lost is not None:
            self._on_lost(self)

    def pause_writing(self) -> None:
        self.is_writable = False
        self.stalled_since = self._now()
        if self._serves and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        if self._on_stalled is not None:
            self._loop.call_soon(self._on_stalled, self)

    def resume_writing(self) -> None:
        self.is_writable = True
        self.stalled_since = None
        self.last_activity = self._now()
        for writable in self._writable_waiters:
            if not writable.done():
                writable.set_result(None)
        self._writable_waiters.clear()
        if self._backlog:
            self._loop.call_soon(self._continue)
        elif self._serves and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _continue(self) -> None:
        """Takes the backlog up again, unless the peer stopped reading meanwhile: then its resuming does."""
        if not self.is_open or not self.is_writable:
            return
        if self._burst is not None and not self._burst.goes_on(self._now()):
            self._loop.call_soon(self._continue)
            return
        frames = list(self._backlog)
        self._backlog.clear()
        self._process(frames)
        if self._backlog:
            return
        if self._reader.error is not None:
            self._end_broken()
        elif self.is_writable and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _pause(self, rest: list[Frame]) -> None:
        """Leaves the rest of a read to the loop's next turn: others are served in between."""
        self._backlog.extend(rest)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._loop.call_soon(self._continue)

    def _process(self, frames: list[Frame]) -> None:
        dispatch, high = self._dispatch, self.config.write_buffer_high
        self._batching = True
        self.spent = 0.0
        try:
            for index, frame in enumerate(frames):
                dispatch(self, frame)
                if self.spent > SLICE_S and self._serves and index + 1 < len(frames):
                    self._pause(frames[index + 1 :])
                    break
                if self._out_size > high:
                    self._flush()
                    if not self.is_writable and self._serves:
                        self._backlog.extend(frames[index + 1 :])
                        break
        except CodecError as error:
            self._flush()
            self.abort(str(error))
        finally:
            self._batching = False
        if self._out:
            self._flush()

    # Writing ----------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Queues an encoded frame, or drops it when the connection is gone."""
        if not self._out and not self._batching:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_size += len(data)

    def send_now(self, data: bytes) -> None:
        """Sends an answer that no other will follow in this turn, without waiting for the turn's end as `send` does."""
        self._out.append(data)
        self._out_size += len(data)
        if not self._batching:
            self._flush()

    def send_parts(self, parts: list[Buffer]) -> None:
        """Queues one frame given in pieces, e.g. `response_head` and views of a mapped file, without joining them."""
        if not self._out and not self._batching:
            self._loop.call_soon(self._flush)
        self._out.extend(parts)
        self._out_size += sum(map(len, parts))
        self._out_has_views = True

    def _flush(self) -> None:
        out = self._out
        transport = self._transport
        if not out or transport is None:
            return
        size, views = self._out_size, self._out_has_views
        self._out, self._out_size, self._out_has_views = [], 0, False
        if transport.is_closing():
            return
        if not self.is_writable and transport.get_write_buffer_size() + size > self.config.write_buffer_max:
            self.abort(
                f"does not read its answers: {transport.get_write_buffer_size() + size} unsent bytes, "
                f"writeBufferSizeMax is {self.config.write_buffer_max}"
            )
            return
        self.bytes_out += size
        self.last_activity = self._now()
        if len(out) == 1:
            transport.write(out[0])
        elif views:
            transport.writelines(out)
        else:
            transport.write(b"".join(out))

    async def wait_writable(self) -> None:
        """Returns when the peer takes more; ConnectionLost if it goes away first."""
        if self.is_writable:
            return
        waiter = self._loop.create_future()
        self._writable_waiters.append(waiter)
        await waiter

    @property
    def host(self) -> str:
        """Returns the address of the other side without its port."""
        return self.peer.rpartition(":")[0].strip("[]")

    @property
    def unsent_size(self) -> int:
        """Returns the number of bytes handed to the connection that the kernel has not taken yet."""
        return self._out_size + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def serve_by(self, dispatch: Dispatch) -> None:
        """Gives the frames that come from now on to another dispatcher."""
        self._dispatch = dispatch

    def close(self, reason: str = "closed by us") -> None:
        """Ends the connection after what was sent has left."""
        if self._transport is None or self._transport.is_closing():
            return
        self.close_reason = self.close_reason or reason
        self._flush()
        self.is_open = False
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Ends the connection now; what was not sent is lost."""
        self.close_reason = self.close_reason or reason
        if self._transport is not None:
            if self.is_open:
                log.info("connection aborted peer=%s reason=%r", self.peer, reason)
            self.is_open = False
            self._transport.abort()

    # Requests of our own ----------------------------------------------------------------------------------------------

    async def invoke(self, command: Command, timeout: float) -> Command:
        """Sends a request on this connection and waits at most `timeout` seconds for its answer."""
        return await self.start_invoke(command, timeout)

    def start_invoke(self, command: Command, timeout: float) -> "asyncio.Future[Command]":
        """Does what `invoke` does without a coroutine: the future gets the answer, RequestTimeout or ConnectionLost."""
        if not self.is_open:
            raise ConnectionLost(f"{self.peer}: {self.close_reason or 'not connected'}")
        waiter: asyncio.Future[Command] = self._loop.create_future()
        now = self._now()
        deadline = now + timeout
        command.opaque = self._inflight.add(waiter, deadline)
        command.flag &= ~(RESPONSE_FLAG | ONEWAY_FLAG)
        self.last_activity = now
        if self.signer is not None:
            self.signer.sign(command)
        self.send(encode_request(command))
        if self._expiry is None or self._expires_at > deadline:
            self._arm_expiry(deadline)
        return waiter

    def start_request(self, encode: Callable[[int], bytes], waiter: AnswerWaiter, timeout: float) -> None:
        """Does what `start_invoke` does, for hot paths: `encode(opaque)` gives the frame, `waiter` is told at once."""
        if not self.is_open:
            raise ConnectionLost(f"{self.peer}: {self.close_reason or 'not connected'}")
        now = self._now()
        deadline = now + timeout
        self.last_activity = now
        self.send(encode(self._inflight.add(waiter, deadline)))
        if self._expiry is None or self._expires_at > deadline:
            self._arm_expiry(deadline)

    def send_oneway(self, command: Command) -> None:
        """Sends a request that nobody answers."""
        if not self.is_open:
            raise ConnectionLost(f"{self.peer}: {self.close_reason or 'not connected'}")
        command.flag = command.flag & ~RESPONSE_FLAG | ONEWAY_FLAG
        self.last_activity = self._now()
        if self.signer is not None:
            self.signer.sign(command)
        self.send(encode_request(command))

    def answered(self, command: Command) -> None:
        """Wakes whoever waits for this response; drops a late or unknown one."""
        waiter = self._inflight.take(command.opaque)
        if waiter is not None and not waiter.done():
            command.body = bytes(command.body)  # the waiter runs later and must not pin the receive buffer
            waiter.set_result(command)

    @property
    def inflight(self) -> int:
        """Returns the number of our requests that have no answer yet."""
        return len(self._inflight)

    def _arm_expiry(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline, self._expire)
        self._expires_at = deadline

    def _expire(self) -> None:
        now, due = self._now(), self._expires_at
        self._expiry = None
        if now - due > AWAY_S and not self._was_away:
            # We were away, not the peer: the answer may lie in the socket, or the request has left only now.
            self._was_away = True
            self._arm_expiry(now + min(now - due, GRACE_S))
            return
        self._was_away = False
        for waiter in self._inflight.expire(now):
            if not waiter.done():
                waiter.set_exception(RequestTimeout(f"{self.peer}: no answer before the deadline"))
        deadline = self._inflight.next_deadline
        if deadline is not None:
            self._arm_expiry(deadline)


def _host_of(name: Any) -> tuple[str, bytes]:
    """Returns ("ip:port", host bytes) of a socket name."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "?", b"\0" * 8
    host, port = str(name[0]), int(name[1])
    host = host.removeprefix("::ffff:").partition("%")[0]
    if ":" in host:
        return f"[{host}]:{port}", socket.inet_pton(socket.AF_INET6, host) + port.to_bytes(4, "big")
    return f"{host}:{port}", socket.inet_aton(host) + port.to_bytes(4, "big")


def split_address(address: str) -> tuple[str, int]:
    """Returns (host, port) of "host:port" or "[v6]:port"; raises RemotingError when it is neither."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise RemotingError(f"address {address!r}: host:port expected, e.g. 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
