"""Observers beside a real RocketMQ pair in production, and at the same time the same load to a pair without them.

One observer follows the master, one the slave, each over a link of its own; both are attached in mid-flight, killed and
cut off again and again, and Spark reads one of them meanwhile.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.peers import programs
from tests.peers.half_pairs import RealBroker
from tests.peers.servers import free_ports
from tests.peers.wire import create_topic, route_exists

from bench.site_link import SiteLink, differ
from tandemq.formats.record import MAGIC_BLANK, parse_record, walk
from tandemq.testing.pair import HOST, SEGMENT, BrokerProcess
from tandemq.testing.waiting import until

TOPIC, QUEUES = "orders", 4
RATE = 200
"""Messages a second: what two cores carry besides, so that answers don't wait for a processor."""
SIZE = 1000
SPARK = Path(__file__).resolve().parent / "beside_spark.py"
MEMORY = next((place for place in (Path("/dev/shm"),) if place.is_dir()), None)
"""Has the files of observers and Spark: on production's disk their flushes would hold up its own."""
EVERY_S = 4.0
"""From one fault to the next."""


@dataclass(slots=True)
class Found:
    """What came of it."""

    alone: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    """What the Java producer printed."""
    kills: int = 0
    cuts: int = 0
    differences: int = 0
    missing: int = 0
    """Acknowledged messages that an observer lacks."""
    read: dict[str, int] = field(default_factory=dict)
    """What Spark counted: rows, and different messages."""
    acknowledged: int = 0
    stored: int = 0
    """Messages in the log, those of the producer's warm-up too."""

    def not_ok(self, phase: dict[str, Any]) -> int:
        return int(phase["count"]) - int(phase["statuses"].get("SEND_OK", 0))


class Production:
    """A real name server, a SYNC_MASTER and its slave."""

    def __init__(self, directory: Path, version: str) -> None:
        self.version = version
        self._directory = directory
        (self._port,) = free_ports()
        self.namesrv = f"{HOST}:{self._port}"
        self.master = RealBroker(directory / "master", version, "SYNC_MASTER", self.namesrv)
        self.slave = RealBroker(directory / "slave", version, "SLAVE", self.namesrv)

    async def __aenter__(self) -> "Production":
        command = ["namesrv", "--version", self.version, "--dir", str(self._directory / "names"), "--port"]
        await _run([*programs.ROCKETMQ, *command, str(self._port)])
        await self.master.start()
        await self.slave.start()
        create_topic(self.master.address, TOPIC, QUEUES)
        await until(lambda: route_exists(self.namesrv, TOPIC), "the topic's route", seconds=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.slave.stop(kill=True)
        await self.master.stop(kill=True)
        await _run([*programs.ROCKETMQ, "down", "--dir", str(self._directory / "names"), "--kill"])

    async def load(self, seconds: float, acked: Path) -> dict[str, Any]:
        """The real Java client for so long; the counts that it prints."""
        command, environment = programs.java(self.version, "Produce")
        count = int(RATE * seconds)
        options = ["keys=true", f"acked={acked}", f"rate={RATE}", f"warm={RATE * 3}", f"seconds={int(seconds) * 2}"]
        arguments = [self.namesrv, TOPIC, str(count), str(SIZE), "4", "sync", *options]
        process = await asyncio.create_subprocess_exec(*command, *arguments, env=environment, stdout=subprocess.PIPE)
        output = (await process.communicate())[0].decode()
        return dict(json.loads(next(line for line in output.splitlines() if line.startswith("{"))))


class Observer:
    """One of ours, with the link to the broker that it follows."""

    def __init__(self, directory: Path, production: Production, source: RealBroker) -> None:
        self.source = source
        self.link = SiteLink(source.port)
        self._directory = directory
        self._namesrv = production.namesrv
        self.process: BrokerProcess | None = None

    def start(self) -> None:
        if self.process is None:
            self.process = BrokerProcess(
                self._directory,
                {"brokerName": "broker-a", "namesrvAddr": self._namesrv, "haObserver": "true",
                 "haMasterAddress": self.link.ha_address, "mappedFileSizeCommitLog": str(SEGMENT),
                 "slaveSyncInterval": "1000", "haHousekeepingInterval": "20000", "haSendHeartbeatInterval": "5000"},
            )  # fmt: skip
        self.process.start()
        assert self.process.process is not None
        rest_when_busy(self.process.process.pid)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    @property
    def store(self) -> Path:
        assert self.process is not None
        return self.process.store

    @property
    def address(self) -> str:
        assert self.process is not None
        return self.process.address


async def story(directory: Path, version: str, *, faults: int, spark: bool) -> Found:
    """Runs it: `faults` kills and as many cuts of each observer."""
    found = Found()
    os.makedirs(directory)
    elsewhere = Path(tempfile.mkdtemp(prefix="tandemq-beside-", dir=MEMORY))
    try:
        return await _story(directory, elsewhere, version, found, faults=faults, spark=spark)
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


async def _story(directory: Path, elsewhere: Path, version: str, found: Found, *, faults: int, spark: bool) -> Found:
    """`elsewhere` is the disk of observers and Spark, which is not production's."""
    seconds = EVERY_S * (2 * faults + 2)
    pairs = [Production(directory / name, version) for name in ("production", "alone")]
    async with pairs[0] as production, pairs[1] as alone:
        acked = [directory / "acked-before", directory / "acked-beside"]
        before = [pair.load(EVERY_S * 4, path) for pair, path in ((production, acked[0]), (alone, directory / "b"))]
        await asyncio.gather(*before)
        observers = [
            Observer(elsewhere / name, production, source)
            for name, source in (("of-master", production.master), ("of-slave", production.slave))
        ]
        async with observers[0].link, observers[1].link:
            try:
                loading = asyncio.gather(production.load(seconds, acked[1]), alone.load(seconds, directory / "a"))
                for observer in observers:
                    observer.start()
                reading = await _spark(elsewhere, production, observers[1]) if spark else None
                await _faults(observers, faults, found)
                found.beside, found.alone = await loading
                for observer in observers:
                    await until(lambda one=observer: _same(one), lambda one=observer: _told(one), seconds=120)
                    found.differences += len(differ(observer.source.store, observer.store, 0, _end(observer), SEGMENT))
                    stored = messages(observer.store)
                    found.stored = len(stored)
                    found.missing += missing(stored, acked)
                found.acknowledged = sum(1 for path in acked for line in path.read_text().splitlines() if _is_ok(line))
                if reading is not None:
                    (elsewhere / "stop").touch()
                    output = (await reading.communicate())[0].decode()
                    found.read = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
            finally:
                for observer in observers:
                    observer.kill()
                if spark and reading is not None and reading.returncode is None:
                    reading.kill()
    return found


def rest_when_busy(pid: int) -> None:
    """Lets a process run only while nobody else wants a processor.

    Observers and Spark have machines of their own in earnest: they must not take production's.
    """
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


async def _faults(observers: list[Observer], count: int, found: Found) -> None:
    for _ in range(count):
        await asyncio.sleep(EVERY_S)
        for observer in observers:
            observer.kill()
            observer.start()
        found.kills += len(observers)
        await asyncio.sleep(EVERY_S - 1)
        await asyncio.gather(*(observer.link.cut(1.0) for observer in observers))
        found.cuts += len(observers)


async def _spark(directory: Path, production: Production, observer: Observer) -> asyncio.subprocess.Process:
    command = [sys.executable, str(SPARK), production.namesrv, observer.address, TOPIC, str(directory)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    rest_when_busy(process.pid)
    return process


Place = tuple[int, int, str]
"""(queue, number, key) of a message."""


def messages(store: Path) -> set[Place]:
    """What a log holds of the topic."""
    there = set()
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        for position, size, magic in walk(data, 0, len(data)):
            if magic != MAGIC_BLANK:
                message = parse_record(data, position, position + size, crc=True)
                if message.topic == TOPIC:
                    there.add((message.queue_id, message.queue_offset, message.properties.get("KEYS", "")))
                    if "KEYS" not in message.properties:
                        # The load sends none: whatever this is, it says so instead of passing for one of its messages.
                        print(f"without a key: {path.name} + {position}: {message}", file=sys.stderr)
    return there


def missing(there: set[Place], acked: Iterable[Path]) -> int:
    """How many messages that were acknowledged with SEND_OK are not at their place."""
    count = 0
    for path in acked:
        for line in filter(_is_ok, path.read_text().splitlines()):
            key, _, _, queue_id, queue_offset = line.split()
            count += (int(queue_id), int(queue_offset), key) not in there
    return count


def _is_ok(line: str) -> bool:
    return line.split()[1] == "SEND_OK"


def _end(observer: Observer) -> int:
    """Where the last record of its source's log ends, as far as its files tell."""
    path = max(path for path in (observer.source.store / "commitlog").iterdir() if path.read_bytes().strip(b"\0"))
    data = path.read_bytes()
    return int(path.name) + max((position + size for position, size, _ in walk(data, 0, len(data))), default=0)


async def _same(observer: Observer) -> bool:
    name = f"{(_end(observer) - 1) // SEGMENT * SEGMENT:020d}"
    ours = observer.store / "commitlog" / name
    theirs = observer.source.store / "commitlog" / name
    return ours.exists() and ours.read_bytes() == theirs.read_bytes()


def _told(observer: Observer) -> str:
    assert observer.process is not None
    return f"the observer has everything:\n{observer.process.log.read_text()[-3000:]}"


async def _run(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
