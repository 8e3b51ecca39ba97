"""Request codes to the route table: RocketMQ's DefaultRequestProcessor and ClientRequestProcessor."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.ext_fields import boolean, number, text
from tandemq.codec.properties import properties_of, properties_text
from tandemq.codec.register import Registration, body_crc, decode_registration
from tandemq.errors import ConfigError, ConnectionLost, ReplyError
from tandemq.model.topic import AUTO_CREATE_TOPIC
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from tandemq.namesrv.routes import Registered, Registering, RouteTable
from tandemq.remoting.access.needs import (
    GET,
    LIST,
    PUB,
    SUB,
    UPDATE,
    Need,
    is_admin,
    may,
    needs,
    on_cluster,
    topic_need,
)
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.settings import overridden, settings_of

log = logging.getLogger("tandemq.namesrv")

STANDARD_JSON_SINCE = 401
"""V4_9_4: clients from this version on get quoted broker ids; Go <= 2.1.1 and others need them unquoted."""

ROUTE_CACHE_MAX = 8192
"""Encoded routes kept; enough for every topic of most clusters in both forms."""

LARGE_BODY_MIN = 16 * 1024
"""Registrations of more bytes are read beside the loop, one at a time: compressed, some can hold a hundred thousand
topics."""

LIST_SIZE_MAX = 12 * 1024 * 1024
"""Bytes of a list of topics; the rest is cut off and counted in the remark. A frame has 16 MiB."""
NAMES_PER_TURN = 2000
"""Topics of a list that are looked at before others get their turn."""

CONFIG_SIZE_MAX = 64 * 1024
"""Bytes of the properties that one request changes."""

_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

Reply = bytes
T = TypeVar("T")


def _routed_topic(command: Command) -> list[Need]:
    """Returns what a look-up needs: to use the topic in any way. The template of new topics is everybody's."""
    topic = command.ext.get("topic", "")
    return [] if topic == AUTO_CREATE_TOPIC else [topic_need(topic, PUB | SUB | GET)]


class NamesrvHandlers:
    """Owns nothing but the cache of encoded routes; the tables are given."""

    def __init__(self, config: NamesrvConfig, routes: RouteTable, kv: KvConfig, clock: Clock) -> None:
        self.config = config
        """Replaced as a whole by UPDATE_NAMESRV_CONFIG."""
        self.routes = routes
        self.kv = kv
        self._clock = clock
        self._cache: dict[tuple[str, bool], bytes] = {}
        self._cached_revision = -1
        self._reading = asyncio.Lock()
        """Held by the large registration that is read: each takes memory, so that they queue."""
        self.on_change: Callable[[], None] = lambda: None
        """Told after every change of who is alive: the next expiry may have moved."""

    def handlers(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.REGISTER_BROKER: self.register_broker,
            code.UNREGISTER_BROKER: self.unregister_broker,
            code.BROKER_HEARTBEAT: self.broker_heartbeat,
            code.QUERY_DATA_VERSION: self.query_data_version,
            code.GET_ROUTEINFO_BY_TOPIC: self.route,
            code.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            code.GET_BROKER_MEMBER_GROUP: self.member_group,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            code.GET_TOPICS_BY_CLUSTER: self.topics_by_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            code.GET_UNIT_TOPIC_LIST: self.unit_topics(unit=True, subscription=None),
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_topics(unit=None, subscription=True),
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_topics(unit=False, subscription=True),
            code.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            code.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            code.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            code.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            code.PUT_KV_CONFIG: self.put_kv,
            code.GET_KV_CONFIG: self.get_kv,
            code.DELETE_KV_CONFIG: self.delete_kv,
            code.GET_KVLIST_BY_NAMESPACE: self.kv_namespace,
            code.GET_NAMESRV_CONFIG: self.get_config,
            code.UPDATE_NAMESRV_CONFIG: self.update_config,
        }

    # Brokers ----------------------------------------------------------------------------------------------------------

    @needs(on_cluster(UPDATE), audited=False)
    def register_broker(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        ext = command.ext
        crc = number(ext, "bodyCrc32", 0)
        if crc and crc != body_crc(command.body):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body, compressed, version = bytes(command.body), boolean(ext, "compressed"), command.version
        if len(body) <= LARGE_BODY_MIN and not compressed:
            told = decode_registration(body, compressed=compressed, peer_version=version)
            request = self._request_of(connection, command, told)
            return self._registered(command, request, self.routes.register(request, **self._registering()))

        async def later() -> Reply:
            async with self._reading:
                told = await asyncio.to_thread(decode_registration, body, compressed=compressed, peer_version=version)
                if not connection.is_open:
                    raise ConnectionLost("the broker went while its registration was read")
                request = self._request_of(connection, command, told)
                result = await _in_turns(self.routes.register_in_steps(request, **self._registering()))
                return self._registered(command, request, result)

        return later()

    def _registering(self) -> dict[str, Any]:
        """Returns what a registration is told besides the request."""
        return {
            "now": self._clock.monotonic(),
            "timeout": self.config.broker_timeout_ms / 1000,
            "delete_missing_topics": self.config.delete_topic_with_registration,
        }

    def _request_of(self, connection: Connection, command: Command, body: Registration) -> Registering:
        ext = command.ext
        timeout_ms = number(ext, "heartbeatTimeoutMillis", 0)
        request = Registering(
            cluster=text(ext, "clusterName"),
            broker_name=text(ext, "brokerName"),
            broker_id=number(ext, "brokerId"),
            address=text(ext, "brokerAddr"),
            ha_address=text(ext, "haServerAddr", ""),
            topics=body.topics,
            version=body.version,
            connection=connection,
            timeout_seconds=timeout_ms / 1000 if timeout_ms > 0 else None,
            enable_acting_master=boolean(ext, "enableActingMaster") if "enableActingMaster" in ext else None,
        )
        if request.broker_id < 0:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"brokerId={request.broker_id}: must be at least 0")
        if (request.cluster, request.address) not in self.routes.live():
            log.info(
                "broker registers name=%s id=%d address=%s cluster=%s topics=%d",
                request.broker_name[:255], request.broker_id, request.address[:255], request.cluster[:255],
                len(request.topics),
            )  # fmt: skip
        return request

    def _registered(self, command: Command, request: Registering, result: Registered) -> Reply:
        self.on_change()
        reply = {"haServerAddr": result.ha_address, "masterAddr": result.master_address}
        order = self.kv.namespace(ORDER_TOPIC_CONFIG) if self.config.return_order_topic_config else None
        table = fastjson.dumps(bodies.kv_table_json(order)) if order else b""
        return _ok(command, {name: value for name, value in reply.items() if value}, table)

    @needs(on_cluster(UPDATE))
    def unregister_broker(self, _: Connection, command: Command) -> Reply:
        ext = command.ext
        name, address = text(ext, "brokerName"), text(ext, "brokerAddr")
        self.routes.unregister(text(ext, "clusterName"), name, address)
        log.info("broker unregistered name=%s id=%s address=%s", name, ext.get("brokerId"), address)
        self.on_change()
        return _ok(command)

    @needs(on_cluster(UPDATE), audited=False)
    def broker_heartbeat(self, _: Connection, command: Command) -> Reply:
        self.routes.refresh(text(command.ext, "clusterName"), text(command.ext, "brokerAddr"), self._clock.monotonic())
        return _ok(command)

    @needs(on_cluster(GET))
    def query_data_version(self, _: Connection, command: Command) -> Reply:
        cluster, address = text(command.ext, "clusterName"), text(command.ext, "brokerAddr")
        asked = bodies.data_version_of(bodies.load_request(command.body, "dataVersion"))
        held = self.routes.refresh(cluster, address, self._clock.monotonic())
        body = fastjson.dumps(bodies.data_version_json(held)) if held is not None else b""
        return _ok(command, {"changed": "false" if held == asked else "true"}, body)

    # Look-ups ---------------------------------------------------------------------------------------------------------

    @needs(_routed_topic)
    def route(self, _: Connection, command: Command) -> Reply:
        topic = text(command.ext, "topic")
        quoted = command.version >= STANDARD_JSON_SINCE or boolean(command.ext, "acceptStandardJsonOnly")
        if self._cached_revision != self.routes.revision:
            self._cache.clear()
            self._cached_revision = self.routes.revision
        body = self._cache.get((topic, quoted))
        if body is None:
            body = self._encode_route(topic, quoted)
            if len(self._cache) < ROUTE_CACHE_MAX:
                self._cache[topic, quoted] = body
        return _ok(command, body=body)

    def _encode_route(self, topic: str, quoted: bool) -> bytes:
        order = self.kv.get(ORDER_TOPIC_CONFIG, topic) if self.config.order_message_enable else None
        route = self.routes.route(
            topic, support_acting_master=self.config.support_acting_master, order_conf=order or ""
        )
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic[:255]}\n{_FAQ}"
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, remark)
        found = bodies.topic_route_json(route)
        return fastjson.dumps(found) if quoted else fastjson.dumps_unquoted(found)

    @needs(on_cluster(GET))
    def cluster_info(self, _: Connection, command: Command) -> Reply:
        found = bodies.cluster_info_json(self.routes.groups(), self.routes.clusters())
        return _ok(command, body=fastjson.dumps_unquoted(found))

    @needs(on_cluster(GET))
    def member_group(self, _: Connection, command: Command) -> Reply:
        cluster, name = text(command.ext, "clusterName"), text(command.ext, "brokerName")
        group = self.routes.members(cluster, name)
        addresses = dict(sorted(group.addresses.items())) if group is not None else {}
        found = {"brokerMemberGroup": {"brokerAddrs": addresses, "brokerName": name, "cluster": cluster}}
        return _ok(command, body=fastjson.dumps_unquoted(found))

    @needs()
    async def all_topics(self, _: Connection, command: Command) -> Reply:
        _check_enabled(self.config.enable_all_topic_list)
        return await self._topic_list(command, lambda topic: True)

    @needs()
    async def topics_by_cluster(self, _: Connection, command: Command) -> Reply:
        _check_enabled(self.config.enable_topic_list)
        cluster = text(command.ext, "cluster")
        return await self._topic_list(command, lambda topic: self.routes.is_in(topic, cluster))

    @needs(on_cluster(GET))
    def system_topics(self, _: Connection, command: Command) -> Reply:
        _check_enabled(self.config.enable_topic_list)
        names, address = self.routes.system_topics()
        return _ok(command, body=fastjson.dumps({"brokerAddr": address or None, "topicList": names}))

    def unit_topics(self, *, unit: bool | None, subscription: bool | None) -> Handler:
        @needs()
        async def answer(_: Connection, command: Command) -> Reply:
            _check_enabled(self.config.enable_topic_list)
            return await self._topic_list(command, lambda topic: self.routes.is_unit(topic, unit, subscription))

        return answer

    async def _topic_list(self, command: Command, is_wanted: Callable[[str], bool]) -> Reply:
        """Returns the list with the topics that whoever asks may use, a few at a time: there may be a million."""
        sees_all = is_admin(command)
        pieces: list[bytes] = []
        size = cut = 0
        topics = self.routes.topics()
        for start in range(0, len(topics), NAMES_PER_TURN):
            if start:
                await asyncio.sleep(0)
            names = [
                topic
                for topic in topics[start : start + NAMES_PER_TURN]
                if is_wanted(topic) and (sees_all or may(command, topic_need(topic, PUB | SUB | GET | LIST)))
            ]
            if not names:
                continue
            piece = fastjson.dumps(names)[1:-1]
            if size + len(piece) > LIST_SIZE_MAX:
                cut += len(names)
                continue
            size += len(piece) + 1
            pieces.append(piece)
        remark = f"cut: {cut} more topics don't fit into one answer" if cut else None
        body = b'{"topicList":[%b]}' % b",".join(pieces)
        return encode_response(command.opaque, ResponseCode.SUCCESS, remark, None, body)

    # Operators --------------------------------------------------------------------------------------------------------

    @needs(on_cluster(UPDATE))
    def delete_topic(self, connection: Connection, command: Command) -> Reply:
        topic, cluster = text(command.ext, "topic"), text(command.ext, "clusterName", "")
        self.routes.delete_topic(topic, cluster or None)
        log.info("topic deleted topic=%s cluster=%s by=%s", topic[:255], cluster, connection.peer)
        return _ok(command)

    @needs(on_cluster(UPDATE), audited=False)
    def register_topic(self, _: Connection, command: Command) -> Reply:
        topic = text(command.ext, "topic")
        route = bodies.topic_route_of(bodies.load_request(command.body, "topicRouteData"))
        self.routes.register_topic(topic, route.queues)
        return _ok(command)

    @needs(on_cluster(UPDATE))
    async def wipe_write_perm(self, connection: Connection, command: Command) -> Reply:
        name = text(command.ext, "brokerName")
        count = await _in_turns(self.routes.perm_in_steps(name, writable=False))
        log.info("write permission wiped broker=%s topics=%d by=%s", name, count, connection.peer)
        return _ok(command, {"wipeTopicCount": str(count)})

    @needs(on_cluster(UPDATE))
    async def add_write_perm(self, connection: Connection, command: Command) -> Reply:
        name = text(command.ext, "brokerName")
        count = await _in_turns(self.routes.perm_in_steps(name, writable=True))
        log.info("write permission added broker=%s topics=%d by=%s", name, count, connection.peer)
        return _ok(command, {"addTopicCount": str(count)})

    @needs(on_cluster(UPDATE))
    async def put_kv(self, _: Connection, command: Command) -> Reply:
        ext = command.ext
        await self.kv.put(text(ext, "namespace"), text(ext, "key"), text(ext, "value", ""))
        self._cache.clear()
        return _ok(command)

    @needs(on_cluster(GET))
    def get_kv(self, _: Connection, command: Command) -> Reply:
        namespace, key = text(command.ext, "namespace"), text(command.ext, "key")
        value = self.kv.get(namespace, key)
        if value is None:
            raise ReplyError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return _ok(command, {"value": value})

    @needs(on_cluster(UPDATE))
    async def delete_kv(self, _: Connection, command: Command) -> Reply:
        await self.kv.delete(text(command.ext, "namespace"), text(command.ext, "key"))
        self._cache.clear()
        return _ok(command)

    @needs(on_cluster(GET))
    def kv_namespace(self, _: Connection, command: Command) -> Reply:
        namespace = text(command.ext, "namespace")
        table = self.kv.namespace(namespace)
        if table is None:
            raise ReplyError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return _ok(command, body=fastjson.dumps(bodies.kv_table_json(table)))

    @needs(on_cluster(GET))
    def get_config(self, _: Connection, command: Command) -> Reply:
        found = {
            described.key: _property_text(getattr(self.config, name))
            for name, (_, described) in settings_of(NamesrvConfig).items()
        }
        return _ok(command, body=properties_text(found))

    @needs(on_cluster(UPDATE), shows_body=True)
    def update_config(self, connection: Connection, command: Command) -> Reply:
        """Changes all given options or none, and only those declared tunable: never a path or an address."""
        if len(command.body) > CONFIG_SIZE_MAX:
            raise ReplyError(
                ResponseCode.INVALID_PARAMETER, f"{len(command.body)} bytes of properties, at most {CONFIG_SIZE_MAX}"
            )
        values = properties_of(command.body)
        tunable = {described.key for _, described in settings_of(NamesrvConfig).values() if described.tunable}
        for key in values:
            if key not in tunable:
                log.warning("config change refused key=%r by=%s", key[:80], connection.peer)
                accepted = ", ".join(sorted(tunable))
                raise ReplyError(
                    ResponseCode.NO_PERMISSION, f"{key[:80]!r} can't be changed at run time; these can: {accepted}"
                )
        try:
            self.config = overridden(self.config, values)
        except ConfigError as error:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        self._cache.clear()
        log.info("config changed keys=%s by=%s", ",".join(values), connection.peer)
        return _ok(command)


async def _in_turns(steps: Generator[None, None, T]) -> T:
    """Does one step each turn of the loop; returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


def _ok(command: Command, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, ext, body)


def _check_enabled(enabled: bool) -> None:
    if not enabled:
        raise ReplyError(ResponseCode.SYSTEM_ERROR, "disable")


def _property_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
