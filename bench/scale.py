"""More cores by more groups: what a message costs when 1, 2, 4 or 8 groups share a machine."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from tests.peers import servers, wire

from bench import peers
from bench.frame import Benchmark, Figure, Run, Side

SIZE = 1024
STEP = 10
"""`tandemq broker --groups N` puts group i on listenPort + 10·i."""
READY_SECONDS = 60


@contextmanager
def _groups(count: int, directory: Path) -> Iterator[tuple[list[int], list[str]]]:
    """Yields the process ids and addresses of `count` groups under one supervisor, without name servers."""
    port = next(port for port in range(21_000, 60_000, 200) if _is_free(port, count))
    settings = {
        "brokerName": "scale",
        "brokerGroups": str(max(1, count)),
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "storePathRootDir": str(directory),
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "tandemq", "broker", "--log-level", "WARNING", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(READY_SECONDS, process.kill)
        timer.start()
        for line in process.stdout:
            if "boot success" in line:
                break
        timer.cancel()
        if process.poll() is not None:
            raise RuntimeError(f"{count} groups did not come up within {READY_SECONDS} s")
        try:
            yield _brokers(process.pid, count), [f"127.0.0.1:{port + STEP * number}" for number in range(count)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _is_free(port: int, count: int) -> bool:
    wanted = [port + STEP * number + offset for number in range(count) for offset in (-2, 0, 1)]
    return all(servers.is_free(one) for one in wanted)


def _brokers(supervisor: int, count: int) -> list[int]:
    """Returns the process that serves, or the children of the supervisor."""
    if count == 1:
        return [supervisor]
    tasks = Path(f"/proc/{supervisor}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _measure(count: int, run: Run) -> Mapping[str, float]:
    directory = run.directory / f"{count}-{run.round}"
    with _groups(count, directory) as (pids, addresses):
        for address in addresses:
            wire.create_topic(address, "bench", peers.QUEUES)
        used = sum(map(peers.cpu_seconds, pids))
        seconds = max(1.0, 8 * run.scale)
        with ThreadPoolExecutor(count) as pool:
            said = list(pool.map(lambda address: _load(address, seconds), addresses))
        messages = sum(one["total"] for one in said)
        return {
            "cpu": (sum(map(peers.cpu_seconds, pids)) - used) / messages * 1e6,
            "rate": sum(one["messages_per_second"] for one in said),
            "memory": sum(map(peers.rss_mib, pids)) / count,
        }


def _load(address: str, seconds: float) -> dict[str, float]:
    target = SimpleNamespace(broker=address)
    arguments = ("--topic", "bench", "--queues", peers.QUEUES, "--seconds", seconds, "--size", SIZE)
    return peers.load("send", target, *arguments, "--connections", 2)  # type: ignore[arg-type]


def _side(count: int) -> Side:
    return lambda run: _measure(count, run)


BENCHMARKS = {
    "groups": Benchmark(
        what="1 KiB messages to 8 groups on one machine, against 1, 2 and 4: a generator for each group.",
        figures={
            "cpu": Figure("µs/msg", "less", goal_ratio=1.1, what="processor time of all groups for a message"),
            "memory": Figure("MiB", "less", goal_ratio=1.1, what="memory of a group, without file pages"),
            "rate": Figure("msg/s", what=f"of all groups together, on {os.cpu_count()} cores with the generators"),
        },
        sides={"ours": _side(8), "1 group": _side(1), "2 groups": _side(2), "4 groups": _side(4)},
        rounds=5,
    ),
}
