"""`./run bench soak --minutes N`: months of a pair's life in minutes.

A master and a slave in processes of their own, with tiny segments and an hour of retention. A producer, a group of
readers and a ledger between them. Round by round one thing happens to the pair: a promotion, a restart, a kill, clocks
that jump, a pause. Every round topics come and go, and ends with both clocks three hours on: delays and timers come
due, files expire. At the end nothing acknowledged is lost or skipped, and memory and files are what they were.
"""

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.frame import Benchmark, Figure, Result, Run, save
from bench.soak_ledger import Ledger, Waiting, is_flat
from tandemq.client import Admin, ClientConfig, ConsumeFrom, Message, Producer, PullConsumer, PushConsumer, TopicConfig
from tandemq.clock import SHIFT_FILE
from tandemq.errors import TandemError
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.waiting import until

TOPICS = ("soak-0", "soak-1", "soak-2")
GROUP = "soak-readers"
DELAYS_MS = (1000, 2000, 5000, 3_600_000, 7_200_000)
PROPERTIES = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": str(100 * 20),
    "maxHashSlotNum": "200",
    "maxIndexNum": "400",
    "maxMessageSize": "8192",
    "messageDelayLevel": "1s 2s 5s 1h 2h",
    "fileReservedTime": "1",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": "500",
    "diskMaxUsedSpaceRatio": "95",
    "flushConsumerOffsetInterval": "1000",
}
JUMP_MS = 3 * 3_600_000
SKEW_MS = 600_000
KEPT_FROM_MINUTES = 10.0
"""Shorter runs show that it works; they are not kept."""
WAIT_S = 120.0

FIGURES = {
    "rounds": Figure("", "more"),
    "acknowledged": Figure("messages", "more", what="plain, delayed and timed"),
    "lost": Figure("messages", "less", 0),
    "skipped": Figure("messages", "less", 0, what="the group's offset passed them, and they never came"),
    "repeated numbers": Figure("messages", "less", 0, what="a queue gave a number twice"),
    "early": Figure("messages", "less", 0, what="delivered before they were due"),
    "problems": Figure(
        "", "less", 0, what="topics that were wrong after they were made anew, stores that are not whole"
    ),
    "memory": Figure("MiB", "less", what="of a broker's own, median of the last third of the rounds"),
    "memory at first": Figure("MiB", "less", what="likewise, of the first third"),
    "files": Figure("files", "less", what="of both stores, likewise"),
    "files at first": Figure("files", "less"),
    "not flat": Figure("", "less", 0, what="of memory, descriptors and files, those that grew"),
}


class Soak:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.directory = directory
        self.pair = RealPair(directory, properties=PROPERTIES)
        self.events: Counter[str] = Counter()
        self.problems: list[str] = []
        self.samples: dict[str, list[float]] = {"memory": [], "descriptors": [], "files": []}
        self.churned = 0
        self._shift_ms = dict.fromkeys(range(2), 0)
        self._number = 0
        self._sending = asyncio.Event()
        self._in_flight = 0

    # -- the pair

    async def start(self) -> None:
        for number, broker in enumerate(self.pair.brokers):
            broker.environment[SHIFT_FILE] = str(self.directory / f"shift-{number}")
            broker.start()
        self.reigns = self.pair.master
        await self.pair.in_sync()
        namesrv = self.reigns.properties["namesrvAddr"]
        self.config = ClientConfig(
            namesrv=namesrv, route_interval_ms=1000, persist_interval_ms=500, consume_from=ConsumeFrom.FIRST_OFFSET
        )
        async with Admin(config=self.config) as admin:
            for topic in TOPICS:
                await admin.create_topic(TopicConfig(name=topic, read_queues=4, write_queues=4))

    @property
    def follows(self) -> BrokerProcess:
        return next(broker for broker in self.pair.brokers if broker is not self.reigns)

    def now_ms(self) -> int:
        """The wall clock of the broker that reigns."""
        return time.time_ns() // 1_000_000 + self._shift_ms[self.pair.brokers.index(self.reigns)]

    def set_clock(self, number: int, shift_ms: int) -> None:
        path = self.directory / f"shift-{number}"
        part = path.with_suffix(".part")
        part.write_text(str(shift_ms))
        part.replace(path)
        self._shift_ms[number] = shift_ms

    async def settled(self) -> None:
        """The pair is whole again, under whoever reigns now."""

        async def found() -> bool:
            for broker in self.pair.brokers:
                if (await self.pair.status(broker)).get("phase") == "open":
                    self.reigns = broker
                    return True
            return False

        await until(found, lambda: f"nobody reigns\n{self.pair._logs()}", seconds=WAIT_S)
        # As the handbook asks after a promotion: files that are read at the next start say who is what.
        self.reigns.properties.update(brokerRole="SYNC_MASTER", brokerId="0")
        self.follows.properties.update(brokerRole="SLAVE", brokerId="1")
        await self.pair.in_sync(self.reigns, quiet=False, seconds=WAIT_S)

    # -- what happens

    async def promote(self) -> None:
        command = [sys.executable, "-m", "tandemq", "broker", "promote", self.follows.address]
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
        said, error = await process.communicate()
        if process.returncode:
            self._note(f"promote {self.follows.address}: {(said + error).decode()}")

    async def take_over(self) -> None:
        """The master dies, its slave is promoted, and the old master comes back."""
        old = self.reigns
        old.kill()
        await self.promote()
        old.start()

    async def restart_slave(self) -> None:
        await self.pair.stopped(self.follows)
        self.follows.start()

    async def restart_master(self) -> None:
        await self.pair.stopped(self.reigns)
        self.reigns.start()

    async def restart_both(self) -> None:
        await self.pair.stopped(self.follows, self.reigns)
        self.reigns.start()
        self.follows.start()

    async def kill_slave(self) -> None:
        self.follows.kill()
        self.follows.start()

    async def kill_master(self) -> None:
        self.reigns.kill()
        self.reigns.start()

    async def kill_both(self) -> None:
        self.reigns.kill()
        self.follows.kill()
        self.reigns.start()
        self.follows.start()

    async def pause_slave(self) -> None:
        slave = self.follows
        slave.pause()
        await asyncio.sleep(self.random.uniform(0.5, 2))
        slave.resume()

    async def clock_back(self) -> None:
        number = self.random.randrange(2)
        self.set_clock(number, self._shift_ms[number] - SKEW_MS)

    async def clock_forward(self) -> None:
        number = self.random.randrange(2)
        self.set_clock(number, self._shift_ms[number] + SKEW_MS)

    async def lose_views(self) -> None:
        """The slave stops, somebody removes a queue's or the index's files, it starts again."""
        slave = self.follows
        await self.pair.stopped(slave)
        queues = sorted((slave.store / "consumequeue").glob("soak-*/*"))
        for path in self.random.sample([*queues, slave.store / "index"], 2):
            shutil.rmtree(path, ignore_errors=True)
        slave.start()

    async def new_slave(self) -> None:
        """The slave's disk is lost: it begins with an empty store."""
        slave = self.follows
        slave.kill()
        shutil.rmtree(slave.store)
        slave.start()

    def happenings(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.promote, self.restart_slave, self.clock_back, self.take_over, self.kill_slave, self.clock_forward,
            self.kill_master, self.lose_views, self.restart_master, self.pause_slave, self.new_slave,
            self.kill_both, self.restart_both,
        ]  # fmt: skip

    def _note(self, problem: str) -> None:
        print(f"  problem: {problem}", flush=True)
        self.problems.append(problem)

    # -- producer, readers, topics that come and go

    async def send(self) -> None:
        async with Producer("soak", config=self.config) as producer:
            while True:
                await self._sending.wait()
                self._in_flight += 1
                try:
                    await self._send_one(producer)
                finally:
                    self._in_flight -= 1

    async def _send_one(self, producer: Producer) -> None:
        self._number += 1
        key, kind, due, level, properties = f"{self._number}", "plain", 0, 0, {}
        choice = self.random.random()
        if choice < 0.15:
            kind, level = "delayed", self.random.choices(range(1, 6), (9, 9, 9, 1, 1))[0]
        elif choice < 0.3:
            kind, due = "timed", self.now_ms() + self.random.choices((1500, 4000, 7_200_000), (9, 9, 1))[0]
            properties = {"TIMER_DELIVER_MS": str(due)}
        message = Message(
            topic=self.random.choice(TOPICS), body=key.encode().ljust(self.random.choice((20, 300, 2000))),
            keys=(key,), properties=properties, delay_level=level,
        )  # fmt: skip
        try:
            result = await producer.send(message, timeout_ms=3000)
        except TandemError:
            await asyncio.sleep(0.05)
            return
        if result.ok:
            queue = (result.queue.topic, result.queue.queue_id)
            self.ledger.note_ack(key, Waiting(kind, due, queue, result.queue_offset))

    def reader(self) -> PushConsumer:
        async def receive(messages: Any) -> None:
            for message in messages:
                self.ledger.note_received(message.body.decode().strip(), message.stored.store_timestamp)

        consumer = PushConsumer(GROUP, receive, config=self.config)
        for topic in TOPICS:
            consumer.subscribe(topic)
        return consumer

    async def churn(self) -> None:
        """A topic is made, filled, deleted, made anew: readers see the new messages only, numbered from 0."""
        self.churned += 1
        name = f"churn-{self.churned % 3}"
        async with Admin(config=self.config) as admin, Producer("churn", config=self.config) as producer:
            for count in (8, 3):
                await admin.create_topic(TopicConfig(name=name, read_queues=1, write_queues=1))
                bodies = [f"{self.churned}-{count}-{number}".encode() for number in range(count)]
                for body in bodies:
                    await self._surely(producer, Message(topic=name, body=body))
                found = await self._read(name, bodies[-1])
                # A send that was stored without its second copy was sent again, so a body may stand there twice.
                numbers, texts = [number for number, _ in found], list(dict.fromkeys(body for _, body in found))
                if numbers != list(range(len(found))) or texts != bodies:
                    self._note(f"topic {name} was made anew and has {found}, not {bodies}")
                await admin.delete_topic(name)

    async def _surely(self, producer: Producer, message: Message) -> None:
        """Sends until it has two copies: the topic may not be known yet, or the slave just be back."""

        async def sent() -> bool:
            with suppress(TandemError):
                return (await producer.send(message)).ok
            return False

        await until(sent, "a message for a new topic", seconds=WAIT_S)

    async def _read(self, topic: str, last: bytes) -> list[tuple[int, bytes]]:
        async with PullConsumer(f"churn-{self.churned}-{last.decode()}", config=self.config) as consumer:
            queues = await consumer.queues(topic)
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            found: list[tuple[int, bytes]] = []
            deadline = time.monotonic() + 20
            while (not found or found[-1][1] != last) and time.monotonic() < deadline:
                for message in await consumer.poll(1000):
                    found.append((message.stored.queue_offset, message.body))
            return found

    # -- rounds

    async def run(self, seconds: float) -> None:
        async with self.pair:
            await self.start()
            senders = [asyncio.create_task(self.send()) for _ in range(2)]
            try:
                await self._rounds(seconds)
                await self._end()
            finally:
                for task in senders:
                    task.cancel()
                await asyncio.gather(*senders, return_exceptions=True)

    async def _rounds(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        left: list[Callable[[], Awaitable[None]]] = []
        while time.monotonic() < deadline:
            if not left:
                left = self.happenings()
                self.random.shuffle(left)
            await self.round(left.pop())

    async def round(self, happens: Callable[[], Awaitable[None]]) -> None:
        name = getattr(happens, "__name__", "")
        began = time.monotonic()
        async with self.reader():
            self._sending.set()
            await self._more(60)
            await happens()
            await self.settled()
            await self._more(60)
            await self.quiet()
            await self.churn()
            await self.expire()
        self.events[name] += 1
        self.sample()
        print(
            f"  {sum(self.events.values()):4} {name:<14} {time.monotonic() - began:5.1f} s, acknowledged "
            f"{self.ledger.acknowledged.total():,}, files {self.samples['files'][-1]:.0f}, memory "
            f"{self.samples['memory'][-1]:.0f} MiB, {len(self.problems)} problems",
            flush=True,
        )

    async def _more(self, count: int) -> None:
        goal = self.ledger.acknowledged.total() + count
        await until(
            lambda: self.ledger.acknowledged.total() >= goal,
            lambda: f"{count} more messages acknowledged\n{self.pair._logs()}",
            seconds=WAIT_S,
        )

    async def quiet(self) -> None:
        """Nobody sends, and the readers have everything that was due at once."""
        self._sending.clear()
        await until(lambda: self._in_flight == 0, "sends to end", seconds=WAIT_S)
        with suppress(AssertionError):  # what is missing is told at the end
            await until(lambda: not self.ledger.missing(["plain"]), "plain messages to come", seconds=WAIT_S / 2)
        self.ledger.be_quiet()

    async def expire(self) -> None:
        """Both clocks go on by hours: everything that waits is due, and all files but the newest expire."""
        ahead = max(self._shift_ms.values()) + JUMP_MS
        for number in self._shift_ms:
            self.set_clock(number, ahead)
        with suppress(AssertionError):
            await until(lambda: not self.ledger.missing(), "delayed messages to come", seconds=WAIT_S / 2)
        self.ledger.be_quiet()
        for number in self._shift_ms:
            self.set_clock(number, ahead + JUMP_MS)
        with suppress(AssertionError):
            await until(lambda: self._log_files() <= 12, "old files to go", seconds=20)

    def _log_files(self) -> int:
        return sum(len(os.listdir(broker.store / "commitlog")) for broker in self.pair.brokers)

    def sample(self) -> None:
        running = [broker.process for broker in self.pair.brokers if broker.process is not None]
        self.samples["memory"].append(max(own_memory_mib(process.pid) for process in running))
        self.samples["descriptors"].append(max(len(os.listdir(f"/proc/{process.pid}/fd")) for process in running))
        self.samples["files"].append(sum(len(files) for b in self.pair.brokers for _, _, files in os.walk(b.store)))

    async def _end(self) -> None:
        await self.pair.in_sync(self.reigns, seconds=WAIT_S)
        await self.pair.stopped(self.follows, self.reigns)
        for broker in self.pair.brokers:
            command = [sys.executable, "-m", "tandemq", "store", "verify", str(broker.store), "--json"]
            process = await asyncio.create_subprocess_exec(*command, stdout=-1)
            report = json.loads((await process.communicate())[0])
            self.problems += [f"{broker.store.parent.name}: {found}" for found in report["problems"]]
            left = [path.name for path in (broker.store / "consumequeue").iterdir() if path.name.startswith("churn-")]
            self.problems += [
                f"{broker.store.parent.name}: queues of the deleted topic {name} are left" for name in left
            ]
        start = max(first_offset(broker) for broker in self.pair.brokers)
        shorter, longer = sorted((common(broker, start) for broker in self.pair.brokers), key=len)
        if not longer.startswith(shorter):  # the master wrote on for a moment after its slave had stopped
            self.problems.append("the two logs differ")

    def figures(self) -> dict[str, float]:
        missing = self.ledger.missing()
        skipped = {key for key, found in missing.items() if found.kind == "plain"}
        allowances = {"memory": 20, "descriptors": 20, "files": 30}
        third = max(1, len(self.samples["files"]) // 3)

        def middle(name: str, part: slice) -> float:
            chosen = sorted(self.samples[name][part]) or [0.0]
            return chosen[len(chosen) // 2]

        return {
            "rounds": sum(self.events.values()),
            "acknowledged": self.ledger.acknowledged.total(),
            "lost": len(missing) - len(skipped),
            "skipped": len(skipped),
            "repeated numbers": self.ledger.repeated_numbers,
            "early": self.ledger.early,
            "problems": len(self.problems),
            "memory": middle("memory", slice(-third, None)),
            "memory at first": middle("memory", slice(third)),
            "files": middle("files", slice(-third, None)),
            "files at first": middle("files", slice(third)),
            "not flat": sum(not is_flat(found, allowances[name]) for name, found in self.samples.items()),
        }


def own_memory_mib(pid: int) -> float:
    """Memory that belongs to a process alone; pages of mapped files come and go with the cache."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def first_offset(broker: BrokerProcess) -> int:
    return min(int(name) for name in os.listdir(broker.store / "commitlog"))


def common(broker: BrokerProcess, start: int) -> bytes:
    """The log from an offset on, without the room behind its end."""
    files = sorted(path for path in (broker.store / "commitlog").iterdir() if int(path.name) >= start)
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


def main(minutes: float, seed: int, directory: str = "") -> int:
    """Runs it, prints and keeps the figures. 0 if nothing was lost and nothing grew."""
    began = time.monotonic()
    print(f"soak: {minutes:g} minutes, seed {seed}", flush=True)
    root = Path(directory) if directory else Path(tempfile.mkdtemp(prefix="tandemq-soak-"))
    soak = Soak(root, seed)
    asyncio.run(soak.run(minutes * 60))
    figures = soak.figures()
    for problem in soak.problems[:20]:
        print(f"  problem: {problem}")
    for key, found in list(soak.ledger.missing().items())[:20]:
        print(f"  missing: {key} {found}")
    events = ", ".join(f"{name} {count}" for name, count in sorted(soak.events.items()))
    notes = f"{minutes:g} minutes, seed {seed}; what happened: {events}."
    result = Result(
        "soak",
        Benchmark("months of a pair's life in minutes, against a ledger", FIGURES, {"ours": _nobody}, notes=notes),
        1.0 if minutes >= KEPT_FROM_MINUTES else 0.0,
        1,
        {"ours": {name: [float(value)] for name, value in figures.items()}},
        seconds=time.monotonic() - began,
    )
    for name, figure in FIGURES.items():
        print(f"  {name}: {figures[name]:,.0f} {figure.unit}")
    print(f"  {notes}\n  kept in {save(result)}")
    bad = [name for name, figure in FIGURES.items() if figure.goal == 0 and figures[name]]
    if bad:
        print(f"soak: not well: {', '.join(bad)}; the stores are in {root}")
        return 1
    if not directory:
        shutil.rmtree(root)
    return 0


def _nobody(run: Run) -> dict[str, float]:
    raise AssertionError("a soak is not run in rounds of sides")
