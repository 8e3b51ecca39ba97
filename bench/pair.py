"""A master and its slave beside the real pairs: what waiting for the copy costs, catching up, doing nothing.

Same Java driver, same machine, one side at a time; `replication` compares us with ourselves and with the wire.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping

from tests.peers import servers, wire

from bench import peers
from bench.frame import Benchmark, Figure, Run
from bench.replication import fill

DRIVER = "4.9.7"
SIZE = 1024
RUNTIME_INFO = 28
TWO_COPIES = {"inSyncReplicas": "2"}
"""What SYNC_MASTER means here and in 4.9; 5.x would wait for nobody by default."""
ONE_FILE = {"mappedFileSizeCommitLog": str(1 << 30)}
"""A RocketMQ slave that starts empty copies the last file only, so the history is one file."""
IDLE_SECONDS = 20.0


def log_end(address: str) -> int:
    """Where a broker's log ends, as every RocketMQ-compatible broker tells; -1 while it does not answer."""
    try:
        header, body = wire.ask(address, RUNTIME_INFO, {})
        return int(json.loads(body)["table"]["commitLogMaxOffset"]) if header["code"] == 0 else -1
    except (OSError, ValueError, KeyError):
        return -1


def await_followed(up: servers.Servers, timeout: float = 90) -> None:
    """Returns when the slave has the master's whole log and it is not empty: a topic's first message was copied."""
    deadline = time.monotonic() + timeout
    while (end := log_end(up.broker)) <= 0 or log_end(up.slave) != end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave does not follow after {timeout:.0f} s:\n{up.said()}")
        time.sleep(0.05)


@contextlib.contextmanager
def followed(side: str, run: Run, **properties: str) -> Iterator[tuple[servers.Servers, str]]:
    """A SYNC_MASTER whose slave follows, and a topic; the first messages have warmed both up."""
    with peers.serving(side, run, slave=True, role="SYNC_MASTER", properties={**TWO_COPIES, **properties}) as up:
        topic = peers.topic(up)
        peers.java(DRIVER, "Produce", up.namesrv, topic, 20, SIZE, 1, "oneway", "warm=0")
        await_followed(up)
        produce(up, topic, run.count(40_000, 200), 256, "async")
        yield up, topic


def produce(up: servers.Servers, topic: str, count: int, senders: int, mode: str) -> dict[str, float]:
    return peers.produce(DRIVER, up, topic, count, SIZE, senders, mode)


def _sync(side: str, run: Run) -> Mapping[str, float]:
    with followed(side, run) as (up, topic):
        flood = produce(up, topic, run.count(150_000, 200), 256, "async")
        many = produce(up, topic, run.count(80_000, 200), 64, "sync")
        one = produce(up, topic, run.count(15_000, 200), 1, "sync")
    alone = {}
    if side == "ours":
        with peers.instant("--copied") as address:
            said = peers.java(DRIVER, "Produce", address, "bench", run.count(15_000, 200), SIZE, 1, "sync")
        alone = {"p50 alone": said["p50_us"], "p99 alone": said["p99_us"]}
    return {**alone, "async": flood["per_s"], "sync": many["per_s"], "p50": one["p50_us"], "p99": one["p99_us"]}


def _sync_flush(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run, slave=True, properties={"flushDiskType": "SYNC_FLUSH"}) as up:
        topic = peers.topic(up)
        produce(up, topic, run.count(5_000, 200), 64, "sync")
        many = produce(up, topic, run.count(30_000, 200), 64, "sync")
    return {"sync": many["per_s"], "p99": many["p99_us"]}


def _catch_up(side: str, run: Run) -> Mapping[str, float]:
    """The master serves a history; its slave starts with nothing."""
    directory = run.directory / f"catch-up-{side}-{run.round}"
    homes = ("store-broker", "store-slave") if side == "ours" else ("1-broker/store", "2-slave/store")
    fill(directory / homes[0], run.count((1 << 30) - (64 << 20), 64 << 20), segment_size=1 << 30)
    with peers.serving(side, run, directory=directory, slave=True, properties=ONE_FILE) as up:
        end, began = log_end(up.broker), time.perf_counter()
        while (had := log_end(up.slave)) <= 0:
            _not_for_ever(up, began)
        first = time.perf_counter()
        while log_end(up.slave) < end:
            _not_for_ever(up, began)
        done = time.perf_counter()
    return {"rate": (end - had) / (done - first) / 1e6, "first": first - began, "whole": done - began}


def _not_for_ever(up: servers.Servers, began: float) -> None:
    if time.perf_counter() - began > 300:
        raise RuntimeError(f"the slave has {log_end(up.slave)} bytes after 300 s:\n{up.said()}")
    time.sleep(0.005)


def _idle(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run, slave=True, role="SYNC_MASTER", properties=TWO_COPIES) as up:
        topic = peers.topic(up)
        peers.java(DRIVER, "Produce", up.namesrv, topic, 20, SIZE, 1, "oneway", "warm=0")
        await_followed(up)
        pids = (up.pids["broker"], up.pids["slave"])
        used, began = [peers.cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(max(2.0, IDLE_SECONDS * run.scale))
        seconds = time.monotonic() - began
        master, slave = (
            (peers.cpu_seconds(pid) - before) / seconds * 100 for pid, before in zip(pids, used, strict=True)
        )
    return {"master": master, "slave": slave}


ALONE = "two processes that store nothing and answer at once: the driver and the ways between three processes"
BENCHMARKS = {
    "sync": Benchmark(
        what="1 KiB messages with upstream's Java client to a SYNC_MASTER and its slave, two copies of each.",
        figures={
            "async": Figure("msg/s", goal_ratio=1.5, what="one thread, 256 sends in flight"),
            "sync": Figure("msg/s", goal_ratio=1.5, what="64 threads, one send in flight each"),
            "p50": Figure("µs", "less", goal_ratio=0.65, what="one sender, median"),
            "p99": Figure("µs", "less", goal_ratio=0.5, what="one sender, 99th percentile"),
            "p50 alone": Figure("µs", "less", what=f"the same to {ALONE}"),
            "p99 alone": Figure("µs", "less", what=f"the same to {ALONE}"),
        },
        sides=peers.sides(_sync),
        rounds=3,
    ),
    "sync-flush": Benchmark(
        what="1 KiB messages with upstream's Java client to a master with SYNC_FLUSH, and a slave.",
        figures={
            "sync": Figure("msg/s", goal_ratio=1.5, what="64 threads, one send in flight each"),
            "p99": Figure("µs", "less"),
        },
        sides=peers.sides(_sync_flush),
        rounds=3,
    ),
    "catch-up": Benchmark(
        what="A slave with an empty store copies a history of one gigabyte from its master.",
        figures={
            "rate": Figure("MB/s", goal_ratio=5, what="from its first byte to its last"),
            "first": Figure("s", "less", what="from the slave's first answer to its first byte"),
            "whole": Figure("s", "less", what="from the slave's first answer until it has everything"),
        },
        sides=peers.sides(_catch_up),
        rounds=3,
        takes_memory=True,
    ),
    "idle": Benchmark(
        what="A connected pair with no client, for 20 s.",
        figures={
            "master": Figure("% of a core", "less", goal=1),
            "slave": Figure("% of a core", "less", goal=1),
        },
        sides=peers.sides(_idle),
        rounds=3,
    ),
}
