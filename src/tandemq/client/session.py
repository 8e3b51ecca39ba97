"""One client's link to a cluster: connections, the name server in use, routes, heartbeats.

Producers and consumers register with a session as *members*; the session tells every broker about them, keeps their
routes fresh and hands them what brokers push. It is started by the first member and closed by its owner. All state
belongs to the event loop that started it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from tandemq.client.broker_api import BrokerApi
from tandemq.client.config import ClientConfig, parse_namesrv
from tandemq.client.ids import UniqueKeys, client_id, local_ip
from tandemq.client.nameservers import NameServers
from tandemq.client.routes import Routes, subscribe_queues, template_route
from tandemq.client.subscription import SQL92
from tandemq.clock import Clock, SystemClock
from tandemq.codec import bodies, fastjson
from tandemq.codec.acl import sign
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.errors import ClientError, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.model.route import MASTER_ID, TopicRoute
from tandemq.model.topic import AUTO_CREATE_TOPIC, QueueRef
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig

log = logging.getLogger("tandemq.client")

WRITE_BUFFER = 8 * 1024 * 1024
UNREACHABLE_S = 3.0
"""How long a broker that did not answer is passed over while another member of its group can be read."""


class Member(Protocol):
    """A producer or consumer as its session sees it."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Topics whose routes it wants kept fresh."""
        ...

    def consumer_info(self) -> ConsumerGroupInfo | None:
        """What heartbeats say of a consumer; None for producers."""
        ...


PushHandler = Callable[[Any, Command], Command | bytes | Awaitable[Command | bytes | None] | None]


class Session:
    """See the module's text. Use `async with`, or `start` and `close`."""

    def __init__(self, config: ClientConfig | None = None, *, clock: Clock | None = None) -> None:
        self.config = config or ClientConfig()
        self.clock = clock or SystemClock()
        ip = local_ip()
        self.client_id = client_id(ip, self.config.instance_name, self.config.unit_name)
        self.keys = UniqueKeys(ip)
        self.routes = Routes()
        self.api = BrokerApi(self.invoke)
        self.random = random.Random()
        addresses = parse_namesrv(self.config.namesrv)
        self.namesrv = NameServers(addresses, self.random.randrange(len(addresses)))
        self.remoting = RemotingClient(_remoting_config(self.config))
        self._members: list[Member] = []
        self._pushed: dict[int, list[PushHandler]] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._unreachable: dict[str, float] = {}
        self._heartbeat_wanted = asyncio.Event()
        self.on_routes_changed: list[Callable[[str], None]] = []

    # life

    async def start(self) -> None:
        if self._tasks:
            return
        self._tasks = [
            asyncio.create_task(self._refresh_routes_forever(), name="tandemq-routes"),
            asyncio.create_task(self._heartbeat_forever(), name="tandemq-heartbeat"),
        ]

    async def close(self) -> None:
        """Members have left by now; ends the background work and the connections."""
        tasks, self._tasks = [*self._tasks, *self._asking.values()], []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.remoting.close()

    async def __aenter__(self) -> "Session":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # asking

    async def invoke(
        self, address: str, code: int, ext: dict[str, str], body: bytes = b"", *, timeout_ms: int | None = None
    ) -> Command:
        """One request to one address; the answer whatever its code. RemotingError if there is none."""
        timeout = (timeout_ms or self.config.api_timeout_ms) / 1000
        return await self.remoting.invoke(address, self.command(code, ext, body), timeout)

    async def invoke_oneway(self, address: str, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """Sends without an answer; the wait is for the connection and room in its buffer."""
        await self.remoting.invoke_oneway(address, self.command(code, ext, body), self.config.api_timeout_ms / 1000)

    def command(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """A request, signed if there are credentials."""
        if self.config.access_key:
            ext = sign(ext, body, self.config.access_key, self.config.secret_key, self.config.security_token)
        return Command(code, ext, body)

    async def ask_namesrv(self, code: int, ext: dict[str, str], *, accept: tuple[int, ...] = ()) -> Command:
        """The answer of the first name server that gives one; each is asked at most once."""
        problems = []
        for address in self.namesrv.candidates():
            try:
                reply = await self.invoke(address, code, ext)
            except RemotingError as error:
                problems.append(f"{address}: {error}")
                continue
            if self.namesrv.answered(address):
                log.info("now using name server %s (%s)", address, "; ".join(problems))
            return reply.raise_for_code(*accept)
        raise RemotingError(f"no name server answers: {'; '.join(problems)}; check namesrvAddr and that one is running")

    def mark_unreachable(self, address: str) -> None:
        """Readers prefer other members for a while."""
        self._unreachable[address] = self.clock.monotonic() + UNREACHABLE_S

    def reachable(self, address: str) -> bool:
        until = self._unreachable.get(address)
        if until is None:
            return True
        if until <= self.clock.monotonic():
            del self._unreachable[address]
            return True
        return False

    # routes

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """The route of a topic, from the cache or asked for once however many wait; NoRoute if it has none."""
        known = None if refresh else self.routes.get(topic)
        if known is not None and not self.routes.is_templated(topic):
            return known
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._ask_route(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    def _asked(self, topic: str, done: "asyncio.Task[TopicRoute]") -> None:
        self._asking.pop(topic, None)
        if not done.cancelled():
            done.exception()  # seen, even if nobody waits any more

    async def publish_queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Where to send. A topic that does not exist yet is routed as TBW102, if brokers create topics on their own."""
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
        """What can be read of a topic; nothing while it does not exist."""
        try:
            return subscribe_queues(topic, await self.route(topic))
        except NoRoute:
            return ()

    async def master(self, broker_name: str, topic: str) -> str:
        """The master's address; asks for the topic's route again when it is not known."""
        address = self.routes.master(broker_name)
        if address is None:
            await self.route(topic, refresh=True)
            address = self.routes.master(broker_name)
        if address is None:
            raise NoRoute(f"broker {broker_name!r} has no master in the route of {topic!r}")
        return address

    async def any_address(self, broker_name: str, topic: str) -> str:
        """The master if there is one, else a slave: for reads that any of them can answer."""
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
        if self.routes.put(topic, route):
            for listener in self.on_routes_changed:
                listener(topic)
        return route

    async def refresh_routes(self) -> None:
        """Asks again for every topic that members use. One topic's failure does not stop the others."""
        wanted = dict.fromkeys(topic for member in self._members for topic in member.topics())
        for topic in wanted:
            try:
                await self.route(topic, refresh=True)
            except NoRoute:
                if self.routes.is_templated(topic):
                    await self._refresh_template(topic)
            except TandemError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)
                return

    async def _refresh_template(self, topic: str) -> None:
        self.routes.forget(topic)
        try:
            await self._publish_route(topic)
        except TandemError as error:
            log.warning("topic %s lost its route: %s", topic, error)

    async def _refresh_routes_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.route_interval_ms / 1000)
            await self.refresh_routes()

    async def check_filter(self, group: str, item: Subscription) -> None:
        """An SQL92 filter that brokers refuse (switched off, or wrong) fails here instead of staying silent."""
        if item.expression_type != SQL92:
            return
        for queue in {queue.broker_name: queue for queue in await self.subscribe_queues(item.topic)}.values():
            address = await self.any_address(queue.broker_name, queue.topic)
            await self.api.check_subscription(address, self.client_id, group, item)

    # members and heartbeats

    def join(self, member: Member) -> None:
        if any(other.group == member.group and type(other) is type(member) for other in self._members):
            raise ValueError(f"group {member.group!r} is in this session already: use another session or group")
        self._members.append(member)

    def forget_listener(self, listener: Callable[[str], None]) -> None:
        if listener in self.on_routes_changed:
            self.on_routes_changed.remove(listener)

    async def leave(self, member: Member) -> None:
        """Tells every broker, so that the rest of the group takes over at once."""
        if member not in self._members:
            return
        self._members.remove(member)
        role = "producer" if member.consumer_info() is None else "consumer"
        addresses = [a for group in self.routes.groups().values() for a in group.addresses.values()]
        farewells = (self.api.unregister(a, self.client_id, **{role: member.group}) for a in addresses)
        for outcome in await asyncio.gather(*farewells, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, TandemError):
                raise outcome

    def heartbeat_soon(self) -> None:
        """A new member or route: brokers should know now, not in up to 30 s."""
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
        """Every handler of a code sees each request; the first answer that is not None is sent back."""
        if code not in self._pushed:
            self._pushed[code] = []
            self.remoting.handlers[code] = lambda connection, command: self._dispatch(code, connection, command)
        self._pushed[code].append(handler)

    def off_push(self, owner: object) -> None:
        """Forgets the handlers that are methods of `owner`, when it leaves a session that stays."""
        for handlers in self._pushed.values():
            handlers[:] = [handler for handler in handlers if getattr(handler, "__self__", None) is not owner]

    def _dispatch(self, code: int, connection: Any, command: Command) -> Any:
        for handler in self._pushed[code]:
            answer = handler(connection, command)
            if answer is not None:
                return answer
        return None


def session_for(session: Session | None, config: ClientConfig | None, namesrv: str | None) -> tuple[Session, bool]:
    """The session to use and whether its user must close it."""
    if session is not None:
        if config is not None or namesrv is not None:
            raise ClientError("a session brings its own config and name servers: give either, not both")
        return session, False
    config = config or ClientConfig()
    return Session(replace(config, namesrv=namesrv) if namesrv else config), True


def _remoting_config(config: ClientConfig) -> RemotingConfig:
    return RemotingConfig(
        use_tls=config.use_tls,
        tls_client_trust_path=config.tls_ca_file,
        tls_client_cert_path=config.tls_cert_file,
        tls_client_key_path=config.tls_key_file,
        tls_client_auth_server=config.tls_verify,
        # A connection that can't write stops reading too: room for a full window of sends keeps answers coming.
        write_buffer_high=WRITE_BUFFER,
        write_buffer_low=WRITE_BUFFER // 4,
    )
