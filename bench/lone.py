"""One sender on a raw socket, one message at a time, to a pair: the median and the tails, beside a real 4.9.7 pair.

No JVM drives it and no client stands between: what is measured is the way to the broker and back, and whatever the
broker does between two messages that a message has to wait for.
"""

import gc
import socket
import struct
import time
from collections.abc import Mapping

from tests.peers import servers

from bench import pair, peers
from bench.frame import Benchmark, Figure, Run
from bench.load import send_template

SIDES = ("ours", "rocketmq-4.9.7")
ROLES = {"async": "ASYNC_MASTER", "sync": "SYNC_MASTER"}
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
SIZE = 1024
FIRST = 1_000_000_000
_HEAD = struct.Struct(">I")


def delays_of(address: str, topic: str, count: int) -> list[float]:
    """Returns the seconds that each of `count` sends took to be answered, sorted."""
    before, between, after = send_template(topic, 0, SIZE, "GID_lone")
    host, port = address.rsplit(":", 1)
    delays: list[float] = []
    gc.collect()
    gc.disable()  # a collection here would be taken for the broker's
    try:
        with socket.create_connection((host, int(port))) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(FIRST, FIRST + count):
                text = b"%d" % number
                frame = text.join((before, between, after))
                began = time.perf_counter()
                link.sendall(frame)
                answer = link.recv(4096)
                while len(answer) < 4 or len(answer) < 4 + _HEAD.unpack_from(answer)[0]:
                    more = link.recv(4096)
                    if not more:
                        raise ConnectionResetError(f"{address} closed the connection")
                    answer += more
                delays.append(time.perf_counter() - began)
                if b'"code":0,' not in answer.replace(b" ", b""):
                    raise RuntimeError(f"{address} answered {answer!r}")
    finally:
        gc.enable()
    return sorted(delays)


def _lone(side: str, run: Run) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for role, name in ROLES.items():
        directory = run.directory / f"{side}-{role}-{run.round}"
        with peers.serving(side, run, slave=True, role=name, properties=pair.TWO_COPIES, directory=directory) as up:
            for what, value in _percentiles(up, run).items():
                found[f"{role} {what}"] = value
    return found


def _percentiles(up: servers.Servers, run: Run) -> dict[str, float]:
    topic = peers.topic(up)
    _await_copies(up, topic)
    delays_of(up.broker, topic, run.count(20_000, 50))  # warms both up, a JVM most of all
    delays = delays_of(up.broker, topic, run.count(20_000, 100))
    return {what: delays[int(len(delays) * share)] * 1e6 for what, share in PERCENTILES.items()}


def _await_copies(up: servers.Servers, topic: str) -> None:
    """Returns when the slave follows: until then a SYNC_MASTER answers that there is none."""
    deadline = time.monotonic() + 90
    while True:
        try:
            delays_of(up.broker, topic, 1)
            pair.await_followed(up)
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _figures() -> dict[str, Figure]:
    goals = {
        "async p50": 0.6,
        "async p99": 0.6,
        "async p99.9": 0.3,
        "sync p50": 0.6,
        "sync p99": 0.45,
        "sync p99.9": 0.3,
    }
    named = {"p50": "median", "p99": "99th percentile", "p99.9": "999th of a thousand"}
    return {
        name: Figure("µs", "less", goal_ratio=goal, what=f"to {name.split()[0]} pair, {named[name.split()[1]]}")
        for name, goal in goals.items()
    }


BENCHMARKS = {
    "sender": Benchmark(
        what="1 KiB messages of one sender on a raw socket, one at a time, to an async and to a sync pair.",
        figures=_figures(),
        sides=peers.sides(_lone, SIDES),
        rounds=5,
    )
}
