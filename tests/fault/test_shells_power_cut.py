"""The shells of master and slave over loopback, their power cut at random steps: what was `durable` is there.

Sockets, `sendfile`, `splice`, the receive window, the flush threads and the stores are those of production; only the
disk is another: its files live in memory, with descriptors, and of what was not synced a power cut leaves what chance
leaves.
TANDEMQ_POWER_ROUNDS sets the number of rounds (50 for a thorough run).
"""

import asyncio
import mmap
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tandemq.broker.addresses import free_port
from tandemq.broker.new_message import NewMessage
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import SystemClock
from tandemq.errors import StoreError
from tandemq.model.ack_level import AckLevel, parse_level
from tandemq.replication import replica_file
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.node import ReplicaNode
from tandemq.replication.node_callbacks import NodeCallbacks
from tandemq.replication.slave import MasterPlace, SlaveShell
from tandemq.sim.disk import CrashableDisk, MemorySegment
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("TANDEMQ_POWER_ROUNDS", "6"))
HOST = "127.0.0.1"
HOST_BYTES = bytes((127, 0, 0, 1)) + (1).to_bytes(4, "big")
ROOT = Path("/store")
GROUP = "c/broker-a"
STORE = StoreConfig(
    commit_log_segment_size=1 << 18, index_slots=64, index_entries=256, flush_interval_ms=20, flush_views_interval_ms=50
)
LEVELS = ("1:durable", "2:durable", "2")
STEPS_MAX = 400
"""A cut comes within so many operations of the disk; a round makes more."""


class _DescribedSegment(MemorySegment):
    """A segment in memory that the kernel can send from and splice into."""

    fd = -1

    def fileno(self) -> int:
        return self.fd


class PowerDisk(CrashableDisk):
    """Cuts its own power after some operations: `survivor` is what the next process finds. Ours goes on, as a ghost."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self.survivor: PowerDisk | None = None
        self._cut_after: int | None = None
        self._random = Random(0)
        self._lock = threading.RLock()
        self._fds: dict[int, int] = {}

    def cut_after(self, steps: int, random: Random) -> None:
        self._random, self._cut_after = random, steps

    def step(self, what: str, path: Path) -> None:
        with self._lock:  # whoever comes meanwhile waits: nothing durable happens after the cut and before its end
            if self._cut_after is not None and not self.is_cut:
                self._cut_after -= 1
                if self._cut_after < 0:
                    self.cut()

    def cut(self) -> None:
        with self._lock:
            if not self.is_cut:
                self.is_cut = True
                found = self.after_crash(self._random)
                self.survivor = PowerDisk()
                self.survivor.files, self.survivor.directories = found.files, found.directories
                self.survivor.boot, self.survivor._durable_names = found.boot, found._durable_names

    # The owner's thread and the flush thread share this disk.

    def create_file(self, path: Path, size: int) -> None:
        with self._lock:
            super().create_file(path, size)

    def write_at(self, path: Path, position: int, data: bytes | bytearray | memoryview) -> None:
        with self._lock:
            super().write_at(path, position, data)

    def sync_content(self, path: Path, file: Any) -> None:
        with self._lock:
            super().sync_content(path, file)

    def remove(self, path: Path) -> None:
        with self._lock:
            super().remove(path)

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            super().remove_tree(path)

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)

    def list(self, path: Path) -> list[str]:
        with self._lock:
            return super().list(path)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            super().sync_directory(path)

    def usage(self, path: Path) -> tuple[int, int]:
        with self._lock:
            return super().usage(path)

    def create_segment(self, path: Path, size: int) -> MemorySegment:
        self.create_file(path, size)
        return self.open_segment(path, writable=True)

    def open_segment(self, path: Path, *, writable: bool) -> MemorySegment:
        file = self._file(path)
        content: Any = file.data
        if not isinstance(content, mmap.mmap):
            fd = os.memfd_create(path.name)
            os.ftruncate(fd, len(content))
            mapped: Any = mmap.mmap(fd, len(content))
            mapped[:] = bytes(content)
            file.data = mapped
            self._fds[id(file)] = fd
        segment = _DescribedSegment(self, path, file, writable)
        segment.fd = self._fds[id(file)]
        return segment

    def forget(self) -> None:
        """Closes what the files of this disk hold; nobody uses it any more."""
        while self._fds:
            os.close(self._fds.popitem()[1])


@dataclass(slots=True, eq=False)
class Promise:
    """A message that was acknowledged."""

    level: str
    offset: int
    body: bytes


class Node:
    """One machine: its disk, and the process on it while it runs."""

    def __init__(self, name: str, ha_port: int) -> None:
        self.name, self.ha_port = name, ha_port
        self.disk = PowerDisk()
        self.address = f"{HOST}:{ha_port - 1}"

    def boot(self) -> None:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        self.disk.make_directory(ROOT)
        record = replica_file.load(self.disk, ROOT)
        self.store = MessageStore.open(
            ROOT, STORE, disk=self.disk, post=loop.call_soon_threadsafe,
            confirmed=record.confirmed if record is not None and record.history.epochs else None,
        )  # fmt: skip
        acks = AckQueue(now=clock.monotonic)
        self.writer = MessageWriter(
            self.store, acks, clock, loop, level=AckLevel(2), sync_flush=False, flush_timeout_ms=5000,
            copies_timeout_ms=5000, pending_max=1000,
        )  # fmt: skip
        self.writer.gate.refuse("not open")
        self.node = ReplicaNode(
            self.store, ROOT,
            ReplicationConfig(
                reconnect_ms_max=50, heartbeat_interval_ms=200, housekeeping_interval_ms=5000, rejoin_wait_ms=60_000,
                not_caught_up_ms=60_000,
            ),
            acks, clock,
            NodeCallbacks(opened=self._opened, closed=self._closed, readable=self.writer.schedule_dispatch),
            group=GROUP, address=self.address, sync_flush=False, disk=self.disk,
        )  # fmt: skip
        self.store.on_flushed = self._flushed
        self.writer.on_turn = self.node.appended
        self.store.start()

    def _opened(self) -> None:
        self.writer.forget_flushes()
        self.writer.gate.allow()

    def _closed(self, reason: str, deposed: bool) -> None:
        self.writer.gate.refuse(reason)

    def _flushed(self) -> None:
        self.node.flushed()

    async def reign(self) -> None:
        self.boot()
        await self.node.be_master(HOST, self.ha_port, AckLevel(2), strict=True, ask=frozenset())

    async def follow(self, master: "Node") -> None:
        self.boot()
        self.node.broker_id = 1

        async def find() -> MasterPlace:
            return MasterPlace(f"{HOST}:{master.ha_port}", True, GROUP)

        await self.node.be_slave(find)

    async def vanish(self) -> None:
        """The power is off: what the process still does is done to a disk that nobody will read."""
        self.disk.cut()
        self.writer.stop("power cut")
        shells = [shell for shell in (self.node.master, self.node.slave) if shell is not None]
        self.store.on_flushed = None
        for shell in shells:
            if isinstance(shell, SlaveShell):
                await shell.stop()
            else:
                await shell.stop(clean=False)
        self.store.abandon()
        survivor = self.disk.survivor
        assert survivor is not None
        self.disk.forget()
        self.disk = survivor

    def holds(self, promise: Promise) -> bool:
        try:
            message = self.store.reader.read(promise.offset, self.store.appended)
        except StoreError:
            return False
        return bytes(message.body) == promise.body


@dataclass
class Pair:
    """A master and its slave, and what was acknowledged."""

    random: Random
    master: Node
    slave: Node
    promises: list[Promise] = field(default_factory=list)
    sent: int = 0

    async def in_sync(self) -> None:
        def there() -> bool:
            state = self.master.node.master
            replicas = self.master.node.status().replicas if state is not None else ()
            end = self.master.store.appended
            return self.master.node.is_open and any(r.in_sync and r.received == end for r in replicas)

        def told() -> str:
            return f"in sync: {self.master.node.status()} {self.slave.node.status()}"

        await until(there, told)

    async def sends(self, stop: Callable[[], bool]) -> None:
        """One sender: messages of all sizes, those of several senders share frames."""
        while not stop():
            self.sent += 1
            size = self.random.choice((10, 300, 3000, 20_000))
            body = b"%d-" % self.sent + bytes([self.sent % 251]) * size
            level = self.random.choice(LEVELS)
            message = NewMessage(
                topic="T", queue_id=0, body=body, properties={}, born_timestamp=1, born_host=HOST_BYTES
            )
            mine, others = self.master.disk, self.slave.disk  # those of now: a machine comes back with another
            try:
                result = await self.master.writer.put(message, parse_level(level))
            except (WriteRefused, StoreError):
                return
            cut = mine.is_cut or (others.is_cut and not level.startswith("1"))
            if result.status is PutStatus.PUT_OK and not cut:
                self.promises.append(Promise(level, result.appended.physical_offset, body))

    async def round(self) -> None:
        """Sends until the power of a victim fails, in the middle of whatever it does; then it comes back."""
        random = self.random
        victims = random.choice(([self.master], [self.slave], [self.master, self.slave]))
        for victim in victims:
            victim.disk.cut_after(random.randrange(STEPS_MAX), Random(random.random()))

        disks = [victim.disk for victim in victims]

        def gone() -> bool:
            return any(disk.is_cut for disk in disks)

        senders = [asyncio.create_task(self.sends(gone)) for _ in range(4)]
        await until(gone, lambda: f"a power cut; {self.sent} sent")
        for victim in victims:
            victim.disk.cut()
        for victim in victims:
            await victim.vanish()
        if self.master not in victims:
            self.master.writer.fail_waiting("the round is over")
        await asyncio.gather(*senders)
        if len(victims) == 2:  # only what was on disk was promised to survive this
            self.promises = [promise for promise in self.promises if "durable" in promise.level]
        if self.master in victims:
            await self.master.reign()
        if self.slave in victims:
            await self.slave.follow(self.master)
        await self.in_sync()
        self.check()

    def check(self) -> None:
        for node in (self.master, self.slave):
            lost = [promise for promise in self.promises if not node.holds(promise)]
            assert not lost, f"{node.name} lacks {len(lost)} of {len(self.promises)}: {lost[0].level} {lost[0].offset}"


@asynccontextmanager
async def pair(seed: int) -> AsyncIterator[Pair]:
    master, slave = Node("master", free_port(HOST)), Node("slave", free_port(HOST))
    await master.reign()
    await slave.follow(master)
    one = Pair(Random(seed), master, slave)
    try:
        await one.in_sync()
        yield one
    finally:
        await slave.vanish()
        await master.vanish()


async def story(seed: int, rounds: int) -> Pair:
    async with pair(seed) as one:
        for _ in range(rounds):
            await one.round()
        return one


def test_what_was_durable_is_there_after_power_cuts_at_random_steps(capsys: pytest.CaptureFixture[str]) -> None:
    one = asyncio.run(story(1, ROUNDS))
    assert {promise.level for promise in one.promises} >= {"1:durable", "2:durable"}
    with capsys.disabled():
        print(f"[{ROUNDS} power cuts, {one.sent} sent, {len(one.promises)} promises kept]", end=" ")
