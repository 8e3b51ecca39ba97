"""A chaos run: brokers and name servers die, roles change, members come and go, listeners misbehave; the ledger judges.

    python -m bench.chaos --seconds 600 --seed 7 [--out FILE]

Then everything heals, what is open is waited for, and for a moment of calm every message must be handled once.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.chaos.ledger import Ledger
from bench.chaos.members import TOPICS, Event, Member, Plan, Told, command
from bench.chaos.senders import Senders
from bench.chaos.servers import PAIRS, ChaosCluster
from tandemq.client import Admin, QueueRef, TopicConfig
from tandemq.errors import TandemError
from tandemq.testing.waiting import until

STREAMS = {"concurrent": "C", "ordered": "O", "broadcast-1": "B", "broadcast-2": "B", "pull": "P", "booked": "T"}
MEMBERS_MAX = {"concurrent": 4, "ordered": 3, "pull": 2, "booked": 2}
QUEUES = 4
CALM_S = 10.0
DRAIN_S = 120.0
LEAVE_S = 60.0

log = logging.getLogger("chaos")


def note(ledger: Ledger, event: Event) -> None:
    """Writes what a member told into the ledger."""
    kind, *rest = event
    writers: dict[object, Callable[..., None]] = {"b": ledger.began, "e": ledger.ended, "s": ledger.said}
    writers[kind](*rest)


class Running:
    """A member in this process, or in one of its own that can be killed."""

    def __init__(self, plan: Plan, ledger: Ledger, own_process: bool, logs: Path) -> None:
        self.plan = plan
        self._ledger = ledger
        self._logs = logs
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._own_process = own_process
        self._task = asyncio.create_task(self._in_process() if own_process else self._here())

    @property
    def can_be_killed(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _here(self) -> None:
        await Member(self.plan, self._noted).run(self._stop)

    async def _in_process(self) -> None:
        with (self._logs / f"{self.plan.name}.log").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *command(self.plan), stdout=asyncio.subprocess.PIPE, stderr=errors
            )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):
                self._noted(tuple(json.loads(line)))
        await self._process.wait()
        self._ledger.died(self.plan.name, time.monotonic())

    def _noted(self, event: Event) -> None:
        note(self._ledger, event)

    async def leave(self) -> None:
        """Returns when it has left; a member that can't is the client's fault, and its tasks say where they wait."""
        self._stop.set()
        if self._own_process:
            await until(lambda: self._process is not None, "the process to be there")
        if self.can_be_killed:
            assert self._process is not None
            self._process.terminate()
        if not (await asyncio.wait([self._task], timeout=LEAVE_S))[0]:
            for task in asyncio.all_tasks():
                task.print_stack(limit=4)
            raise AssertionError(f"member {self.plan.name} did not leave within {LEAVE_S} s")
        self._task.result()

    def abandon(self) -> None:
        """At the end of a run that failed."""
        if self.can_be_killed:
            assert self._process is not None
            self._process.kill()
        self._task.cancel()

    async def killed(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._task

    def check(self) -> None:
        """Raises what ended a member that nobody ended."""
        if self._task.done():
            self._task.result()
            raise AssertionError(f"member {self.plan.name} ended by itself")


class Crowd:
    """All members; they come and go."""

    def __init__(self, ledger: Ledger, namesrv: str, directory: Path, chance: random.Random) -> None:
        self._ledger = ledger
        self._namesrv = namesrv
        self._directory = directory
        self._chance = chance
        self._members: dict[str, list[Running]] = {stream: [] for stream in STREAMS}
        self._count = 0
        self.events: Counter[str] = Counter()

    def join(self, stream: str) -> None:
        self._count += 1
        kind = stream.partition("-")[0]
        plan = Plan(
            name=f"{stream}#{self._count}",
            kind=kind,
            stream=stream,
            namesrv=self._namesrv,
            offset_dir=str(self._directory / "offsets"),
            seed=self._chance.randrange(1 << 30),
            plain=kind != "pull" and self._chance.random() < 0.3,
        )
        own_process = self._chance.random() < 0.4
        self._members[stream].append(Running(plan, self._ledger, own_process, self._directory))
        self.events[f"a member joined ({kind})"] += 1

    async def churn(self) -> None:
        """Lets somebody come or go."""
        for member in self._all():
            member.check()
        stream = self._chance.choice(tuple(STREAMS))
        members = self._members[stream]
        self._ledger.disturbed(time.monotonic())
        if len(members) < MEMBERS_MAX.get(stream, 1) and (not members or self._chance.random() < 0.5):
            self.join(stream)
            return
        leaving = members.pop(self._chance.randrange(len(members)))
        kind = leaving.plan.kind
        if leaving.can_be_killed and self._chance.random() < 0.5:
            self.events[f"a member was killed ({kind})"] += 1
            await leaving.killed()
        else:
            self.events[f"a member left ({kind})"] += 1
            await leaving.leave()
        self._ledger.disturbed(time.monotonic())
        if not members:
            self.join(stream)

    async def leave(self) -> None:
        await asyncio.gather(*(member.leave() for member in self._all()))

    def abandon(self) -> None:
        for member in self._all():
            member.abandon()

    def _all(self) -> list[Running]:
        return [member for members in self._members.values() for member in members]


async def _topics(cluster: ChaosCluster) -> list[QueueRef]:
    async with Admin(namesrv=cluster.namesrv) as admin:
        for topic in TOPICS.values():

            async def made(topic: str = topic) -> bool:
                await admin.create_topic(TopicConfig(name=topic, read_queues=QUEUES, write_queues=QUEUES))
                return len(await admin.queues(topic)) == QUEUES * len(PAIRS)

            await until(made, f"topic {topic} on both pairs", ignoring=(TandemError,))
            await until(lambda: cluster.all_know(topic), f"topic {topic} on every broker")  # noqa: B023
        return list(await admin.queues(TOPICS["ordered"]))


async def chaos(seconds: float, seed: int, directory: Path) -> dict[str, Any]:
    """Returns the report of one run."""
    chance = random.Random(seed)
    ledger = Ledger(STREAMS, ordered=("ordered",))
    async with ChaosCluster(directory, chance) as cluster:
        queues = await _topics(cluster)
        crowd = Crowd(ledger, cluster.namesrv, directory, chance)
        senders = Senders(ledger, cluster.namesrv, queues, chance)
        senders.prepare()
        sending = asyncio.create_task(senders.run())
        for stream in STREAMS:
            crowd.join(stream)
        told = Told(lambda event: note(ledger, event))  # of the members in this process
        logging.getLogger("tandemq.client").addHandler(told)
        began = time.monotonic()
        until_then = began + seconds
        faults: Counter[str] = Counter()

        async def break_things() -> None:
            while time.monotonic() < until_then:
                kind, work = await cluster.fault()
                log.info("%7.1f s: %s", time.monotonic() - began, kind)
                faults[kind] += 1
                ledger.disturbed(time.monotonic())
                await work
                ledger.disturbed(time.monotonic())
                await asyncio.sleep(chance.uniform(0.5, 4.0))

        async def come_and_go() -> None:
            while time.monotonic() < until_then:
                await crowd.churn()
                await asyncio.sleep(chance.uniform(0.5, 4.0))

        try:
            await asyncio.gather(break_things(), come_and_go())
            log.info("%7.1f s: healed", time.monotonic() - began)
            for name in PAIRS:
                await cluster.healthy(name)
            await until(
                lambda: len(ledger.missing()) < 50, lambda: f"the backlog: {ledger.missing()[:9]}", seconds=DRAIN_S
            )
            await asyncio.sleep(CALM_S)  # a second signal, a late rebalance: what was disturbed settles
            ledger.calm(time.monotonic())
            await asyncio.sleep(CALM_S)
            senders.stop()
            try:
                await until(lambda: not ledger.missing(), "everything that was acknowledged", seconds=DRAIN_S)
            except AssertionError:
                log.error("missing: %s", ledger.missing()[:20])
            senders.leave()
            await sending
            await crowd.leave()
        finally:
            logging.getLogger("tandemq.client").removeHandler(told)
            crowd.abandon()
            sending.cancel()
        verdict = ledger.verdict()
    return {
        "seconds": seconds,
        "seed": seed,
        "faults": dict(sorted(faults.items())),
        "members": dict(sorted(crowd.events.items())),
        "sends": {
            "failed": senders.failed,
            "stored with a promise missing": senders.unsure,
            "attempts that failed": senders.retried,
            "of them without a clear answer": senders.open,
        },
        **verdict.as_json(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="directory for stores and logs; a temporary one if not given")
    options = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tandemq-chaos-") as temporary:
        report = asyncio.run(chaos(options.seconds, options.seed, options.keep or Path(temporary)))
    text = json.dumps(report, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    sys.exit(bool(report["problems"]))


if __name__ == "__main__":
    main()
