"""Tells every name server what this broker offers, and keeps telling them.

One task per name server, so that a dead or slow one delays nobody: register all topics at start, every
`registerNameServerPeriod`, and at once when the connection was lost (a name server forgets a broker whose connection
closes); register changed topics alone as soon as they change. A failure is repeated with growing pauses up to 5 s and
logged once per state change.

A large table costs both sides a lot, so a master asks for the version first when a period brought nothing new
(QUERY_DATA_VERSION, which name servers count as a sign of life). It registers in full only if the name server has
another one or does not know the request, and every FULL_EVERY periods all the same.

A new role is a new id at the same address: the registration with it replaces the old one, nothing is unregistered
first. A former master tells its new id only when its successor is known, or after a while: in between a route without
a master would make clients fail that a moment later are served, and until then it forwards what they send.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tandemq import __version__
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.tables.topics import TopicTable, masked
from tandemq.clock import Clock, SystemClock
from tandemq.codec import fastjson
from tandemq.codec.bodies import data_version_json, kv_table_of, load_object
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.register import body_crc, encode_registration, registration_pieces
from tandemq.errors import CodecError, RemotingError, ReplyError
from tandemq.model.route import MASTER_ID
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.slices import Slices

log = logging.getLogger(__name__)

RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 5.0
UNREGISTER_SECONDS_MAX = 3.0
LARGE_TABLE_MIN = 1000
"""Topics from which on the version is asked for first, and a whole table is encoded in slices."""
FULL_EVERY = 10
"""Periods: five minutes by default. A name server may have been told by others to drop a topic of ours."""
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
HOLD_SECONDS_MAX = 3.0
"""How long a former master keeps its place in the routes while it knows no successor."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a name server answered."""

    server: str
    master_address: str
    """Remoting address of the group's master; empty for the master itself or when there is none."""
    ha_address: str
    order_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. A change of role makes a new one."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str

    def ext(self) -> dict[str, str]:
        return {
            "brokerAddr": self.address,
            "brokerId": str(self.broker_id),
            "brokerName": self.broker_name,
            "clusterName": self.cluster,
        }


class _Server:
    """What is known about one name server."""

    __slots__ = ("address", "first", "is_due", "is_registered", "needs_all", "pending", "periods", "reason", "wake")

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_registered = False
        """It took our last registration, and the connection has stood since."""
        self.needs_all = True
        """The next registration must name every topic."""
        self.is_due = False
        """A period is over: it has to hear of us again."""
        self.periods = 0
        """How many were over since the start."""
        self.reason = ""
        """Why the last attempt failed; empty after a success."""
        self.pending: set[str] = set()
        """Topics that changed since it was last told."""
        self.wake = asyncio.Event()
        self.first = asyncio.Event()
        """Set with the first registration it took."""


class Registration:
    """The broker's side of the name servers."""

    def __init__(
        self,
        client: RemotingClient,
        topics: TopicTable,
        live: LiveConfig,
        identity: Identity,
        *,
        on_registered: Callable[[Registered], None] = lambda registered: None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._client = client
        self._topics = topics
        self._live = live
        self.identity = identity
        self._on_registered = on_registered
        self._servers = [_Server(address) for address in live.broker.namesrv_addresses]
        self._tasks: list[asyncio.Task[None]] = []
        self.is_held = live.broker.observer
        """Nothing is told before the broker knows what it is in its group; `start` is then called again."""
        self._may_tell = asyncio.Event()
        self._may_tell.set()
        self.state_version: Callable[[], int] = lambda: topics.version.state_version
        """With a coordinator the epoch: of two brokers that claim one id, name servers keep the one with the higher."""
        self.is_resting = False
        """Nothing is told while it is being decided who reigns; `announce` tells the outcome."""

    @property
    def registered_with(self) -> list[str]:
        """Name servers that know us, as far as we know."""
        return [server.address for server in self._servers if server.is_registered]

    def start(self) -> None:
        if self.is_held or self._tasks:
            return
        loop = asyncio.get_running_loop()
        for server in self._servers:
            server.needs_all = True
            self._tasks.append(loop.create_task(self._serve(server), name=f"registration {server.address}"))

    async def wait_registered(self, timeout: float) -> bool:
        """Waits until every name server has known us once, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                for server in self._servers:
                    await server.first.wait()
        except TimeoutError:
            return False
        return True

    def topics_changed(self, names: Iterable[str]) -> None:
        """Tells everybody in this turn that these topics are new or different."""
        names = [name for name in names if name in self._topics]
        if not names:
            return
        for server in self._servers:
            server.pending.update(names)
            server.wake.set()

    def announce(self) -> None:
        """Registers in full now: everything may be different (role, permission)."""
        for server in self._servers:
            server.needs_all = True
            server.wake.set()

    def resume(self) -> None:
        """Tells name servers what this broker is in its group, which may have changed or is known at last."""
        self.is_held = self.is_resting = False
        self.start()
        self.announce()

    async def change(self, identity: Identity, *, hold: bool) -> None:
        """Takes another role and tells everybody; with `hold` after `release`, or after HOLD_SECONDS_MAX."""
        await self._end_tasks()
        self.identity = identity
        if hold:
            self._may_tell.clear()
        else:
            self._may_tell.set()
        self.start()

    def release(self) -> None:
        """Allows the new role to be told: the successor is known."""
        self._may_tell.set()

    async def stop(self) -> None:
        """Ends registrations; every name server that answers in time forgets us."""
        await self._end_tasks()
        known = [server for server in self._servers if server.is_registered]
        await asyncio.gather(*(self._unregister(server) for server in known))

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _serve(self, server: _Server) -> None:
        if not self._may_tell.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS_MAX):
                    await self._may_tell.wait()
        pause = RETRY_SECONDS_MIN
        while True:
            if self.is_resting:
                server.wake.clear()
                await self._keep_alive(server)
                await self._pause(server, self._live.broker.register_period_ms / 1000)
                continue
            changed, server.pending = server.pending, set()
            everything, server.needs_all = server.needs_all, False
            due, server.is_due = server.is_due, False
            server.wake.clear()
            try:
                if everything or not due or not await self._is_current(server, changed):
                    await self._register(server, None if everything or due else changed)
            except (RemotingError, ReplyError, CodecError) as error:
                self._note(server, str(error))
                server.is_registered, server.needs_all = False, True
                wait, pause = pause, min(pause * 2, RETRY_SECONDS_MAX)
            else:
                self._note(server, "")
                server.is_registered = True
                server.first.set()
                pause = RETRY_SECONDS_MIN
                wait = self._live.broker.register_period_ms / 1000
            await self._pause(server, wait)

    async def _pause(self, server: _Server, seconds: float) -> None:
        """Waits until something is to be told, the connection is lost, or the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await server.wake.wait()
        except TimeoutError:
            server.is_due = True
            server.periods += 1

    async def _keep_alive(self, server: _Server) -> None:
        """Keeps routes as they are while it rests, so that those who read from this broker still find it."""
        if server.is_registered:
            body = fastjson.dumps(data_version_json(self._version()))
            query = Command(RequestCode.QUERY_DATA_VERSION, self.identity.ext(), body)
            with contextlib.suppress(RemotingError, ReplyError, CodecError):
                await self._client.invoke(server.address, query, self._live.broker.register_timeout_ms / 1000)

    async def _is_current(self, server: _Server, changed: set[str]) -> bool:
        """Asks a name server, at the end of a period, whether it has this version of a large table.

        Only a master may ask: what others learn from a registration, their master's address, no other answer tells.
        """
        if changed or len(self._topics) < LARGE_TABLE_MIN or self.identity.broker_id != MASTER_ID:
            return False
        if server.periods % FULL_EVERY == 0:
            return False
        body = fastjson.dumps(data_version_json(self._version()))
        timeout = self._live.broker.register_timeout_ms / 1000
        query = Command(RequestCode.QUERY_DATA_VERSION, self.identity.ext(), body)
        reply = await self._client.invoke(server.address, query, timeout)
        if reply.code != ResponseCode.SUCCESS or reply.ext.get("changed", "").lower() != "false":
            return False
        listing = Command(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": ORDER_TOPICS})
        reply = await self._client.invoke(server.address, listing, timeout)
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return False
        table = kv_table_of(load_object(reply.body, "orderTopicConfig"))
        self._on_registered(Registered(server.address, "", "", frozenset(table)))
        return True

    async def _register(self, server: _Server, names: Iterable[str] | None) -> None:
        """Registers all topics, or some; the version is always that of the whole table."""
        body = await self._encoded(names)
        command = Command(RequestCode.REGISTER_BROKER, self._ext(body), body)
        timeout = self._live.broker.register_timeout_ms / 1000
        reply = await self._client.invoke(server.address, command, timeout)
        reply.raise_for_code(ResponseCode.SUCCESS)
        table = kv_table_of(load_object(reply.body, "orderTopicConfig"))
        self._on_registered(
            Registered(
                server.address,
                reply.ext.get("masterAddr", ""),
                reply.ext.get("haServerAddr", ""),
                frozenset(table),
            )
        )

    async def _encoded(self, names: Iterable[str] | None) -> bytes:
        """Returns the body of a registration, made in slices if it is large.

        What changes meanwhile is told right after it: the version is that of the beginning.
        """
        version, chosen = self._version(), self._chosen(names)
        if len(chosen) < LARGE_TABLE_MIN:
            return encode_registration(chosen, version)
        slices, pieces = Slices(self._clock), []
        for piece in registration_pieces(chosen, version):
            pieces.append(piece)
            await slices.breathe()
        return b"".join(pieces)

    def _version(self) -> DataVersion:
        return dataclasses.replace(self._topics.version, state_version=self.state_version())

    def _chosen(self, names: Iterable[str] | None) -> list[TopicConfig]:
        table, perm = self._topics.all(), self._live.broker.broker_permission
        wanted = table if names is None else [name for name in names if name in table]
        return [masked(table[name], perm) for name in wanted]

    def _ext(self, body: bytes) -> dict[str, str]:
        return {
            **self.identity.ext(),
            "haServerAddr": self.identity.ha_address,
            "tandemqVersion": __version__,  # for whoever reads the wire; name servers pass over it
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(body_crc(body)),
        }

    async def _unregister(self, server: _Server) -> None:
        command = Command(RequestCode.UNREGISTER_BROKER, self.identity.ext())
        try:
            await self._client.invoke(server.address, command, UNREGISTER_SECONDS_MAX)
        except RemotingError as error:
            log.warning("name server %s was not told that we stop: %s", server.address, error)
        server.is_registered = False

    def connection_lost(self, address: str) -> None:
        """Registers again at once: a name server forgets a broker whose connection closes."""
        for server in self._servers:
            if server.address == address and server.is_registered:
                server.is_registered, server.needs_all = False, True
                server.wake.set()

    def _note(self, server: _Server, reason: str) -> None:
        """Writes one log line per change of state."""
        if reason and not server.reason:
            log.warning("name server %s: registration failed, trying on: %s", server.address, reason)
        elif server.reason and not reason:
            log.info("name server %s: registered again", server.address)
        server.reason = reason
