"""Replication of one broker: wires a ReplicaNode to the broker, in whatever role it has.

slave  ──promote──▶  master: asks those who may hold more, opens, announces itself to the group
master ──demote / a higher epoch──▶  slave: writes refused at once, then it follows whoever reigns
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tandemq.broker.config import BrokerRole
from tandemq.broker.failover.failover import Failover
from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.pair.core import Outcome, PairCore
from tandemq.broker.pair.facts import PairFacts
from tandemq.broker.pair.first_role import FRESH_SECONDS, FirstRole
from tandemq.broker.pair.handing_over import TELL_SECONDS, HandingOver
from tandemq.broker.pair.host import PairHost
from tandemq.broker.pair.lookout import Lookout
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.broker.pair.orders import Orders
from tandemq.broker.pair.peer_book import PeerBook
from tandemq.broker.pair.promotion import Promotion
from tandemq.broker.pair.reign import View
from tandemq.broker.pair.reigning import Reigning
from tandemq.broker.pair.rivals import Rivals
from tandemq.broker.pair.roles import Roles
from tandemq.broker.pair.tables import NEVER, BrokerTables
from tandemq.broker.pair.tls import ha_tls
from tandemq.broker.registration import Registered
from tandemq.codec.ha_register import Register
from tandemq.remoting.dispatch import Handler
from tandemq.replication.decisions import Propose
from tandemq.replication.metadata import MetadataFollower
from tandemq.replication.node import ReplicaNode
from tandemq.replication.node_callbacks import NodeCallbacks
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.status import HaStatus
from tandemq.store.config import FlushDiskType

if TYPE_CHECKING:
    import asyncio

    from tandemq.broker.broker import Broker

PEERS_FILE = "peers.json"


class Pair:
    """Composes the parts and passes on what node, broker and failover tell."""

    def __init__(self, broker: "Broker") -> None:
        self.tables = BrokerTables(broker, self._reached)
        self._core = core = PairCore(broker, self.tables)
        self._broker: PairHost = core.broker
        self._live = core.live
        self._finder = MasterFinder(core)
        self._facts = PairFacts(core, self._finder)
        self._rivals = Rivals(core, self._finder, self._facts)
        self._roles = Roles(core, self._finder)
        self._first_role = FirstRole(core, self._finder, self._rivals, self._roles)
        self._reigning = Reigning(core, self._rivals, self._roles)
        self._handing_over = HandingOver(core, self._finder)
        self._promotion = Promotion(core, self._rivals, self._roles, self._handing_over)
        self._orders = Orders(core, self._rivals, self._promotion, self._handing_over, self._facts)

    @property
    def broker(self) -> PairHost:
        return self._broker

    @property
    def node(self) -> ReplicaNode:
        return self._core.node

    @property
    def failover(self) -> Failover | None:
        """Set in a group with a coordinator; None: a person promotes."""
        return self._core.failover

    @property
    def changing(self) -> "asyncio.Lock":
        """Held by whoever changes the role."""
        return self._core.changing

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Plays the configured role; a master that must ask first leaves the writer refusing."""
        core, broker = self._core, self._broker
        config = self._live.replication
        is_coordinated = bool(config.coordinator) and not self._live.broker.observer
        core.node = self._make_node()
        core.node.broker_id = core.slave_id
        if is_coordinated:
            self._wait_for_coordinator()
        else:
            self._roles.take_that_of_register()
        core.follower = MetadataFollower(
            broker.client,
            self.tables,
            self._finder.metadata_place,
            interval=config.metadata_interval_ms / 1000,
            observer=self._live.broker.observer,
        )
        broker.store.on_flushed = core.node.flushed
        broker.writer.on_turn = core.node.appended
        broker.offsets.on_change = core.server.changed
        broker.delay_schedule.on_change = core.server.changed
        core.node.hands.on_cut = self._log_was_cut
        core.book = PeerBook(core.node.disk, broker.root / PEERS_FILE)
        core.book.note(core.node.member_addresses())
        core.lookout = Lookout(
            broker.client, broker.asking_client, self._live, core.node.group, broker.address, core.book
        )
        if broker.is_master:
            await self._first_role.begin()
        else:
            await self._roles.be_slave()
        core.is_starting = False
        if core.failover is not None:
            core.failover.start()

    def _make_node(self) -> ReplicaNode:
        broker, live = self._broker, self._live
        config = live.replication
        is_coordinated = bool(config.coordinator) and not live.broker.observer
        return ReplicaNode(
            broker.store,
            broker.root,
            config,
            broker.acks,
            broker.clock,
            NodeCallbacks(
                opened=self._reigning.opened,
                closed=self._reigning.closed,
                readable=broker.writer.schedule_dispatch,
                following=self._following,
                recorded=self._roles.recorded,
                lost=self._session_lost,
                proposed=self._proposed,
                vouch=self._vouch if is_coordinated else None,
            ),
            group=f"{live.broker.cluster_name}/{live.broker.broker_name}",
            address=broker.address,
            sync_flush=live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            tls=ha_tls(config, live.remoting),
            observer=live.broker.observer,
        )

    def _wait_for_coordinator(self) -> None:
        """Begins as a reader whatever the file says: with a coordinator, etcd's register decides."""
        core, broker = self._core, self._broker
        register = core.node.register
        core.failover = Failover(self)
        here = register.find(core.node.record.replica) if register is not None else None
        core.slave_id = here.broker_id if here is not None else 0
        # Name servers are told when it is known what this broker is.
        broker.registration.is_held = core.slave_id == 0
        broker.registration.state_version = self._epoch_known
        broker.assume_role(BrokerRole.SLAVE, core.slave_id or 1)
        core.node.coordinate(register.home if register is not None else "", self._live.replication.lease_seconds)

    def _epoch_known(self) -> int:
        register = self.failover.register if self.failover is not None else None
        return register.epoch if register is not None else 0

    async def hand_over(self) -> None:
        """Hands over before anything stops: with a coordinator another one takes over at once."""
        if self.failover is not None:
            await self.failover.succession.hand_over("this broker stops")

    async def tell_slaves(self) -> None:
        """Tells the slaves before the ports close: an offset committed just now is not left to the master alone."""
        await self._core.server.told(TELL_SECONDS, stopping=True)

    async def stop(self) -> None:
        """Makes everything durable after the last write and tells the slaves, so that the next start need not ask."""
        core, store = self._core, self._broker.store
        core.cancel_all()
        if core.failover is not None:
            await core.failover.stop()
        await core.follower.stop()
        health = store.health
        if health.writable:
            store.flush_once()
            core.node.flushed()
        store.on_flushed = None
        await core.node.leave_role(clean=health.writable)

    # --- what the node tells ----------------------------------------------------------------------------------------

    def _reached(self) -> int:
        """Returns what of the master's log our readers see.

        Nothing while it is not known whether ours agrees with it.
        """
        node = self.node
        classic = node.slave is not None and not isinstance(node.slave.state, SlaveState)
        return self._broker.store.dispatched if node.is_following or classic else NEVER

    def _log_was_cut(self) -> None:
        self.tables.true_at = min(self.tables.true_at, self._broker.store.appended)
        self._broker.log_was_cut()

    def _following(self) -> None:
        core, registration = self._core, self._broker.registration
        registration.release()
        if core.failover is not None and registration.is_resting:
            registration.resume()
        self._broker.forwarder.changed()
        if self._finder.is_ours:
            core.book.note([self._finder.address])
        self.tables.settle()
        core.follower.look_again()

    def _session_lost(self) -> None:
        if self.failover is not None and not self._broker.is_master:
            self.failover.session_lost()

    def _vouch(self, master: str, epoch: int, now: float) -> str:
        return self.failover.vouch(master, epoch, now) if self.failover is not None else "it has no coordinator"

    def _proposed(self, proposal: Propose) -> None:
        assert self.failover is not None
        self.failover.propose(proposal)

    # --- what the broker tells and asks -----------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return self._orders.handlers()

    def dispatched(self) -> None:
        """Readers see more of the log."""
        self.tables.dispatched()

    def tables_true_at(self) -> int:
        """Returns at which position of its log a slave has its master's tables."""
        return self.tables.true_at

    def changed(self) -> None:
        """Tells slaves that topics or groups changed."""
        self._core.server.changed()

    def retained(self) -> None:
        """Tells replication that old segments of the log were deleted."""
        self.node.retained()

    def registered(self, registered: Registered) -> None:
        """Takes a name server's answer, which names the master of our group, if it knows one."""
        if self.failover is not None:
            return  # the coordinator knows better
        if self._broker.is_master:
            self._rivals.look_soon()
        else:
            self._finder.registered(registered)

    def master_announced(self, ha_address: str, address: str) -> None:
        """Takes the word of another broker that it is our master."""
        self._finder.announced(ha_address, address)

    def reigning_address(self) -> str:
        """Returns where requests go that only a master can answer; empty while nobody else is known to reign."""
        return self._finder.reigning_address()

    def status(self) -> HaStatus:
        return self._facts.status()

    def ha_facts(self) -> HaFacts:
        return self._facts.ha_facts()

    def ha_status(self) -> Mapping[str, Any]:
        """Returns the answer to GET_BROKER_HA_STATUS in upstream's shape."""
        return self._facts.ha_status()

    async def promote(self, role: BrokerRole, *, accept_loss: bool) -> str:
        """Makes this slave the master, as an operator's order does; what was done, in words."""
        return await self._orders.promote(role, accept_loss=accept_loss)

    # --- what the failover asks -------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Outcome], name: str) -> "asyncio.Task[Outcome]":
        """Runs something that ends with this broker."""
        return self._core.spawn(work, name)

    def follow(self, address: str) -> None:
        """Follows another holder, whom the coordinator's register names."""
        self._finder.follow(address)

    async def look_around(self) -> View:
        """Returns who is there, as far as name servers and the book of peers know."""
        return await self._core.lookout.look(FRESH_SECONDS)

    async def become_candidate(self, role: BrokerRole, register: Register | None, *, ordered: bool) -> None:
        """Asks the others for the reign; readers and name servers notice nothing before it is open."""
        await self._roles.become_candidate(role, register, ordered=ordered)

    async def demote_master(self, accept_loss: bool) -> str:
        """Asks the master we follow to hand over; its identity if it did, empty if it can't be reached."""
        return await self._handing_over.ask_master(accept_loss)

    def announce_soon(self, addresses: Iterable[str]) -> None:
        """Tells the others where the candidate is, without waiting for those that hang."""
        self._rivals.announce_soon(addresses)

    async def until_open(self, seconds: float) -> None:
        """Waits until a candidate has opened or failed."""
        await self._promotion.until_open(seconds)

    async def stepped_aside(self) -> None:
        """Returns when a broker that is no longer the master plays a slave."""
        await self._roles.stepped_aside()

    def ha_port_of(self, address: str) -> int:
        """Returns the HA port of the broker that was followed last."""
        return self._finder.ha_port_of(address)

    def tell_name_servers(self) -> None:
        """Tells name servers what this broker is in its group, which may have changed or is known at last."""
        self._broker.registration.resume()
