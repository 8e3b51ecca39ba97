"""The ground on which a simulated group stands: nodes, network, producer, and what nodes tell each other.

What is checked while it runs is in ledger.py; what an operator does in operated.py, what goes wrong in fate.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tandemq.broker.pair.reign import Own, Seen, Step, View, decide
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.sim.ledger import Entry, Ledger, Violation
from tandemq.sim.network import EventQueue, SimulatedNetwork
from tandemq.sim.node import SimNode, Watcher
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended

FAULTS_UNTIL = 3.0
"""Simulated seconds of trouble; then everything heals."""
SETTLED_BY = 24.0
"""Simulated seconds after which a group that has not converged never will."""
STEPS_MAX = 60_000
"""Of thousands of seeds none takes more than a sixth of it."""
Acked = Callable[[PutStatus, str, Appended], None]
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


class Ground(Watcher):
    """Nodes, network and producer; an operator and fate come with those who inherit it."""

    away_max = 0.4
    """Seconds for which a node is dead or paused at most, while there is trouble."""
    excused_for = 0.5
    """Seconds in which a master notices that a machine has stopped, whose acks it still counts."""
    cut_max = 0.6
    """The same for what is cut off."""
    send_pause = 0.004, 0.03
    fault_pause = 0.02, 0.25
    faults_until = FAULTS_UNTIL
    node_class = SimNode
    settled_by = SETTLED_BY

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
            self.node_class(f"n{i}", self.events, self.network, random, self, store_config, master_terms, slave_terms)
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

    def end(self) -> None:
        """Ends all processes: what still runs in them never goes on."""
        for node in self.nodes:
            node.end()

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
            counts, wanted = _queue_ends(node), _queue_ends(master)
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

    def _fault(self) -> None:
        """Something goes wrong, and again later."""
        raise NotImplementedError

    def _heal_everything(self) -> None:
        """Trouble ends."""
        raise NotImplementedError

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
        self._put(node, body, level, self._promising(node, body, level))

    def _put(self, node: SimNode, body: bytes, level: AckLevel, done: Acked) -> None:
        node.produce(self.random.randrange(3), body, level, done)

    def _promising(self, node: SimNode, body: bytes, level: AckLevel) -> Acked:
        """Returns what takes note of an acknowledgement: it must be true now, and of the reign in which it was sent."""
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

        return done

    def acknowledged_by(self, node: SimNode) -> None:
        """A node has acknowledged a message."""

    def _excused(self) -> int:
        """Nodes whose machine stopped a moment ago: their ack was true when they gave it."""
        return sum(1 for at in self._power_cut_at.values() if self.events.now - at < self.excused_for)

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
        # One that dies while it starts has lost nothing of what it had before the fault that it starts after.
        before = self._held.get(node.name, [])
        self._held[node.name] = list(dict.fromkeys([*before, *self.ledger.held_by(node)]))
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


def _queue_ends(node: SimNode) -> dict[tuple[str, int], int]:
    """Returns the next number of each queue that has had a message."""
    reader = node.store.reader
    ends = {key: reader.queue_range(*key)[1] for key in reader.queues()}
    return {key: end for key, end in ends.items() if end}


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
