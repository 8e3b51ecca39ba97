"""Replication: how fast an empty slave catches up, and what waiting for a slave costs a sender.

    ./run bench replication

Catch-up is measured against a loop that does nothing but sendfile the same files to a process that throws them away,
and one whose receiver writes them to a file, which is what a slave must do.
"""

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench import peers
from bench.frame import Benchmark, Figure, Run
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.pair import QUEUES, BrokerProcess, RealPair

SEGMENT = 1 << 28
BODY_SIZE = 4096
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
CHUNK = 1 << 20


def fill(root: Path, size: int, segment_size: int = SEGMENT) -> None:
    """A store with about `size` bytes of log, closed cleanly."""
    config = StoreConfig(commit_log_segment_size=segment_size, index_enable=False)
    store = MessageStore.open(root, config)
    body = os.urandom(BODY_SIZE)
    while store.appended < size:
        for _ in range(1000):
            store.append("T", 0, 0, 0, 1, HOST, 0, 0, body, b"")
        store.dispatch()
    store.close()


# -- catch-up of an empty slave


KEY = {"haSharedKey": "0123456789abcdef0123456789abcdef"}


def catch_up(run: Run) -> dict[str, float]:
    return asyncio.run(_catch_up(run, {}))


def catch_up_sealed(run: Run) -> dict[str, float]:
    return asyncio.run(_catch_up(run, KEY))


async def _catch_up(run: Run, key: Mapping[str, str]) -> dict[str, float]:
    directory = run.directory / f"pair-{run.round}"
    properties = {"mappedFileSizeCommitLog": str(SEGMENT), "messageIndexEnable": "false", **key}
    try:
        async with RealPair(directory, properties=properties) as pair:
            fill(pair.master.store, run.count(4 << 30, 64 << 20))
            pair.master.start()
            while (await pair.status(pair.master)).get("phase") != "open":  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)
            pair.slave.start()
            return await _followed(pair)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _followed(pair: RealPair) -> dict[str, float]:
    """From the first answer of the slave's port until it has everything."""
    goal = (await pair.status(pair.master))["end"]
    up_at: float | None = None
    while True:
        status = await pair.status(pair.slave)
        now = time.perf_counter()
        if status and up_at is None:
            up_at = now
            had = status["end"]
        if status.get("end") == goal and up_at is not None:
            return {
                "rate": (goal - had) / (now - up_at) / 1e6,
                "cpu": cpu_seconds(pair.master, pair.slave) / goal * 1e9,
            }
        await asyncio.sleep(0.01)


def cpu_seconds(*brokers: BrokerProcess) -> float:
    """User and system time the processes took so far."""
    total = 0
    for broker in brokers:
        assert broker.process is not None
        fields = Path(f"/proc/{broker.process.pid}/stat").read_text().split()
        total += int(fields[13]) + int(fields[14])
    return total / os.sysconf("SC_CLK_TCK")


def raw_to_nowhere(run: Run) -> dict[str, float]:
    return _raw(run, to_file=False)


def raw_to_file(run: Run) -> dict[str, float]:
    return _raw(run, to_file=True)


def _raw(run: Run, *, to_file: bool) -> dict[str, float]:
    directory = run.directory / f"raw-{run.round}"
    try:
        fill(directory, run.count(4 << 30, 64 << 20))
        files = sorted((directory / "commitlog").iterdir())
        listener = socket.create_server(("127.0.0.1", 0))
        child = os.fork()
        if child == 0:
            _receive(listener.getsockname(), directory / "copy" if to_file else None)
        connected, _ = listener.accept()
        began, size = time.perf_counter(), 0
        for path in files:
            size += _send_file(connected, path)
        connected.close()
        os.waitpid(child, 0)
        took = time.perf_counter() - began
        return {"rate": size / took / 1e6}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _send_file(connected: socket.socket, path: Path) -> int:
    fd = os.open(path, os.O_RDONLY)
    size, position = os.fstat(fd).st_size, 0
    while position < size:
        position += os.sendfile(connected.fileno(), fd, position, min(4 << 20, size - position))
    os.close(fd)
    return size


def _receive(address: tuple[str, int], path: Path | None) -> None:
    """The child: takes everything, keeps it or not, and ends without cleaning up what is the parent's."""
    try:
        connected = socket.create_connection(address)
        buffer = memoryview(bytearray(CHUNK))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT) if path is not None else -1
        while size := connected.recv_into(buffer):
            if fd >= 0:
                os.write(fd, buffer[:size])
    finally:
        os._exit(0)


# -- the price of waiting for the slave


def one_role(role: str, run: Run, slaves: int = 1, key: Mapping[str, str] = {}) -> Mapping[str, float]:
    """64 sends in flight to a group, its master in this role."""
    return asyncio.run(_loaded(role, run, slaves, key))


async def _loaded(role: str, run: Run, slaves: int, key: Mapping[str, str]) -> dict[str, float]:
    directory = run.directory / f"{role}-{slaves}-{run.round}"
    try:
        async with RealPair(
            directory, slaves=slaves, properties={"mappedFileSizeCommitLog": str(SEGMENT), **key}
        ) as pair:
            pair.master.start(brokerRole=role)
            for slave in pair.brokers[1:]:
                slave.start()
            await pair.in_sync()
            before = cpu_seconds(pair.master)
            seconds = max(1.0, 5.0 * run.scale)
            arguments = ["--topic", "T", "--connections", "4", "--window", "16", "--seconds", str(seconds), "--json"]
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(peers.LOAD), "send", "--address", pair.master.address, *arguments,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            output, _ = await process.communicate()
            used = cpu_seconds(pair.master) - before
            found = peers.json.loads(output.splitlines()[-1])
            stored = sum([await _queue_end(pair, queue) for queue in range(QUEUES)])
            return {
                "rate": found["messages_per_second"],
                "p99": found["p99_us"] / 1000,
                "cpu": used / stored * 1e6,
            }
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _queue_end(pair: RealPair, queue: int) -> int:
    ext = {"topic": "T", "queueId": str(queue)}
    reply = await pair.client.invoke(pair.master.address, Command(RequestCode.GET_MAX_OFFSET, ext), 10)
    return int(reply.raise_for_code(0).ext["offset"])


BENCHMARKS: dict[str, Benchmark] = {
    "catch-up": Benchmark(
        what="An empty slave copies a master's history.",
        figures={
            "rate": Figure("MB/s", goal_ratio=0.7, what="from the slave's first answer until it has everything"),
            "cpu": Figure("s/GB", "less", what="processor time of master and slave"),
        },
        sides={"ours": catch_up, "sendfile to a file": raw_to_file, "sendfile to nowhere": raw_to_nowhere},
        rounds=3,
        takes_memory=True,
    ),
    "sync-price": Benchmark(
        what="64 sends in flight: SYNC_MASTER (ours) beside ASYNC_MASTER, each with one slave.",
        figures={
            "rate": Figure("msg/s", goal_ratio=0.85),
            "p99": Figure("ms", "less"),
            "cpu": Figure("µs/msg", "less", what="processor time of the master"),
        },
        sides={
            "ours": lambda run: one_role("SYNC_MASTER", run),
            "ASYNC_MASTER": lambda run: one_role("ASYNC_MASTER", run),
        },
        rounds=3,
    ),
    "key-catch-up": Benchmark(
        what="An empty slave copies a master's history in a group with a haSharedKey (ours), which seals every frame, "
        "beside one without.",
        figures={
            "rate": Figure("MB/s", goal_ratio=0.5),
            "cpu": Figure("s/GB", "less", what="processor time of master and slave"),
        },
        sides={"ours": catch_up_sealed, "no key": catch_up},
        rounds=3,
        takes_memory=True,
    ),
    "key-price": Benchmark(
        what="64 sends in flight to a SYNC_MASTER and its slave with a haSharedKey (ours) beside a pair without.",
        figures={
            "rate": Figure("msg/s", goal_ratio=0.9),
            "p99": Figure("ms", "less"),
            "cpu": Figure("µs/msg", "less", what="processor time of the master"),
        },
        sides={
            "ours": lambda run: one_role("SYNC_MASTER", run, key=KEY),
            "no key": lambda run: one_role("SYNC_MASTER", run),
        },
        rounds=3,
    ),
    "many-slaves": Benchmark(
        what="64 sends in flight to a SYNC_MASTER with eight slaves (ours) beside one with one slave, and an "
        "ASYNC_MASTER with none. With fewer than ten cores the slaves take the processor from each other, so only "
        "`cpu` says what they cost.",
        figures={
            "cpu": Figure("µs/msg", "less", goal_ratio=1.5, what="processor time of the master"),
            "rate": Figure("msg/s"),
            "p99": Figure("ms", "less"),
        },
        sides={
            "ours": lambda run: one_role("SYNC_MASTER", run, 8),
            "one slave": lambda run: one_role("SYNC_MASTER", run),
            "no slave": lambda run: one_role("ASYNC_MASTER", run, 0),
        },
        rounds=3,
    ),
}
