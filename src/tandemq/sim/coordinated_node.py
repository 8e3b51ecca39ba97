"""A simulated node of a group with a coordinator: production's own failover, lease and writer, on simulated ground.

`Failover`, `Succession`, `ReignLease`, `Coordinator`, `EtcdClient` and `MessageWriter` run as they are, on a loop that
the simulator drives.  Simulated are the parts around them: `SimPair` and `SimBroker` are what they see of a broker, and
`SimClient` carries the few requests by which brokers speak to each other about a reign.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.failover.failover import Failover
from tandemq.broker.new_message import NewMessage
from tandemq.broker.pair.lookout import register_facts, seen_of
from tandemq.broker.pair.reign import View
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Register
from tandemq.errors import (
    DiskFull,
    RemotingError,
    ReplicationError,
    ReplyError,
    StoreError,
)
from tandemq.model.ack_level import AckLevel
from tandemq.remoting.client import RemotingClient
from tandemq.replication.acks import PutStatus
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.decisions import Propose
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import Phase
from tandemq.replication.metadata import PairCode, ask_ha_info
from tandemq.replication.session import have_all
from tandemq.sim.etcd import EtcdNetwork, SimEtcdClient
from tandemq.sim.loop_node import LoopNode
from tandemq.sim.node import HOST
from tandemq.sim.requests import SimClient
from tandemq.store.message_store import Appended, MessageStore

if TYPE_CHECKING:
    from tandemq.broker.pair.pair import Pair

PORT = 10911
DRAIN_SECONDS = 0.4
LOOK_SECONDS = 0.4
SERVICE_PAUSE, CALM_PAUSE = 0.1, 2.0
"""Seconds between two deliveries: in trouble, and after it, when the slowest disk must have time to confirm one."""
SERVICE_QUEUE = 9
"""Where the services of a master put what they deliver."""


class CoordinatedNode(LoopNode):
    """Alive: also a loop, with production's failover on it."""

    service_pause = SERVICE_PAUSE
    pair: "SimPair"
    etcd: EtcdNetwork
    config: ReplicationConfig
    peers: "list[CoordinatedNode]"

    def join(self, etcd: EtcdNetwork, config: ReplicationConfig, peers: "list[CoordinatedNode]") -> None:
        """Says where the coordinator and the others are, before the first start."""
        self.address = f"{self.name}:{PORT}"
        self.etcd, self.config, self.peers = etcd, config, peers

    def _role_of_register(self) -> None:
        """Whatever its file says, a broker with a coordinator begins as a reader; etcd's register decides."""
        self.role = "slave"
        self.pair = SimPair(self)
        self.vouch = self.pair.failover.vouch
        register = self.record.register
        self.coordinate(register.home if register is not None else "")

    def coordinate(self, home: str) -> None:
        """Where the register lives."""
        self.master_terms = dataclasses.replace(
            self.master_terms, home=home or "etcd:", lease=self.config.lease_seconds, address=self.address
        )
        self.slave_terms = dataclasses.replace(self.slave_terms, address=self.address)

    def boot(self) -> None:
        super().boot()
        if self.alive:
            self.guarded(self.in_loop(self.pair.failover.start))

    def _end_process(self) -> None:
        """Ends without a hand-over, also at a clean stop: its lease ends by itself."""
        self.etcd.forget(self.name)
        super()._end_process()

    async def serve(self, command: Command) -> Command:
        """Answers another broker, or an operator."""
        return await self.pair.serve(command)

    # --- what its state machines decide -----------------------------------------------------------------------------

    def be_candidate(self, register: Register | None, *, ordered: bool) -> None:
        self.elected_with = register
        self._drop_links()
        self.role = "master"
        self._take_role(ordered=ordered)

    def _proposed(self, proposal: Propose) -> None:
        self.in_loop(lambda: self.pair.failover.propose(proposal))()

    def _session_ended(self) -> None:
        self.in_loop(self.pair.failover.session_lost)()

    def _connect(self) -> None:
        self.follows = self.watcher.master_for(self)
        super()._connect()

    def follow_anew(self) -> None:
        """Leaves whom it follows and looks for whoever reigns."""
        if self.slave is not None and self.links:
            self._drop_links()
            self.slave.disconnected(self.now)
            self._later(0.001, self._connect)

    def produce(
        self, queue_id: int, body: bytes, level: AckLevel, done: Callable[[PutStatus, str, Appended], None]
    ) -> None:
        """A send, by production's own writer."""
        if not self.is_open:
            return
        message = _message(queue_id, body)

        def write() -> None:
            writer = self.pair.broker.writer
            try:
                appended = writer.append(message)
            except (WriteRefused, DiskFull):
                return
            end = appended.physical_offset + appended.size
            writer.when_acknowledged(end, level, lambda status, reason: done(status, reason, appended))
            if self.alive and (self.master_terms.sync_flush or level.durable):
                self._later(0.001, self._flush)

        self.guarded(self.in_loop(write))


class SimPair:
    """What production's failover sees of a `Pair`."""

    def __init__(self, node: CoordinatedNode) -> None:
        self._node = node
        self.broker = SimBroker(node)
        self.node = SimReplica(node)
        self.changing = asyncio.Lock()
        self.announced = ""
        """Who told us that it is our master, or a candidate."""
        self._order: asyncio.Task[str] | None = None
        self.failover = Failover(cast("Pair", self))
        coordinator = self.failover.coordinator
        coordinator.client = SimEtcdClient(node.etcd, node.name, coordinator.client.timeout)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        return self._node.loop.create_task(work, name=name)

    # --- roles ------------------------------------------------------------------------------------------------------

    async def become_candidate(self, role: BrokerRole, register: Register | None, *, ordered: bool) -> None:
        node = self._node
        self.broker.writer.gate.refuse("this master asks its replicas")
        self.broker.role = role
        node.guarded(lambda: node.be_candidate(register, ordered=ordered))

    def opened(self) -> None:
        """Tables are taken, name servers told; then sends."""
        self.spawn(self._open(), "open")

    async def _open(self) -> None:
        self.announce_soon(one.address for one in self._node.peers if one is not self._node)
        await asyncio.sleep(self._node.random.uniform(0.0, 0.05))
        if self.node.is_open:
            self.broker.allow_writes(services=not self.failover.fence.wants_copies)

    def closed(self, reason: str, *, deposed: bool) -> None:
        self.broker.writer.gate.refuse(reason)
        self.failover.closed(deposed)
        if deposed:
            self.spawn(self._step_aside(), "step aside")
        else:
            self.spawn(self.broker.forbid_writes(reason), "forbid writes")

    async def _step_aside(self) -> None:
        async with self.changing:
            if self.broker.is_master:
                self.announced = ""
                await self.broker.forbid_writes("this broker is a slave")
                self.broker.role = BrokerRole.SLAVE
                self._node.guarded(lambda: self._node.change_role("slave"))

    async def stepped_aside(self) -> None:
        while self.broker.is_master and not self.node.is_open:  # noqa: ASYNC110  # as in a broker
            await asyncio.sleep(0.02)

    async def until_open(self, seconds: float) -> None:
        clock = self._node.clock
        deadline = clock.monotonic() + seconds
        while not (self.node.is_open and self.broker.writer.refusal is None) and clock.monotonic() < deadline:
            master = self.node.master
            if master is None or master.state.phase is Phase.DEPOSED:
                return
            await asyncio.sleep(0.02)

    # --- whom to follow ---------------------------------------------------------------------------------------------

    def follow(self, address: str) -> None:
        node, register = self._node, self.failover.register
        if node.slave is None or register is None or not address:
            return
        if node.links and node.slave.master == register.holder:
            return
        self.announced = ""
        node.follow_anew()

    def announce_soon(self, addresses: Iterable[str]) -> None:
        for address in sorted(set(addresses)):
            self.spawn(self._announce(address), "announce")

    async def _announce(self, address: str) -> None:
        ext = {"masterAddress": self._node.address, **self.facts()}
        try:
            await self.broker.peer_client.invoke(address, Command(PairCode.ANNOUNCE, ext), 1.0)
        except RemotingError:
            return

    def was_announced(self, ext: dict[str, str]) -> None:
        """Another broker says that it is our master, or asks to be."""
        node, register = self._node, self._node.record.register
        seen = seen_of(ext["masterAddress"], ext)
        outdated = register is not None and node.is_following and seen.register[0] < register.epoch
        if self.broker.is_master:
            self.failover.announced(ext)
            return
        if outdated:
            return
        if not (node.is_following and node.follows is not None and node.follows.address == seen.address):
            self.announced = seen.address
            node.follow_anew()

    async def look_around(self) -> View:
        seen = []
        for address in sorted(one.address for one in self._node.peers if one is not self._node):
            try:
                seen.append(seen_of(address, await ask_ha_info(self.broker.asking_client, address, LOOK_SECONDS)))
            except RemotingError:
                continue
        return View(seen=seen)

    def ha_port_of(self, address: str) -> int:
        return PORT + 1

    def tell_name_servers(self) -> None:
        pass

    # --- orders -----------------------------------------------------------------------------------------------------

    async def promote(self, *, accept_loss: bool, pinned: bool) -> str:
        """One order at a time, as in a broker."""
        if self._order is None or self._order.done():
            work = self.failover.succession.promote(accept_loss=accept_loss, pinned=pinned)
            self._order = self.spawn(work, "promote")
        return await asyncio.shield(self._order)

    async def demote_master(self, accept_loss: bool) -> str:
        """Asks the master that is followed to hand over; its identity if it did, empty if there is none."""
        node = self._node
        slave, register, followed = node.slave, node.record.register, node.follows
        if slave is None or not node.is_following or followed is None or register is None:
            return ""
        master, command = slave.master, Command(PairCode.DEMOTE, {"epoch": str(register.epoch)})
        try:
            reply = await self.broker.peer_client.invoke(followed.address, command, DRAIN_SECONDS + 0.5)
            reply.raise_for_code(ResponseCode.SUCCESS)
        except (RemotingError, ReplyError) as error:
            raise ReplicationError(f"{followed.address} did not hand over: {error}") from error
        return master

    async def demote(self) -> str:
        """Hands over: no more writes, slaves get everything, then this node follows whoever reigns."""
        node = self._node
        async with self.changing:
            if not self.broker.is_master or node.master is None:
                return "is a slave"
            reason = "this master is being demoted"
            self.broker.writer.gate.refuse(reason)
            await self.broker.writer.drained(0.1)
            await self.broker.forbid_writes(reason)
            deadline = node.now + DRAIN_SECONDS
            while node.master is not None and not self._has_drained():
                if node.now >= deadline:
                    if node.is_open:
                        self.broker.allow_writes()
                    raise ReplicationError("the slaves did not catch up")
                await asyncio.sleep(0.01)
            if self.node.master is None:
                return "is a slave"
            self.failover.hands_over()
            self.node.master.order(0, "the operator demotes it")
            return "steps down"

    def _has_drained(self) -> bool:
        node = self._node
        assert node.master is not None
        return have_all([s for s in node.master.sessions.values() if s.is_streaming], node.store.appended)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def serve(self, command: Command) -> Command:
        """Answers another broker, or an operator."""
        ext, register = command.ext, self._node.record.register
        if command.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            return Command(ResponseCode.SUCCESS, self.facts())
        if command.code == PairCode.ANNOUNCE:
            self.was_announced(ext)
            return Command(ResponseCode.SUCCESS)
        if (meant := ext.get("epoch", "")) and register is not None and int(meant) != register.epoch:
            raise ReplicationError(f"this order means epoch {meant}")
        if command.code == PairCode.DEMOTE:
            return Command(ResponseCode.SUCCESS, remark=await self.demote())
        if command.code == PairCode.PAUSE:
            return Command(ResponseCode.SUCCESS, remark=await self.failover.succession.pause(ext["paused"] == "true"))
        assert command.code == PairCode.PROMOTE
        pinned, accept_loss = ext.get("handOver") != "true", ext.get("acceptLoss") == "true"
        return Command(ResponseCode.SUCCESS, remark=await self.promote(accept_loss=accept_loss, pinned=pinned))

    def facts(self) -> dict[str, str]:
        record = self._node.record
        found = {**register_facts(record.register, record.replica), **self.failover.facts()}
        if self.broker.is_master:
            found |= {"tandemqHa": "1", "tandemqPhase": self._node.master.phase.value if self._node.master else ""}
        return found


class SimReplica:
    """What production's failover sees of a `ReplicaNode`."""

    def __init__(self, node: CoordinatedNode) -> None:
        self._node = node

    @property
    def record(self) -> Any:
        return self._node.record

    @property
    def register(self) -> Register | None:
        return self._node.record.register

    @property
    def master(self) -> "SimMaster | None":
        return SimMaster(self._node, self._node.master) if self._node.master is not None else None

    @property
    def is_open(self) -> bool:
        return self._node.is_open

    @property
    def is_following(self) -> bool:
        return self._node.is_following

    def coordinate(self, home: str, lease: float) -> None:
        self._node.coordinate(home)

    def status(self) -> Any:
        master = self._node.master
        return SimpleNamespace(waiting_for=master.waiting_for if master is not None else frozenset())

    def count(self, event: str) -> None:
        self._node.trace(event)


class SimMaster:
    """What production's failover sees of a `MasterShell`."""

    def __init__(self, node: CoordinatedNode, state: MasterState) -> None:
        self._node = node
        self.state = state

    def _act(self, decide: Callable[[float], Any]) -> None:
        node = self._node
        node.guarded(lambda: node.act(decide(node.now)) if node.master is self.state else None)

    def swapped(self, register: Register) -> None:
        self._act(lambda now: self.state.swapped(register, now))

    def learned(self, register: Register) -> None:
        self._act(lambda now: self.state.learned(register, now))

    def allow(self) -> None:
        self._act(self.state.allow)

    def vouched_until(self) -> float:
        self._act(self.state.ask_word)
        return self.state.word_until(self._node.now)

    def settle(self) -> None:
        self._act(lambda now: self.state.renewed(self._node.store.flushed))

    def order(self, number: int, text: str) -> None:
        self._act(lambda now: self.state.order(number, text, now))


class SimBroker:
    """What production's failover sees of a `Broker`."""

    def __init__(self, node: CoordinatedNode) -> None:
        self._node = node
        self.role = BrokerRole.SYNC_MASTER
        terms = node.master_terms
        self.live = SimpleNamespace(
            replication=node.config,
            broker=BrokerConfig(role=BrokerRole.SYNC_MASTER, cluster_name="c", broker_name="g"),
        )
        self.clock = node.clock
        self.acks = node.acks
        self.is_started = True
        self.writer = MessageWriter(
            node.store,
            node.acks,
            node.clock,
            node.loop,
            level=terms.level,
            sync_flush=terms.sync_flush,
            flush_timeout_ms=300,
            copies_timeout_ms=300,
            pending_max=10_000,
        )
        self.writer.gate.refuse("this broker is a slave")
        self.writer.on_turn = self._turn
        self.asking_client = self.peer_client = cast("RemotingClient", SimClient(node))
        self.registration = SimpleNamespace(is_resting=False)
        self.forwarder = SimpleNamespace(expect_hand_over=lambda: None, changed=lambda: None)
        self.services: asyncio.Task[None] | None = None

    @property
    def is_master(self) -> bool:
        return self._node.role == "master"

    @property
    def address(self) -> str:
        return self._node.address

    @property
    def store(self) -> MessageStore:
        return self._node.store

    def _turn(self) -> None:
        node = self._node
        if node.is_open and node.master is not None and node.store.appended != node.master.log.end:
            node.act(node.master.appended(node.store.appended))

    def allow_writes(self, *, services: bool = True) -> None:
        self.writer.gate.allow()
        if services:
            self.start_services()

    async def forbid_writes(self, reason: str) -> None:
        self.writer.gate.refuse(reason)
        self.writer.fail_waiting(reason)
        if self.services is not None:
            self.services.cancel()
            self.services = None

    def start_services(self) -> None:
        if self.services is None:
            self.services = self._node.loop.create_task(self._serve(), name="services")

    async def _serve(self) -> None:
        """Delivers something now and then, as delays, timers and transactions do."""
        node = self._node
        while True:
            await asyncio.sleep(node.service_pause)
            message = _message(SERVICE_QUEUE, b"delivered")

            def deliver(message: NewMessage = message) -> None:
                try:
                    self.writer.append(message)
                except (WriteRefused, StoreError):
                    return
                node.watcher.delivered(node)

            node.guarded(deliver)


def _message(queue_id: int, body: bytes) -> NewMessage:
    return NewMessage(topic="t", queue_id=queue_id, body=body, properties={}, born_timestamp=0, born_host=HOST)
