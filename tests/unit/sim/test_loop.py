"""A loop that the simulator drives: it runs by its node's clock, waits while that is paused, and dies with it."""

import asyncio
import contextlib
from collections.abc import Callable

from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.sim.loop import SimLoop
from tandemq.sim.network import EventQueue


class Machine:
    """A process with a clock of its own speed."""

    def __init__(self, events: EventQueue, rate: float = 1.0) -> None:
        self.events, self.clock, self.clock_rate = events, ManualClock(monotonic=0.0), rate
        self.alive, self.incarnation, self.disk = True, 1, CrashableDisk()
        self.paused: list[Callable[[], None]] | None = None

    def guarded(self, action: Callable[[], None]) -> None:
        if self.paused is not None:
            self.paused.append(action)
        else:
            action()

    def advance_clock(self) -> None:
        self.clock.advance(self.events.now * self.clock_rate - self.clock.monotonic())


def loop_of(machine: Machine) -> SimLoop:
    return SimLoop(machine, machine.events, lambda host, port: {"here": True, "dead": False}.get(host))  # type: ignore[abstract]


async def passed(seconds: float) -> None:
    """Waits in vain for so long, by the loop's clock."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().create_future()


def run(events: EventQueue) -> None:
    while events.step():
        pass


def test_a_sleep_ends_by_the_clock_of_its_node() -> None:
    events = EventQueue()
    woken: list[float] = []

    async def sleep() -> None:
        await passed(3.0)
        woken.append(events.now)

    for rate in (1.0, 1.5):
        loop_of(Machine(events, rate)).create_task(sleep())
    run(events)
    assert woken == [2.0, 3.0]


def test_a_task_of_a_dead_process_goes_no_further() -> None:
    events, woken = EventQueue(), []
    machine = Machine(events)
    loop = loop_of(machine)

    async def sleep() -> None:
        await passed(1.0)
        woken.append(True)

    loop.create_task(sleep())
    events.after(0.5, lambda: setattr(machine, "alive", False))
    run(events)
    loop.bury()
    assert not woken
    assert not loop.tasks


def test_what_is_due_while_a_process_is_paused_happens_when_it_goes_on() -> None:
    events, woken = EventQueue(), []
    machine = Machine(events)

    async def sleep() -> None:
        await passed(1.0)
        woken.append(events.now)

    loop_of(machine).create_task(sleep())
    events.after(0.5, lambda: setattr(machine, "paused", []))

    def go_on() -> None:
        waiting, machine.paused = machine.paused or [], None
        for action in waiting:
            action()

    events.after(2.0, go_on)
    run(events)
    assert woken == [2.0]


def test_a_port_is_open_refused_or_silent() -> None:
    events, found = EventQueue(), []
    loop = loop_of(Machine(events))

    async def knock(host: str) -> None:
        try:
            async with asyncio.timeout(0.3):
                _, writer = await asyncio.open_connection(host, 1)
            writer.close()
            found.append("open")
        except ConnectionRefusedError:
            found.append("refused")
        except TimeoutError:
            found.append("silent")

    async def knock_at_all() -> None:
        for host in ("here", "dead", "away"):
            await knock(host)

    loop.create_task(knock_at_all())
    run(events)
    assert found == ["open", "refused", "silent"]
