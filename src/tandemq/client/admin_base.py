"""What every part of Admin stands on: a session, the cluster's brokers, whom to ask about a topic."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self

from tandemq.client.admin_views import BrokerView, ClusterView, HaReplica, HaView
from tandemq.client.config import ClientConfig
from tandemq.client.routes import subscribe_queues
from tandemq.client.session import Session, session_for
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, NoRoute
from tandemq.model.route import BrokerGroup, TopicRoute
from tandemq.model.topic import QueueRef

ADMIN_TIMEOUT_MS = 5_000
_HA_LINK_FIELDS = frozenset(
    {"addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere"}
)
_HA_FIELDS = frozenset(
    {"master", "masterCommitLogMaxOffset", "inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"}
)


class ClusterAdmin:
    """Brokers: where they are, how they run, what they are set to."""

    def __init__(
        self, *, namesrv: str | None = None, config: ClientConfig | None = None, session: Session | None = None
    ) -> None:
        self.session, self._owns_session = session_for(session, config, namesrv)

    async def start(self) -> None:
        await self.session.start()

    async def close(self) -> None:
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # brokers

    async def cluster(self) -> ClusterView:
        """Returns every broker the name servers know."""
        reply = await self.session.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        groups, clusters = bodies.cluster_info_of(fastjson.loads(bytes(reply.body)))
        return ClusterView(clusters, groups)

    async def broker(self, address: str) -> BrokerView:
        """Returns run-time facts of one broker under the names that it gives them."""
        reply = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerView(address, bodies.kv_table_of(bodies.load_object(reply.body, "runtime info")))

    async def broker_config(self, address: str) -> dict[str, str]:
        """Returns the broker's effective options, as property text."""
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
        """Returns replication as one broker sees it.

        Raises ReplyError for brokers before 5.0, which don't know the question.
        """
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

    # whom to ask

    async def route(self, topic: str) -> TopicRoute:
        """Asks for the route anew each time; raises NoRoute if nobody knows the topic."""
        return await self.session.route(topic, refresh=True)

    async def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the readable queues of a topic."""
        return subscribe_queues(topic, await self.route(topic))

    async def _ask(self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        reply = await self.session.invoke(address, code, fields or {}, body, timeout_ms=ADMIN_TIMEOUT_MS)
        return reply.raise_for_code()

    async def _masters(self, cluster: str | None, brokers: Iterable[str]) -> dict[str, str]:
        """Returns broker name -> master address; raises ClientError for an unknown name or a group without master."""
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

    async def master_names(self, *, cluster: str | None = None, brokers: Iterable[str] = ()) -> list[str]:
        """Returns the names of the groups that have a master: of a cluster, those named, or all."""
        return list(await self._masters(cluster, brokers))

    async def _on_masters(
        self, cluster: str | None, brokers: Iterable[str], change: Callable[[str], Awaitable[Any]]
    ) -> list[str]:
        masters = await self._masters(cluster, brokers)
        for address in masters.values():
            await change(address)
        return list(masters)

    async def _readers(self, topic: str) -> list[tuple[str, str]]:
        """Returns broker name and address to ask of every broker that has the topic.

        The master, or a slave without one.
        """
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
