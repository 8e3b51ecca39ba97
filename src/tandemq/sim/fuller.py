"""A simulated group with more than its log: tables, services and clients, and what goes wrong with those.

Every seed throws dice of its own about what it has, so that a seed without any of it is the plain one of fate.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from tandemq.errors import CorruptLog
from tandemq.model.ack_level import AckLevel
from tandemq.replication import replica_file
from tandemq.sim.clients import Clients, delivered, waiting
from tandemq.sim.clock import ManualClock
from tandemq.sim.fate import World
from tandemq.sim.ledger import Violation
from tandemq.sim.node import ROOT, SimNode
from tandemq.sim.services import TABLES_FILE
from tandemq.sim.serving_node import ServingNode, runs
from tandemq.sim.world import Acked

RECORD = ROOT / replica_file.FILE_NAME
DERIVED = (str(ROOT / "consumequeue"), str(ROOT / "checkpoint"), str(TABLES_FILE))
SERVED_BY = 40.0
"""Simulated seconds after which what was not delivered never will be."""
SHARE = 0.15
"""Of all seeds: a run with services takes as long as two or three without."""
DRIFT = 0.02
"""Clocks of two machines run apart by at most twice as much."""
CLOCKS = {"set_clock": 3}
RECORDS = {"lose_record": 1, "damage_record": 1, "lose_views": 3}
RETAIN_PAUSE = 0.05, 0.4
KEEP_MS = (50, 300, 1000)
"""Retention leaves what is younger."""
CLOCK_OFF_MS = 2_000
"""Wall clocks are wrong by at most this, either way."""
LONG = 2.5
LONG_UNTIL = 5.0
EPOCH_MS = ManualClock().wall_ms()
LOOK_PAUSE = 0.1
"""Between looks at what is owed: each reads the whole log."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a group has beside its log, its tables and its services."""

    clocks: bool = False
    """Wall clocks that differ and are set; no two machines' seconds are equally long."""
    records: bool = False
    """Files that are gone or damaged at a start: a replica's record, what can be derived from the log, tables."""

    long: bool = False
    """Nodes that are away or cut off for as long as a promotion and more takes."""

    retention: bool = False
    """Logs whose beginning is deleted, on each node at another time."""

    @classmethod
    def of(cls, seed: int) -> "Beside | None":
        """Throws the dice; None: nothing at all."""
        random = Random(f"beside {seed}")
        if random.random() >= SHARE:
            return None
        chances = [random.random() for _ in range(4)]
        return cls(clocks=chances[0] < 0.5, records=chances[1] < 0.5, long=chances[2] < 0.3, retention=chances[3] < 0.4)


class FullerWorld(World):
    """Nodes with all that a broker has."""

    node_class = ServingNode
    settled_by = SERVED_BY

    def __init__(self, seed: int, beside: Beside, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.beside = beside
        self.clients = Clients(self.events, self.random, self._tell)
        for server in self.serving:
            server.peers = self.serving
            server.on_start = self.clients.connect
        if beside.clocks:
            for node in self.nodes:
                node.clock_rate = self.random.uniform(1 - DRIFT, 1 + DRIFT)
                node.clock.jump_wall(self.random.randint(-CLOCK_OFF_MS, CLOCK_OFF_MS))
        if beside.long:
            self.faults_until, self.away_max, self.cut_max = LONG_UNTIL, LONG, LONG
        self._owes = "nothing was looked at"
        self._look_at = 0.0

    @property
    def kinds(self) -> dict[str, int]:
        more = {**(CLOCKS if self.beside.clocks else {}), **(RECORDS if self.beside.records else {})}
        return {**super().kinds, **more}

    @property
    def serving(self) -> Sequence[ServingNode]:
        return cast("Sequence[ServingNode]", self.nodes)

    def run(self) -> None:
        self.events.after(0.1, self._consume)
        if self.beside.retention:
            self.events.after(0.3, self._retain)
        super().run()

    def _put(self, node: SimNode, body: bytes, level: AckLevel, done: Acked) -> None:
        self.clients.send(cast("ServingNode", node), body, level, done)

    def _consume(self) -> None:
        """The consumer comes back, mostly to a master."""
        there = [node for node in self.serving if runs(node)]
        masters = [node for node in there if node.is_open]
        if there:
            node = self.random.choice(masters if masters and self.random.random() < 0.8 else there)
            node.guarded(node.in_loop(lambda: self.clients.consume(node)))
        self.events.after(self.random.uniform(0.03, 0.15), self._consume)

    def _converged(self) -> bool:
        if not super()._converged():
            return False
        if self.events.now < self._look_at:
            return False
        self._look_at = self.events.now + LOOK_PAUSE
        self._owes = self.clients.owed(cast("ServingNode", self.chosen))
        return not self._owes

    def _describe(self) -> str:
        return f"{super()._describe()}; owed: {self._owes}"

    # --- fate -------------------------------------------------------------------------------------------------------

    def _fault_set_clock(self, node: SimNode) -> bool:
        """Somebody sets a clock, forwards or back."""
        self._set_clock(node, self.random.randint(-CLOCK_OFF_MS, CLOCK_OFF_MS))
        return True

    def _set_clock(self, node: SimNode, off_ms: int) -> None:
        """Makes a wall clock wrong by so much."""
        node.advance_clock()
        right = EPOCH_MS + int(self.events.now * 1000)
        self._tell(f"the clock of {node.name} is set: it is wrong by {off_ms} ms")
        node.clock.jump_wall(right + off_ms - node.clock.wall_ms())

    def _fault_lose_record(self, node: SimNode) -> bool:
        """The record of a replica is gone: its log has no name any more, and it is another replica."""
        return self._harm_record(node, lambda: node.disk.lose(RECORD), "loses its record")

    def _fault_damage_record(self, node: SimNode) -> bool:
        """The record is damaged: the node must refuse to start, and gets an empty store, as it says."""

        def harm() -> None:
            at = self.random.randrange(node.disk.file_size(RECORD) or 1)
            node.disk.rot(RECORD, at, self.random.randrange(8))
            try:
                replica_file.load(node.disk, ROOT)
            except CorruptLog:
                node.wipe()
            else:
                raise Violation(f"{node.name} took a record for whole in which byte {at} was damaged")

        return self._harm_record(node, harm, "has a damaged record")

    def _harm_record(self, node: SimNode, harm: Callable[[], None], what: str) -> bool:
        """As a lost disk, only in a healthy group: a second failure on top would be more than two copies survive."""
        if not node.alive or not self._converged_roughly():
            return False
        node.die(power=False)
        if node.disk.file_size(RECORD) is None:
            return False
        self._tell(f"{node.name} {what}")
        self._power_cut_at[node.name] = self.events.now
        self._must_survive[node.name] = ([], "")
        harm()
        cast("ServingNode", node).is_nameless = True
        return True

    def _fault_lose_views(self, node: SimNode) -> bool:
        """Files that can be derived from the log are gone at the next start, or tables that clients can do without."""
        if not node.alive:
            return False
        node.die(power=self.random.random() < 0.3)
        found = sorted(path for path in node.disk.files if str(path).startswith(DERIVED))
        lost = self.random.sample(found, min(len(found), self.random.choice((1, 1, 2, 100))))
        self._tell(f"{node.name} loses {', '.join(str(path.relative_to(ROOT)) for path in lost) or 'nothing'}")
        for path in lost:
            node.disk.lose(path)
        return True

    def _retain(self) -> None:
        """The oldest files of a log have expired."""
        node = self.random.choice(self.serving)
        if runs(node):
            before, held, readable = node.store.first_offset, waiting(node), delivered(node)
            node.guarded(node.in_loop(lambda: node.retain(self.random.choice(KEEP_MS))))
            if node.alive and node.store.first_offset > before:
                self.result.faults["retain"] = self.result.faults.get("retain", 0) + 1
                self._tell(f"{node.name} deletes [{before}, {node.store.first_offset})")
                self.clients.deleted(node, before, held, readable)
                self.ledger.expired(node.store.first_offset)
        if not self._calm:
            self.events.after(self.random.uniform(*RETAIN_PAUSE), self._retain)

    def _heal_everything(self) -> None:
        if self.beside.clocks:
            for node in self.nodes:
                self._set_clock(node, 0)
        super()._heal_everything()
