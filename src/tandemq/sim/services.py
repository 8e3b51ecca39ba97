"""What a simulated broker has beside its log: production's tables and the services of a master, on simulated ground.

Topics, groups, consumer and delay offsets travel from master to slave by production's own requests; delayed messages,
timers and transactions are delivered by production's own services.  Simulated are the broker around them, which does
what `Broker` and `Pair` do at the same moments, and the files of the tables, which lie on the node's disk.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tandemq.broker.config import BrokerConfig
from tandemq.broker.handlers.groups import GroupHandlers
from tandemq.broker.handlers.offsets import OffsetHandlers
from tandemq.broker.handlers.peers import PeerHandlers
from tandemq.broker.handlers.topics import TopicHandlers
from tandemq.broker.handlers.transactions import TransactionHandlers
from tandemq.broker.log_agreement import LogAgreement
from tandemq.broker.pair.tables import NEVER, BrokerTables
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.master_services import MasterServices
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.broker.waiting_messages import first_waiting
from tandemq.broker.writer import MessageWriter, Queues
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import CodecError, DiskFull, RemotingError, ReplyError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.connection import Connection
from tandemq.replication.epochs import place_of
from tandemq.replication.metadata import MetadataFollower, MetadataServer, PairCode, merge_tables_of
from tandemq.sim.node import HOST, ROOT
from tandemq.sim.requests import SimClient

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tandemq.broker.broker import Broker
    from tandemq.broker.handlers.pull import PullHandlers
    from tandemq.broker.live_config import LiveConfig
    from tandemq.broker.tables.table_file import TableFile
    from tandemq.broker.tables.timer_checkpoint import TimerCheckpointFile
    from tandemq.sim.serving_node import ServingNode

DELAYS_MS: Final = (30, 200, 700)
"""Of the three delay levels."""
TIMEOUT_MS: Final = 100
"""After which a producer is asked about a half message."""
CHECK_INTERVAL_MS: Final = 150
CHECKS_MAX: Final = 10_000
SAVE_SECONDS: Final = 0.1
TABLES_FILE: Final = ROOT / "tables.json"
ASK_SECONDS: Final = 1.0


class _NoCheckpoint:
    """Stands for what a RocketMQ broker leaves about its timers: there was none."""

    known = None


class _Marked:
    """Stands for the file of one table: all are saved together."""

    def mark(self) -> None: ...


class Services:
    """Of one process of a node."""

    def __init__(self, node: "ServingNode", live: "SimpleNamespace") -> None:
        self._node, self._live = node, live
        clock, store, wall_ms = node.clock, node.store, node.clock.wall_ms
        self.topics, self.groups = TopicTable(wall_ms), GroupTable(wall_ms)
        self.offsets = OffsetTable(wall_ms)
        self.delay_schedule = DelaySchedule(DELAYS_MS, wall_ms)
        self.accounts = None
        self.delay_file = self.users_file = _Marked()
        self.members = Members()
        self._saved = b""
        self._load()
        terms = node.master_terms
        self.writer = MessageWriter(
            store,
            node.acks,
            clock,
            node.loop,
            level=terms.level,
            sync_flush=terms.sync_flush,
            flush_timeout_ms=300,
            copies_timeout_ms=300,
            pending_max=10_000,
            delay_levels=len(DELAYS_MS),
            on_arrival=self.arrived,
        )
        self.writer.gate.refuse("this broker has no role yet")
        self.writer.on_turn = node.tell_appended
        self.master = MasterServices(
            store,
            self.writer,
            clock,
            cast("LiveConfig", live),
            self.delay_schedule,
            self.topics,
            self.offsets,
            self.members,
            cast("TimerCheckpointFile", _NoCheckpoint()),
            store_host=HOST,
        )
        self.tables = BrokerTables(cast("Broker", self), self._reached)
        self.server = MetadataServer(self.tables)
        self.offsets.on_change = self.delay_schedule.on_change = self.server.changed
        self.topics.on_change = self.groups.on_change = lambda names: self.server.changed()
        self._follower: MetadataFollower | None = None
        self._resting: asyncio.Task[None] | None = None
        self._build_handlers()
        self._agreement.begin()
        self.spawn(self._save_often(), "save tables")

    def _build_handlers(self) -> None:
        node, clock, store = self._node, self._node.clock, self._node.store
        file, pulls = cast("TableFile", None), cast("PullHandlers", None)
        stats = BrokerStats(clock.monotonic(), clock.wall_ms())
        self._agreement = LogAgreement(store, self.topics, self.offsets, stats)
        families = (
            OffsetHandlers(store, self.topics, self.groups, self.offsets, pulls, clock, true_at=self._true_at),
            TopicHandlers(self.topics, self.offsets, store, self.writer, file, clock),
            GroupHandlers(self.groups, self.offsets, file, clock),
            TransactionHandlers(
                cast("LiveConfig", self._live),
                store,
                self.writer,
                self.master.transactions,
                stats,
                clock,
                is_slave=lambda: node.role == "slave",
            ),
            PeerHandlers(
                self.delay_schedule,
                self.master.timers,
                clock,
                is_slave=lambda: node.role == "slave",
                address=node.address,
                ha_facts=lambda: cast("Any", None),
                ha_status=dict,
                master_announced=lambda ha, address: None,
                true_at=self._true_at,
            ),
        )
        self._handlers: dict[int, Any] = {PairCode.WAIT_FOR_METADATA: self.server.wait}
        for family in families:
            self._handlers |= family.handlers()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Runs something that ends with this process."""
        return self._node.loop.create_task(work, name=name)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def serve(self, command: Command) -> Command:
        """Answers a request of another broker or of a client."""
        handler = self._handlers.get(command.code)
        if handler is None:  # as a broker without access control answers a request for its users
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.writer.catch_up()
        found = handler(cast("Connection", _Caller()), command)
        answer = await found if asyncio.iscoroutine(found) else found
        if answer is None:
            return Command(ResponseCode.SUCCESS)
        (frame,) = FrameReader().feed(bytes(answer))
        return decode_command(frame)

    # --- the role ---------------------------------------------------------------------------------------------------

    def be_candidate(self) -> None:
        """Does what a pair does before its node asks its replicas."""
        self.writer.gate.refuse("this master asks its replicas")
        self.offsets.journal = None
        self.server.is_open = False
        if self._follower is not None:
            self.spawn(self._follower.stop(), "stop following tables")
            self._follower = None

    def be_slave(self) -> None:
        """Does what a pair does when its node begins to follow."""
        self.writer.gate.refuse("the broker is a slave")
        self.server.is_open = True
        self.offsets.journal = {}
        if self._follower is None:
            client = cast("RemotingClient", SimClient(self._node))
            self._follower = MetadataFollower(client, self.tables, self._node.master_place, interval=1.0)
            self._node.in_loop(self._follower.start)()

    def following(self) -> None:
        """Does what a pair does when its slave's session has begun."""
        self.tables.settle()
        if self._follower is not None:
            self._follower.look_again()

    def opened(self, heard: Iterable[str]) -> None:
        """Does what a pair does when its master may write: takes the newest tables first."""
        self.writer.forget_flushes()
        self.tables.settle(self._node.store.appended)
        self.spawn(self._open([] if self.server.is_open else sorted(heard)), "open")

    async def _open(self, heard: list[str]) -> None:
        client = cast("RemotingClient", SimClient(self._node))

        async def merge(name: str) -> None:
            with contextlib.suppress(RemotingError, ReplyError, CodecError, TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    await merge_tables_of(client, self.tables, name, ASK_SECONDS)

        await asyncio.gather(*map(merge, heard))
        await self._go_on()

    async def _go_on(self) -> None:
        """Opens the broker; what only a writer does ends before it begins again."""
        while self._resting is not None and not self._resting.done():
            await asyncio.wait([self._resting])
        if self._node.is_open and not self._node.refuses:
            self._allow_writes()

    def _allow_writes(self) -> None:
        self.server.is_open = True
        self.server.changed()
        self.writer.gate.allow()
        self._agreement.restore()
        self._node.store.mention_idle_queues(self.writer.append_mark)
        self.master.start()

    def closed(self, reason: str) -> None:
        """Ends a reign."""
        self.writer.gate.refuse(reason)
        self.writer.fail_waiting(reason)
        self._resting = self.spawn(self.master.stop(), "rest")

    def draining(self) -> None:
        """Takes no more messages, so that slaves get everything."""
        self.writer.gate.refuse("this master is being demoted")
        self._resting = self.spawn(self.master.stop(), "rest")

    def resumed(self) -> None:
        """Goes on after a hand-over that came to nothing."""
        self.spawn(self._go_on(), "go on")

    async def stop(self) -> None:
        """Ends a process cleanly."""
        await self.master.stop()
        self.writer.gate.refuse("the broker is stopping")
        self.writer.catch_up()
        self.delay_schedule.flushed(self._node.store.appended)

    # --- what happens -----------------------------------------------------------------------------------------------

    def arrived(self, queues: Queues) -> None:
        """Learns that readers see more."""
        self._agreement.adopt(queues)
        self.tables.dispatched()
        self.master.arrived(sorted(queues))  # sorted, so that a seed replays in any process

    def log_was_cut(self) -> None:
        """Forgets what tables say about a part of the log that is gone."""
        self.tables.true_at = min(self.tables.true_at, self._node.store.appended)
        self._agreement.restore()
        self.save()  # a broker's file follows within milliseconds; nothing else happens in them here

    def first_waiting(self) -> int | None:
        """Returns where the oldest message lies that is in the log only to be delivered later."""
        told = self.master.told(self._node.role == "master")
        return first_waiting(self._node.store, self.delay_schedule, told)

    def _reached(self) -> int:
        return self._node.store.dispatched if self._node.is_following else NEVER

    def _true_at(self) -> int:
        return self._node.store.appended if self._node.role == "master" else self.tables.true_at

    # --- the files --------------------------------------------------------------------------------------------------

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            self.delay_schedule.flushed(self._node.store.flushed)
            self.save()

    def save(self) -> None:
        """Saves the tables as a broker does every few seconds: each as it is, all in one file."""
        content = {
            "topics": {**self.topics.members(), **{name: dict(entries) for name, entries in self.topics.maps()}},
            "offsets": self.offsets.snapshot(),
            "delay": self.delay_schedule.snapshot(durable=True),
        }
        text = msgspec.json.encode(content)
        if text != self._saved:
            with contextlib.suppress(DiskFull):
                self._node.disk.replace_file(TABLES_FILE, text)
                self._saved = text

    def _load(self) -> None:
        disk = self._node.disk
        if disk.file_size(TABLES_FILE) is None:
            return
        content = msgspec.json.decode(disk.read_file(TABLES_FILE))
        self.topics.load(content["topics"])
        self.offsets.load(content["offsets"])
        self.delay_schedule.load(content["delay"])


class _Caller:
    """Whom an answer goes to."""

    peer = "a broker"
    is_open = True


def heard_names(replicas: Iterable[str]) -> list[str]:
    """Returns the nodes where these replicas live."""
    return sorted({place_of(replica) for replica in replicas if replica})


def service_config() -> BrokerConfig:
    """Returns the options of a broker that its services read."""
    return BrokerConfig(
        broker_name="g",
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_check_interval_ms=CHECK_INTERVAL_MS,
        transaction_check_max=CHECKS_MAX,
    )
