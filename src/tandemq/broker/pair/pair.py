"""The broker's side of replication: wires a ReplicaNode to the broker, changes roles, answers brokers and operators.

slave  ──promote──▶  master: asks those who may hold more, opens, announces itself to the group
master ──demote / a higher epoch──▶  slave: writes refused at once, then it follows whoever reigns

A master's role in the conf file is a wish: before it opens, and with every registration from then on, it looks around
(lookout.py) whether somebody else reigns, and reign.py decides.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tandemq.broker.addresses import HA_OFFSET, broker_port_of
from tandemq.broker.config import BrokerRole
from tandemq.broker.exposure import exposures
from tandemq.broker.failover.failover import Failover
from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.pair.classic_master import ClassicMaster, hinders_promotion
from tandemq.broker.pair.lookout import SLAVE, Lookout, register_facts, seen_of
from tandemq.broker.pair.peer_book import PeerBook
from tandemq.broker.pair.reign import Own, RoleVerdict, Seen, Step, View, decide
from tandemq.broker.pair.tables import NEVER, BrokerTables
from tandemq.broker.pair.tls import ha_tls
from tandemq.broker.registration import Registered
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import GROUP_HOME, Member, Register
from tandemq.errors import CodecError, CoordinatorError, RemotingError, ReplicationError, ReplyError
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_cluster
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.decisions import Propose
from tandemq.replication.epochs import ReplicaRecord, place_of
from tandemq.replication.mastership.core import Phase
from tandemq.replication.metadata import (
    KeyWanted,
    MetadataFollower,
    MetadataServer,
    PairCode,
    ask_ha_info,
    merge_tables_of,
)
from tandemq.replication.node import NodeCallbacks, ReplicaNode
from tandemq.replication.promotion import refusal_of
from tandemq.replication.slave import MasterPlace, NotFollowable
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.status import HaStatus
from tandemq.store.config import FlushDiskType

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""A demoted master waits this long for its slaves to have everything."""
ANSWER_SECONDS = 1.0
"""For sends that a master accepted before its demotion to get their copies."""
BACK_SECONDS = 0.5
"""For the master that handed over to be in sync again, before its successor takes messages."""
TELL_SECONDS = 1.0
"""For slaves to take the last changes of the tables, before a stop or a hand-over."""
ASK_SECONDS = 3.0
OPEN_SECONDS = 3.0
"""A promotion is answered when it is done, or after this long with what it waits for."""
LOOK_SECONDS = 1.0
"""For every answer before a start; FRESH_SECONDS when nobody is on record, so that a lone broker starts at once."""
FRESH_SECONDS = 0.4
LOOK_PAUSE = 0.25
START_PAUSE = 0.02
LOOK_AGAIN_SECONDS = 5.0
"""An open master looks around with a registration, not more often than this."""
PEERS_FILE = "peers.json"
DISCOVERY_FAILURES_MAX = 3
"""Unanswered questions over the remoting port before a slave speaks classic to the HA port it was given."""


class Pair:
    """Replication of one broker, in whatever role it has."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._live = broker.live
        self.tables = BrokerTables(broker, self._reached)
        self._server = MetadataServer(self.tables)
        self._registered_master = self._registered_ha = ""
        self._announced: tuple[str, str] | None = None
        """(HA address, remoting address) of a master that told us about itself."""
        self._just_announced = False
        """It has told where its HA port is a moment ago: once, nobody needs to ask it for that."""
        self._is_ours = False
        self._unanswered = 0
        self._starting = True
        self._tasks: set[asyncio.Task[Any]] = set()
        self._slave_id = broker.live.broker.broker_id
        """The id to take as a slave; 0 when it has to be found."""
        self._changing = asyncio.Lock()
        self._waits: RoleVerdict | None = None
        """Set while this node has a master's role but waits for word from its group before it plays it."""
        self._may_go_on = asyncio.Event()
        """The operator lets it go on without that word."""
        self._successor = ""
        """Who reigns instead of us, when we were told."""
        self._predecessor = ""
        """The replica that has just handed over to this node and is about to follow it."""
        self._looked_at = float("-inf")
        self._group_exists = False
        """Somebody of this name has a register: a store without one does not begin a group of its own."""
        self._order: asyncio.Task[str] | None = None
        """The promotion or demotion under way: it goes on whether or not who ordered it is still there."""
        self._order_name = ""
        self._forbidding: asyncio.Task[None] | None = None
        self._homeless = ""
        """Why this broker never reigns: its register lives with a coordinator that it was not given."""
        self.failover: Failover | None = None
        """Of a group with a coordinator; None: a person promotes."""
        self._master_changed = asyncio.Event()
        """Another one has announced itself: whoever still asks the former master stops."""

    @property
    def broker(self) -> "Broker":
        return self._broker

    @property
    def changing(self) -> asyncio.Lock:
        """Held by whoever changes the role."""
        return self._changing

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Plays the configured role; a master that must ask first leaves the writer refusing."""
        broker = self._broker
        config = self._live.replication
        self.node = ReplicaNode(
            broker.store,
            broker.root,
            config,
            broker.acks,
            broker.clock,
            NodeCallbacks(
                opened=self._opened,
                closed=self._closed,
                readable=self._readable,
                following=self._following,
                recorded=self._recorded,
                lost=self._session_lost,
                proposed=self._proposed,
                vouch=self._vouch if config.coordinator and not self._live.broker.observer else None,
            ),
            group=f"{self._live.broker.cluster_name}/{self._live.broker.broker_name}",
            address=broker.address,
            sync_flush=self._live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            tls=ha_tls(config, self._live.remoting),
            observer=self._live.broker.observer,
        )
        self.node.broker_id = self._slave_id
        if self._live.replication.coordinator and not self._live.broker.observer:
            self._wait_for_coordinator()
        else:
            self._take_role_of_register()
        self._follower = MetadataFollower(
            broker.client,
            self.tables,
            self._metadata_place,
            interval=config.metadata_interval_ms / 1000,
            observer=self._live.broker.observer,
        )
        broker.store.on_flushed = self.node.flushed
        broker.writer.on_turn = self.node.appended
        broker.offsets.on_change = self._server.changed
        broker.delay_schedule.on_change = self._server.changed
        self.node.hands.on_cut = self._log_was_cut
        self._book = PeerBook(self.node.disk, broker.root / PEERS_FILE)
        self._book.note(self.node.member_addresses())
        self._lookout = Lookout(
            broker.client, broker.asking_client, self._live, self.node.group, broker.address, self._book
        )
        if broker.is_master:
            await self._begin_as_master()
        else:
            await self._be_slave()
        self._starting = False
        if self.failover is not None:
            self.failover.start()

    def _wait_for_coordinator(self) -> None:
        """Begins as a reader whatever the file says: with a coordinator, etcd's register decides."""
        broker, register = self._broker, self.node.register
        self.failover = Failover(self)
        here = register.find(self.node.record.replica) if register is not None else None
        self._slave_id = here.broker_id if here is not None else 0
        # Name servers are told when it is known what this broker is.
        broker.registration.is_held = self._slave_id == 0
        broker.registration.state_version = self._epoch_known
        broker.assume_role(BrokerRole.SLAVE, self._slave_id or 1)
        self.node.coordinate(register.home if register is not None else "", self._live.replication.lease_seconds)

    def _take_role_of_register(self) -> None:
        """Takes the role that the register gives; what the file says is only the first wish."""
        broker, node = self._broker, self.node
        register = node.register
        if register is None:
            return
        here = register.find(node.record.replica)
        if register.home != GROUP_HOME:
            self._homeless = (
                f"haCoordinator is empty, but the register of this group lives in {register.home}: this broker follows "
                'and never reigns. Set haCoordinator as it was, or see docs/operations.md, "From a manual group"'
            )
            log.error("%s", self._homeless)
            self._slave_id = here.broker_id if here is not None else 0
            broker.assume_role(BrokerRole.SLAVE, self._slave_id or 1)
            return
        if here is not None and here.broker_id > 0:
            self._slave_id = here.broker_id
        if node.is_holder and not broker.is_master:
            role = BrokerRole(node.record.role or BrokerRole.SYNC_MASTER.value)
            log.warning(
                "configured as SLAVE, but this replica holds the group's last reign: it starts as %s", role.value
            )
            node.count("starts-as-master")
            broker.assume_role(role, 0)
        elif not node.is_holder and broker.is_master:
            log.warning(
                "configured as %s, but %s holds the group's last reign: it starts as a SLAVE. To make it master again "
                "use `tandemq broker promote`",
                broker.role.value,
                register.holder,
            )
            node.count("starts-as-slave")
            broker.assume_role(BrokerRole.SLAVE, self._slave_id or 1)
        elif not broker.is_master and self._slave_id:
            broker.assume_role(BrokerRole.SLAVE, self._slave_id)

    async def hand_over(self) -> None:
        """Hands over before anything stops: with a coordinator another one takes over at once."""
        if self.failover is not None:
            await self.failover.succession.hand_over("this broker stops")

    async def tell_slaves(self) -> None:
        """Tells the slaves before the ports close: an offset committed just now is not left to the master alone."""
        await self._server.told(TELL_SECONDS, stopping=True)

    async def stop(self) -> None:
        """Makes everything durable after the last write and tells the slaves, so that the next start need not ask."""
        broker = self._broker
        for task in list(self._tasks):
            task.cancel()
        if self.failover is not None:
            await self.failover.stop()
        await self._follower.stop()
        health = broker.store.health
        if health.writable:
            broker.store.flush_once()
            self.node.flushed()
        broker.store.on_flushed = None
        await self.node.leave_role(clean=health.writable)

    async def _be_master(
        self, ask: frozenset[str] = frozenset(), *, ordered: bool = False, register: Register | None = None
    ) -> None:
        broker, config = self._broker, self._live.replication
        is_sync = broker.role is BrokerRole.SYNC_MASTER
        broker.writer.gate.refuse(
            "this master asks its replicas what it may have lost and takes no messages yet; see `tandemq ha status`"
        )
        broker.offsets.journal = None
        self._server.is_open = False
        await self.node.be_master(
            self._live.remoting.bind_address,
            broker.ha_port,
            config.default_level(is_sync),
            strict=is_sync,
            ask=ask,
            ordered=ordered,
            group_exists=self._group_exists,
            broker_id=self._slave_id,
            register=register,
        )

    async def _be_slave(self) -> None:
        self._server.is_open = True  # who follows a slave follows its tables too
        self._broker.offsets.journal = {}
        await self.node.be_slave(
            self._find_master,
            ClassicMaster(self._broker.client),
            host=self._live.remoting.bind_address,
            port=self._broker.ha_port,
        )
        self._follower.start()

    # --- who reigns -------------------------------------------------------------------------------------------------

    async def _begin_as_master(self) -> None:
        """Finds out whether one configured to be master is it, or somebody else reigns meanwhile."""
        broker = self._broker
        view = await self._lookout.look(LOOK_SECONDS if self._book.addresses else FRESH_SECONDS)
        self._group_exists = any(one.group_id for one in view.seen)
        verdict = self._decide(view)
        if verdict.step is Step.FOLLOW:
            self._say_follows(verdict)
            broker.assume_role(BrokerRole.SLAVE, self._slave_id or await self._free_id())
            await self._be_slave()
        elif verdict.step is Step.WAIT:
            self._wait_for_word(verdict)
            broker.registration.is_held = True
            broker.offsets.journal = {}
            self._spawn(self._until_word(), "word from the group")
        else:
            await self._be_master()

    def _decide(self, view: View, *, waited: bool = False) -> RoleVerdict:
        record = self.node.record
        last = record.last_reign
        own = Own(
            address=self._broker.address,
            is_open=self.node.is_open,
            reign=(last.number, last.id) if last is not None else (0, ""),
            claim=(record.promise.number, record.promise.id),
            replica=record.replica,
            group_id=record.register.group_id if record.register is not None else "",
            register=record.register.version if record.register is not None else (0, 0),
            is_new=record.register is None and not record.history.epochs and self._broker.store.appended == 0,
        )
        allowed = self._live.replication.open_without_replicas or self._may_go_on.is_set()
        return decide(own, view, waited=waited, allowed=allowed)

    def _say_follows(self, verdict: RoleVerdict) -> None:
        log.warning(
            "configured as %s, but %s: this broker starts as a SLAVE and follows it. To make it master again use "
            "`tandemq broker promote`",
            self._broker.role.value,
            verdict.why,
        )
        self.node.count("starts-as-slave")
        self._registered_master = verdict.address

    def _wait_for_word(self, verdict: RoleVerdict) -> None:
        wait = self._live.replication.rejoin_wait_ms / 1000
        text = f"{verdict.why}; one of them may be the master now"
        if self._waits is None:
            log.warning(
                "%s. This broker serves readers, takes no messages, and looks again and again, for %g s if there is no "
                "name server to ask; `tandemq broker promote --accept-loss` lets it go on",
                text,
                wait,
            )
        self._waits = verdict
        self._broker.writer.gate.refuse(f"this master takes no messages yet: {text}")

    async def _until_word(self) -> None:
        """Looks again and again until it is clear who reigns, then plays the role that is left."""
        broker, clock = self._broker, self._broker.clock
        give_up_at = clock.monotonic() + self._live.replication.rejoin_wait_ms / 1000
        while True:
            try:
                async with asyncio.timeout(LOOK_PAUSE):
                    await self._may_go_on.wait()
            except TimeoutError:
                pass
            if not broker.is_started:
                await asyncio.sleep(START_PAUSE)  # the order may have come before: waiting for it does not pause then
                continue
            view = await self._lookout.look(LOOK_SECONDS)
            self._group_exists = any(one.group_id for one in view.seen)
            waited = clock.monotonic() >= give_up_at
            verdict = self._decide(view, waited=waited)
            if verdict.step is Step.WAIT:
                self._wait_for_word(verdict)
                continue
            break
        async with self._changing:
            self._waits = None
            broker.registration.is_held = False
            if verdict.step is Step.FOLLOW:
                self._say_follows(verdict)
                await broker.change_role(BrokerRole.SLAVE, self._slave_id or await self._free_id())
                await self._be_slave()
                return
            if view.silent:
                log.warning("goes on without word from %s", ", ".join(view.silent))
            await self._be_master()
            if self._may_go_on.is_set() and self.node.master is not None and not self.node.is_open:
                self.node.master.allow()
            broker.registration.start()

    def _look_soon(self) -> None:
        """Makes a master look around: partitions heal, and conf files lie."""
        now = self._broker.clock.monotonic()
        if self._waits is None and not self._starting and now - self._looked_at >= LOOK_AGAIN_SECONDS:
            self._looked_at = now
            self._spawn(self._look_around(), "look around")

    async def _look_around(self) -> None:
        view = await self._lookout.look(LOOK_SECONDS)
        async with self._changing:
            if self._broker.is_master:
                await self._obey(self._decide(view, waited=True))

    async def _obey(self, verdict: RoleVerdict) -> None:
        """Does what a playing master does about another one."""
        if self.node.master is None:
            return
        if verdict.step is Step.FOLLOW:
            self._successor = verdict.address
            self.node.master.order(0, verdict.why)
        elif verdict.step is Step.TELL:
            log.warning("two masters: %s; it is told to step down", verdict.why)
            self.node.count("met-an-outdated-master")
            await self._announce_to([verdict.address])
            self._broker.registration.announce()

    def _recorded(self) -> None:
        self._book.note(self.node.member_addresses())
        register = self.node.register
        here = register.find(self.node.record.replica) if register is not None else None
        if here is None or here.broker_id in (0, self._slave_id):
            return
        log.warning("the register gives this broker the id %d instead of %d", here.broker_id, self._slave_id)
        self._slave_id = here.broker_id
        if not self._broker.is_master and not self._starting:
            self._spawn(self._take_id(here.broker_id), "take the register's id")

    async def _take_id(self, broker_id: int) -> None:
        async with self._changing:
            if self.failover is not None and not self._broker.is_master:
                self._broker.registration.is_held = False
                self._broker.assume_role(BrokerRole.SLAVE, broker_id)
                self.tell_name_servers()
            elif not self._broker.is_master and self._live.broker.broker_id != broker_id:
                await self._broker.change_role(BrokerRole.SLAVE, broker_id)

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """Runs something that ends with this broker."""
        return self._spawn(work, name)

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- what the node tells ----------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._broker.writer.forget_flushes()
        self.tables.settle(self._broker.store.appended)
        heard = self.node.heard_addresses()
        if heard and not self._server.is_open:  # one that has reigned since it took the role has the newest tables
            self._broker.writer.gate.refuse("this master takes over the newest tables of its group")
            self._spawn(self._take_tables(heard), "tables of the group")
        else:
            self._allow_writes()

    async def _take_tables(self, addresses: Iterable[str]) -> None:
        """Takes topics, groups and offsets from those who were heard, as the log was; bounded."""

        async def merge(address: str) -> None:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    await merge_tables_of(self._broker.peer_client, self.tables, address, ASK_SECONDS)
            except (RemotingError, ReplyError, CodecError, TimeoutError) as error:
                log.warning("%s was heard but did not tell its topics, groups and offsets: %s", address, error)

        await asyncio.gather(*(merge(address) for address in addresses))
        if self.node.is_open:
            self._allow_writes()

    def _allow_writes(self) -> None:
        self._server.is_open = True
        self._server.changed()
        if self._starting:
            self._broker.writer.gate.allow()  # the broker starts its services itself when it is up
        else:
            self._spawn(self._open_broker(), "open")

    async def _open_broker(self) -> None:
        """Opens the broker; what only a writer does ends before it begins again."""
        while self._forbidding is not None and not self._forbidding.done():
            await asyncio.wait([self._forbidding])
        if self.node.is_open:
            self._spawn(self._announce(), "announce")
            await self._predecessor_back()
        if not self.node.is_open:
            return
        if self.failover is None:
            self._broker.allow_writes()
            self._broker.registration.announce()  # whatever a former master told last, this is newer
        else:
            self._broker.allow_writes(services=not self.failover.fence.wants_copies)
            self.tell_name_servers()

    async def _predecessor_back(self) -> None:
        """Waits for the former master after an orderly hand-over.

        Sends that want a copy would find no slave for a moment.
        """
        predecessor, self._predecessor = self._predecessor, ""
        if self.failover is not None:
            await self._copies_back()
            return
        if not predecessor or self._broker.writer.level.copies == 1:
            return
        clock = self._broker.clock
        deadline = clock.monotonic() + BACK_SECONDS
        while self.node.is_open and clock.monotonic() < deadline:
            if any(one.in_sync for one in self.node.status().replicas if one.replica == predecessor):
                return
            await asyncio.sleep(0.01)

    async def _copies_back(self) -> None:
        """Waits after an election until those who were heard with the whole log count; bounded."""
        clock, acks, register = self._broker.clock, self._broker.acks, self.node.register
        wanted = self._broker.writer.level.needed(acks.group_size) - 1
        if register is None or len(register.in_sync) <= wanted:
            return
        deadline = clock.monotonic() + BACK_SECONDS
        while self.node.is_open and clock.monotonic() < deadline:
            if sum(one.in_sync for one in self.node.status().replicas) >= wanted:
                return
            await asyncio.sleep(0.005)

    def _epoch_known(self) -> int:
        register = self.failover.register if self.failover is not None else None
        return register.epoch if register is not None else 0

    def tell_name_servers(self) -> None:
        """Tells name servers what this broker is in its group, which may have changed or is known at last."""
        registration = self._broker.registration
        registration.is_held = registration.is_resting = False
        registration.start()
        registration.announce()

    def _closed(self, reason: str, deposed: bool) -> None:
        self.tables.true_at = self._broker.store.appended
        text = f"this broker is no longer the master: {reason}"
        self._broker.writer.gate.refuse(text)
        if self.failover is not None:
            self.failover.closed(deposed)
        if deposed:
            self._broker.forwarder.expect_hand_over()
            self._spawn(self._step_aside(), "step aside")
        else:
            self._forbidding = self._spawn(self._broker.forbid_writes(text), "forbid writes")

    def _readable(self) -> None:
        self._broker.writer.schedule_dispatch()

    def _reached(self) -> int:
        """Returns what of the master's log our readers see.

        Nothing while it is not known whether ours agrees with it.
        """
        classic = self.node.slave is not None and not isinstance(self.node.slave.state, SlaveState)
        return self._broker.store.dispatched if self.node.is_following or classic else NEVER

    def dispatched(self) -> None:
        """Readers see more of the log."""
        self.tables.dispatched()

    def tables_true_at(self) -> int:
        """Returns at which position of its log a slave has its master's tables."""
        return self.tables.true_at

    def _log_was_cut(self) -> None:
        self.tables.true_at = min(self.tables.true_at, self._broker.store.appended)
        self._broker.log_was_cut()

    def _following(self) -> None:
        self._broker.registration.release()
        if self.failover is not None and self._broker.registration.is_resting:
            self.tell_name_servers()
        self._broker.forwarder.changed()
        if self._is_ours:
            self._book.note([self._master_address()])
        self.tables.settle()
        self._follower.look_again()

    def changed(self) -> None:
        """Tells slaves that topics or groups changed."""
        self._server.changed()

    def retained(self) -> None:
        """Tells replication that old segments of the log were deleted."""
        self.node.retained()

    # --- finding the master -----------------------------------------------------------------------------------------

    def registered(self, registered: Registered) -> None:
        """Takes a name server's answer, which names the master of our group, if it knows one."""
        if self.failover is not None:
            return  # the coordinator knows better
        if self._broker.is_master:
            self._look_soon()
            return
        if registered.master_address != self._broker.address:
            changed = registered.master_address and registered.master_address != self._registered_master
            self._registered_master = registered.master_address
            self._registered_ha = registered.ha_address or self._registered_ha
            if changed and not self._starting and self.node.slave is not None:
                self._announced = None
                # A session that stands is with the master: it ends by itself if that reign does.
                if not self.node.is_following:
                    self.node.slave.look_again()

    def master_announced(self, ha_address: str, address: str) -> None:
        """Takes the word of another broker that it is our master."""
        if self._broker.is_master or address == self._broker.address:
            return
        slave = self.node.slave
        is_followed = slave is not None and self.node.is_following and slave.place is not None
        self._announced = (ha_address, address)
        self._broker.registration.release()
        self._broker.forwarder.changed()
        self._master_changed.set()
        if slave is not None and not (is_followed and slave.place is not None and slave.place.ha_address == ha_address):
            slave.reconnect()

    def reigning_address(self) -> str:
        """Returns where requests go that only a master can answer.

        Empty while this node reigns or knows nobody who does.
        """
        if self._live.broker.observer:
            return ""
        if self.failover is not None:
            return self.failover.holder_address
        if self._broker.is_master:
            address = self._successor
        else:  # one that was only guessed, or is not ours, is not given what clients send
            address = self._master_address() if self._announced is not None or self._is_ours else ""
        return address if address != self._broker.address else ""

    def _master_address(self) -> str:
        """Returns the remoting address of the master; guessed from its HA address when nobody told.

        Of an observer, that of the broker it was told to follow, which need not be the master.
        """
        if self._live.broker.observer and (observed := broker_port_of(self._live.replication.ha_master_address)):
            return observed
        if self._announced is not None and self._announced[1]:
            return self._announced[1]
        if self._registered_master:
            return self._registered_master
        if self.failover is not None:
            return self.failover.holder_address
        return broker_port_of(self._live.replication.ha_master_address)

    def _metadata_place(self) -> tuple[str, bool] | None:
        address = self._master_address()
        return (address, self._is_ours) if address and address != self._broker.address else None

    async def _find_master(self) -> MasterPlace | None:
        configured = self._live.replication.ha_master_address
        announced = self._announced[0] if self._announced is not None else ""
        ha_address = announced or configured or self._registered_ha
        address = self._master_address() or await self._look_up_master()
        if not address or address == self._broker.address:
            return MasterPlace(ha_address, False) if ha_address and not address else None
        if self._just_announced and announced:
            self._just_announced, self._is_ours = False, True
            return MasterPlace(announced, True, self.node.group)
        try:
            info = await self._ask_master(address)
        except KeyWanted as error:
            if not ha_address:
                raise NotFollowable(Reason.KEY_REFUSED, str(error)) from error
            return MasterPlace(ha_address, True)  # it is ours: what both have to say about keys is said there
        except (RemotingError, CodecError) as error:
            self._unanswered += 1
            await self._look_up_master()
            if ha_address and self._unanswered > DISCOVERY_FAILURES_MAX and not self._is_ours:
                return MasterPlace(ha_address, False, address=address)
            raise OSError(f"broker port {address} does not answer ({error})") from error
        self._unanswered = 0
        if info.get("tandemqRole") == SLAVE:
            if self._live.broker.observer and configured:
                self._is_ours = True
                has_epochs = info.get("tandemqEpochId", "") != ""
                return MasterPlace(configured, has_epochs, info.get("tandemqGroup", ""), address)
            await self._master_is_a_slave(address, info.get("tandemqFollows", ""))
        self._is_ours = info.get("tandemqHa") == "1"
        if self._is_ours:
            told = info.get("masterHaAddress", "")
            if configured and configured != told and await self._is_slaves(configured):
                configured = told  # an order of things before a promotion
            return MasterPlace(announced or configured or told, True, info.get("tandemqGroup", ""))
        ha_address = ha_address or info.get("masterHaAddress", "")
        return MasterPlace(ha_address, False, address=address) if ha_address else None

    async def _master_is_a_slave(self, address: str, follows: str) -> None:
        """Raises NotFollowable for one that is the master no more, and looks elsewhere next time."""
        self._announced = None
        self._registered_master = follows if follows != self._broker.address else ""
        self._registered_ha = ""
        if self.failover is not None:
            self._registered_master = ""
        if not self._registered_master:
            await self._look_up_master()
        where = f", which follows {follows}" if follows else ""
        raise NotFollowable(Reason.NOT_MASTER, f"the broker at {address} is a slave itself{where}")

    async def _is_slaves(self, ha_address: str) -> bool:
        """Returns whether the broker beside a configured HA address says that it is a slave."""
        address = broker_port_of(ha_address)
        if not address:
            return False
        try:
            info = await ask_ha_info(self._broker.asking_client, address, LOOK_SECONDS)
        except (RemotingError, CodecError):
            return False
        return info.get("tandemqRole") == SLAVE

    async def _look_up_master(self) -> str:
        """Returns whom the name servers call master of our group now; registrations bring it only every half minute."""
        if self.failover is not None:
            return self.failover.holder_address
        if self._live.replication.ha_master_address and self._registered_master:
            return self._registered_master
        address = (await self._group_addresses()).get(0, "")
        if address and address not in (self._broker.address, self._registered_master):
            self._registered_master, self._registered_ha = address, ""
            self._announced = None
        return address

    # --- changing roles ---------------------------------------------------------------------------------------------

    async def _step_aside(self) -> None:
        """Refuses writes after being deposed, then follows whoever reigns."""
        async with self._changing:
            if self._broker.is_master and self.failover is not None:
                self._slave_id = self._slave_id or await self._free_id()
                self._announced = None
                self._registered_master = self._registered_ha = ""
                # Name servers are told when it follows: until then clients reach a broker that forwards.
                self._broker.registration.is_resting = True
                await self._broker.take_role(BrokerRole.SLAVE, self._slave_id)
                await self._be_slave()
            elif self._broker.is_master:
                slave_id = self._slave_id or await self._free_id()
                self._announced = None
                self._registered_master, self._registered_ha = self._successor, ""
                self._successor = ""
                await self._broker.change_role(BrokerRole.SLAVE, slave_id)
                if self._registered_master:
                    self._broker.registration.release()
                await self._be_slave()

    async def _free_id(self) -> int:
        """Returns the smallest slave id nobody in the group has, as far as name servers know."""
        taken = (await self._group_addresses()).keys()
        return next(number for number in range(1, 1024) if number not in taken)

    async def _group_addresses(self) -> dict[int, str]:
        """Returns broker id -> address of our group, as the name servers tell."""
        found: dict[int, str] = {}
        for table in reversed(await self._lookout.tables(ASK_SECONDS)):
            found.update(table)
        return found

    async def _ordered(self, name: str, work: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Runs one order at a time, to its end: a lost connection leaves nothing half done; it may be repeated."""
        running = self._order
        if running is None or running.done():
            running = self._order = asyncio.get_running_loop().create_task(work(), name=name)
            self._order_name = name
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)
            running.add_done_callback(_log_failure)
        elif self._order_name != name:
            raise ReplicationError(
                f"this broker is busy with another order ({self._order_name}); try again in a moment"
            )
        return await asyncio.shield(running)

    def _check_order(self, ext: Mapping[str, str]) -> None:
        """Checks until when an order is meant, by this broker's own clock, and for which epoch."""
        expires = ext.get("expiresAt", "")
        late = self._broker.clock.wall_ms() - int(expires) if expires.isdecimal() else 0
        if late > 0:
            raise ReplicationError(
                f"this order expired {late} ms ago and is not carried out; give it again if it is meant"
            )
        meant, register = ext.get("epoch", ""), self.node.register
        if meant.isdecimal() and register is not None and int(meant) != register.epoch:
            raise ReplicationError(
                f"this order means epoch {meant}, the group is in epoch {register.epoch} now: see `tandemq ha status`"
            )

    async def promote(self, role: BrokerRole, *, accept_loss: bool, pinned: bool = True) -> str:
        """Makes this slave the master; what was done, in words.  ReplicationError if it should not be.

        `pinned`: with a coordinator, a preferred master does not take the reign back by itself.
        """
        if self.failover is not None:
            succession = self.failover.succession
            return await self._ordered("promote", lambda: succession.promote(accept_loss=accept_loss, pinned=pinned))
        return await self._ordered("promote", lambda: self._promote(role, accept_loss))

    async def _promote(self, role: BrokerRole, accept_loss: bool) -> str:
        if self._homeless and self.node.register is not None and self.node.register.home != GROUP_HOME:
            raise ReplicationError(self._homeless)
        async with self._changing:
            if self._broker.is_master:
                return await self._allow_open(accept_loss)
            if self._live.broker.observer and not accept_loss:
                raise ReplicationError(
                    "this broker is an observer, no member of its group: promoted it begins a group of its own, and "
                    "the old one knows nothing of it. Use --accept-loss if that is meant"
                )
            record = self.node.record
            unheard = await self._check_promotion(record, accept_loss)
            self._broker.forwarder.expect_hand_over()
            old = await self.demote_master(accept_loss)
            self._predecessor = old
            ask = frozenset({old}) if old and record.register is None else frozenset()
            former_id = self._slave_id or self._live.broker.broker_id
            await self._follower.stop()
            await self.node.leave_role()
            await self._broker.change_role(role, 0)
            self._slave_id = former_id
            await self._be_master(ask, ordered=True)
            await self._announce()
            if accept_loss and self.node.master is not None and not self.node.is_open:
                self.node.master.allow()
            await self.until_open(OPEN_SECONDS)
            if not self.node.is_open:
                return self._give_up()
            self.node.remember_role(role.value)
            unheard |= frozenset(self.node.status().opened_without)
            without = f"; it could not hear {', '.join(sorted(unheard))}" if unheard else ""
            return f"{self._broker.address} is the master now, epoch {self.node.record.promise.number}{without}"

    async def _check_promotion(self, record: ReplicaRecord, accept_loss: bool) -> frozenset[str]:
        """Asks, before anybody is disturbed, who does not answer.

        Raises ReplicationError if the promotion would be in vain.
        """
        if record.lacks is not None and not accept_loss:
            start, stop = record.lacks
            raise ReplicationError(
                f"this slave lacks [{start}, {stop}) of the history that its master has kept, because this log was "
                "begun with the last file only: promote another, or use --accept-loss"
            )
        register = record.register
        if not accept_loss and (hindrance := await self._classic_hindrance()):
            self.node.count("promotion-refused")
            raise ReplicationError(hindrance)
        if register is None:
            is_behind = record.replica not in record.in_sync or not record.complete
            if is_behind and not accept_loss and record.history.epochs:
                raise ReplicationError(
                    "this slave was not in sync when it last heard of its master and may lack acknowledged messages: "
                    "promote one that is, or use --accept-loss"
                )
            return frozenset()
        answered = await self._who_answers(register)
        refusal = refusal_of(record, answered)
        if refusal and (not accept_loss or record.replica not in register.member_ids):
            self.node.count("promotion-refused")
            raise ReplicationError(refusal)
        return register.everybody - answered - {record.replica, register.holder} if refusal else frozenset()

    async def _classic_hindrance(self) -> str:
        survey = ClassicMaster(self._broker.asking_client)
        return await hinders_promotion(self.node.slave, survey, self._broker.store.appended)

    async def _who_answers(self, register: Register) -> frozenset[str]:
        """Returns the replicas of the group that answer at their addresses.

        A new store at an old address is another one.
        """
        others = [one for one in (*register.members, *register.joining) if one.replica != self.node.record.replica]

        async def ask(member: Member) -> str:
            try:
                info = await ask_ha_info(
                    self._broker.asking_client, member.address or place_of(member.replica), LOOK_SECONDS
                )
            except (RemotingError, CodecError):
                return ""
            return info.get("tandemqReplica", "")

        return frozenset(await asyncio.gather(*(ask(one) for one in others))) - {""}

    def _give_up(self) -> str:
        """Ends a promotion that could not hear all it needs: this node follows again, and the operator is told."""
        master = self.node.master
        waits = ", ".join(sorted(self.node.status().waiting_for)) or "its log to be complete"
        if master is None or master.state.phase is not Phase.ASKING or self.node.register is None:
            return f"{self._broker.address} becomes the master when it has heard {waits}"
        self._predecessor = ""
        master.order(0, "the promotion was given up")
        self.node.count("promotion-refused")
        raise ReplicationError(
            f"{waits} could not be heard in time and may hold acknowledged messages, so nothing was changed: start "
            "them, or use --accept-loss"
        )

    async def until_open(self, seconds: float) -> None:
        """Waits for the outcome: the others need a moment to come, and an operator is better told it."""
        clock, writer = self._broker.clock, self._broker.writer
        deadline = clock.monotonic() + seconds
        while not (self.node.is_open and writer.refusal is None) and clock.monotonic() < deadline:
            master = self.node.master
            if master is None or master.state.phase is Phase.DEPOSED:
                return
            await asyncio.sleep(0.02)

    async def _allow_open(self, accept_loss: bool) -> str:
        if self.node.is_open and not self.node.status().provisional:
            return f"{self._broker.address} already is the master"
        if self._waits is not None:
            if not accept_loss:
                raise ReplicationError(f"this master waits: {self._waits.why}; use --accept-loss to go on without that")
            self._may_go_on.set()
            return f"{self._broker.address} goes on unless a master of its group answers"
        waits = ", ".join(self.node.status().waiting_for)
        if not accept_loss or self.node.master is None:
            text = f"this master waits for {waits}; start them, or use --accept-loss to go on without them"
            raise ReplicationError(text)
        view = await self._lookout.look(LOOK_SECONDS)
        self.node.master.allow(group_gone=not any(one.group_id for one in view.seen))
        await self.until_open(OPEN_SECONDS)
        return f"{self._broker.address} goes on without {waits or 'the replicas it waited for'}"

    async def demote_master(self, accept_loss: bool) -> str:
        """Asks the master we follow to hand over; its identity if it did, empty if it can't be reached."""
        slave = self.node.slave
        if slave is None or not self.node.is_following or not isinstance(slave.state, SlaveState):
            return ""
        master, address = slave.state.master, self._master_address()
        ext = {"brokerId": str(self._live.broker.broker_id)}
        register = self.node.register
        if register is not None:
            ext["epoch"] = str(register.epoch)
        try:
            info = await ask_ha_info(self._broker.asking_client, address, LOOK_SECONDS)
            if info.get("tandemqNow", "").isdecimal():
                ext["expiresAt"] = str(int(info["tandemqNow"]) + int((DRAIN_SECONDS + ASK_SECONDS) * 1000))
            reply = await self._broker.peer_client.invoke(
                address, Command(PairCode.DEMOTE, ext), DRAIN_SECONDS + ASK_SECONDS
            )
            reply.raise_for_code(ResponseCode.SUCCESS)
        except (RemotingError, ReplyError) as error:
            if not accept_loss:
                text = f"the master at {address} did not hand over: {error}; or use --accept-loss"
                raise ReplicationError(text) from error
            return ""
        return master

    async def demote(self, slave_id: int = 0) -> str:
        """Hands over: no more writes, slaves get everything, then this node follows whoever reigns."""
        return await self._ordered("demote", lambda: self._demote(slave_id))

    async def _demote(self, slave_id: int) -> str:
        async with self._changing:
            if not self._broker.is_master or self.node.master is None:
                return f"{self._broker.address} is a slave"
            reason = "this master is being demoted, send to its successor"
            await self._broker.rest_services()
            self._broker.forwarder.expect_hand_over()
            # What was accepted gets the answer that it waits for; what comes from now on waits for the successor.
            self._broker.writer.gate.refuse(reason)
            await self._broker.writer.drained(ANSWER_SECONDS)
            await self._broker.forbid_writes(reason)
            try:
                await self.node.drained(DRAIN_SECONDS)
            except BaseException:
                if self.node.is_open:
                    self._broker.allow_writes()
                raise
            await self._server.told(TELL_SECONDS, stopping=False)
            if self.failover is not None:
                self.failover.hands_over()
            else:
                self._slave_id = slave_id or self._slave_id
            self.node.master.order(0, "the operator demotes it")
        return f"{self._broker.address} steps down and follows the next master"

    async def _announce(self) -> None:
        """Tells the group's other brokers who is master now, instead of waiting for their next registration."""
        known = (*(await self._group_addresses()).values(), *self._book.addresses)
        await self._announce_to(set(known) - {self._broker.address})

    async def _announce_to(self, addresses: Iterable[str]) -> None:
        facts = self.ha_facts()
        info = {**facts.extra, "masterHaAddress": facts.ha_address, "masterAddress": self._broker.address}

        async def tell(address: str) -> None:
            try:
                await self._broker.peer_client.invoke(address, Command(PairCode.ANNOUNCE, dict(info)), ASK_SECONDS)
            except (RemotingError, CodecError) as error:
                log.info("%s was not told that this broker is the master: %s", address, error)

        await asyncio.gather(*(tell(address) for address in addresses))

    # --- with a coordinator -----------------------------------------------------------------------------------------

    def follow(self, address: str) -> None:
        """Follows another holder, whom the coordinator's register names."""
        self._broker.forwarder.changed()
        slave, register = self.node.slave, self.failover.register if self.failover is not None else None
        if slave is None or register is None or not address:
            return
        state = slave.state
        if isinstance(state, SlaveState) and state.is_connected and state.master == register.holder:
            return  # it has heard this one when it was a candidate
        if self._announced is not None and self._announced[1] == address and not self.node.is_following:
            slave.look_again()
            return
        self._announced = None
        self._registered_master = self._registered_ha = ""
        self._master_changed.set()
        slave.reconnect()

    async def look_around(self) -> View:
        """Returns who is there, as far as name servers and the book of peers know."""
        return await self._lookout.look(FRESH_SECONDS)

    async def become_candidate(self, role: BrokerRole, register: Register | None, *, ordered: bool) -> None:
        """Asks the others for the reign; readers and name servers notice nothing before it is open."""
        broker = self._broker
        broker.forwarder.expect_hand_over()
        await self._follower.stop()
        await self.node.leave_role()
        broker.registration.is_resting = True
        await broker.take_role(role, 0)
        await self._be_master(ordered=ordered, register=register)

    def announce_soon(self, addresses: Iterable[str]) -> None:
        """Tells the others where the candidate is, without waiting for those that hang."""
        self._spawn(self._announce_to(set(addresses)), "announce")

    async def stepped_aside(self) -> None:
        """Returns when a broker that is no longer the master plays a slave."""
        while self._broker.is_master and not self.node.is_open:  # noqa: ASYNC110  # a few turns, after a vain election
            await asyncio.sleep(START_PAUSE)

    def ha_port_of(self, address: str) -> int:
        """Returns the HA port of the broker that was followed last."""
        slave = self.node.slave
        text = slave.place.ha_address if slave is not None and slave.place is not None else ""
        port = text.rpartition(":")[2] or str(int(address.rpartition(":")[2]) + HA_OFFSET)
        return int(port)

    async def _ask_master(self, address: str) -> Mapping[str, str]:
        """Asks where the HA port is; gives up when another one announces itself meanwhile."""
        if self.failover is None:
            return await ask_ha_info(self._broker.asking_client, address)
        self._master_changed.clear()
        seconds = self._live.replication.lease_seconds / 4
        asking = asyncio.ensure_future(ask_ha_info(self._broker.asking_client, address, seconds))
        changed = asyncio.ensure_future(self._master_changed.wait())
        try:
            await asyncio.wait((asking, changed), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise RemotingError("another broker has announced itself")
            return asking.result()
        finally:
            for task in (asking, changed):
                task.cancel()
            await asyncio.gather(asking, changed, return_exceptions=True)

    def _session_lost(self) -> None:
        if self.failover is not None and not self._broker.is_master:
            self.failover.session_lost()

    def _vouch(self, master: str, epoch: int, now: float) -> str:
        return self.failover.vouch(master, epoch, now) if self.failover is not None else "it has no coordinator"

    def _proposed(self, proposal: Propose) -> None:
        assert self.failover is not None
        self.failover.propose(proposal)

    # --- requests ---------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {
            PairCode.WAIT_FOR_METADATA: self._server.wait,
            PairCode.PROMOTE: self._on_promote,
            PairCode.DEMOTE: self._on_demote,
            PairCode.ANNOUNCE: self._on_announce,
            PairCode.HA_DETAIL: self._on_detail,
            PairCode.FORGET: self._on_forget,
            PairCode.PAUSE: self._on_pause,
            PairCode.MOVE_REGISTER: self._on_move,
        }

    @needs(on_cluster(UPDATE), key=True)
    async def _on_promote(self, connection: Connection, command: Command) -> bytes:
        role = BrokerRole(command.ext.get("role", BrokerRole.SYNC_MASTER.value))
        self._check_order(command.ext)
        accept_loss = "true" in (command.ext.get("acceptLoss"), command.ext.get("force"))
        text = await self.promote(role, accept_loss=accept_loss, pinned=command.ext.get("handOver") != "true")
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_demote(self, connection: Connection, command: Command) -> bytes:
        self._check_order(command.ext)
        text = await self.demote(int(command.ext.get("brokerId", "0")))
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    def _on_forget(self, connection: Connection, command: Command) -> bytes:
        self._check_order(command.ext)
        text = self.forget(command.ext.get("replica", ""), accept_loss=command.ext.get("acceptLoss") == "true")
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_pause(self, connection: Connection, command: Command) -> bytes:
        self._check_order(command.ext)
        if self.failover is None:
            raise ReplicationError("this group has no coordinator (haCoordinator): nobody is elected anyway")
        try:
            text = await self.failover.succession.pause(command.ext.get("paused") == "true")
        except CoordinatorError as error:
            raise ReplicationError(str(error)) from error
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_move(self, connection: Connection, command: Command) -> bytes:
        self._check_order(command.ext)
        if self.failover is None:
            raise ReplicationError("this broker has no coordinator: set haCoordinator and restart it first")
        try:
            if command.ext.get("to") == GROUP_HOME:
                text = await self.failover.move.to_group()
            else:
                text = await self.failover.move.to_coordinator(accept_loss=command.ext.get("acceptLoss") == "true")
        except CoordinatorError as error:
            raise ReplicationError(str(error)) from error
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    def forget(self, name: str, *, accept_loss: bool) -> str:
        """Takes a replica out of the group for good; `name` is its identity, or an address that names exactly one."""
        register, master = self.node.register, self.node.master
        if not self._broker.is_master or master is None:
            holder = f": ask {register.holder}" if register is not None else ""
            raise ReplicationError(f"this broker is no master, and only one that reigns can forget a replica{holder}")
        if register is None:
            known = sorted(self.node.record.members)
            found = [one for one in known if name in (one, place_of(one))]
        else:
            found = [m.replica for m in (*register.members, *register.joining) if name in (m.replica, m.address)]
            known = sorted(register.everybody)
        if len(found) != 1:
            many = f"names {len(found)} replicas: give the identity of one" if found else "is not in the register"
            raise ReplicationError(f"replica={name!r} {many}; known are {', '.join(known)}")
        refusal = master.forget(found[0], accept_loss=accept_loss)
        if refusal:
            raise ReplicationError(refusal)
        return f"the group has forgotten {found[0]}"

    @needs(on_cluster(UPDATE), key=True)
    async def _on_announce(self, connection: Connection, command: Command) -> bytes:
        if command.ext.get("tandemqGroup", self.node.group) != self.node.group:
            return encode_response(command.opaque, ResponseCode.SUCCESS, "another group")
        address = command.ext.get("masterAddress", "")
        self._book.note([address])
        if self._broker.is_master and self.failover is not None:
            self.failover.announced(command.ext)  # who reigns is told by the coordinator
        elif self._broker.is_master:
            verdict = self._decide(View(seen=[seen_of(address, command.ext)]), waited=True)
            if verdict.step is Step.FOLLOW:
                await self._obey(verdict)
        elif not self._is_outdated(seen_of(address, command.ext)):
            self._just_announced = self.failover is not None and "tandemqGroup" in command.ext
            self.master_announced(command.ext.get("masterHaAddress", ""), address)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _is_outdated(self, seen: Seen) -> bool:
        """Returns whether one that announces itself knows less of the group than the master this slave follows."""
        register = self.node.register
        if register is None or not self.node.is_following or seen.group_id != register.group_id:
            return False
        return seen.register[0] < register.epoch

    @needs(on_cluster(GET))
    def _on_detail(self, connection: Connection, command: Command) -> bytes:
        body = msgspec.json.encode(self.detail())
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    # --- looking at it ----------------------------------------------------------------------------------------------

    def detail(self) -> dict[str, Any]:
        """Returns the whole snapshot as plain data: the contract of `tandemq ha status --json`."""
        broker = self._live.broker
        found = dataclasses.asdict(self.node.status())
        found["broker"] = broker.broker_name
        found["brokerId"] = broker.broker_id
        found["address"] = self._broker.address
        found["brokerRole"] = self._broker.role.value
        found["coordination"] = self.failover.shown() if self.failover is not None else None
        found["observer"] = broker.observer
        if self._waits is not None:
            found["role"], found["phase"] = "master", "waiting for word from its group"
        refusal, health = self._broker.writer.refusal, self._broker.store.health
        found["warnings"] = exposures(self._live.remoting, self._live.replication)
        found["writable"] = refusal is None and health.writable
        found["refusal"] = health.reason if refusal is None else refusal.remark
        return found

    def status(self) -> HaStatus:
        status = self.node.status()
        if self.failover is None:
            return status
        return dataclasses.replace(
            status,
            lease_left=self.failover.fence.left if self.node.is_open else 0.0,
            elections=dict(self.failover.elections),
            without_master=self.failover.without_master_s,
        )

    def ha_facts(self) -> HaFacts:
        broker = self._broker
        ip = broker.registration.identity.ha_address.rpartition(":")[0]
        return HaFacts(
            ha_address=f"{ip}:{self.node.ha_port or broker.ha_port}",
            master_flush_offset=broker.store.flushed,
            extra=self._master_facts() if broker.is_master else self._slave_facts(),
        )

    def _master_facts(self) -> dict[str, str]:
        promise = self.node.record.promise
        return {
            "tandemqHa": "1",
            "tandemqGroup": self.node.group,
            "tandemqPhase": self.node.phase,
            "tandemqEpoch": str(promise.number),
            "tandemqEpochId": promise.id,
            **self._common_facts(),
        }

    def _common_facts(self) -> dict[str, str]:
        record = self.node.record
        found = {"tandemqNow": str(self._broker.clock.wall_ms()), **register_facts(record.register, record.replica)}
        return {**found, **self.failover.facts()} if self.failover is not None else found

    def _slave_facts(self) -> dict[str, str]:
        last = self.node.record.last_reign
        return {
            "tandemqRole": SLAVE,
            "tandemqGroup": self.node.group,
            "tandemqEpoch": str(last.number if last is not None else 0),
            "tandemqEpochId": last.id if last is not None else "",
            "tandemqFollows": self._master_address() if self.node.is_following else "",
            **self._common_facts(),
        }

    def ha_status(self) -> Mapping[str, Any]:
        """Returns the answer to GET_BROKER_HA_STATUS in upstream's shape."""
        status = self.node.status()
        connections = [
            {
                "addr": replica.peer,
                "slaveAckOffset": replica.received,
                "diff": replica.lag_bytes,
                "inSync": replica.in_sync,
                "transferredByteInSecond": int(replica.rate),
                "transferFromWhere": replica.received,
            }
            for replica in status.replicas
            if replica.peer
        ]
        return {
            "master": status.role == "master",
            "masterCommitLogMaxOffset": status.end,
            "inSyncSlaveNums": sum(1 for replica in status.replicas if replica.in_sync),
            "haConnectionInfo": connections,
            "haClientRuntimeInfo": {
                "masterAddr": status.master,
                "transferredByteInSecond": 0,
                "maxOffset": status.end,
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "activated": status.role == "slave" and not status.error,
            },
        }


def _log_failure(task: asyncio.Task[str]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s was not carried out: %s", task.get_name(), error)
