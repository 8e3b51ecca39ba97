"""A simulated group with more than its log: tables, services and clients, and what goes wrong with those.

Every seed throws dice of its own about what it has, so that a seed without any of it is the plain one of fate.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from tandemq.model.ack_level import AckLevel
from tandemq.sim.clients import Clients
from tandemq.sim.clock import ManualClock
from tandemq.sim.fate import World
from tandemq.sim.node import SimNode
from tandemq.sim.serving_node import ServingNode, runs
from tandemq.sim.world import Acked

SERVED_BY = 40.0
"""Simulated seconds after which what was not delivered never will be."""
SHARE = 0.3
"""Of all seeds: a run with services takes as long as three without."""
DRIFT = 0.02
"""Clocks of two machines run apart by at most twice as much."""
CLOCK_OFF_MS = 2_000
"""Wall clocks are wrong by at most this, either way."""
EPOCH_MS = ManualClock().wall_ms()
LOOK_PAUSE = 0.1
"""Between looks at what is owed: each reads the whole log."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a group has beside its log, its tables and its services."""

    clocks: bool = False
    """Wall clocks that differ and are set; no two machines' seconds are equally long."""

    @classmethod
    def of(cls, seed: int) -> "Beside | None":
        """Throws the dice; None: nothing at all."""
        random = Random(f"beside {seed}")
        if random.random() >= SHARE:
            return None
        return cls(clocks=random.random() < 0.5)


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
        self._owes = "nothing was looked at"
        self._look_at = 0.0

    @property
    def kinds(self) -> dict[str, int]:
        return {**super().kinds, **({"set_clock": 3} if self.beside.clocks else {})}

    @property
    def serving(self) -> Sequence[ServingNode]:
        return cast("Sequence[ServingNode]", self.nodes)

    def run(self) -> None:
        self.events.after(0.1, self._consume)
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

    def _heal_everything(self) -> None:
        if self.beside.clocks:
            for node in self.nodes:
                self._set_clock(node, 0)
        super()._heal_everything()
