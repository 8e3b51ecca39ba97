"""One client's link to a cluster: connections, the name server in use, routes, heartbeats.

Producers and consumers join a session as *members*; the session tells every broker about them, keeps their routes fresh
and hands them what brokers push. It is started by the first member and closed by its owner. All state belongs to the
event loop that started it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

from tandemq.client.background import Background, cancelled
from tandemq.client.broker_api import BrokerApi
from tandemq.client.config import ClientConfig, parse_namesrv
from tandemq.client.ids import UniqueKeys, client_id, local_ip
from tandemq.client.nameservers import NameServers
from tandemq.client.route_refresh import RefreshTimes
from tandemq.client.routes import Routes, subscribe_queues, template_route
from tandemq.client.subscription import SQL92
from tandemq.clock import Clock, SystemClock
from tandemq.codec import bodies, fastjson
from tandemq.codec.acl import Credentials
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.errors import ClientClosed, ClientError, ConnectionLost, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.model.route import MASTER_ID, TopicRoute
from tandemq.model.topic import AUTO_CREATE_TOPIC, QueueRef
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig

log = logging.getLogger("tandemq.client")

T = TypeVar("T")

WRITE_BUFFER = 8 * 1024 * 1024
UNREACHABLE_S = 3.0
"""How long a broker that did not answer is passed over while another member of its group can be read."""
ASKED_BESIDES = 8192
"""Requests other than sends that may wait on one connection: pulls, locks, offsets, heartbeats."""
SETTLING_S = 10.0
"""How long after the loss of a master its successor, or the master itself, may not know everything about us."""
FAREWELL_S = 3.0
"""How long a member that leaves waits for the brokers to take note."""


class Member(Protocol):
    """A producer or consumer as its session sees it."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Returns the topics whose routes are to be kept fresh."""
        ...

    @property
    def needs_all_masters(self) -> bool:
        """Whether every master must know it, also those whose topics it has not used yet."""
        ...

    def consumer_info(self) -> ConsumerGroupInfo | None:
        """Returns what heartbeats say about a consumer; None for producers."""
        ...


PushHandler = Callable[[Any, Command], Command | bytes | Awaitable[Command | bytes | None] | None]


class Session:
    """Shared by producers, consumers and admins of one program, so that they use the same connections and routes.

        async with Session(ClientConfig(namesrv="127.0.0.1:9876")) as session:
            async with Producer("shop", session=session) as producer, Admin(session=session) as admin:
                await producer.send(Message(topic="orders", body=b"paid"))
                print(await admin.topics())

    Without one, each client has a session of its own. A group can be in a session once.
    """

    def __init__(self, config: ClientConfig | None = None, *, clock: Clock | None = None) -> None:
        self.config = config or ClientConfig()
        self.clock = clock or SystemClock()
        ip = local_ip()
        self.client_id = client_id(ip, self.config.instance_name, self.config.unit_name)
        """By this id brokers and other members know the clients of this session."""
        self.keys = UniqueKeys(ip)
        self.routes = Routes()
        self.api = BrokerApi(self.invoke)
        self.random = random.Random()
        addresses = parse_namesrv(self.config.namesrv)
        self.namesrv = NameServers(addresses, self.random.randrange(len(addresses)))
        self.remoting = RemotingClient(
            _remoting_config(self.config), credentials=_credentials(self.config), on_lost=self._connection_lost
        )
        self._members: list[Member] = []
        self._pushed: dict[int, list[PushHandler]] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}
        self._background = Background(f"session {self.client_id}")
        self._started = self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that it is used in."""
        self._unreachable: dict[str, float] = {}
        self._heartbeat_wanted = asyncio.Event()
        self._refresh_wanted = asyncio.Event()
        self._refresh_times = RefreshTimes(self.config.route_interval_ms / 1000)
        self.on_routes_changed: list[Callable[[str], None]] = []
        """Called with the topic whose route has changed."""
        self.on_master_lost: list[Callable[[str], None]] = []
        """Called with the name of a broker group whose master can't be reached or has moved: what it kept in memory
        for us, locks above all, may be gone."""
        self.on_connection_lost: list[Callable[[str], None]] = []
        """Called with the address of a server whose connection has closed."""
        self._lost_at: dict[str, float] = {}

    # life

    async def start(self) -> None:
        """Starts refreshing routes and sending heartbeats; does nothing when that runs already."""
        if self._closed:
            raise ClientClosed("this session was closed: make a new one")
        self.check_loop("this session")
        if not self._started:
            self._started = True
            self._background.start("routes", self._refresh_routes_forever)
            self._background.start("heartbeat", self._heartbeat_forever)

    def check_loop(self, who: str) -> None:
        """Raises ClientError outside the event loop that the session was first used in: elsewhere nothing would answer.

        A child of a fork has no running loop, even if the fork was made inside one.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientError(
                f"{who} was used outside an event loop, or in a child of a fork: make a new client there"
            ) from None
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ClientError(f"{who} belongs to another event loop: use it where it was started, or make a new one")

    async def close(self) -> None:
        """Ends the background work and the connections. Members should have left by now."""
        self._closed = True
        await self._background.stop()
        await cancelled(list(self._asking.values()))
        await self.remoting.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # asking

    async def invoke(
        self, address: str, code: int, ext: dict[str, str], body: bytes = b"", *, timeout_ms: int | None = None
    ) -> Command:
        """Returns the answer to one request, whatever its code; RemotingError if there is none."""
        timeout = (timeout_ms or self.config.api_timeout_ms) / 1000
        return await self.remoting.invoke(address, self.command(code, ext, body), timeout)

    async def invoke_oneway(self, address: str, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """Sends a request that gets no answer; waits for the connection and room in its buffer."""
        await self.remoting.invoke_oneway(address, self.command(code, ext, body), self.config.api_timeout_ms / 1000)

    def command(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """Returns a request. The connection it leaves by signs it, if there are credentials."""
        return Command(code, ext, body)

    async def ask_namesrv(self, code: int, ext: dict[str, str], *, accept: tuple[int, ...] = ()) -> Command:
        """Returns the answer of the first name server that gives one; each is asked once.

        They share the time of one request, so that a server that hangs leaves some for its healthy neighbour.
        """
        problems = []
        closed = False
        candidates = self.namesrv.candidates()
        for address in candidates:
            try:
                reply = await self.invoke(address, code, ext, timeout_ms=self.config.api_timeout_ms // len(candidates))
            except RemotingError as error:
                problems.append(f"{address}: {str(error).removeprefix(f'{address}: ')}")
                closed = closed or isinstance(error.__cause__ or error, ConnectionLost)
                continue
            if self.namesrv.answered(address):
                log.info("now using name server %s (%s)", address, "; ".join(problems))
            return reply.raise_for_code(*accept)
        raise RemotingError(f"no name server answers: {'; '.join(problems)}; {self._advice(closed)}")

    def _advice(self, closed: bool) -> str:
        """Returns what to try when no name server answers; one that takes a connection and closes it wants TLS."""
        if closed and not self.config.use_tls:
            return "does it want TLS? Set useTLS (commands: TANDEMQ_TLS=true, or a context with --tls)"
        if closed and not self.config.tls_cert_file:
            return (
                "does it want a client certificate? Set tlsClientCertPath and tlsClientKeyPath "
                "(commands: TANDEMQ_TLS_CERT and TANDEMQ_TLS_KEY, or a context with --tls-cert and --tls-key)"
            )
        return "check namesrvAddr and that one is running"

    async def ask_master(self, broker_name: str, topic: str, ask: Callable[[str], Awaitable[T]]) -> T:
        """Returns what the master of a group answers; where it can't or won't, what its successor answers.

        A refusal is worth a look at the route too: a master that was demoted says no to what only masters do.
        """
        return await self._ask_again(
            await self.master(broker_name, topic), topic, ask, lambda: self.routes.master(broker_name)
        )

    async def ask_reader(self, broker_name: str, topic: str, ask: Callable[[str], Awaitable[T]]) -> T:
        """Returns what the master answers, or a slave where there is no master; asks anew where they have moved."""

        def reader() -> str | None:
            target = self.routes.reader(broker_name, MASTER_ID)
            return target.address if target is not None else None

        return await self._ask_again(await self.any_address(broker_name, topic), topic, ask, reader)

    async def _ask_again(
        self, address: str, topic: str, ask: Callable[[str], Awaitable[T]], moved_to: Callable[[], str | None]
    ) -> T:
        """Asks; after a failure asks for the route, and once more if that gives another address."""
        try:
            return await ask(address)
        except (RemotingError, ReplyError) as error:
            if isinstance(error, RemotingError):
                self.alarm()
            try:
                await self.route(topic, refresh=True)
            except TandemError as also:
                log.debug("the route of %s could not be refreshed: %s", topic, also)
            successor = moved_to()
            if successor is None or successor == address:
                raise
        return await ask(successor)

    def mark_unreachable(self, address: str) -> None:
        """Makes readers prefer other members for a while."""
        self._unreachable[address] = self.clock.monotonic() + UNREACHABLE_S

    def reachable(self, address: str) -> bool:
        """Returns False for an address that gave no answer a moment ago."""
        until = self._unreachable.get(address)
        if until is None:
            return True
        if until <= self.clock.monotonic():
            del self._unreachable[address]
            return True
        return False

    # routes

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Returns the route of a topic, from the cache unless `refresh`; NoRoute if it has none.

        However many wait for it, the name servers are asked once.
        """
        known = None if refresh else self.routes.get(topic)
        if known is not None and not self.routes.is_templated(topic):
            return known
        if self._closed:
            raise ClientClosed(f"the client was closed: no route of {topic!r}")
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._ask_route(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise ClientClosed(f"the client was closed: no route of {topic!r}") from None
            raise

    def _asked(self, topic: str, done: "asyncio.Task[TopicRoute]") -> None:
        self._asking.pop(topic, None)
        if not done.cancelled():
            done.exception()  # marked as seen, in case nobody waits for it any more

    async def publish_queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the queues to send to. A topic that does not exist is routed as TBW102, if brokers create topics."""
        if self.routes.get(topic) is None:
            await self._publish_route(topic)
        queues = self.routes.publish(topic)
        if not queues:
            # Perhaps a new master registered since we asked.
            await self._publish_route(topic, refresh=True)
            queues = self.routes.publish(topic)
        if not queues:
            raise NoRoute(f"topic {topic!r} has no writable queue: no broker of it has a master, or its perm forbids")
        return queues

    async def _publish_route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        try:
            return await self.route(topic, refresh=refresh)
        except NoRoute as missing:
            try:
                template = await self.route(AUTO_CREATE_TOPIC)
            except NoRoute:
                raise missing from None
        route = template_route(template, self.config.default_topic_queues)
        self.routes.put(topic, route, templated=True)
        return route

    async def subscribe_queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the queues that can be read; none while the topic does not exist."""
        try:
            return subscribe_queues(topic, await self.route(topic))
        except NoRoute:
            return ()

    async def master(self, broker_name: str, topic: str) -> str:
        """Returns the master's address; asks for the topic's route again when it is not known."""
        address = self.routes.master(broker_name)
        if address is None:
            await self.route(topic, refresh=True)
            address = self.routes.master(broker_name)
        if address is None:
            raise NoRoute(f"broker {broker_name!r} has no master in the route of {topic!r}")
        return address

    async def any_address(self, broker_name: str, topic: str) -> str:
        """Returns the master's address if there is one, else a slave's: for reads that any of them can answer."""
        target = self.routes.reader(broker_name, MASTER_ID)
        if target is None:
            await self.route(topic, refresh=True)
            target = self.routes.reader(broker_name, MASTER_ID)
        if target is None:
            raise NoRoute(f"broker {broker_name!r} is not in the route of {topic!r}")
        return target.address

    async def _ask_route(self, topic: str) -> TopicRoute:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        reply = await self.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, accept=(ResponseCode.TOPIC_NOT_EXIST,)
        )
        if reply.code == ResponseCode.TOPIC_NOT_EXIST or not reply.body:
            if not self.routes.is_templated(topic):
                self.routes.forget(topic)
            raise NoRoute(f"no name server knows topic {topic!r}; create it (`tandemq topic create {topic}`)")
        route = bodies.topic_route_of(fastjson.loads(bytes(reply.body)))
        masters = {group.name: self.routes.master(group.name) for group in route.groups}
        changed = self.routes.put(topic, route)
        for name, before in masters.items():
            if before is not None and self.routes.master(name) != before:
                self._master_lost(name)
        if changed:
            self.heartbeat_soon()  # a new master knows none of our members yet
            for listener in tuple(self.on_routes_changed):
                listener(topic)
        return route

    async def learn_masters(self) -> None:
        """Learns every broker of the cluster, so that heartbeats reach those whose topics no member has used yet."""
        reply = await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        groups, _ = bodies.cluster_info_of(fastjson.loads(bytes(reply.body)))
        self.routes.learn(groups.values())

    async def refresh_routes(self) -> None:
        """Asks again for every topic that members use. One topic's failure does not stop the others."""
        wanted = dict.fromkeys(topic for member in self._members for topic in member.topics())
        self.routes.drop_unused(wanted)
        for topic in wanted:
            try:
                await self.route(topic, refresh=True)
            except NoRoute:
                if self.routes.is_templated(topic):
                    await self._refresh_template(topic)
            except TandemError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)
                return
        if any(member.needs_all_masters for member in self._members):
            await self._learn_masters_quietly()

    async def _learn_masters_quietly(self) -> None:
        try:
            await self.learn_masters()
        except TandemError as error:
            log.warning("the brokers of the cluster could not be listed: %s", error)

    async def _refresh_template(self, topic: str) -> None:
        self.routes.forget(topic)
        try:
            await self._publish_route(topic)
        except TandemError as error:
            log.warning("topic %s lost its route: %s", topic, error)

    def alarm(self) -> None:
        """Routes may be stale: they are asked for at once, and again after short pauses."""
        if self._refresh_times.alarm():
            self._refresh_wanted.set()

    def _connection_lost(self, address: str) -> None:
        if self._closed:
            return
        for listener in tuple(self.on_connection_lost):
            listener(address)
        for name, group in self.routes.groups().items():
            if address == group.master:
                self._master_lost(name)
            if address in group.addresses.values():
                self.alarm()

    def _master_lost(self, broker_name: str) -> None:
        self._lost_at[broker_name] = self.clock.monotonic()
        for listener in tuple(self.on_master_lost):
            listener(broker_name)

    def is_settled(self, broker_name: str) -> bool:
        """Returns whether the group's master has not been lost a moment ago: if it was, it may not know all members
        yet, nor what they hold."""
        lost_at = self._lost_at.get(broker_name)
        return lost_at is None or self.clock.monotonic() - lost_at > SETTLING_S

    async def _refresh_routes_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._refresh_times.wait_s()):
                    await self._refresh_wanted.wait()
            except TimeoutError:
                pass
            self._refresh_wanted.clear()
            self._refresh_times.asked()
            await self.refresh_routes()

    async def check_filter(self, group: str, item: Subscription) -> None:
        """Raises the error of an SQL92 filter that brokers refuse.

        Without this, a filter that is switched off or wrong stays silent.
        """
        if item.expression_type != SQL92:
            return
        for queue in {queue.broker_name: queue for queue in await self.subscribe_queues(item.topic)}.values():
            address = await self.any_address(queue.broker_name, queue.topic)
            await self.api.check_subscription(address, self.client_id, group, item)

    # members and heartbeats

    def join(self, member: Member) -> None:
        """Makes a producer or consumer known to the session; brokers learn of it with the next heartbeat."""
        if any(other.group == member.group and type(other) is type(member) for other in self._members):
            raise ClientError(f"group {member.group!r} is in this session already: use another session or group")
        self._members.append(member)

    def forget_listener(self, listener: Callable[[str], None]) -> None:
        """Stops telling somebody about changed routes and lost masters."""
        for listeners in (self.on_routes_changed, self.on_master_lost):
            if listener in listeners:
                listeners.remove(listener)

    async def leave(self, member: Member) -> None:
        """Tells every broker, so that the rest of the group takes over at once. Does nothing for a stranger."""
        if member not in self._members:
            return
        self._members.remove(member)
        role = "producer" if member.consumer_info() is None else "consumer"
        addresses = [a for group in self.routes.groups().values() for a in group.addresses.values()]
        farewells = [asyncio.ensure_future(self._farewell(a, role, member.group)) for a in addresses]
        if farewells:
            _, late = await asyncio.wait(farewells, timeout=FAREWELL_S)
            for task in late:
                task.cancel()

    async def _farewell(self, address: str, role: str, group: str) -> None:
        try:
            await self.api.unregister(address, self.client_id, **{role: group})
        except TandemError as error:
            log.debug("%s was not told that group %s leaves: %s", address, group, error)

    def heartbeat_soon(self) -> None:
        """Sends the next heartbeat now: brokers should learn of a new member or subscription at once."""
        self._heartbeat_wanted.set()

    async def heartbeat(self) -> None:
        """Tells every broker in any route about the members; slaves only need to know consumers."""
        infos = [(member.group, member.consumer_info()) for member in self._members]
        consumers = tuple(info for _, info in infos if info is not None)
        producers = tuple(group for group, info in infos if info is None)
        if not infos:
            return
        body = encode_heartbeat(Heartbeat(client_id=self.client_id, producer_groups=producers, consumers=consumers))
        targets = [
            address
            for group in self.routes.groups().values()
            for broker_id, address in group.addresses.items()
            if broker_id == MASTER_ID or consumers
        ]
        outcomes = await asyncio.gather(*(self.api.heartbeat(a, body) for a in targets), return_exceptions=True)
        for address, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, (TandemError, ReplyError)):
                log.debug("heartbeat to %s failed: %s", address, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _heartbeat_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.config.heartbeat_interval_ms / 1000):
                    await self._heartbeat_wanted.wait()
            except TimeoutError:
                pass
            self._heartbeat_wanted.clear()
            await self.heartbeat()

    # what brokers push

    def on_push(self, code: int, handler: PushHandler) -> None:
        """Adds a handler of a code. Every handler sees each request; the first answer that is not None is sent back."""
        if code not in self._pushed:
            self._pushed[code] = []
            self.remoting.handlers[code] = lambda connection, command: self._dispatch(code, connection, command)
        self._pushed[code].append(handler)

    def off_push(self, owner: object) -> None:
        """Forgets the handlers that are methods of `owner`, which leaves a session that may stay."""
        for handlers in self._pushed.values():
            handlers[:] = [handler for handler in handlers if getattr(handler, "__self__", None) is not owner]

    def _dispatch(self, code: int, connection: Any, command: Command) -> Any:
        for handler in tuple(self._pushed[code]):
            answer = handler(connection, command)
            if answer is not None:
                return answer
        return None


def session_for(session: Session | None, config: ClientConfig | None, namesrv: str | None) -> tuple[Session, bool]:
    """Returns the session to use and whether its user must close it."""
    if session is not None:
        if config is not None or namesrv is not None:
            raise ClientError("a session brings its own config and name servers: give either, not both")
        return session, False
    config = config or ClientConfig()
    return Session(replace(config, namesrv=namesrv) if namesrv else config), True


def _credentials(config: ClientConfig) -> Credentials | None:
    if not config.access_key:
        return None
    return Credentials(config.access_key, config.secret_key, config.security_token)


def _remoting_config(config: ClientConfig) -> RemotingConfig:
    return RemotingConfig(
        use_tls=config.use_tls,
        tls_client_trust_path=config.tls_ca_file,
        tls_client_cert_path=config.tls_cert_file,
        tls_client_key_path=config.tls_key_file,
        tls_client_auth_server=config.tls_verify,
        inflight_max=min(65_535, config.in_flight_max + ASKED_BESIDES),
        # A connection that can't write stops reading too: room for a full window of sends keeps answers coming.
        write_buffer_high=WRITE_BUFFER,
        write_buffer_low=WRITE_BUFFER // 4,
    )
