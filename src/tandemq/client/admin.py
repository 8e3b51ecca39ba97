"""Admin: looks at a cluster and changes it; what CLI, dashboard and Spark planning are built on.

Questions about a topic go to the master of each of its brokers, or to a slave while a master is away; changes go to
masters. Snapshots are plain frozen values (`admin_views`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from tandemq.client.admin_views import (
    BrokerView,
    ClusterView,
    GroupMember,
    GroupProgress,
    HaReplica,
    HaView,
    QueueLag,
    QueueStatus,
)
from tandemq.client.config import ClientConfig
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.client.routes import subscribe_queues
from tandemq.client.session import Session, session_for
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, NoRoute, RemotingError, ReplyError
from tandemq.model.message import parse_offset_message_id
from tandemq.model.route import BrokerGroup, TopicRoute
from tandemq.model.topic import (
    AUTO_CREATE_TOPIC,
    QueueRef,
    SubscriptionGroupConfig,
    TopicConfig,
    group_name_problem,
    topic_name_problem,
)

LATEST = -1
"""A time for `reset_offsets`: the end of every queue."""


class Admin:
    """`async with Admin(namesrv="host:9876") as admin: ...`"""

    def __init__(
        self, *, namesrv: str | None = None, config: ClientConfig | None = None, session: Session | None = None
    ) -> None:
        self.session, self._owns_session = session_for(session, config, namesrv)

    async def start(self) -> None:
        await self.session.start()

    async def close(self) -> None:
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> "Admin":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # cluster

    async def cluster(self) -> ClusterView:
        """Every broker the name servers know."""
        reply = await self.session.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        groups, clusters = bodies.cluster_info_of(fastjson.loads(bytes(reply.body)))
        return ClusterView(clusters, groups)

    async def broker(self, address: str) -> BrokerView:
        """Run-time facts of one broker, as it words them."""
        reply = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerView(address, bodies.kv_table_of(bodies.load_object(reply.body, "runtime info")))

    async def broker_config(self, address: str) -> dict[str, str]:
        """The broker's effective options, as property text."""
        reply = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        lines = (line.partition("=") for line in bytes(reply.body).decode("utf-8", "replace").splitlines())
        return {key.strip(): value.strip() for key, separator, value in lines if separator}

    async def update_broker_config(self, address: str, values: Mapping[str, str]) -> None:
        """Changes run-time options; brokers refuse what is not safe to change."""
        for key, value in values.items():
            if "\n" in f"{key}{value}" or "=" in key:
                raise ClientError(f"option {key!r}: neither name nor value may contain a line end, nor the name a '='")
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())

    async def ha_status(self, address: str) -> HaView:
        """Replication as one broker sees it; ReplyError from brokers before 5.0, which don't know the question."""
        reply = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
        found = bodies.load_object(reply.body, "HA status")
        links = bodies.list_of(found.get("haConnectionInfo"), "haConnectionInfo")
        slave = bodies.object_of(found.get("haClientRuntimeInfo"), "haClientRuntimeInfo")
        return HaView(
            address=address,
            master=bodies.bool_of(found, "master"),
            max_offset=bodies.int_of(found, "masterCommitLogMaxOffset"),
            in_sync=bodies.int_of(found, "inSyncSlaveNums"),
            replicas=tuple(
                HaReplica(
                    address=bodies.text_of(link, "addr"),
                    acked_offset=bodies.int_of(link, "slaveAckOffset"),
                    behind=bodies.int_of(link, "diff"),
                    in_sync=bodies.bool_of(link, "inSync"),
                    bytes_per_second=bodies.int_of(link, "transferredByteInSecond"),
                    extra={k: v for k, v in link.items() if k not in _HA_LINK_FIELDS},
                )
                for link in links
            ),
            slave=dict(slave),
            extra={k: v for k, v in found.items() if k not in _HA_FIELDS},
        )

    # topics

    async def topics(self) -> list[str]:
        reply = await self.session.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        listed = bodies.load_object(reply.body, "topic list").get("topicList")
        return sorted(bodies.texts_of(listed, "topicList"))

    async def route(self, topic: str) -> TopicRoute:
        """Asked anew each time; NoRoute if nobody knows the topic."""
        return await self.session.route(topic, refresh=True)

    async def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """The readable queues of a topic."""
        return subscribe_queues(topic, await self.route(topic))

    async def create_topic(
        self, topic: TopicConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        """Creates or changes a topic on the masters of a cluster, or on those named; gives the masters' names."""
        problem = topic_name_problem(topic.name)
        if problem:
            raise ClientError(problem)
        fields = {
            "topic": topic.name,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": str(topic.read_queues),
            "writeQueueNums": str(topic.write_queues),
            "perm": str(topic.perm),
            "topicFilterType": topic.filter_type,
            "topicSysFlag": str(topic.sys_flag),
            "order": "true" if topic.order else "false",
        }
        if topic.attributes:
            fields["attributes"] = ",".join(f"+{key}={value}" for key, value in topic.attributes.items())
        return await self._on_masters(
            cluster, brokers, lambda a: self._ask(a, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        )

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Removes a topic from brokers, then from name servers; gives the masters' names."""
        names = await self._on_masters(
            cluster, (), lambda a: self._ask(a, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        )
        for address in self.session.namesrv.candidates():
            try:
                await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
            except RemotingError:
                continue  # it forgets the topic when the broker registers next
        self.session.routes.forget(topic)
        return names

    async def topic_status(self, topic: str) -> list[QueueStatus]:
        """Ranges of every queue of a topic, in order."""
        found: list[QueueStatus] = []
        for name, address in await self._readers(topic):
            reply = await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            table = bodies.queue_table_of(bodies.load_object(reply.body, "topic stats").get("offsetTable"))
            for queue, numbers in table.items():
                found.append(
                    QueueStatus(
                        QueueRef(queue.topic, name, queue.queue_id),
                        bodies.int_of(numbers, "minOffset"),
                        bodies.int_of(numbers, "maxOffset"),
                        bodies.int_of(numbers, "lastUpdateTimestamp"),
                    )
                )
        return sorted(found, key=lambda status: status.queue)

    async def queue_range(self, queue: QueueRef) -> tuple[int, int]:
        """[first, next) offsets of a queue."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        low, high = await asyncio.gather(
            self.session.api.min_offset(address, queue), self.session.api.max_offset(address, queue)
        )
        return max(0, low), high

    async def queue_ranges(self, topic: str) -> dict[QueueRef, tuple[int, int]]:
        """[first, next) offsets of every readable queue of a topic."""
        queues = await self.queues(topic)
        ranges = await asyncio.gather(*(self.queue_range(queue) for queue in queues))
        return dict(zip(queues, ranges, strict=True))

    async def offset_at(self, queue: QueueRef, timestamp_ms: int) -> int:
        """The first message of a queue stored at or after a time."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        return await self.session.api.offset_at(address, queue, timestamp_ms)

    # groups

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Subscription groups of all masters, by name."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in (await self._masters(None, ())).values():
            reply = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            table, _ = bodies.group_table_of(bodies.load_object(reply.body, "groups"))
            found.update(table)
        return dict(sorted(found.items()))

    async def create_group(
        self, group: SubscriptionGroupConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        problem = group_name_problem(group.name)
        if problem:
            raise ClientError(problem)
        body = fastjson.dumps(bodies.group_config_json(group))
        return await self._on_masters(
            cluster,
            brokers,
            lambda a: self._ask(a, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body),
        )

    async def delete_group(self, group: str, *, cluster: str | None = None, offsets: bool = True) -> list[str]:
        """Removes a group, with its offsets unless told otherwise."""
        fields = {"groupName": group, "cleanOffset": "true" if offsets else "false"}
        return await self._on_masters(cluster, (), lambda a: self._ask(a, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields))

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """How far a group has come, queue by queue, and how much is left."""
        fields = {"consumerGroup": group}
        if topic:
            fields["topic"] = topic
        lags: list[QueueLag] = []
        tps = 0.0
        for name, address in (await self._masters(None, ())).items():
            try:
                reply = await self._ask(address, RequestCode.GET_CONSUME_STATS, fields)
            except ReplyError as error:
                if error.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
                    continue
                raise
            found = bodies.load_object(reply.body, "consume stats")
            tps += float(found.get("consumeTps") or 0.0)
            for queue, numbers in bodies.queue_table_of(found.get("offsetTable")).items():
                lags.append(
                    QueueLag(
                        QueueRef(queue.topic, name, queue.queue_id),
                        bodies.int_of(numbers, "brokerOffset"),
                        bodies.int_of(numbers, "consumerOffset"),
                        bodies.int_of(numbers, "lastTimestamp"),
                    )
                )
        return GroupProgress(group, tuple(sorted(lags, key=lambda lag: lag.queue)), tps)

    async def members(self, group: str) -> list[GroupMember]:
        """The clients of a group that are connected; none if it is offline."""
        found: dict[str, GroupMember] = {}
        for address in (await self._masters(None, ())).values():
            try:
                reply = await self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
            except ReplyError as error:
                if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                    continue
                raise
            listed = bodies.load_object(reply.body, "connections").get("connectionSet")
            for item in bodies.list_of(listed, "connectionSet"):
                member = GroupMember(
                    bodies.text_of(item, "clientId"),
                    bodies.text_of(item, "clientAddr"),
                    bodies.text_of(item, "language"),
                    bodies.int_of(item, "version"),
                )
                found[member.client_id] = member
        return [found[key] for key in sorted(found)]

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have offsets of a topic or consume it now."""
        found: set[str] = set()
        for _, address in await self._readers(topic):
            reply = await self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            listed = bodies.load_object(reply.body, "groups").get("groupList")
            found.update(bodies.texts_of(listed, "groupList"))
        return sorted(found)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[QueueRef, int]:
        """Moves a group to the first messages stored at or after a time (LATEST: to the end).

        The broker does it and tells running members. When the group is offline on a 4.x broker, which then refuses, the
        offsets are written directly.
        """
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": "true" if force else "false",
        }
        result: dict[QueueRef, int] = {}
        for name, address in await self._readers(topic):
            try:
                reply = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
                body = bodies.load_object(reply.body, "reset offsets") if reply.body else {}
                for queue, offset in bodies.queue_table_of(body.get("offsetTable")).items():
                    result[QueueRef(queue.topic, name, queue.queue_id)] = int(offset)
            except ReplyError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                result.update(await self._write_offsets(group, topic, name, address, timestamp_ms))
        return dict(sorted(result.items()))

    async def _write_offsets(
        self, group: str, topic: str, name: str, address: str, timestamp_ms: int
    ) -> dict[QueueRef, int]:
        api = self.session.api
        written: dict[QueueRef, int] = {}
        for queue in await self.queues(topic):
            if queue.broker_name == name:
                at_end = timestamp_ms == LATEST
                offset = await (
                    api.max_offset(address, queue) if at_end else api.offset_at(address, queue, timestamp_ms)
                )
                await api.update_offset(address, group, queue, offset)
                written[queue] = offset
        return written

    async def set_offset(self, group: str, queue: QueueRef, offset: int) -> None:
        """Writes one committed offset."""
        address = await self.session.master(queue.broker_name, queue.topic)
        await self.session.api.update_offset(address, group, queue, offset)

    # messages

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """By offset id (names broker and place), or by UNIQ_KEY when the topic is given; ClientError if not found."""
        if topic is not None:
            found = await self.messages_by_key(topic, message_id, unique=True)
            if found:
                return found[0]
        try:
            host, offset = parse_offset_message_id(message_id)
        except ValueError as error:
            raise ClientError(f"{error}; to find a message by its unique key, give the topic too") from None
        address = _address_text(host)
        try:
            record = await self.session.api.view(address, offset, topic or "")
        except (RemotingError, ReplyError) as error:
            hint = "" if topic else "; if it is a unique key, give the topic too"
            raise ClientError(f"no message {message_id} on {address}: {error}{hint}") from error
        name = await self._broker_name(address)
        return next(decode_messages(record, name))

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Messages with a key (or UNIQ_KEY), oldest first. The broker's index finds by hash: compared here again."""
        found: list[ReceivedMessage] = []
        for name, address in await self._readers(topic):
            records = await self.session.api.query(
                address, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, unique=unique
            )
            found += decode_messages(records, name)
        matching = [m for m in found if (m.message_id == key if unique else key in m.keys)]
        return sorted(matching, key=lambda m: (m.store_timestamp, m.queue))[:count_max]

    async def message_at(self, queue: QueueRef, offset: int) -> ReceivedMessage:
        """The message at a queue offset; ClientError says what the queue has."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        result = await self.session.api.pull(
            address,
            "TANDEMQ_ADMIN",
            queue,
            offset,
            count_max=1,
            subscription=Subscription(topic=queue.topic),
            timeout_ms=self.session.config.api_timeout_ms,
        )
        if not result.found:
            raise ClientError(
                f"{queue.topic}/{queue.broker_name}/{queue.queue_id} has offsets [{result.min_offset}, "
                f"{result.max_offset}), {offset} is none of them"
            )
        return next(decode_messages(result.records, queue.broker_name))

    # parts

    async def _ask(self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        reply = await self.session.invoke(address, code, fields or {}, body, timeout_ms=ADMIN_TIMEOUT_MS)
        return reply.raise_for_code()

    async def _masters(self, cluster: str | None, brokers: Iterable[str]) -> dict[str, str]:
        """Broker name -> master address; ClientError for a name nobody knows or a group without master."""
        view = await self.cluster()
        wanted = list(brokers)
        if cluster is not None:
            if cluster not in view.clusters:
                raise ClientError(f"cluster {cluster!r} is unknown; there are {', '.join(view.clusters) or 'none'}")
            wanted += view.clusters[cluster]
        names = wanted or sorted(view.groups)
        missing = [name for name in names if name not in view.groups]
        if missing:
            raise ClientError(f"broker {missing[0]!r} is unknown; there are {', '.join(view.groups) or 'none'}")
        masters = {name: view.groups[name].master for name in names}
        found = {name: address for name, address in masters.items() if address is not None}
        if not found:
            raise ClientError("no broker has a master now: nothing can be asked or changed")
        return found

    async def _on_masters(
        self, cluster: str | None, brokers: Iterable[str], change: Callable[[str], Awaitable[Any]]
    ) -> list[str]:
        masters = await self._masters(cluster, brokers)
        for address in masters.values():
            await change(address)
        return list(masters)

    async def _readers(self, topic: str) -> list[tuple[str, str]]:
        """(broker name, address to ask) of every broker that has the topic: the master, or a slave without one."""
        route = await self.route(topic)
        named: Mapping[str, BrokerGroup] = {group.name: group for group in route.groups}
        found = []
        for data in route.queues:
            group = named.get(data.broker_name)
            if group is not None and group.addresses:
                found.append((group.name, group.master or group.addresses[min(group.addresses)]))
        if not found:
            raise NoRoute(f"topic {topic!r} has no broker with an address")
        return found

    async def _broker_name(self, address: str) -> str:
        groups = (await self.cluster()).groups.values()
        return next((group.name for group in groups if address in group.addresses.values()), "")


ADMIN_TIMEOUT_MS = 5_000
_HA_LINK_FIELDS = frozenset(
    {"addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere"}
)
_HA_FIELDS = frozenset(
    {"master", "masterCommitLogMaxOffset", "inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"}
)


def _address_text(host: bytes) -> str:
    """ "ip:port" of the host bytes in an offset id."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, host[:16])}]:{port}"
