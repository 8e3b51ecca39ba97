"""The composition root of a broker: builds the parts, starts and stops them in order, nothing else.

    start   store ─▶ tables from their snapshots ─▶ replication ─▶ listening ports ─▶ services ─▶ name servers
    stop    name servers ─▶ services ─▶ accepted writes finish ─▶ ports ─▶ replication ─▶ snapshots ─▶ store

One event loop owns everything here; the store's flush thread reports back through the loop.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol

from tandemq.broker.addresses import HA_OFFSET, VIP_OFFSET, free_port, host_bytes, own_ip
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.delay import DelaySchedule, DelayService
from tandemq.broker.directories import place_directories
from tandemq.broker.groups import GroupTable
from tandemq.broker.handlers.admin import AdminHandlers
from tandemq.broker.handlers.clients import ClientHandlers
from tandemq.broker.handlers.clients_admin import ClientAdminHandlers
from tandemq.broker.handlers.config import ConfigHandlers
from tandemq.broker.handlers.groups import GroupHandlers
from tandemq.broker.handlers.locks import LockHandlers
from tandemq.broker.handlers.offsets import OffsetHandlers
from tandemq.broker.handlers.peers import PeerHandlers
from tandemq.broker.handlers.pull import PullHandlers
from tandemq.broker.handlers.query import QueryHandlers
from tandemq.broker.handlers.rebuild import RebuildHandlers
from tandemq.broker.handlers.reply import ReplyHandlers
from tandemq.broker.handlers.reset import ResetHandlers
from tandemq.broker.handlers.send import SendHandlers
from tandemq.broker.handlers.send_back import SendBackHandlers
from tandemq.broker.handlers.topics import TopicHandlers
from tandemq.broker.handlers.transactions import TransactionHandlers
from tandemq.broker.idempotent_sends import IdempotentSends
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.locks import QueueLocks
from tandemq.broker.members import Members
from tandemq.broker.numbers import rendered_metrics, runtime_table
from tandemq.broker.offsets import OffsetTable
from tandemq.broker.pair import Pair
from tandemq.broker.progress import Progress
from tandemq.broker.registration import Identity, Registered, Registration
from tandemq.broker.replies import reply_of
from tandemq.broker.snapshots import SnapshotFile
from tandemq.broker.standalone import Replication
from tandemq.broker.stats import TICK_SECONDS, BrokerStats
from tandemq.broker.timers import TimerService
from tandemq.broker.topics import TopicTable, system_topics
from tandemq.broker.transactions import CheckLimits, TransactionService
from tandemq.broker.writer import MessageWriter, Queues, WriteRefused
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.codec.envelope import parse_delay_levels
from tandemq.errors import ConfigError
from tandemq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Authenticate, Handler
from tandemq.remoting.metrics_http import MetricsEndpoint
from tandemq.remoting.server import RemotingServer
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.node import known_confirmed
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

NOT_ON_VIP = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
"""Pulls may be held for long, so the VIP port does not serve them (upstream's fast remoting server)."""
MEMBER_SCAN_SECONDS = 10.0
DRAIN_SECONDS_MAX = 10.0
SLAVE_REFUSAL = "the broker is a slave: it takes no messages, send to the master of its group"

ReplicationFactory = Callable[["Broker"], Replication]


class HasHandlers(Protocol):
    """A handler family."""

    def handlers(self) -> dict[int, Handler]: ...


class Broker:
    """One broker in this process. `async with Broker(...)`, or start() and stop()."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig | None = None,
        remoting_config: RemotingConfig | None = None,
        replication_config: ReplicationConfig | None = None,
        clock: Clock | None = None,
        *,
        replication: ReplicationFactory | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        self._authenticate = authenticate
        self.clock: Clock = clock or SystemClock()
        self.live = LiveConfig(
            config,
            store_config or StoreConfig(),
            remoting_config or RemotingConfig(),
            replication_config or ReplicationConfig(),
            self.clock.wall_ms,
        )
        self._replicates = replication is None
        self._replication_factory = replication or Pair
        self.root = config.store_root
        self.role = config.role
        """The role of now; promotion and demotion change it."""
        self.port = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_started = False

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def is_master(self) -> bool:
        return self.role is not BrokerRole.SLAVE

    @property
    def is_started(self) -> bool:
        return self._is_started

    # start ----------------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Serves clients when it returns; returns the port."""
        config, remoting = self.live.broker, self.live.remoting
        self.ip = own_ip(config.broker_ip1)
        self.port = remoting.listen_port or free_port(remoting.bind_address)
        self.address = f"{self.ip}:{self.port}"
        self.store_host = host_bytes(self.ip, self.port)
        self.ha_port = self.live.replication.ha_listen_port or self.port + HA_OFFSET
        self._loop = asyncio.get_running_loop()
        place_directories(self.root, config.store_directories)
        self.store = MessageStore.open(
            self.root,
            self.live.store,
            clock=self.clock,
            store_host=self.store_host,
            post=self._loop.call_soon_threadsafe,
            confirmed=known_confirmed(self.root) if self._replicates else None,
        )
        try:
            self._build_tables()
            self._build_writer()
            self._build_handlers()
            self.store.start()
            await self.replication.start()
            await self._listen()
        except BaseException:
            self.store.close()
            raise
        self._is_started = True
        if self.is_master and self.writer.refusal is None:
            self._start_master_services()
        self.idempotence.start()
        self.registration.start()
        self._start_housekeeping()
        # What recovery left to dispatch becomes readable in the first turns of the loop.
        self.writer.schedule_dispatch()
        log.info(
            "broker %s started role=%s id=%d address=%s store=%s",
            config.broker_name,
            self.role.value,
            config.broker_id,
            self.address,
            self.root,
        )
        return self.port

    def _build_tables(self) -> None:
        config, wall_ms = self.live.broker, self.clock.wall_ms
        self.topics = TopicTable(wall_ms, auto_create=config.auto_create_topic_enable, topics_max=config.topics_max)
        self.groups = GroupTable(
            wall_ms, auto_create=config.auto_create_subscription_group, groups_max=config.groups_max
        )
        self.offsets = OffsetTable(wall_ms, version_step=config.consumer_offset_update_version_step)
        self.delay_schedule = DelaySchedule(parse_delay_levels(self.live.store.message_delay_level), wall_ms)
        self.members = Members()
        self.locks = QueueLocks(config.rebalance_lock_max_live_ms / 1000, config.queue_locks_max)
        self.stats = BrokerStats(self.clock.monotonic(), wall_ms())
        folder = self.root / "config"
        self.topics_file = SnapshotFile(folder / "topics.json", self.topics.snapshot)
        self.groups_file = SnapshotFile(folder / "subscriptionGroup.json", self.groups.snapshot)
        self.offsets_file = SnapshotFile(folder / "consumerOffset.json", self.offsets.snapshot)
        self.delay_file = SnapshotFile(folder / "delayOffset.json", lambda: self.delay_schedule.snapshot(durable=True))
        for file, table in self._files():
            if (snapshot := file.load()) is not None:
                table.load(snapshot)
        version = self.topics.version
        for topic in system_topics(
            config.cluster_name,
            config.broker_name,
            default_queues=config.default_topic_queue_nums,
            auto_create=config.auto_create_topic_enable,
            cluster_template=config.cluster_topic_enable,
            broker_template=config.broker_topic_enable,
            trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else "",
            schedule_levels=len(self.delay_schedule.delays_ms),
        ):
            self.topics.add_system(topic)
        if self.topics.version != version:
            self.topics_file.mark()
        self.topics.on_change = self._topics_changed
        self.groups.on_change = self._groups_changed

    def _files(self) -> Iterable[tuple[SnapshotFile, TopicTable | GroupTable | OffsetTable | DelaySchedule]]:
        return (
            (self.topics_file, self.topics),
            (self.groups_file, self.groups),
            (self.offsets_file, self.offsets),
            (self.delay_file, self.delay_schedule),
        )

    def _build_writer(self) -> None:
        config, store, replication = self.live.broker, self.live.store, self.live.replication
        self.acks = AckQueue(
            group_size=replication.total_replicas,
            fall_behind_max=replication.gap_in_sync_max,
            now=self.clock.monotonic,
        )
        self.writer = MessageWriter(
            self.store,
            self.acks,
            self.clock,
            self._loop,
            level=replication.default_level(self.role is BrokerRole.SYNC_MASTER),
            sync_flush=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            flush_timeout_ms=store.sync_flush_timeout_ms,
            copies_timeout_ms=replication.slave_timeout_ms,
            pending_max=config.send_pending_max,
            delay_levels=len(self.delay_schedule.delays_ms),
            on_arrival=self._arrived,
            is_awaited=lambda: len(self.pulls.parked) > 0,
        )
        if not self.is_master:
            self.writer.refusal = WriteRefused(SLAVE_REFUSAL)

    def _build_handlers(self) -> None:
        live, store, clock, stats = self.live, self.store, self.clock, self.stats
        topics, groups, offsets, members = self.topics, self.groups, self.offsets, self.members
        name = live.broker.broker_name

        def is_slave() -> bool:
            return not self.is_master

        self.delay = DelayService(self.delay_schedule, store, self.writer, clock)
        self.timers = TimerService(store, self.writer, clock, store_host=self.store_host)
        self.transactions = TransactionService(
            store,
            self.writer,
            offsets,
            members,
            clock,
            limits=self._transaction_limits,
            interval_ms=lambda: self.live.broker.transaction_check_interval_ms,
            store_host=self.store_host,
            broker_name=name,
            ensure_topic=lambda topic: topics.create_internal(topic, 1),
        )
        self.replication: Replication = self._replication_factory(self)
        self.client = RemotingClient(live.remoting, on_lost=self._name_server_lost)
        self.registration = Registration(self.client, topics, live, self._identity(), on_registered=self._registered)
        progress = Progress(store, topics, offsets, members, stats, clock, name)
        self.pulls = PullHandlers(store, topics, groups, offsets, members, live, clock, self._loop, stats)
        self.sends = SendHandlers(topics, groups, members, self.writer, self.locks, live, clock, self.store_host, stats)
        self.sends.timers_waiting = lambda: self.timers.waiting
        self.idempotence = self.sends.idempotence = IdempotentSends(store, self.root / "config")
        self.clients = ClientHandlers(topics, groups, members, live, clock)
        self.rebuilds = RebuildHandlers(store, clock)
        families: tuple[HasHandlers, ...] = (
            self.pulls,
            self.clients,
            OffsetHandlers(store, topics, groups, offsets, self.pulls),
            LockHandlers(self.locks, clock),
            TopicHandlers(topics, offsets, store, self.topics_file, on_delete=stats.forget_topic),
            GroupHandlers(groups, offsets, self.groups_file),
            ConfigHandlers(live),
            QueryHandlers(store),
            self.rebuilds,
            ReplyHandlers(live, self.writer, topics, members, clock, store_host=self.store_host, address=self.address),
            ResetHandlers(
                live, store, topics, groups, offsets, members, is_slave=is_slave, wake=self.pulls.offset_reset
            ),
            SendBackHandlers(live, store, self.writer, topics, groups, stats, is_slave=is_slave),
            TransactionHandlers(live, store, self.writer, self.transactions, stats, clock, is_slave=is_slave),
            AdminHandlers(
                live,
                store,
                topics,
                groups,
                offsets,
                members,
                stats,
                progress,
                clock,
                address=self.address,
                runtime_info=lambda: runtime_table(self),
            ),
            ClientAdminHandlers(store, topics, groups, members, clock, broker_name=name),
            PeerHandlers(
                self.delay_schedule,
                self.timers,
                clock,
                is_slave=is_slave,
                address=self.address,
                ha_facts=self.replication.ha_facts,
                ha_status=self.replication.ha_status,
                master_announced=self.replication.master_announced,
            ),
        )
        handlers: dict[int, Handler] = {}
        for family in families:
            handlers.update(family.handlers())
        handlers.update(self.replication.handlers())
        self.server = RemotingServer(
            live.remoting,
            handlers,
            send_handlers=self.sends.send_handlers(),
            on_disconnect=self._dropped,
            on_error=reply_of,
            authenticate=self._authenticate,
            before=self.writer.catch_up,
        )
        self.metrics = MetricsEndpoint(lambda: rendered_metrics(self))
        live.listeners.append(self._configuration_changed)

    async def _listen(self) -> None:
        await self.server.listen(self.port)
        if self.live.broker.vip_port_enable and self.port + VIP_OFFSET > 0:
            try:
                await self.server.listen(self.port + VIP_OFFSET, without=NOT_ON_VIP)
            except ConfigError as error:
                log.warning("no VIP port, old Java clients must turn vipChannelEnabled off: %s", error)

        if self.live.broker.metrics_port:
            await self.metrics.start(self.live.broker.metrics_address, self.live.broker.metrics_port)

    # stop -----------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Finishes what was accepted, makes it durable, and leaves."""
        if not self._is_started:
            return
        self._is_started = False
        await self.registration.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._stop_master_services()
        await self.idempotence.stop()
        await self.rebuilds.stop()
        if self.writer.refusal is None:
            self.writer.refusal = WriteRefused("the broker is stopping, send to another")
        await self.writer.drained(DRAIN_SECONDS_MAX)
        await self.replication.tell_slaves()
        await self.server.stop()
        await self.metrics.stop()
        self.pulls.close()
        self.writer.stop("the broker is stopping")
        await self.replication.stop()
        await self.client.close()
        self.delay_schedule.flushed(self.store.appended)
        for file, _ in self._files():
            file.mark()
            await file.saved()
        self.store.close()
        log.info("broker %s stopped", self.live.broker.broker_name)

    # the role -------------------------------------------------------------------------------------------------------

    def allow_writes(self) -> None:
        """Replication has settled what the log is: sends are taken, delayed messages and transactions go on."""
        self.writer.refusal = None
        self._start_master_services()

    async def forbid_writes(self, reason: str) -> None:
        """No more writes from now on; whatever still waits for its copies is told that it can't have them."""
        self.writer.refusal = WriteRefused(reason)
        self.acks.fail_all(PutStatus.SERVICE_NOT_AVAILABLE, reason)
        await self._stop_master_services()

    async def change_role(self, role: BrokerRole, broker_id: int) -> None:
        """Promotion or demotion; who writes is decided by `allow_writes` and `forbid_writes`.

        The name servers forget the old id before they learn the new one; parked pulls are answered, because what a
        slave holds back a master corrects.
        """
        if role is BrokerRole.SLAVE:
            await self.forbid_writes(SLAVE_REFUSAL)
        await self.registration.stop()
        self.assume_role(role, broker_id)
        self.pulls.release_all()
        self.registration.start()
        log.info("role changed to %s, id %d", role.value, broker_id)

    def assume_role(self, role: BrokerRole, broker_id: int) -> None:
        """The role of now, whatever the configuration says, while nobody has been told another one."""
        self.live.broker = dataclasses.replace(self.live.broker, role=role, broker_id=broker_id)
        self.role = self.pulls.role = role
        self.writer.level = self.live.replication.default_level(role is BrokerRole.SYNC_MASTER)
        self.registration.identity = self._identity()
        if role is BrokerRole.SLAVE:
            self.writer.refusal = WriteRefused(SLAVE_REFUSAL)

    def _start_master_services(self) -> None:
        """What only the writer of the group does: deliver delayed messages, settle transactions."""
        self.idempotence.begin_writing()
        self.delay.start()
        self.timers.start()
        self.transactions.start()

    async def _stop_master_services(self) -> None:
        self.idempotence.end_writing()
        await self.delay.stop()
        await self.timers.stop()
        await self.transactions.stop()

    def _identity(self) -> Identity:
        config = self.live.broker
        ha_ip = own_ip(config.broker_ip2) if config.broker_ip2 else self.ip
        return Identity(
            config.cluster_name, config.broker_name, config.broker_id, self.address, f"{ha_ip}:{self.ha_port}"
        )

    # what happens -----------------------------------------------------------------------------------------------------

    def _arrived(self, queues: Queues) -> None:
        self.pulls.arrived(queues)
        for topic, queue_id in queues:
            if topic == SCHEDULE_TOPIC:
                self.delay.arrived(queue_id)
            elif topic == TIMER_TOPIC:
                self.timers.arrived(queue_id)

    def _topics_changed(self, names: Iterable[str]) -> None:
        names = list(names)
        self.sends.forget_targets()
        self.topics_file.mark()
        self.replication.changed()
        self.registration.topics_changed(names)

    def _groups_changed(self, names: Iterable[str]) -> None:
        self.groups_file.mark()
        self.replication.changed()

    def _registered(self, registered: Registered) -> None:
        self.sends.order_topics = registered.order_topics
        self.replication.registered(registered)

    def _name_server_lost(self, address: str) -> None:
        self.registration.connection_lost(address)

    def _dropped(self, connection: Connection) -> None:
        self.pulls.dropped(connection)
        self.clients.dropped(connection)

    def _configuration_changed(self) -> None:
        config, store = self.live.broker, self.live.store
        self.topics.auto_create = config.auto_create_topic_enable
        self.topics.topics_max = config.topics_max
        self.groups.auto_create = config.auto_create_subscription_group
        self.groups.groups_max = config.groups_max
        self.pulls.parked.parked_max = config.pull_parked_max
        self.writer.pending_max = config.send_pending_max
        self.store.config = store
        self.writer.set_timeouts(store.sync_flush_timeout_ms, self.live.replication.slave_timeout_ms)
        self.sends.refresh()
        self.registration.announce()

    def _transaction_limits(self) -> CheckLimits:
        config = self.live.broker
        return CheckLimits(
            timeout_ms=config.transaction_timeout_ms,
            check_max=config.transaction_check_max,
            retention_ms=self.live.store.file_reserved_hours * 3_600_000,
        )

    # housekeeping ---------------------------------------------------------------------------------------------------

    def _start_housekeeping(self) -> None:
        self._every(lambda: self.live.broker.flush_consumer_offset_interval_ms / 1000, self._save_offsets)
        self._every(lambda: self.live.broker.flush_delay_offset_interval_ms / 1000, self._save_delay_offsets)
        self._every(lambda: MEMBER_SCAN_SECONDS, self._scan_members)
        self._every(lambda: TICK_SECONDS, self._tick_stats)
        self._every(lambda: self.live.store.clean_interval_ms / 1000, self._retain)

    def _every(self, seconds: Callable[[], float], work: Callable[[], None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds())
                try:
                    work()
                except Exception as error:
                    log.error("housekeeping %s failed", work.__name__, exc_info=error)

        self._tasks.append(self._loop.create_task(repeat(), name=work.__name__))

    def _save_offsets(self) -> None:
        if self.offsets.dirty:
            self.offsets.dirty = False
            self.offsets_file.mark()

    def _save_delay_offsets(self) -> None:
        if self.delay_schedule.dirty:
            self.delay_schedule.dirty = False
            self.delay_schedule.flushed(self.store.flushed)
            self.delay_file.mark()

    def _scan_members(self) -> None:
        self.clients.expire()
        self.locks.expire(self.clock.monotonic())

    def _tick_stats(self) -> None:
        self.stats.tick(self.clock.monotonic(), self.clock.wall_ms())
        self.sends.forget_targets()

    def _retain(self) -> None:
        self.store.retain(self.clock.wall_ms())
