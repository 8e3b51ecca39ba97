"""The Python client beside upstream's Java client, both against the same broker of ours.

Every round starts a fresh name server and master. The clients run in processes of their own, one at a time; they share
the cores of the machine with the broker, as they do for everybody who tries it on one machine.
"""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.peers import servers

from bench import peers
from bench.frame import Benchmark, Figure, Run

SIZE = 1024
WINDOW = 256
BATCH = 32
JAVA = "5.3.3"
LOAD = Path(__file__).with_name("client_load.py")


def _python(what: str, up: servers.Servers, *arguments: object) -> dict[str, Any]:
    said = peers.program([sys.executable, str(LOAD), what, up.namesrv, *map(str, arguments)])
    if said.get("failed"):
        raise RuntimeError(f"not every message was answered with SEND_OK: {said}")
    return said


def _send(side: str, run: Run) -> Mapping[str, float]:
    many, few = run.count(100_000, 500), run.count(10_000, 100)
    with peers.serving("ours", run) as up:
        topic = peers.topic(up)
        _python("send", up, topic, run.count(20_000, 100), SIZE, WINDOW)  # the broker's own warm-up
        if side == "ours":
            flood = _python("send", up, topic, many, SIZE, WINDOW)
            one = _python("send-one", up, topic, few, SIZE)
            batch = _python("batch", up, topic, many, SIZE, BATCH)
            return {"send": flood["per_s"], "p50": one["p50_us"], "p99": one["p99_us"], "batch": batch["per_s"]}
        flood = peers.produce(JAVA, up, topic, many, SIZE, WINDOW, "async")
        one = peers.produce(JAVA, up, topic, few, SIZE, 1, "sync")
        return {"send": flood["per_s"], "p50": one["p50_us"], "p99": one["p99_us"]}


def _consume(side: str, run: Run) -> Mapping[str, float]:
    count = run.count(100_000, 500)
    with peers.serving("ours", run) as up:
        topic = peers.topic(up)
        _python("send", up, topic, count, SIZE, WINDOW)  # sends a fifth more to warm itself up
        if side == "ours":
            read = partial(_python, "consume", up, topic, count)
        else:
            read = partial(peers.java, JAVA, "Consume", up.namesrv, topic, count)
        return {"one": read(1)["per_s"], "batch": read(BATCH)["per_s"]}


SIDES = ("ours", f"java-{JAVA}")

BENCHMARKS = {
    "send": Benchmark(
        what=f"1 KiB messages from the Python client and from upstream's Java client {JAVA} to a master of ours.",
        figures={
            "send": Figure("msg/s", what=f"one producer, {WINDOW} sends in flight (`submit`)"),
            "p50": Figure("µs", "less", what="one send after the other, median"),
            "p99": Figure("µs", "less", what="one send after the other, 99th percentile"),
            "batch": Figure("msg/s", what=f"`send_batch` with {BATCH} messages a call, four calls at a time"),
        },
        sides=peers.sides(_send, SIDES),
        rounds=3,
    ),
    "consume": Benchmark(
        what=f"1 KiB messages from a master of ours to push consumers: Python's, and upstream's Java client {JAVA}.",
        figures={
            "one": Figure("msg/s", what="one message a call of the listener"),
            "batch": Figure("msg/s", what=f"up to {BATCH} messages a call"),
        },
        sides=peers.sides(_consume, SIDES),
        rounds=3,
    ),
}
