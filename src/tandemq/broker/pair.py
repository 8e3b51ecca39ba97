"""The broker's side of replication: wires a ReplicaNode to the broker, changes roles, answers brokers and operators.

slave  ──promote──▶  master: asks those who may hold more, opens, announces itself to the group
master ──demote / a higher epoch──▶  slave: writes refused at once, then it follows whoever reigns
"""

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tandemq.broker.config import BrokerRole
from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.pair_tables import BrokerTables
from tandemq.broker.registration import Registered
from tandemq.broker.writer import WriteRefused
from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, RemotingError, ReplicationError, ReplyError
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.metadata import MetadataFollower, MetadataServer, PairCode, ask_ha_info
from tandemq.replication.node import NodeCallbacks, ReplicaNode
from tandemq.replication.slave import MasterPlace
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.status import HaStatus
from tandemq.store.config import FlushDiskType

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""A demoted master waits this long for its slaves to have everything."""
ASK_SECONDS = 3.0
OPEN_SECONDS = 3.0
"""A promotion is answered when it is done, or after this long with what it waits for."""
DISCOVERY_FAILURES_MAX = 3
"""Unanswered questions over the remoting port before a slave speaks classic to the HA port it was given."""


class Pair:
    """Replication of one broker, in whatever role it has."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._live = broker.live
        self.tables = BrokerTables(broker)
        self._server = MetadataServer(self.tables)
        self._registered_master = self._registered_ha = ""
        self._announced: tuple[str, str] | None = None
        """(HA address, remoting address) of a master that told us about itself."""
        self._is_ours = False
        self._unanswered = 0
        self._starting = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._slave_id = broker.live.broker.broker_id
        """The id to take as a slave; 0 when it has to be found."""
        self._changing = asyncio.Lock()

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
            NodeCallbacks(opened=self._opened, closed=self._closed, readable=self._readable, following=self._following),
            group=f"{self._live.broker.cluster_name}/{self._live.broker.broker_name}",
            address=broker.address,
            sync_flush=self._live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        )
        self._follower = MetadataFollower(
            broker.client, self.tables, self._metadata_place, interval=config.metadata_interval_ms / 1000
        )
        broker.store.on_flushed = self.node.flushed
        broker.writer.on_turn = self.node.appended
        broker.offsets.on_change = self._server.changed
        broker.delay_schedule.on_change = self._server.changed
        if broker.is_master:
            await self._be_master()
        else:
            await self._be_slave()
        self._starting = False

    async def stop(self) -> None:
        """After the last write: everything durable, slaves told, so that the next start need not ask."""
        broker = self._broker
        for task in list(self._tasks):
            task.cancel()
        await self._follower.stop()
        health = broker.store.health
        if health.writable:
            broker.store.flush_once()
            self.node.flushed()
        broker.store.on_flushed = None
        await self.node.leave_role(clean=health.writable)

    async def _be_master(self, *, promoted: bool = False, ask: frozenset[str] = frozenset()) -> None:
        broker, config = self._broker, self._live.replication
        is_sync = broker.role is BrokerRole.SYNC_MASTER
        broker.writer.refusal = WriteRefused(
            "this master asks its replicas what it may have lost and takes no messages yet; see `tandemq ha status`"
        )
        broker.offsets.journal = None
        await self.node.be_master(
            self._live.remoting.bind_address,
            broker.ha_port,
            config.default_level(is_sync),
            strict=is_sync,
            promoted=promoted,
            ask=ask,
        )

    async def _be_slave(self) -> None:
        self._broker.offsets.journal = {}
        await self.node.be_slave(self._find_master)
        self._follower.start()

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what the node tells ----------------------------------------------------------------------------------------

    def _opened(self) -> None:
        if self._starting:
            self._broker.writer.refusal = None  # the broker starts its services itself when it is up
        else:
            self._broker.allow_writes()

    def _closed(self, reason: str, deposed: bool) -> None:
        text = f"this broker is no longer the master: {reason}"
        self._broker.writer.refusal = WriteRefused(text)
        if deposed:
            self._spawn(self._step_aside(), "step aside")
        else:
            self._spawn(self._broker.forbid_writes(text), "forbid writes")

    def _readable(self) -> None:
        self._broker.writer.schedule_dispatch()

    def _following(self) -> None:
        self._follower.look_again()

    def changed(self) -> None:
        """Topics or groups changed."""
        self._server.changed()

    # --- finding the master -----------------------------------------------------------------------------------------

    def registered(self, registered: Registered) -> None:
        """A name server's answer names the master of our group, if it knows one."""
        if self._broker.is_master:
            return
        if registered.master_address != self._broker.address:
            changed = registered.master_address and registered.master_address != self._registered_master
            self._registered_master = registered.master_address
            self._registered_ha = registered.ha_address or self._registered_ha
            if changed and not self._starting and self.node.slave is not None:
                self._announced = None
                if not self.node.is_following:
                    self.node.slave.look_again()
                elif self._metadata_place() is not None:
                    self.node.slave.reconnect()

    def master_announced(self, ha_address: str, address: str) -> None:
        """Another broker says that it is our master."""
        if self._broker.is_master or address == self._broker.address:
            return
        self._announced = (ha_address, address)
        if self.node.slave is not None:
            self.node.slave.reconnect()

    def _master_address(self) -> str:
        """Remoting address of the master; guessed from its HA address when nobody told."""
        if self._announced is not None and self._announced[1]:
            return self._announced[1]
        if self._registered_master:
            return self._registered_master
        host, _, port = self._live.replication.ha_master_address.rpartition(":")
        return f"{host}:{int(port) - 1}" if host and port.isdecimal() else ""

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
        try:
            info = await ask_ha_info(self._broker.client, address)
        except (RemotingError, CodecError) as error:
            self._unanswered += 1
            await self._look_up_master()
            if ha_address and self._unanswered > DISCOVERY_FAILURES_MAX and not self._is_ours:
                return MasterPlace(ha_address, False)
            raise OSError(f"broker port {address} does not answer ({error})") from error
        self._unanswered = 0
        self._is_ours = info.get("tandemqHa") == "1"
        if self._is_ours:
            return MasterPlace(announced or configured or info.get("masterHaAddress", ""), True)
        ha_address = ha_address or info.get("masterHaAddress", "")
        return MasterPlace(ha_address, False) if ha_address else None

    async def _look_up_master(self) -> str:
        """Who the name servers say is master of our group now; registrations bring it only every half minute."""
        if self._live.replication.ha_master_address and self._registered_master:
            return self._registered_master
        address = (await self._group_addresses()).get(0, "")
        if address and address not in (self._broker.address, self._registered_master):
            self._registered_master, self._registered_ha = address, ""
            self._announced = None
        return address

    # --- changing roles ---------------------------------------------------------------------------------------------

    async def _step_aside(self) -> None:
        """Deposed: refuse, then follow whoever reigns."""
        async with self._changing:
            if self._broker.is_master:
                slave_id = self._slave_id or await self._free_id()
                self._announced = None
                self._registered_master = self._registered_ha = ""
                await self._broker.change_role(BrokerRole.SLAVE, slave_id)
                await self._be_slave()

    async def _free_id(self) -> int:
        """The smallest slave id nobody in the group has, as far as a name server knows."""
        taken = set((await self._group_addresses()).keys())
        return next(number for number in range(1, 1024) if number not in taken)

    async def _group_addresses(self) -> dict[int, str]:
        """Broker id -> address of our group, from the first name server that answers."""
        name = self._live.broker.broker_name
        for server in self._live.broker.namesrv_addresses:
            try:
                reply = await self._broker.client.invoke(
                    server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), ASK_SECONDS
                )
                groups, _ = bodies.cluster_info_of(bodies.load_object(reply.body, "clusterInfo"))
            except (RemotingError, CodecError):
                continue
            group = groups.get(name)
            return dict(group.addresses) if group is not None else {}
        return {}

    async def promote(self, role: BrokerRole, *, force: bool) -> str:
        """Makes this slave the master; what was done, in words.  ReplicationError if it should not be."""
        async with self._changing:
            if self._broker.is_master:
                return self._allow_open(force)
            record = self.node.record
            if record.replica not in record.in_sync and not force and record.history.epochs:
                raise ReplicationError(
                    "this slave was not in sync when it last heard of its master and may lack acknowledged messages: "
                    "promote one that is, or use --force"
                )
            old = await self._demote_master(force)
            ask = frozenset({old}) if old else frozenset()
            former_id = self._live.broker.broker_id
            await self._follower.stop()
            await self.node.leave_role()
            await self._broker.change_role(role, 0)
            self._slave_id = former_id
            await self._be_master(promoted=True, ask=ask)
            await self._announce()
            if force and self.node.master is not None and not self.node.is_open:
                self.node.master.allow()
            await self._until_open(OPEN_SECONDS)
            waits = self.node.status().waiting_for
            epoch = self.node.record.promise.number
            if self.node.is_open:
                return f"{self._broker.address} is the master now, epoch {epoch}"
            return f"{self._broker.address} becomes the master when it has heard {', '.join(waits)}"

    async def _until_open(self, seconds: float) -> None:
        """The others need a moment to hear of it and come; an operator is better told the outcome."""
        deadline = self._broker.clock.monotonic() + seconds
        while not self.node.is_open and self._broker.clock.monotonic() < deadline:  # noqa: ASYNC110  # a few rounds
            await asyncio.sleep(0.02)

    def _allow_open(self, force: bool) -> str:
        if self.node.is_open:
            return f"{self._broker.address} already is the master"
        if not force or self.node.master is None:
            waits = ", ".join(self.node.status().waiting_for)
            raise ReplicationError(f"this master waits for {waits}; start them, or use --force to go on without them")
        self.node.master.allow()
        return f"{self._broker.address} goes on without the replicas it waited for"

    async def _demote_master(self, force: bool) -> str:
        """Asks the master we follow to hand over; its identity if it did, empty if it can't be reached."""
        slave = self.node.slave
        if slave is None or not self.node.is_following or not isinstance(slave.state, SlaveState):
            return ""
        master, address = slave.state.master, self._master_address()
        ext = {"brokerId": str(self._live.broker.broker_id)}
        try:
            reply = await self._broker.client.invoke(
                address, Command(PairCode.DEMOTE, ext), DRAIN_SECONDS + ASK_SECONDS
            )
            reply.raise_for_code(ResponseCode.SUCCESS)
        except (RemotingError, ReplyError) as error:
            if not force:
                raise ReplicationError(f"the master at {address} did not hand over: {error}; or use --force") from error
            return ""
        return master

    async def demote(self, slave_id: int = 0) -> str:
        """Hands over: no more writes, slaves get everything, then this node follows whoever reigns."""
        async with self._changing:
            if not self._broker.is_master or self.node.master is None:
                return f"{self._broker.address} is a slave"
            reason = "this master is being demoted, send to its successor"
            await self._broker.forbid_writes(reason)
            try:
                await self.node.drained(DRAIN_SECONDS)
            except ReplicationError:
                self._broker.allow_writes()
                raise
            self._slave_id = slave_id or self._slave_id
            self.node.master.order(0, "the operator demotes it")
        return f"{self._broker.address} steps down and follows the next master"

    async def _announce(self) -> None:
        """Tells the group's other brokers who is master now, instead of waiting for their next registration."""
        own = self._broker.address
        info = {
            "masterHaAddress": self.ha_facts().ha_address,
            "masterAddress": own,
            "tandemqEpoch": str(self.node.record.promise.number),
        }
        for address in set((await self._group_addresses()).values()) - {own}:
            try:
                await self._broker.client.invoke(address, Command(PairCode.ANNOUNCE, dict(info)), ASK_SECONDS)
            except (RemotingError, CodecError) as error:
                log.info("%s was not told that this broker is the master: %s", address, error)

    # --- requests ---------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {
            PairCode.WAIT_FOR_METADATA: self._server.wait,
            PairCode.PROMOTE: self._on_promote,
            PairCode.DEMOTE: self._on_demote,
            PairCode.ANNOUNCE: self._on_announce,
            PairCode.HA_DETAIL: self._on_detail,
        }

    async def _on_promote(self, connection: Connection, command: Command) -> bytes:
        role = BrokerRole(command.ext.get("role", BrokerRole.SYNC_MASTER.value))
        text = await self.promote(role, force=command.ext.get("force") == "true")
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    async def _on_demote(self, connection: Connection, command: Command) -> bytes:
        text = await self.demote(int(command.ext.get("brokerId", "0")))
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    def _on_announce(self, connection: Connection, command: Command) -> bytes:
        address, epoch = command.ext.get("masterAddress", ""), int(command.ext.get("tandemqEpoch", "0"))
        if self._broker.is_master:
            if self.node.master is not None and epoch > self.node.record.promise.number:
                self.node.master.order(epoch, f"{address} reigns in epoch {epoch}")
        else:
            self.master_announced(command.ext.get("masterHaAddress", ""), address)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _on_detail(self, connection: Connection, command: Command) -> bytes:
        body = msgspec.json.encode(self.detail())
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    # --- looking at it ----------------------------------------------------------------------------------------------

    def detail(self) -> dict[str, Any]:
        """The whole snapshot as plain data: the contract of `tandemq ha status --json`."""
        broker = self._live.broker
        found = dataclasses.asdict(self.node.status())
        found["broker"] = broker.broker_name
        found["brokerId"] = broker.broker_id
        found["address"] = self._broker.address
        found["brokerRole"] = self._broker.role.value
        refusal = self._broker.writer.refusal
        found["writable"] = refusal is None
        found["refusal"] = "" if refusal is None else refusal.remark
        return found

    def status(self) -> HaStatus:
        return self.node.status()

    def ha_facts(self) -> HaFacts:
        broker = self._broker
        ip = broker.registration.identity.ha_address.rpartition(":")[0]
        return HaFacts(
            ha_address=f"{ip}:{self.node.ha_port or broker.ha_port}",
            master_flush_offset=broker.store.flushed,
            extra={"tandemqHa": "1", "tandemqEpoch": str(self.node.record.promise.number)},
        )

    def ha_status(self) -> Mapping[str, Any]:
        """GET_BROKER_HA_STATUS in upstream's shape."""
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
