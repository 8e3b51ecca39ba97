"""The composition root of a broker: builds the parts, starts and stops them in order, nothing else.

    start   store ─▶ tables from their snapshots ─▶ replication ─▶ listening ports ─▶ services ─▶ name servers
    stop    name servers ─▶ services ─▶ accepted writes finish ─▶ ports ─▶ replication ─▶ snapshots ─▶ store

One event loop owns everything here; the store's flush thread reports back through the loop.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol

from tandemq.broker.addresses import HA_OFFSET, VIP_OFFSET, free_port, host_bytes, own_ip
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.directories import place_directories
from tandemq.broker.exposure import exposures
from tandemq.broker.forwarding import Forwarder
from tandemq.broker.handlers.admin import AdminHandlers
from tandemq.broker.handlers.clients import ClientHandlers
from tandemq.broker.handlers.clients_admin import ClientAdminHandlers
from tandemq.broker.handlers.config import ConfigHandlers
from tandemq.broker.handlers.events import EventHandlers
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
from tandemq.broker.handlers.users import UserHandlers
from tandemq.broker.housekeeping import Housekeeping
from tandemq.broker.idempotent_sends import IdempotentSends
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.log_agreement import LogAgreement
from tandemq.broker.pair.pair import Pair
from tandemq.broker.registration import Identity, Registered, Registration
from tandemq.broker.replies import reply_of
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.master_services import MasterServices
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.locks import QueueLocks
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.snapshots import SnapshotFile
from tandemq.broker.tables.table_file import TableFile
from tandemq.broker.tables.table_writer import TableWriter
from tandemq.broker.tables.timer_checkpoint import TimerCheckpointFile
from tandemq.broker.tables.topics import TopicTable, system_topics
from tandemq.broker.telemetry.events import LOOK_SECONDS, EventLog
from tandemq.broker.telemetry.progress import Progress
from tandemq.broker.telemetry.prometheus import scrape
from tandemq.broker.telemetry.runtime_info import runtime_info
from tandemq.broker.telemetry.snapshot import take_snapshot
from tandemq.broker.telemetry.traffic import TICK_SECONDS, BrokerStats
from tandemq.broker.waiting_messages import first_waiting
from tandemq.broker.warm_imports import load_arrays
from tandemq.broker.writer import MessageWriter, Queues
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ConfigError
from tandemq.formats.envelope import parse_delay_levels
from tandemq.remoting.access.accounts import RELOAD_SECONDS, Accounts, is_controlled, own_credentials
from tandemq.remoting.access.group_key import KeyAccount, key_credentials
from tandemq.remoting.access.needs import PUB, topic_need
from tandemq.remoting.access.trail import AuditTrail
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.remoting.metrics_http import MetricsEndpoint
from tandemq.remoting.server import RemotingServer
from tandemq.remoting.slices import Slices
from tandemq.replication.acks import AckQueue
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.record_keeper import known_confirmed
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

NOT_ON_VIP = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
"""Pulls may be held for long, so the VIP port does not serve them (upstream's fast remoting server)."""
MEMBER_SCAN_SECONDS = 10.0
DRAIN_SECONDS_MAX = 10.0
SLAVE_REFUSAL = "the broker is a slave: it takes no messages, send to the master of its group"


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
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.live = LiveConfig(
            config,
            store_config or StoreConfig(),
            remoting_config or RemotingConfig(),
            replication_config or ReplicationConfig(),
            self.clock.wall_ms,
        )
        if self.live.replication.coordinator and config.role is BrokerRole.SLAVE and not config.observer:
            raise ConfigError(
                "brokerRole=SLAVE with haCoordinator: every broker of the group may be elected, so brokerRole says "
                "what to be then, SYNC_MASTER or ASYNC_MASTER; haPriority=-1 is for one that never shall be"
            )
        self.root = config.store_root
        self.role = config.role
        """The current role; promotion and demotion change it."""
        self.port = 0
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
        self._housekeeping = Housekeeping(self._loop)
        place_directories(self.root, config.store_directories)
        self.store = MessageStore.open(
            self.root,
            self.live.store,
            clock=self.clock,
            store_host=self.store_host,
            post=self._loop.call_soon_threadsafe,
            confirmed=known_confirmed(self.root),
        )
        try:
            self._table_writer = TableWriter()
            self._build_accounts()
            self._build_tables()
            self._build_writer()
            self._build_handlers()
            self._log_agreement.begin()
            self.store.start()
            await self.replication.start()
            await self._listen()
        except BaseException:
            self.store.close()
            raise
        self._is_started = True
        if self.is_master and self.writer.refusal is None:
            self._begin_writing()
            self.start_services()
        self.idempotence.start()
        self.registration.start()
        self._start_housekeeping()
        self._loop.run_in_executor(None, load_arrays)
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

    def _build_accounts(self) -> None:
        self.accounts: Accounts | None = None
        shared_key = self.live.replication.shared_key
        self.group_key = KeyAccount(shared_key) if shared_key else None
        for text in exposures(self.live.remoting, self.live.replication):
            log.warning("%s", text)
        if is_controlled(self.live.remoting):
            cluster = self.live.broker.cluster_name
            self.accounts = Accounts(
                self.live.remoting,
                cluster=cluster,
                group_key=self.group_key,
                wall_ms=self.clock.wall_ms,
                now=self.clock.monotonic,
            )
        accounts = self.accounts
        self.users_file = SnapshotFile(
            self.root / "config" / "auth.json",
            lambda: accounts.users.held().snapshot if accounts is not None else {},
            self._table_writer,
        )
        if accounts is None:
            return
        self.users_file.load_into(accounts.users.load)
        accounts.add_first_users()
        accounts.users.on_change = self._users_changed
        if not len(accounts.users) and accounts.plain is None:
            log.error("access is controlled and there is no user: set initAuthenticationUser, or nobody can come in")

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
        writer = self._table_writer
        self.topics_file = TableFile(folder / "topics.json", self.topics, writer, self.clock)
        self.groups_file = TableFile(folder / "subscriptionGroup.json", self.groups, writer, self.clock)
        self.offsets_file = TableFile(folder / "consumerOffset.json", self.offsets, writer, self.clock, depth=3)
        for file in (self.topics_file, self.groups_file, self.offsets_file):
            file.load()
        self.delay_file = SnapshotFile(
            folder / "delayOffset.json", lambda: self.delay_schedule.snapshot(durable=True), writer
        )
        self.delay_file.load_into(self.delay_schedule.load)
        self.timer_checkpoint = TimerCheckpointFile(self.root, writer)
        self.timer_checkpoint.load()
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
        self._log_agreement = LogAgreement(self.store, self.topics, self.offsets, self.stats)
        self.topics.on_change = self._topics_changed
        self.groups.on_change = self._groups_changed

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
            self.writer.gate.refuse(SLAVE_REFUSAL)

    def _build_handlers(self) -> None:
        live, store, clock, stats = self.live, self.store, self.clock, self.stats
        topics, groups, offsets, members = self.topics, self.groups, self.offsets, self.members
        name = live.broker.broker_name

        def is_slave() -> bool:
            return not self.is_master

        self.services = MasterServices(
            store,
            self.writer,
            clock,
            live,
            self.delay_schedule,
            topics,
            offsets,
            members,
            self.timer_checkpoint,
            store_host=self.store_host,
        )
        if self.accounts is not None:
            accounts = self.accounts
            self.services.transactions.may_be_asked = lambda connection, topic: accounts.may(
                connection, topic_need(topic, PUB)
            )
        self.replication = Pair(self)
        self.client = RemotingClient(live.remoting, on_lost=self._name_server_lost)
        shared_key = live.replication.shared_key
        self.peer_client = (
            RemotingClient(live.remoting, credentials=key_credentials(shared_key)) if shared_key else self.client
        )
        """For orders to other brokers of the group: they prove its key, where it has one."""
        self.asking_client = self.client if live.replication.takes_classic_peers else self.peer_client
        """For questions to who may be another broker of the group, or RocketMQ's, which knows no key."""
        self.forward_client = RemotingClient(
            live.remoting, credentials=key_credentials(shared_key) if shared_key else None
        )
        """For requests of clients to the master: a connection of their own, so that they delay nothing else."""
        self.forwarder = Forwarder(
            self.writer,
            self.forward_client,
            clock,
            master=self.replication.reigning_address,
            timeout_ms=lambda: self.live.broker.forward_timeout_ms,
            accounts=self.accounts,
            may_sign=self._may_sign_for_others,
        )
        self.registration = Registration(self.client, topics, live, self._identity(), on_registered=self._registered)
        self.progress = Progress(store, topics, offsets, members, stats, clock, name)
        self.pulls = PullHandlers(store, topics, groups, offsets, members, live, clock, self._loop, stats)
        self.sends = SendHandlers(topics, groups, members, self.writer, self.locks, live, clock, self.store_host, stats)
        self.services.timers.warm_log = self.pulls.warm_log
        self.sends.timers_waiting = lambda: self.services.timers.waiting
        self.idempotence = self.sends.idempotence = IdempotentSends(store, self.root / "config")
        self.clients = ClientHandlers(topics, groups, members, live, clock)
        self.rebuilds = RebuildHandlers(store, clock)
        self.events = EventLog()
        trail = AuditTrail(clock.wall_ms)
        families: tuple[HasHandlers, ...] = (
            self.pulls,
            self.clients,
            OffsetHandlers(store, topics, groups, offsets, self.pulls, clock, true_at=self._tables_true_at),
            LockHandlers(self.locks, clock, is_slave=is_slave),
            TopicHandlers(topics, offsets, store, self.writer, self.topics_file, clock, on_delete=stats.forget_topic),
            GroupHandlers(groups, offsets, self.groups_file, clock),
            ConfigHandlers(live),
            QueryHandlers(store),
            self.rebuilds,
            EventHandlers(self.events, trail),
            ReplyHandlers(live, self.writer, topics, members, clock, store_host=self.store_host, address=self.address),
            ResetHandlers(
                live,
                store,
                topics,
                groups,
                offsets,
                members,
                clock,
                is_slave=is_slave,
                wake=self.pulls.offset_reset,
                warm_log=self.pulls.warm_log,
            ),
            SendBackHandlers(live, store, self.writer, topics, groups, stats, is_slave=is_slave),
            TransactionHandlers(live, store, self.writer, self.services.transactions, stats, clock, is_slave=is_slave),
            AdminHandlers(
                live,
                store,
                self.writer,
                topics,
                groups,
                offsets,
                members,
                stats,
                self.progress,
                clock,
                address=self.address,
                runtime_info=lambda: runtime_info(take_snapshot(self), stats),
                retain=self.retain,
            ),
            UserHandlers(
                self.accounts.users if self.accounts is not None else None,
                self.users_file,
                is_slave=is_slave,
                is_taken=self.accounts.is_plain if self.accounts is not None else lambda name: False,
            ),
            ClientAdminHandlers(store, topics, groups, members, clock, broker_name=name),
            self.forwarder,
            PeerHandlers(
                self.delay_schedule,
                self.services.timers,
                clock,
                is_slave=is_slave,
                address=self.address,
                ha_facts=self.replication.ha_facts,
                ha_status=self.replication.ha_status,
                master_announced=self.replication.master_announced,
                true_at=self._tables_true_at,
            ),
        )
        handlers: dict[int, Handler] = {}
        for family in families:
            handlers.update(family.handlers())
        handlers.update(self.replication.handlers())
        if self.group_key is not None and self.accounts is None:
            handlers = self.group_key.guard(handlers, clock.monotonic, self._is_spared)
        self.server = RemotingServer(
            live.remoting,
            handlers,
            send_handlers=self.sends.send_handlers(),
            on_disconnect=self._dropped,
            on_error=reply_of,
            admit=self.accounts.control.admit if self.accounts is not None else None,
            audit=trail.note,
            before=self.writer.catch_up,
            gate=self.writer.gate,
            divert=self.forwarder.divert,
        )
        self.forwarder.dispatcher = self.server.dispatcher
        self.metrics = MetricsEndpoint(lambda: scrape(self), clock)
        live.listeners.append(self._configuration_changed)

    def _is_spared(self, command: Command) -> bool:
        """Returns whether a request needs no proof of the key: a RocketMQ slave asks where to connect, if it may."""
        asks = command.code == RequestCode.EXCHANGE_BROKER_HA_INFO and not command.ext.get("masterHaAddress")
        return asks and self.live.replication.takes_classic_peers

    def _may_sign_for_others(self) -> bool:
        """Returns whether a master with access control believes this broker whom it speaks for."""
        if self.accounts is None or self.group_key is not None:
            return True
        own = own_credentials(self.live.remoting)
        account = self.accounts.control.account(own.access_key) if own is not None else None
        return account is not None and account.is_admin and not account.problem

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
        await self.replication.hand_over()
        self._is_started = False
        await self.registration.stop()
        await self._housekeeping.stop()
        await self.rest_services()
        if self.is_master and (left := self.services.timers.left()) is not None:
            await self.timer_checkpoint.hand_back(left.units, left.checkpoint)
        await self.idempotence.stop()
        await self.rebuilds.stop()
        if self.writer.refusal is None:
            self.writer.gate.refuse("the broker is stopping, send to another")
        await self.writer.drained(DRAIN_SECONDS_MAX)
        await self.replication.tell_slaves()
        await self.server.stop()
        await self.metrics.stop()
        self.pulls.close()
        self.writer.stop("the broker is stopping")
        await self.replication.stop()
        await self.client.close()
        await self.peer_client.close()
        await self.forward_client.close()
        self.delay_schedule.flushed(self.store.appended)
        self.delay_file.mark()
        await self.delay_file.settled()
        await self.timer_checkpoint.settled()
        await self.users_file.settled()
        for file in (self.topics_file, self.groups_file, self.offsets_file):
            await file.close()
        self._table_writer.close()
        self.store.close()
        log.info("broker %s stopped", self.live.broker.broker_name)

    # the role -------------------------------------------------------------------------------------------------------

    def allow_writes(self, *, services: bool = True) -> None:
        """Takes sends and lets delayed messages and transactions go on: replication has settled what the log is.

        `services` False: these begin later, with `start_services`, when no other master can still run them.
        """
        self.writer.gate.allow()
        self.forwarder.changed()
        self._begin_writing()
        if services:
            self.start_services()

    async def forbid_writes(self, reason: str) -> None:
        """Refuses writes from now on; tells whatever still waits for its copies that it can't have them."""
        self.writer.gate.refuse(reason)
        self.writer.fail_waiting(reason)
        await self.rest_services()

    async def change_role(self, role: BrokerRole, broker_id: int) -> None:
        """Promotes or demotes; who writes is decided by `allow_writes` and `forbid_writes`.

        Name servers learn of it at once, of a master's end with its successor; parked pulls are answered, because what
        a slave holds back a master corrects.
        """
        hands_over = self.is_master and role is BrokerRole.SLAVE
        if role is BrokerRole.SLAVE:
            await self.forbid_writes(SLAVE_REFUSAL)
        self.assume_role(role, broker_id)
        self.pulls.release_all()
        await self.registration.change(self._identity(), hold=hands_over)
        log.info("role changed to %s, id %d", role.value, broker_id)

    async def take_role(self, role: BrokerRole, broker_id: int) -> None:
        """Does what `change_role` does without the name servers, which learn of the outcome by `announce`."""
        if role is BrokerRole.SLAVE:
            await self.forbid_writes(SLAVE_REFUSAL)
        self.assume_role(role, broker_id)
        self.pulls.release_all()
        log.info("role changed to %s, id %d", role.value, broker_id)

    def assume_role(self, role: BrokerRole, broker_id: int) -> None:
        """Sets the current role, whatever the configuration says, while nobody has been told another one."""
        self.live.broker = dataclasses.replace(self.live.broker, role=role, broker_id=broker_id)
        self.role = self.pulls.role = role
        self.writer.level = self.live.replication.default_level(role is BrokerRole.SYNC_MASTER)
        self.registration.identity = self._identity()
        if role is BrokerRole.SLAVE:
            self.writer.gate.refuse(SLAVE_REFUSAL)

    def _begin_writing(self) -> None:
        self._log_agreement.restore()
        self.idempotence.begin_writing()
        self.store.mention_idle_queues(self.writer.append_mark)

    def start_services(self) -> None:
        """Starts what only the writer of the group does: deliver delayed messages, settle transactions."""
        self.services.start()

    async def rest_services(self) -> None:
        """Rests what only a writer runs; `allow_writes` wakes it.

        Before a hand-over this happens while the services may still write their progress.
        """
        self.idempotence.end_writing()
        await self.services.stop()

    def _tables_true_at(self) -> int:
        """Returns at which position of the log the tables of progress are true: a master's at its end."""
        return self.store.appended if self.is_master else self.replication.tables_true_at()

    def log_was_cut(self) -> None:
        """Forgets what the tables say about a part of the log that is gone.

        The file of offsets must not speak of it any longer either: after a crash of this process the log may have gone
        on, and what was beyond its end would be within it, at messages that no group has read.
        """
        self._log_agreement.restore()
        self._save_offsets()
        self.timer_checkpoint.forget()
        self.idempotence.log_was_cut()

    def _identity(self) -> Identity:
        config = self.live.broker
        ha_ip = own_ip(config.broker_ip2) if config.broker_ip2 else self.ip
        return Identity(
            config.cluster_name, config.broker_name, config.broker_id, self.address, f"{ha_ip}:{self.ha_port}"
        )

    # what happens -----------------------------------------------------------------------------------------------------

    def _arrived(self, queues: Queues) -> None:
        self._log_agreement.adopt(queues)
        self.replication.dispatched()
        self.pulls.arrived(queues)
        self.services.arrived(queues)

    def _topics_changed(self, names: Iterable[str]) -> None:
        names = list(names)
        self.sends.forget_targets(names)
        self.topics_file.mark()
        self.replication.changed()
        self.registration.topics_changed(names)

    def _users_changed(self) -> None:
        self.users_file.mark()
        self.replication.changed()
        self.drop_unknown_accounts()

    def drop_unknown_accounts(self) -> None:
        """Closes connections of accounts that were removed or disabled."""
        if self.accounts is not None and self._is_started:
            self.server.close_accounts(self.accounts.is_known)

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

    # housekeeping ---------------------------------------------------------------------------------------------------

    def _start_housekeeping(self) -> None:
        every = self._housekeeping.every
        every(lambda: self.live.broker.flush_consumer_offset_interval_ms / 1000, self._save_offsets)
        every(lambda: self.live.broker.flush_delay_offset_interval_ms / 1000, self._save_delay_offsets)
        every(lambda: MEMBER_SCAN_SECONDS, self._scan_members)
        every(lambda: TICK_SECONDS, self._tick_stats)
        every(lambda: LOOK_SECONDS, self._note_events)
        every(lambda: self.live.store.clean_interval_ms / 1000, self.retain)
        if self.accounts is not None and self.accounts.plain is not None:
            every(lambda: RELOAD_SECONDS, self._reload_accounts)

    def _note_events(self) -> None:
        self.events.look(self.replication.status(), self.clock.wall_ms())

    async def _reload_accounts(self) -> None:
        if self.accounts is not None and await asyncio.to_thread(self.accounts.reload):
            self.drop_unknown_accounts()

    def _save_offsets(self) -> None:
        if self.offsets.dirty:
            self.offsets.dirty = False
            self.offsets_file.mark()

    def _save_delay_offsets(self) -> None:
        if self.delay_schedule.dirty:
            self.delay_schedule.dirty = False
            self.delay_schedule.flushed(self.store.flushed)
            self.delay_file.mark()

    async def _scan_members(self) -> None:
        while self.clients.expire():  # noqa: ASYNC110  # a part in each turn: thousands may be behind a cut link
            await asyncio.sleep(0)
        self.locks.expire(self.clock.monotonic())

    async def _tick_stats(self) -> None:
        now, slices = self.clock.monotonic(), Slices(self.clock)
        for _ in self.stats.sample(now):
            await slices.breathe()
        if self.stats.finish_tick(now, self.clock.wall_ms()):
            self.sends.refresh()

    def retain(self, manual: bool = False) -> None:
        """Deletes what has expired; what only that told of queues is written into the log by who may write."""
        append_mark = self.writer.append_mark if self.writer.refusal is None else None
        told = self.services.told(self.is_master)
        keep_from = first_waiting(self.store, self.delay_schedule, told, self.timer_checkpoint.known)
        if self.store.retain(self.clock.wall_ms(), manual, append_mark, keep_from):
            self.replication.retained()
