"""The name server as a whole: table, handlers, port, and the timer that removes silent brokers."""

import asyncio
import logging
from pathlib import Path
from types import TracebackType

from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.handlers import NamesrvHandlers
from tandemq.namesrv.kv_config import KvConfig
from tandemq.namesrv.metrics import render_metrics
from tandemq.namesrv.routes import MinIdChange, RouteTable
from tandemq.remoting.access import audit
from tandemq.remoting.access.accounts import RELOAD_SECONDS, Accounts, is_controlled
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.metrics_http import MetricsEndpoint
from tandemq.remoting.server import RemotingServer

log = logging.getLogger("tandemq.namesrv")


class NameServer:
    """`start()`, `stop()`, or `async with`. Port 0 takes a free one."""

    def __init__(
        self,
        config: NamesrvConfig,
        remoting: RemotingConfig,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.accounts: Accounts | None = None
        if is_controlled(remoting):
            self.accounts = Accounts(remoting, wall_ms=self._clock.wall_ms, now=self._clock.monotonic)
            self.accounts.add_first_users()
        self._reloading: asyncio.Task[None] | None = None
        self.routes = RouteTable(brokers_max=config.brokers_max, routes_max=config.topic_routes_max)
        path = Path(config.kv_config_path) if config.kv_config_path else None
        self.handlers = NamesrvHandlers(config, self.routes, KvConfig(path, config.kv_entries_max), self._clock)
        self.handlers.on_change = self._changed
        self.remoting = RemotingServer(
            remoting,
            self.handlers.handlers(),
            on_disconnect=self._disconnected,
            admit=self.accounts.control.admit if self.accounts is not None else None,
            audit=audit.note,
        )
        self.metrics = MetricsEndpoint(lambda: render_metrics(self.routes, self.remoting.status()))
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_deadline = 0.0
        self._sweep: asyncio.Handle | None = None

    async def __aenter__(self) -> "NameServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> int:
        """Listens. Returns the port."""
        config = self.handlers.config
        port = await self.remoting.start()
        if config.metrics_port:
            await self.metrics.start(config.metrics_address, config.metrics_port)
        if self.accounts is not None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload_accounts(self.accounts))
        return port

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._reloading is not None:
            self._reloading.cancel()
        await self.metrics.stop()
        await self.remoting.stop()

    async def _reload_accounts(self, accounts: Accounts) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if await asyncio.to_thread(accounts.reload):
                self.remoting.close_accounts(accounts.is_known)

    def _disconnected(self, connection: Connection) -> None:
        for _, address in self.routes.disconnected(connection):
            log.warning("broker lost address=%s reason=%r", address, connection.close_reason)
        self._changed()

    def _changed(self) -> None:
        """Sets the only timer to the earliest deadline; called after anything that touches liveness."""
        if self.routes.min_id_changes:
            changes, self.routes.min_id_changes = self.routes.min_id_changes, []
            if self.handlers.config.notify_min_broker_id_changed:
                for change in changes:
                    self._notify(change)
        if self.routes.is_sweeping and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_soon(self._sweep_on)
        deadline = self.routes.next_deadline
        if deadline is None:
            return
        if self._expiry is not None:
            if self._expiry_deadline <= deadline:
                return  # it fires early, finds nothing and sets the next one
            self._expiry.cancel()
        self._expiry_deadline = deadline
        delay = max(0.0, deadline - self._clock.monotonic())
        self._expiry = asyncio.get_running_loop().call_later(delay, self._expire)

    def _sweep_on(self) -> None:
        """Forgets the topics of groups that left, a step each turn."""
        self.routes.sweep()
        more = self.routes.is_sweeping
        self._sweep = asyncio.get_running_loop().call_soon(self._sweep_on) if more else None

    def _expire(self) -> None:
        self._expiry = None
        for (_, address), live in self.routes.expire(self._clock.monotonic()):
            log.warning(
                "broker expired name=%s address=%s silent_seconds=%.0f", live.broker_name, address, live.timeout
            )
            if isinstance(live.connection, Connection):
                live.connection.close("its broker did not register in time")
        self._changed()

    def _notify(self, change: MinIdChange) -> None:
        """Tells every member of a group which broker id is its lowest now."""
        lowest = min(change.addresses)
        ext = {
            "minBrokerId": str(lowest),
            "brokerName": change.broker_name,
            "minBrokerAddr": change.addresses[lowest],
            "offlineBrokerAddr": change.offline_address,
            "haBrokerAddr": change.ha_address,
        }
        for connection in self.routes.connections_of(change.addresses.values()):
            if isinstance(connection, Connection) and connection.is_open:
                present = {name: value for name, value in ext.items() if value}
                connection.send_oneway(Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, present))
