"""A group whose register lives in etcd, under every fault we can think of, deterministic by seed.

As simulator.py, with a coordinator: production's own election, lease, fence and hand-over run on a model of etcd
(etcd.py).  What happens besides: a node is cut off from etcd but not from its peers, or the reverse; endpoints die or
hang; requests are carried out late, answers are lost; the leader changes; watches are compacted; a lease runs out;
processes are paused for longer than a lease; clocks run at different speeds; elections are paused, reigns handed over.

Checked besides: nobody acknowledges, and no master's service delivers, in an epoch after somebody has in a newer one;
etcd's register never goes back; and at the end, with everything healed, the group has a master without anybody's help,
unless all replicas that may be elected were lost.

    result = simulate_coordinated(seed)
"""

from random import Random
from typing import cast

import msgspec

from tandemq.codec.command import Command
from tandemq.codec.ha_register import Register
from tandemq.model.ack_level import AckLevel
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.mastership.core import MasterTerms
from tandemq.replication.metadata import PairCode
from tandemq.sim.coordinated_node import CALM_PAUSE, CoordinatedNode
from tandemq.sim.etcd import ENDPOINTS, EtcdModel, EtcdNetwork
from tandemq.sim.fate import FAULTS, World
from tandemq.sim.ledger import Ledger, Violation
from tandemq.sim.network import EventQueue, SimulatedNetwork
from tandemq.sim.node import SimNode
from tandemq.sim.simulator import outcome_of
from tandemq.sim.world import LEVELS, SimulationResult
from tandemq.store.config import StoreConfig

LEASE = 1
DRIFT = 0.03
"""Clocks of two machines run apart by at most twice as much: less than the margin of a lease."""
REGISTER_KEY = "/tandemq/c/g/register"
RESUME_AFTER = 1.0
HELP_AFTER = 14.0
"""Seconds after everything has healed in which a group has to find a master by itself."""

ETCD_FAULTS = {
    "etcd_cut": 4,
    "etcd_cut_one": 2,
    "etcd_away": 2,
    "etcd_endpoint": 2,
    "etcd_hang": 2,
    "etcd_leader": 2,
    "etcd_compact": 2,
    "etcd_lossy": 3,
    "etcd_late": 3,
    "cut_from_peers": 3,
    "pause_elections": 1,
    "switch": 3,
}
NOT_HERE = ("promote", "misdirect", "forge", "forget")
"""Faults of a manual group, or ones that its simulator shows well enough."""


def simulate_coordinated(seed: int, *, trace: bool = False) -> SimulationResult:
    """One run; a broken invariant is told in `violation`, never raised."""
    return outcome_of(CoordinatedWorld(seed, trace=trace))


class CoordinatedWorld(World):
    """Nodes, etcd, network, producer, operator and fate."""

    away_max = 2.5
    cut_max = 2.5
    excused_for = 1.2 * LEASE
    send_pause = 0.01, 0.08
    fault_pause = 0.05, 0.6
    faults_until = 9.0
    settled_by = 50.0

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = random = Random(seed)
        level, count = random.choice(LEVELS), random.choice((2, 3, 3, 3))
        self.result = SimulationResult(seed, count, str(level))
        self._prepare(count, level, trace=trace)
        priorities = random.choice(((0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 2, 1)))
        for node, priority in zip(self.nodes, priorities, strict=False):
            here = cast("CoordinatedNode", node)
            here.config = _config(priority)
            here.clock_rate = random.uniform(1 - DRIFT, 1 + DRIFT)
            here.clock.jump_wall(random.randrange(-600_000, 600_000))

    def _prepare(self, count: int, level: AckLevel, *, trace: bool = False) -> None:
        random = self.random
        self.events = EventQueue()
        self.network = SimulatedNetwork(self.events, random)
        self.etcd = EtcdNetwork(EtcdModel(self.events, random), self.events, random)
        self.level = level
        strict = level.copies != 1
        master_terms = MasterTerms(
            group="g",
            level=level,
            sync_flush=random.random() < 0.25,
            strict_open=strict,
            heartbeat=LEASE / 6,
            housekeeping=LEASE * 0.6,
            gap_max=random.choice((3000, 1 << 20)),
            away_max=LEASE * 0.3,
            rejoin_wait=0.5,
            loss_wait=0.3,
            readers_wait=strict and random.random() < 0.7,
            batch=random.choice((1500, 100_000)),
        )
        slave_terms = SlaveTerms(group="g", heartbeat=LEASE / 6, housekeeping=LEASE * 0.6, batch=master_terms.batch)
        store_config = StoreConfig(
            commit_log_segment_size=random.choice((8192, 16384)),
            consume_queue_segment_size=2000,
            index_enable=False,
            message_size_max=2048,
            flush_views_interval_ms=random.choice((20, 200)),
        )
        nodes = [
            CoordinatedNode(f"n{i}", self.events, self.network, random, self, store_config, master_terms, slave_terms)
            for i in range(count)
        ]
        flush_interval = random.choice((0.02, 0.1, 0.4))
        for node in nodes:
            node.flush_interval = flush_interval
            node.join(self.etcd, _config(0), nodes)
        self.nodes = list(nodes)
        self.chosen = nodes[0]
        self.ledger = Ledger(list(nodes))
        self._tracing = trace
        self._calm = False
        self._power_cut_at = {}
        self._must_survive = {}
        self._held = {}
        self._body_count = 0
        self._checked_steps = 0
        self._newest_ack = self._newest_delivery = 0
        self._newest_register = (0, 0)
        self._last_holder = ""

    @property
    def kinds(self) -> dict[str, int]:
        return KINDS

    # --- what nodes tell --------------------------------------------------------------------------------------------

    def opened(self, node: SimNode) -> None:
        here, master = cast("CoordinatedNode", node), node.master
        assert master is not None
        self.result.reigns += 1
        self.chosen = node
        self.ledger.lost(node, self._held.pop(node.name, []))
        places = {replica.partition(":")[0] for replica in master.opened_without}
        if places:  # what the last holder has is on one of those that must be heard, so it need not be
            places.add(self._last_holder)
        self._last_holder = node.name
        self.ledger.opened(node, [other for other in self.nodes if other.name in places])
        self._check_register(node)
        here.in_loop(here.pair.opened)()

    def _check_register(self, node: SimNode) -> None:
        """Who opens is who etcd names, and what etcd names never goes back."""
        held = self.etcd.model.keys.get(REGISTER_KEY)
        if held is None:
            raise Violation(f"{node.name} opened without a register in etcd")
        register = msgspec.json.decode(held[0], type=Register)
        if register.version < self._newest_register:
            raise Violation(f"the register in etcd went back from {self._newest_register} to {register.version}")
        self._newest_register = register.version
        if node.master is not None and register.epoch < node.master.number:
            raise Violation(f"{node.name} opened epoch {node.master.number}, etcd knows of {register.epoch} only")

    def stepped_down(self, node: SimNode, asking: bool) -> None:
        here = cast("CoordinatedNode", node)
        self.ledger.forgive_single(node.name)
        here.in_loop(lambda: here.pair.closed("its reign is over", deposed=not asking))()

    def acknowledged_by(self, node: SimNode) -> None:
        assert node.master is not None
        if node.master.number < self._newest_ack:
            raise Violation(
                f"{node.name} acknowledged in epoch {node.master.number} after epoch {self._newest_ack} had"
            )
        self._newest_ack = node.master.number

    def delivered(self, node: SimNode) -> None:
        if node.master is None:
            raise Violation(f"a master's service runs on {node.name}, which is a slave")
        if node.master.number < self._newest_delivery:
            raise Violation(
                f"{node.name} delivers in epoch {node.master.number} after epoch {self._newest_delivery} had"
            )
        self._newest_delivery = node.master.number

    def master_for(self, node: SimNode) -> SimNode | None:
        pair = cast("CoordinatedNode", node).pair
        address = pair.announced or pair.failover.holder_address
        found = next((one for one in self.nodes if one.address == address), None)
        if found is not None and not (found.alive and found.master is not None):
            pair.announced = ""
        return found

    def group_exists(self, node: SimNode) -> bool:
        return False

    def _look_around(self) -> None:
        """With a coordinator nobody has to."""

    # --- the operator -----------------------------------------------------------------------------------------------

    def _order(self, node: SimNode, code: int, **ext: str) -> None:  # type: ignore[override]
        """An operator's command, whose outcome nobody waits for."""
        here = cast("CoordinatedNode", node)

        async def carry_out() -> None:
            await here.pair.serve(Command(code, dict(ext)))

        if node.alive:
            here.begin(carry_out, "order")

    def _fault_switch(self, node: SimNode) -> bool:
        """`tandemq ha switch`."""
        self._tell(f"the operator switches to {node.name}")
        self._order(node, PairCode.PROMOTE)
        return True

    def _fault_pause_elections(self, node: SimNode) -> bool:
        self._tell("the operator pauses elections")
        self._order(node, PairCode.PAUSE, paused="true")
        for wait in (0.5, 1.5):
            self.events.after(wait, lambda: self._order(self.random.choice(self.nodes), PairCode.PAUSE, paused="false"))
        return True

    # --- fate -------------------------------------------------------------------------------------------------------

    def _fault_cut_from_peers(self, node: SimNode) -> bool:
        """Cut off from the other brokers, but not from etcd."""
        return self._fault_partition(node)

    def _fault_etcd_cut(self, node: SimNode) -> bool:
        """Cut off from etcd, but not from the other brokers."""
        self._tell(f"{node.name} is cut off from etcd")
        self._cut_etcd([(node.name, endpoint) for endpoint in ENDPOINTS])
        if self.random.random() < 0.3:
            self._fault_partition(node)
        return True

    def _fault_etcd_cut_one(self, node: SimNode) -> bool:
        self._cut_etcd([(node.name, self.random.choice(ENDPOINTS))])
        return True

    def _cut_etcd(self, ways: list[tuple[str, str]]) -> None:
        self.etcd.blocked.update(ways)
        self.events.after(self.random.uniform(0.1, self.cut_max), lambda: self.etcd.blocked.difference_update(ways))

    def _fault_etcd_away(self, node: SimNode) -> bool:
        self._tell("etcd is away")
        return self._stop_endpoints(list(ENDPOINTS))

    def _fault_etcd_endpoint(self, node: SimNode) -> bool:
        return self._stop_endpoints([self.random.choice(ENDPOINTS)])

    def _stop_endpoints(self, endpoints: list[str]) -> bool:
        for endpoint in endpoints:
            self.etcd.stop(endpoint)
        self.events.after(self.random.uniform(0.1, self.cut_max), lambda: self.etcd.down.difference_update(endpoints))
        return True

    def _fault_etcd_hang(self, node: SimNode) -> bool:
        endpoint = self.random.choice(ENDPOINTS)
        self.etcd.hanging.add(endpoint)
        self.events.after(self.random.uniform(0.1, self.cut_max), lambda: self.etcd.hanging.discard(endpoint))
        return True

    def _fault_etcd_leader(self, node: SimNode) -> bool:
        self._tell("etcd changes its leader")
        self.etcd.model.change_leader(self.random.uniform(0.05, 1.0))
        return True

    def _fault_etcd_compact(self, node: SimNode) -> bool:
        self.etcd.model.compact()
        return True

    def _fault_etcd_lossy(self, node: SimNode) -> bool:
        """Some requests and answers are lost: their effect may or may not have happened."""
        self.etcd.lost = self.random.choice((0.1, 0.3, 0.6))
        self.events.after(self.random.uniform(0.2, self.cut_max), lambda: setattr(self.etcd, "lost", 0.0))
        return True

    def _fault_etcd_late(self, node: SimNode) -> bool:
        """Some requests are carried out long after whoever sent them has given up."""
        self.etcd.late = self.random.choice((0.1, 0.4))
        self.events.after(self.random.uniform(0.2, self.cut_max), lambda: setattr(self.etcd, "late", 0.0))
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def _heal_everything(self) -> None:
        self.etcd.heal()
        for node in cast("list[CoordinatedNode]", self.nodes):
            node.service_pause = CALM_PAUSE
        self.events.after(RESUME_AFTER, self._resume)
        super()._heal_everything()

    def _resume(self) -> None:
        for node in self.nodes:
            if node.alive:
                self._order(node, PairCode.PAUSE, paused="false")

    def _settle(self) -> None:
        """Nobody helps, but where a store was lost that nobody can do without: a person decides that."""
        waited = self.events.now - self.faults_until
        reigning = [node for node in self.nodes if node.is_open]
        if reigning:
            self.chosen = max(reigning, key=lambda node: node.record.promise.number)
            if waited > 3.0:
                self._forget_lost(self.chosen)
        elif waited > HELP_AFTER:
            candidates = [node for node in self.nodes if node.alive]
            if candidates and not self._a_store_was_lost():
                raise Violation(f"no master after {HELP_AFTER:g} s without trouble: {self._describe()}")
            if candidates:
                node = self.random.choice(candidates)
                self._tell(f"the operator accepts a loss on {node.name}")
                self._order(node, PairCode.PROMOTE, acceptLoss="true")
        self.events.after(0.5, self._settle)

    def _a_store_was_lost(self) -> bool:
        held = self.etcd.model.keys.get(REGISTER_KEY)
        if held is None:
            return False
        register = msgspec.json.decode(held[0], type=Register)
        here = {node.record.replica for node in self.nodes}
        crashed = any(not node.record.complete for node in self.nodes)
        return crashed or not here.issuperset(register.in_sync)


def _config(priority: int) -> ReplicationConfig:
    return ReplicationConfig(coordinator="etcd://e0:2379", lease_seconds=LEASE, priority=priority)


KINDS = {name: weight for name, weight in FAULTS.items() if name not in NOT_HERE} | ETCD_FAULTS
