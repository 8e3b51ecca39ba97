"""A simulated node with an event loop of its own, on which production's coroutines run as they are."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tandemq.sim.loop import SimLoop
from tandemq.sim.node import SimNode


class LoopNode(SimNode):
    """Alive: also a loop, which dies with its process."""

    loop: SimLoop
    peers: "Sequence[LoopNode]" = ()
    machine_runs = True

    def _open(self) -> None:
        self.machine_runs = True
        self.loop = SimLoop(self, self.events, self._knock)  # type: ignore[abstract]  # what it lacks nobody calls
        super()._open()

    def in_loop(self, action: Callable[[], Any]) -> Callable[[], None]:
        """The same with this node's loop running."""

        def run() -> None:
            before = asyncio._get_running_loop()
            asyncio._set_running_loop(self.loop)
            try:
                action()
            finally:
                asyncio._set_running_loop(before)

        return run

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]], name: str) -> None:
        """Begins what came from outside, when the process runs."""

        def run() -> None:
            self.loop.create_task(work(), name=name)

        self.guarded(run)

    def die(self, *, power: bool) -> None:
        if self.alive:
            self.machine_runs = not power
            self._end_process()
        super().die(power=power)

    def stop(self) -> None:
        self._end_process()
        super().stop()

    def end(self) -> None:
        if self.alive:
            self.loop.bury()

    def _end_process(self) -> None:
        """Ends what runs on its loop."""
        self.loop.bury()

    def _knock(self, host: str, port: int) -> bool | None:
        """Returns whether somebody listens there; None: no answer, its machine is off or the network is cut."""
        other = next(one for one in self.peers if one.name == host)
        if not (other.alive or other.machine_runs) or not self.reaches(other):
            return None
        return other.alive

    def reaches(self, other: SimNode) -> bool:
        """Returns whether the network lets both speak to each other."""
        blocked = self.network.blocked
        return (self.name, other.name) not in blocked and (other.name, self.name) not in blocked

    def peer_at(self, address: str) -> "LoopNode | None":
        """Returns the node with this address."""
        return next((one for one in self.peers if one.address == address), None)
