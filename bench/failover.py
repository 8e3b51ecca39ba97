"""From a fault of the master to the next acknowledged send, in a group of three with a real etcd.

One Python producer at two copies, routes polled every second as a Java client would be told to, a send given up after
half a second.  A fault counts from the moment it is made to the producer's first acknowledgement of a send that began
after it; a switch, at which no send fails, by the longest pause between two acknowledgements.  `java` is the same with
the real Java producer, for our group and for RocketMQ's with its controller, in turn (failover_java.py).
"""

import asyncio
import statistics
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tests.peers.tools import Missing

from bench.failover_java import Controlled, Ours, PeerFailed, measured
from bench.frame import Benchmark, Figure, Run, Unavailable
from tandemq.client.config import ClientConfig
from tandemq.client.producer import Producer
from tandemq.clock import SystemClock
from tandemq.errors import TandemError
from tandemq.model.message import Message
from tandemq.testing.etcd import etcd_program
from tandemq.testing.failover_group import FailoverGroup
from tandemq.testing.pair import BrokerProcess
from tandemq.testing.waiting import until

FAULTS = 20
ROUTE_MS = 1000
SEND_MS = 500


class Sender:
    """Sends one message after the other; remembers when each acknowledged send began and ended."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: list[tuple[float, float]] = []
        self.failed = 0
        self._clock = SystemClock()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._send(namesrv))

    async def _send(self, namesrv: str) -> None:
        config = ClientConfig(namesrv=namesrv, route_interval_ms=ROUTE_MS)
        async with Producer("bench_failover", config=config) as producer:
            while not self._stop.is_set():
                began = self._clock.monotonic()
                try:
                    result = await producer.send(Message(topic="T", body=b"x" * 1024), timeout_ms=SEND_MS)
                except TandemError:
                    self.failed += 1
                    await asyncio.sleep(0.005)
                    continue
                if result.ok:
                    self.acknowledged.append((began, self._clock.monotonic()))

    async def gap_after(self, fault_at: float) -> float:
        """Milliseconds from a fault to the first acknowledgement of a send that began after it."""
        await until(lambda: self.acknowledged and self.acknowledged[-1][0] > fault_at, seconds=60)
        return 1000 * (next(end for began, end in self.acknowledged if began > fault_at) - fault_at)

    def pause_since(self, since: float) -> float:
        """The longest time between two acknowledgements since then, in milliseconds."""
        ends = [since, *(end for _, end in self.acknowledged if end > since)]
        return 1000 * max((later - earlier for earlier, later in pairwise(ends)), default=0.0)

    async def stop(self) -> None:
        self._stop.set()
        await self._task


async def _gaps(directory: Path, fault: str, count: int) -> list[float]:
    clock, found = SystemClock(), []
    async with FailoverGroup(directory) as group:
        master = await group.up()
        sender = Sender(group.namesrv)
        await until(lambda: len(sender.acknowledged) > 100)
        for _ in range(count):
            fault_at = clock.monotonic()
            await _make(group, fault, master)
            gap = await sender.gap_after(clock.monotonic() if fault == "switch" else fault_at)
            found.append(sender.pause_since(fault_at) if fault == "switch" else gap)
            old, master = master, await group.reigning(besides=master)
            if fault == "kill":
                old.start()
            elif fault == "hang":
                old.resume()
            master = await group.all_in_sync()
        await sender.stop()
    return found


async def _make(group: FailoverGroup, fault: str, master: BrokerProcess) -> None:
    if fault == "kill":
        master.kill()
    elif fault == "hang":
        master.pause()
    else:
        await group.promoted(next(broker for broker in group.brokers if broker is not master))


def _ours(run: Run) -> Mapping[str, float]:
    if not etcd_program():
        raise Unavailable("no etcd on this machine: Debian's package is etcd-server")
    figures = {}
    for fault in ("kill", "hang", "switch"):
        gaps = sorted(asyncio.run(_gaps(run.directory / f"{fault}-{run.round}", fault, run.count(FAULTS))))
        figures[f"{fault}_median"] = statistics.median(gaps)
        figures[f"{fault}_worst"] = gaps[-1]
    return figures


JAVA_FAULTS = {"kill": 6, "hang": 3, "switch": 4}


def _with_java(run: Run, group: Ours | Controlled, kinds: tuple[str, ...]) -> Mapping[str, float]:
    async def story() -> Mapping[str, float]:
        async with group:
            return await measured(group, {kind: run.count(JAVA_FAULTS[kind]) for kind in kinds})

    try:
        return asyncio.run(story())
    except (Missing, PeerFailed) as reason:
        raise Unavailable(str(reason)) from reason


def _ours_with_java(run: Run) -> Mapping[str, float]:
    if not etcd_program():
        raise Unavailable("no etcd on this machine: Debian's package is etcd-server")
    return _with_java(run, Ours(run.directory / f"ours-{run.round}"), tuple(JAVA_FAULTS))


def _controller_with_java(run: Run) -> Mapping[str, float]:
    return _with_java(run, Controlled(run.directory / f"controller-{run.round}", tuned=False), tuple(JAVA_FAULTS))


def _tuned_controller_with_java(run: Run) -> Mapping[str, float]:
    return _with_java(run, Controlled(run.directory / f"tuned-{run.round}", tuned=True), ("hang",))


BENCHMARKS = {
    "java": Benchmark(
        what="From kill -9, SIGSTOP and a planned switch of the master to the next SEND_OK of the real Java producer "
        "that polls routes every second: three brokers with etcd and a lease of 2 s, RocketMQ 5.5.0's three under its "
        "controller, at its defaults and with heartbeats of 0.3 s and 1.5 s of patience (tuned; hangs only).",
        figures={
            "kill_median": Figure("ms", "less", goal_ratio=0.8),
            "kill_worst": Figure("ms", "less", goal=2000),
            "hang_median": Figure("ms", "less", goal=2700),
            "hang_worst": Figure("ms", "less", goal=3500),
            "switch_median": Figure("ms", "less", what="the longest pause between two acknowledgements"),
            "switch_worst": Figure("ms", "less", goal=300),
            "switch_failed": Figure("messages", "less", goal=0, what="sends that failed in all switches"),
        },
        sides={
            "ours": _ours_with_java,
            "rocketmq-5.5.0": _controller_with_java,
            "rocketmq-5.5.0-tuned": _tuned_controller_with_java,
        },
        rounds=1,
    ),
    "gap": Benchmark(
        what="From kill -9, SIGSTOP and a planned switch of the master to the next send acknowledged by two copies.",
        figures={
            "kill_median": Figure("ms", "less", goal=744),
            "kill_worst": Figure("ms", "less", goal=2000),
            "hang_median": Figure("ms", "less", goal=2700),
            "hang_worst": Figure("ms", "less", goal=3500),
            "switch_median": Figure("ms", "less"),
            "switch_worst": Figure("ms", "less", goal=300),
        },
        sides={"ours": _ours},
        rounds=1,
    ),
}
