"""Name servers and brokers for tests, in one event loop, on free ports, with stores under one directory.

    async with LocalCluster(tmp_path) as cluster:
        broker = await cluster.add_broker()
        ... cluster.namesrv_address, broker.address

A broker can be stopped and started again over its old store (`restart`); `crash` leaves the store as a kill would.
"""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.clock import Clock
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.settings import overridden, settings_of
from tandemq.store.config import StoreConfig

Config = TypeVar("Config")

HOST = "127.0.0.1"
SMALL_SEGMENT = 16 * 1024 * 1024
REGISTER_SECONDS_MAX = 10.0


class LocalCluster:
    """`async with`; everything it started stops with it."""

    def __init__(
        self,
        directory: Path,
        *,
        name_servers: int = 1,
        clock: Clock | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """`properties` are given to every name server and broker: access control, TLS, limits."""
        self.directory = directory
        self._properties = properties or {}
        self._name_server_count = name_servers
        self._clock = clock
        self.name_servers: list[NameServer] = []
        self._name_server_ports: list[int] = []
        self.brokers: list[Broker] = []

    async def __aenter__(self) -> "LocalCluster":
        for _ in range(self._name_server_count):
            await self.add_name_server()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(broker.stop() for broker in reversed(self.brokers)))
        for server in self.name_servers:
            await server.stop()

    @property
    def namesrv_address(self) -> str:
        return ";".join(f"{HOST}:{port}" for port in self._name_server_ports)

    async def add_name_server(self) -> NameServer:
        remoting = RemotingConfig(listen_port=0, bind_address=HOST)
        server = NameServer(NamesrvConfig(), _with(remoting, self._properties), clock=self._clock)
        self._name_server_ports.append(await server.start())
        self.name_servers.append(server)
        return server

    async def add_broker(
        self,
        name: str = "broker-a",
        broker_id: int = 0,
        *,
        role: BrokerRole | None = None,
        properties: dict[str, str] | None = None,
    ) -> Broker:
        """Starts one and waits until the name servers know it. `properties` are RocketMQ's names, as in broker.conf."""
        broker = self._build(name, broker_id, role, self._properties | (properties or {}))
        self.brokers.append(broker)
        await self._start(broker)
        return broker

    async def restart(self, broker: Broker) -> Broker:
        """Stops it cleanly and starts another over the same store and port."""
        await broker.stop()
        live = broker.live
        again = Broker(
            live.broker,
            live.store,
            overridden(live.remoting, {"listenPort": str(broker.port)}),
            live.replication,
            self._clock,
        )
        self.brokers[self.brokers.index(broker)] = again
        await self._start(again)
        return again

    async def _start(self, broker: Broker) -> None:
        await broker.start()
        if not await broker.registration.wait_registered(REGISTER_SECONDS_MAX):
            raise TimeoutError(f"{broker.address} did not register with {self.namesrv_address}")

    def _build(
        self,
        name: str,
        broker_id: int,
        role: BrokerRole | None,
        properties: dict[str, str],
    ) -> Broker:
        chosen_role = role or (BrokerRole.SLAVE if broker_id else BrokerRole.ASYNC_MASTER)
        broker = BrokerConfig(
            broker_name=name,
            broker_id=broker_id,
            role=chosen_role,
            broker_ip1=HOST,
            namesrv_addr=self.namesrv_address,
            store_path_root_dir=str(self.directory / f"{name}-{broker_id}"),
        )
        store = StoreConfig(commit_log_segment_size=SMALL_SEGMENT, index_slots=5000, index_entries=20_000)
        remoting = RemotingConfig(listen_port=0, bind_address=HOST)
        return Broker(
            _with(broker, properties),
            _with(store, properties),
            _with(remoting, properties),
            _with(ReplicationConfig(), properties),
            self._clock,
        )


def _with(config: Config, properties: dict[str, str]) -> Config:
    known = {described.key for _, described in settings_of(type(config)).values()}
    changed: Config = overridden(config, {key: text for key, text in properties.items() if key in known})
    return changed
