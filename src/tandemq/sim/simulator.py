"""A replicated group under every fault we can think of, deterministic by seed.

One master and one to three slaves run the real store (on disks that forget what was not synced) and the real state
machines of replication, on a simulated clock and network.  Producers write at every ack level, an operator promotes and
demotes, and these happen, in any combination: kill -9, power cut (lost, torn and reordered sectors, also in the
middle of any disk operation), clean restart, pause, partition in both or one direction, connections that break at
both ends or only at one (so that the slave comes twice), slowness, damaged bytes on the wire and on disk, failing
fdatasync, full disk, a replaced disk, forged acks.

Checked all the time (see ledger.py): a promise is true when it is made; what is acknowledged at a level, or shown to
readers, survives every fault that the level promises to survive; a slave shows nothing its master has not confirmed and
nothing else than its master has; nothing is cut without being saved aside.  At the end, with everything healed, there
is one master, everybody follows it, all logs are equal and nothing promised is missing.

    result = simulate(seed)          the same seed gives the same run, event for event
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tandemq.broker.pair.reign import Own, Seen, Step, View, decide
from tandemq.codec.ha_classic import Chunk, Head, TransferReader, encode_report
from tandemq.errors import CodecError
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.replication.promotion import refusal_of
from tandemq.replication.session import have_all
from tandemq.replication.slave_state import SlaveTerms
from tandemq.sim.ledger import Entry, Ledger, Violation
from tandemq.sim.network import EventQueue, SimulatedNetwork
from tandemq.sim.node import SimNode, Watcher, log_file
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended

FAULTS_UNTIL = 3.0
"""Simulated seconds of trouble; then everything heals."""
SETTLED_BY = 24.0
"""Simulated seconds after which a group that has not converged never will."""
PROMOTION_EXPIRES = 0.8
STEPS_MAX = 60_000
"""Of thousands of seeds none takes more than a sixth of it."""
LEVELS = (
    AckLevel(2),
    AckLevel(2),
    AckLevel(2, durable=True),
    AckLevel("majority"),
    AckLevel("all"),
    AckLevel("all", durable=True),
    AckLevel(1),
)


@dataclass(slots=True)
class SimulationResult:
    """What a run was and did."""

    seed: int
    nodes: int
    level: str
    steps: int = 0
    sent: int = 0
    acknowledged: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    reigns: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        outcome = f"VIOLATION: {self.violation}" if self.violation else "ok"
        return (
            f"seed {self.seed}: {self.nodes} nodes, level {self.level}, {self.sent} sent, "
            f"{self.acknowledged} acknowledged, {self.reigns} reigns, {self.steps} steps ({faults}): {outcome}"
        )


def simulate(seed: int, *, trace: bool = False) -> SimulationResult:
    """One run; a broken invariant is told in `violation`, never raised."""
    return outcome_of(World(seed, trace=trace))


def outcome_of(world: "World") -> SimulationResult:
    """Runs a world to its end, or to the first invariant that breaks."""
    try:
        world.run()
    except AssertionError as error:
        world.result.violation = f"{error or type(error).__name__} at t={world.events.now:.4f}"
    return world.result


class World(Watcher):
    """Nodes, network, producer, operator and fate."""

    away_max = 0.4
    """Seconds for which a node is dead or paused at most, while there is trouble."""
    cut_max = 0.6
    """The same for what is cut off."""
    send_pause = 0.004, 0.03
    fault_pause = 0.02, 0.25
    faults_until = FAULTS_UNTIL
    settled_by = SETTLED_BY

    @property
    def kinds(self) -> dict[str, int]:
        """What may happen, and how often relative to each other."""
        return FAULTS

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = random = Random(seed)
        self.events = EventQueue()
        self.network = SimulatedNetwork(self.events, random)
        level = random.choice(LEVELS)
        count = random.choice((2, 2, 3, 3, 4))
        strict = level.copies != 1
        key = random.choice(("", "secret"))
        segment_size = random.choice((8192, 16384))
        self.level = level
        master_terms = MasterTerms(
            group="g",
            level=level,
            sync_flush=random.random() < 0.25,
            strict_open=strict,
            heartbeat=0.05,
            housekeeping=0.2,
            gap_max=random.choice((3000, 1 << 20)),
            away_max=0.3,
            rejoin_wait=0.5,
            loss_wait=0.3,
            readers_wait=strict and random.random() < 0.7,
            shared_key=key,
            classic_batch=1024,
            batch=random.choice((200, 1500, 100_000)),
        )
        slave_terms = SlaveTerms(group="g", heartbeat=0.05, housekeeping=0.2, shared_key=key, batch=master_terms.batch)
        store_config = StoreConfig(
            commit_log_segment_size=segment_size,
            consume_queue_segment_size=2000,
            index_enable=False,
            message_size_max=2048,
            flush_views_interval_ms=random.choice((20, 200)),
        )
        self.nodes = [
            SimNode(f"n{i}", self.events, self.network, random, self, store_config, master_terms, slave_terms)
            for i in range(count)
        ]
        flush_interval = random.choice((0.02, 0.1, 0.4))
        for node in self.nodes:
            node.flush_interval = flush_interval
        self.chosen = self.nodes[0]
        """Whom the operator wants as master."""
        self.ledger = Ledger(list(self.nodes))
        self.result = SimulationResult(seed, count, str(level))
        self._tracing = trace
        self._calm = False
        self._power_cut_at: dict[str, float] = {}
        self._must_survive: dict[str, tuple[list[Entry], str]] = {}
        self._held: dict[str, list[Entry]] = {}
        self._body_count = 0
        self._checked_steps = 0

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Trouble, then healing, then the reckoning."""
        for node in self.nodes:
            node.role, node.follows = ("master" if node is self.chosen else "slave"), self.chosen
            self._boot(node)
        self.events.after(0.02, self._produce)
        self.events.after(0.1, self._look_around)
        self.events.after(0.1, self._fault)
        while self.events.now < self.faults_until and self._step():
            pass
        self._heal_everything()
        while not self._converged():
            if self.events.now > self.settled_by or not self._step():
                raise Violation(f"no convergence: {self._describe()}")
        self._reckon()

    def _step(self) -> bool:
        self.result.steps += 1
        if self.result.steps > STEPS_MAX:
            raise Violation(f"more than {STEPS_MAX} steps: {self._describe()}")
        return self.events.step()

    def _reckon(self) -> None:
        master = self.chosen
        assert master.master is not None
        self.ledger.settled(master)
        end = master.store.appended
        for node in self.nodes:
            first = max(node.store.first_offset, master.store.first_offset)
            if node.log_bytes(first, end) != master.log_bytes(first, end):
                raise Violation(f"the logs of {node.name} and {master.name} differ at the end")
            counts = {key: node.store.reader.queue_range(*key)[1] for key in node.store.reader.queues()}
            wanted = {key: master.store.reader.queue_range(*key)[1] for key in master.store.reader.queues()}
            if counts != wanted:
                raise Violation(f"the queues of {node.name} and {master.name} differ at the end: {counts} {wanted}")

    def _converged(self) -> bool:
        master = self.chosen
        if not master.is_open or master.store.dispatched != master.store.appended:
            return False
        return all(
            node is master
            or (
                node.is_following
                and node.slave is not None
                and node.slave.record.promise == master.record.promise
                and node.store.appended == master.store.appended
                and node.store.dispatched == node.store.appended
            )
            for node in self.nodes
        )

    def _describe(self) -> str:
        def one(node: SimNode) -> str:
            if not node.alive:
                return f"{node.name} dead"
            if node.master is not None:
                waiting = ",".join(sorted(node.master.waiting_for))
                return (
                    f"{node.name} {node.master.phase.value} epoch {node.master.number} end {node.store.appended} "
                    f"confirmed {node.master.confirmed} shown {node.store.dispatched} waits for [{waiting}]"
                )
            assert node.slave is not None
            slave = node.slave
            return (
                f"{node.name} {slave.phase.value} of {node.follows.name if node.follows else '-'} "
                f"end {node.store.appended} shown {node.store.dispatched} {slave.trouble}"
            )

        return f"operator's master {self.chosen.name}; " + "; ".join(one(node) for node in self.nodes)

    # --- the producer -----------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        if self._calm:
            return
        random = self.random
        masters = [node for node in self.nodes if node.is_open]
        for _ in range(random.randint(1, 3) if masters else 0):
            self._send(random.choice(masters))
        self.events.after(random.uniform(*self.send_pause), self._produce)

    def _send(self, node: SimNode) -> None:
        random = self.random
        level = self.level if random.random() < 0.7 else random.choice(LEVELS)
        if isinstance(level.copies, int) and level.copies > len(self.nodes):
            level = AckLevel("all", level.durable)
        self._body_count += 1
        self.result.sent += 1
        body = b"%d " % self._body_count + random.randbytes(random.choice((10, 100, 400)))
        promise = node.master.record.promise if node.master is not None else None

        def done(status: PutStatus, reason: str, appended: Appended) -> None:
            if status is not PutStatus.PUT_OK:
                return
            assert node.master is not None
            if node.master.record.promise != promise or node.master.phase is not Phase.OPEN:
                raise Violation(f"{node.name} acknowledged after its reign had ended")
            start = appended.physical_offset
            data = node.log_bytes(start, start + appended.size)
            if body not in data:
                raise Violation(
                    f"{node.name} acknowledged [{start}, {start + appended.size}) which holds something else"
                )
            self.result.acknowledged += 1
            self.acknowledged_by(node)
            register = node.record.register
            copies = level.needed(register.size if register is not None else 1)
            durable = level.durable or (node.master_terms.sync_flush and copies == 1)
            self.ledger.promise(Entry("message", start, data, copies, durable, node.name), self._excused())

        node.produce(random.randrange(3), body, level, done)

    def acknowledged_by(self, node: SimNode) -> None:
        """A node has acknowledged a message."""

    def _excused(self) -> int:
        """Nodes whose machine stopped a moment ago: their ack was true when they gave it."""
        return sum(1 for at in self._power_cut_at.values() if self.events.now - at < 0.5)

    # --- what nodes tell --------------------------------------------------------------------------------------------

    def traced(self, node: SimNode, text: str) -> None:
        if self._tracing:
            self.result.trace.append(f"{self.events.now:8.4f} {node.name} {text}")

    def _tell(self, text: str) -> None:
        if self._tracing:
            self.result.trace.append(f"{self.events.now:8.4f} ** {text}")

    def opened(self, node: SimNode) -> None:
        master = node.master
        assert master is not None
        self.result.reigns += 1
        if master.provisional:
            return  # it overrules nobody, and gives way to any regular reign
        self.chosen = node
        node.ordered = False
        self.ledger.lost(node, self._held.pop(node.name, []))  # what the fault before this start took
        places = {replica.partition("#")[0] for replica in master.opened_without}
        self.ledger.opened(node, [other for other in self.nodes if other.name in places])
        for other in self.nodes:
            # An old master that is cut off or not told reigns on for a while beside the new one.
            if other is not node and self.random.random() < 0.8:
                self.events.after(self.random.uniform(0.0, 0.4), lambda other=other: self._announce(node, other))  # type: ignore[misc]

    def _announce(self, master: SimNode, node: SimNode) -> None:
        """A master that has opened tells the group; who reigns by an older register steps down."""
        told = master.record.register
        if not (master.is_open and node.alive and self._reaches(master, node)) or told is None:
            return
        if node.master is not None:
            mine = node.record.register
            if mine is None or mine.epoch < told.epoch:
                text = f"{master.name} reigns in epoch {told.epoch}"
                node.guarded(lambda: node.act(node.master.order(0, text, node.now)) if node.master else None)
        elif node.slave is not None and not node.is_following:
            node.follows = master
            for link in list(node.links.values()):
                if link.there != master.name:
                    self.network.reset(link)

    def _look_around(self) -> None:
        """Every master asks the members it can reach whom they take for theirs, as brokers do when they register."""
        for node in self.nodes:
            if node.alive and node.master is not None:
                self._look(node)
        self.events.after(self.random.uniform(0.1, 0.3), self._look_around)

    def _look(self, node: SimNode) -> None:
        record = node.record
        register, last = record.register, record.last_reign
        own = Own(
            address=node.name,
            is_open=node.is_open,
            reign=(last.number, last.id) if last is not None else (0, ""),
            claim=(record.promise.number, record.promise.id),
            replica=record.replica,
            group_id=register.group_id if register is not None else "",
            register=register.version if register is not None else (0, 0),
        )
        seen = [_seen(other) for other in self._answering(node)]
        verdict = decide(own, View(seen=seen), waited=True, allowed=False)
        if verdict.step is Step.FOLLOW and not node.ordered:
            node.guarded(lambda: node.act(node.master.order(0, verdict.why, node.now)) if node.master else None)

    def _answering(self, node: SimNode) -> list[SimNode]:
        """Who answers a node that asks around."""
        now = self.events.now
        there = [n for n in self.nodes if n.alive and n is not node and now >= n.paused_until]
        return [n for n in there if self._reaches(node, n)]

    def _is_group_gone(self, node: SimNode) -> bool:
        """Whether of all who answer nobody has a register."""
        return not any(other.record.register is not None for other in self._answering(node))

    def _accept_loss(self, node: SimNode) -> None:
        """`tandemq broker promote --accept-loss` of a master that waits."""
        gone = self._is_group_gone(node)
        node.guarded(lambda: node.act(node.master.allow(node.now, group_gone=gone)) if node.master else None)

    def _reaches(self, one: SimNode, other: SimNode) -> bool:
        blocked = self.network.blocked
        return (one.name, other.name) not in blocked and (other.name, one.name) not in blocked

    def master_for(self, node: SimNode) -> SimNode | None:
        """What name servers and announcements tell a slave: the newest open master, or one that asks."""
        masters = [n for n in self.nodes if n is not node and n.alive and n.master is not None]
        open_ones = [n for n in masters if n.is_open and n.master is not None and not n.master.provisional]
        if open_ones:
            return max(open_ones, key=lambda n: n.record.promise.number)
        return self.random.choice(masters) if masters else None

    def group_exists(self, node: SimNode) -> bool:
        """Whether some broker of the group has a register: one that is silent keeps a broker looking."""
        return any(other.stored_register() is not None for other in self.nodes if other is not node)

    def stepped_down(self, node: SimNode, asking: bool) -> None:
        self.ledger.forgive_single(node.name)
        if not asking:
            self.events.after(0.0, lambda: self._make_slave(node))

    def _make_slave(self, node: SimNode) -> None:
        if node.alive and node.master is not None and node.master.phase is Phase.DEPOSED:
            node.follows = None
            node.guarded(lambda: node.change_role("slave"))

    def confirmed(self, node: SimNode, before: int, offset: int) -> None:
        if node.master is not None:
            self._shown_by_master(node, before, offset)
            return
        master = self._master_of(node)
        if master is None or master.master is None:
            return
        if offset > master.master.confirmed:
            raise Violation(f"{node.name} shows {offset}, its master has confirmed {master.master.confirmed}")
        start = max(before, master.store.first_offset)
        if node.log_bytes(start, offset) != master.log_bytes(start, offset):
            raise Violation(f"{node.name} shows other bytes in [{start}, {offset}) than its master {master.name}")

    def _shown_by_master(self, node: SimNode, before: int, offset: int) -> None:
        assert node.master is not None
        terms = node.master_terms
        strict = terms.readers_wait or terms.level.copies == 1
        if node.master.phase is not Phase.OPEN or not strict:
            return
        copies = terms.level.needed(node.acks.group_size)
        data = node.log_bytes(before, offset)
        self.ledger.promise(
            Entry("shown", before, data, copies, terms.level.durable or (terms.sync_flush and copies == 1), node.name),
            self._excused(),
        )

    def _master_of(self, slave: SimNode) -> SimNode | None:
        if not slave.is_following:
            return None
        for node in self.nodes:
            if node.is_open and node.record.promise == slave.record.promise:
                return node
        return None

    def cut(self, node: SimNode, start: int, end: int) -> None:
        pass

    def died(self, node: SimNode, *, power: bool) -> None:
        self._tell(f"{node.name} {'loses power' if power else 'is killed'}")
        self._held[node.name] = self.ledger.held_by(node)
        must = self.ledger.held_by(node, durable=power)
        must = [entry for entry in must if entry.durable or not power]
        self._must_survive[node.name] = (must, "power cut" if power else "kill")
        if power:
            self._power_cut_at[node.name] = self.events.now
        self.events.after(self.random.uniform(0.02, self.away_max), lambda: self._boot(node))

    def _boot(self, node: SimNode) -> None:
        if node.alive:
            return
        node.role = "master" if node is self.nodes[0] else "slave"  # what its conf file says
        self._tell(f"{node.name} starts")
        # Some power cuts come soon after a start, when a node changes the most on its disk.
        soon = not self._calm and self.random.random() < 0.2
        node.disk.crash_at = len(node.disk.steps) + self.random.randrange(60) if soon else None
        node.boot()
        must, fault = self._must_survive.pop(node.name, ([], ""))
        if node.alive:
            self.ledger.lost(node, self._held.pop(node.name, []))
            entries = set(self.ledger.entries)
            standing = [entry for entry in must if entry in entries]
            # A boot may already have taken over another's newer history, which ends promises of one copy.
            self.ledger.survived(node, [e for e in standing if e.copies > 1 or node.master is None], fault)

    # --- the operator -----------------------------------------------------------------------------------------------

    def _promote(self, *, accept_loss: bool = False) -> bool:
        """`tandemq broker promote` of any slave: refused by name if one that must be heard is silent."""
        candidates = [n for n in self.nodes if n.alive and n.slave is not None and n.events.now >= n.paused_until]
        if not candidates:
            return False
        node = self.random.choice(candidates)
        register = node.record.register
        if register is None or node.record.replica not in register.member_ids:
            return False
        refusal = refusal_of(node.record, self._answers(node))
        if refusal and not accept_loss:
            self._tell(f"the operator may not promote {node.name}: {refusal}")
            return False
        self._tell(f"the operator promotes {node.name}{', accepting a loss' if accept_loss else ''}")
        old = node.follows
        if node.is_following and old is not None and old.is_open and self._reaches(node, old):
            self._demote(old, lambda: self._order(node, accept_loss))
        else:
            self._order(node, accept_loss)
        return True

    def _answers(self, node: SimNode) -> frozenset[str]:
        """The replicas that answer a node which asks around."""
        return frozenset(n.record.replica for n in self._answering(node))

    def _demote(self, old: SimNode, then: Callable[[], None]) -> None:
        """Hands over: no more writes, the slaves get everything, then it steps down; or it goes on as before."""
        old.refuses = True
        incarnation, give_up_at = old.incarnation, self.events.now + 0.4

        def look() -> None:
            master = old.master
            if not old.alive or old.incarnation != incarnation or master is None or not old.is_open:
                then()
                return
            if have_all(master.sessions.values(), old.store.appended):
                self._tell(f"{old.name} hands over")
                old.guarded(lambda: old.act(master.order(0, "the operator demotes it", old.now)))
                then()
            elif self.events.now >= give_up_at:
                self._tell(f"{old.name} does not hand over")
                old.refuses = False
            else:
                self.events.after(0.01, look)

        self.events.after(0.01, look)

    def _order(self, node: SimNode, accept_loss: bool) -> None:
        """The candidate asks everybody; a promotion that has not come to an end in time is given up."""
        if not node.alive or node.slave is None:
            return
        node.guarded(lambda: node.change_role("master"))
        master, incarnation = node.master, node.incarnation
        if master is None:
            return
        if accept_loss:
            node.guarded(lambda: node.act(master.allow(node.now)))
        for other in self.nodes:
            if other is not node and self._reaches(node, other):
                self.events.after(self.random.uniform(0.0, 0.2), lambda other=other: self._point(other, node))  # type: ignore[misc]

        def expire() -> None:
            if node.alive and node.incarnation == incarnation and node.master is master and not node.is_open:
                self._tell(f"the promotion of {node.name} has expired")
                text = "the promotion has expired"
                node.guarded(lambda: node.act(master.order(0, text, node.now)))

        self.events.after(PROMOTION_EXPIRES, expire)

    def _point(self, node: SimNode, candidate: SimNode) -> None:
        """A candidate has announced itself: slaves go to it."""
        if node.alive and node.slave is not None and candidate.alive and candidate.master is not None:
            node.follows = candidate
            for link in list(node.links.values()):
                if link.there != candidate.name:
                    self.network.reset(link)

    # --- fate -------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self._calm:
            return
        random = self.random
        names, weights = zip(*self.kinds.items(), strict=True)
        name = random.choices(names, weights)[0]
        if getattr(self, f"_fault_{name}")(random.choice(self.nodes)):
            self.result.faults[name] = self.result.faults.get(name, 0) + 1
        self.events.after(random.uniform(*self.fault_pause), self._fault)

    def _fault_kill(self, node: SimNode) -> bool:
        node.die(power=False)
        return True

    def _fault_power(self, node: SimNode) -> bool:
        node.die(power=True)
        return True

    def _fault_power_at_write(self, node: SimNode) -> bool:
        """The power goes in the middle of one of the next disk operations."""
        if not node.alive:
            return False
        node.disk.crash_at = len(node.disk.steps) + self.random.randrange(12)
        return True

    def _fault_power_all(self, node: SimNode) -> bool:
        for each in self.nodes:
            each.die(power=True)
        return True

    def _fault_restart(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"{node.name} is stopped")
        self._must_survive[node.name] = (self.ledger.held_by(node), "clean stop")
        node.stop()
        self.events.after(self.random.uniform(0.02, 0.3), lambda: self._boot(node))
        return True

    def _fault_pause(self, node: SimNode) -> bool:
        self._tell(f"{node.name} pauses")
        node.pause(self.random.uniform(0.02, self.away_max))
        return True

    def _fault_partition(self, node: SimNode) -> bool:
        self._tell(f"{node.name} is cut off")
        for other in self.nodes:
            if other is not node:
                self.network.block(node.name, other.name)
                self.network.block(other.name, node.name)
        self.events.after(self.random.uniform(0.05, self.cut_max), self.network.heal)
        return True

    def _fault_one_way(self, node: SimNode) -> bool:
        other = self.random.choice(self.nodes)
        if other is node:
            return False
        self._tell(f"nothing passes from {node.name} to {other.name}")
        self.network.block(node.name, other.name)
        self.events.after(self.random.uniform(0.05, self.cut_max), self.network.heal)
        return True

    def _fault_reset(self, node: SimNode) -> bool:
        for link in [link for link in self.network.links.values() if link.here == node.name]:
            self.network.reset(link)
        return True

    def _fault_half_reset(self, node: SimNode) -> bool:
        """Only the slave notices, and comes again while the master still has its old connection."""
        for link in [link for link in self.network.links.values() if link.here == node.name]:
            if node.slave is not None:
                self.network.reset(link, both=False)
        return True

    def _fault_slow(self, node: SimNode) -> bool:
        self.network.slowness = self.random.choice((1.0, 5.0, 20.0))
        return True

    def _fault_damage(self, node: SimNode) -> bool:
        self.network.damage = self.random.choice((0.0, 0.02))
        return True

    def _fault_bit_flip(self, node: SimNode) -> bool:
        """A bit of the log rots while the machine is off; recovery must notice, or the disk is replaced."""
        if not node.alive or any(not other.alive for other in self.nodes) or node.disk.capacity is not None:
            return False  # on a full disk it may not start, and then nobody looks at what recovery found
        end, first = node.store.appended, node.store.first_offset
        last_record = max(first, end - 150)
        if end - last_record < 100:
            return False
        node.die(power=False)
        node.disk.boot += 1
        at = self.random.randrange(last_record, end)
        size = node.store_config.commit_log_segment_size
        file = node.disk.files.get(log_file(at - at % size))
        if file is not None:
            self._tell(f"a bit rots at {at} on {node.name}")
            self._power_cut_at[node.name] = self.events.now
            file.data[at % size] ^= 1 << self.random.randrange(8)
            file.durable = bytes(file.data)
            self._must_survive[node.name] = ([], "")
            self._replace_if_undetected(node, at)
        return True

    def _replace_if_undetected(self, node: SimNode, at: int) -> None:
        rotten = node.log_bytes(at, at + 1)

        def look() -> None:
            if node.alive and node.store.appended > at and node.log_bytes(at, at + 1) == rotten:
                # Not every byte of a record is under its checksum; an audit finds it, the operator replaces the disk.
                node.die(power=False)
                self._must_survive[node.name] = ([], "")
                node.wipe()

        self.events.after(0.0, lambda: self._boot_then(node, look))

    def _boot_then(self, node: SimNode, action: object) -> None:
        if not node.alive:
            # Look at what recovery found before the node may speak to anybody.
            self._boot_silently(node)
        assert callable(action)
        action()

    def _boot_silently(self, node: SimNode) -> None:
        blocked = set(self.network.blocked)
        for other in self.nodes:
            self.network.blocked.update(((node.name, other.name), (other.name, node.name)))
        role, node.role = node.role, "slave"
        node.boot()
        node.role = role
        self.network.blocked = blocked

    def _fault_io_error(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"fdatasync fails on {node.name}")
        node.disk.sync_error = OSError(5, "Input/output error")
        return True

    def _fault_disk_full(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"the disk of {node.name} fills up")
        disk = node.disk
        disk.capacity = disk.usage(log_file(0))[0] + self.random.randrange(3000)
        self.events.after(self.random.uniform(0.05, 0.4), lambda: self._free_disk(node))
        return True

    def _free_disk(self, node: SimNode) -> None:
        node.disk.capacity = None
        if node.alive:
            node.store.retain()

    def _fault_replace_disk(self, node: SimNode) -> bool:
        """Only in a healthy group: a second failure on top would be more than any level of two promises."""
        if not self._converged_roughly():
            return False
        node.die(power=False)
        self._tell(f"{node.name} gets a new disk")
        self._power_cut_at[node.name] = self.events.now
        self._must_survive[node.name] = ([], "")
        node.wipe()
        return True

    def _converged_roughly(self) -> bool:
        return self.chosen.is_open and all(
            node is self.chosen or (node.is_following and node.record.promise == self.chosen.record.promise)
            for node in self.nodes
        )

    def _fault_promote(self, node: SimNode) -> bool:
        self._promote()
        return True

    def _fault_misdirect(self, node: SimNode) -> bool:
        """A stale address: a slave goes to another node for a while."""
        other = self.random.choice(self.nodes)
        if other is node or node.slave is None:
            return False
        self._misdirect(node, other)
        return True

    def _misdirect(self, node: SimNode, other: SimNode) -> None:
        self._tell(f"{node.name} is sent to {other.name}")
        node.follows = other
        for link in list(node.links.values()):
            self.network.reset(link)

        def again() -> None:
            if node.alive and node.slave is not None:
                node.follows = None
                for link in list(node.links.values()):
                    self.network.reset(link)

        self.events.after(self.random.uniform(0.1, 0.5), again)

    def _fault_forge(self, node: SimNode) -> bool:
        """A stranger says hello as an empty RocketMQ slave; it reports what it is sent and keeps nothing, or claims to
        have everything and more."""
        if not node.is_open or node.master is None or node.master_terms.shared_key:
            return False
        reader, have = TransferReader(), 0

        def feign(data: bytes) -> None:
            nonlocal have
            try:
                for event in reader.feed(data):
                    have += len(event.data) if isinstance(event, Chunk) else 0
                    have = event.offset if isinstance(event, Head) and have == 0 else have
            except CodecError:  # nothing guards that stream against damage on the way
                if link is not None:
                    self.network.close(link)
                return
            # A group of one counts a RocketMQ slave for two copies, as it must, and this one keeps nothing.
            group = node.record.register
            if link is not None and link.open and have and group is not None and group.size > 1:
                self.network.send(link, encode_report(have))

        link = self.network.connect("stranger", node.name, node.accept, lambda data: feign(data), lambda: None)
        if link is None:
            return False
        self.network.send(link, encode_report(0))
        register = node.record.register
        if register is not None and register.size > 1 and self.random.random() < 0.5:
            return True  # it says nothing more, but for what `_feign` answers

        def claim() -> None:
            if link.open and node.alive:
                self.network.send(link, encode_report(node.store.appended + 5000))

        self.events.after(0.01, claim)
        return True

    def _fault_forget(self, node: SimNode) -> bool:
        """The operator takes a replica out whose store is gone, or any that is away."""
        register, master = node.record.register, node.master
        if not node.is_open or master is None or register is None or node.events.now < node.paused_until:
            return False
        if register.size <= 2:
            return False  # alone, it would count a RocketMQ slave, and the stranger that feigns to be one keeps nothing
        here = {other.record.replica for other in self.nodes}
        away = sorted(
            register.everybody - {session.replica for session in master.sessions.values()} - {register.holder}
        )
        lost = [replica for replica in away if replica not in here]
        if not lost and (not away or self.random.random() < 0.8):
            return False
        replica = self.random.choice(lost or away)
        self._tell(f"{node.name} is told to forget {replica}")

        def forget() -> None:
            if node.master is master:
                refusal, decisions = master.forget(replica, node.now)
                node.trace(f"forgets {replica}: {refusal or 'done'}")
                node.act(decisions)

        node.guarded(forget)
        return True

    def _forget_lost(self, node: SimNode) -> None:
        """Two stores were lost: each new one waits for the other's former self, until the operator takes those out."""
        register, master = node.record.register, node.master
        if register is None or master is None:
            return
        here = {other.record.replica for other in self.nodes}
        for replica in sorted(register.everybody - here):
            self._tell(f"{node.name} is told to forget {replica}, whose store is gone")
            _, decisions = master.forget(replica, node.now)
            node.guarded(lambda decisions=decisions: node.act(decisions))  # type: ignore[misc]

    def _heal_everything(self) -> None:
        self._calm = True
        self._tell("everything heals")
        self.network.damage, self.network.slowness = 0.0, 1.0
        self.network.heal()
        for link in [link for link in self.network.links.values() if link.here == "stranger"]:
            self.network.close(link)
        for node in self.nodes:
            node.disk.capacity = node.disk.sync_error = None
            if node.disk.crash_at is not None:
                node.disk.crash_at = None
            if node.alive:
                node.store.retain()
        self._settle()

    def _settle(self) -> None:
        """The operator's last round: promotes if nobody can open, and accepts a loss only when nothing else helps."""
        now = self.events.now
        regular = [n for n in self.nodes if n.is_open and n.master is not None and not n.master.provisional]
        if regular:
            self.chosen = max(regular, key=lambda n: n.record.promise.number)
            for node in self.nodes:
                if node is not self.chosen:
                    self._announce(self.chosen, node)
            if now > self.faults_until + 3.0:
                self._forget_lost(self.chosen)
        elif now > self.faults_until + 3.0 and not any(node.ordered for node in self.nodes):
            losing = now > self.faults_until + 8.0
            asking = [n for n in self.nodes if n.alive and n.master is not None and not n.ordered]
            if losing and asking:
                node = self.random.choice(asking)
                self._tell(f"the operator accepts a loss on {node.name}")
                self._accept_loss(node)
            else:
                self._promote(accept_loss=losing)
        self.events.after(0.3, self._settle)


def _seen(node: SimNode) -> Seen:
    """What a node tells one that asks around."""
    record, register, last = node.record, node.record.register, node.record.last_reign
    known = (register.group_id, register.version, register.holder) if register is not None else ("", (0, 0), "")
    reign = (last.number, last.id) if last is not None else (0, "")
    is_master = node.master is not None
    return Seen(
        address=node.name,
        is_master=is_master,
        is_open=node.is_open and node.master is not None and not node.master.provisional,
        claim=(record.promise.number, record.promise.id) if is_master else reign,
        follows=node.follows.name if node.is_following and node.follows is not None else "",
        group_id=known[0],
        register=known[1],
        holder=known[2],
    )


FAULTS: dict[str, int] = {
    "kill": 6,
    "power": 6,
    "power_at_write": 4,
    "power_all": 1,
    "restart": 3,
    "pause": 3,
    "partition": 4,
    "one_way": 3,
    "reset": 4,
    "half_reset": 4,
    "slow": 2,
    "damage": 2,
    "bit_flip": 1,
    "io_error": 1,
    "disk_full": 2,
    "replace_disk": 1,
    "promote": 4,
    "misdirect": 3,
    "forge": 2,
    "forget": 2,
}
"""What may happen, and how often relative to each other."""
