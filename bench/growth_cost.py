"""What a message costs a whole pair: processor time of name server, master and slave, by upstream's own Java client."""

from collections.abc import Mapping

from bench import peers
from bench.frame import Benchmark, Figure, Run

DRIVER = "4.9.7"
SIDES = ("ours", "rocketmq-4.9.7")
SIZE = 1024
IN_FLIGHT = 256
DRIVEN = 1.2
"""The driver sends a fifth more than it is asked for, to warm itself up."""


def _message(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run, slave=True) as up:
        topic = peers.topic(up)
        peers.produce(DRIVER, up, topic, run.count(100_000, 200), SIZE, IN_FLIGHT, "async")
        before = {name: peers.cpu_seconds(pid) for name, pid in up.pids.items()}
        said = peers.produce(DRIVER, up, topic, run.count(200_000, 200), SIZE, IN_FLIGHT, "async")
        sent = said["count"] * DRIVEN
        spent = {name: (peers.cpu_seconds(pid) - before[name]) / sent * 1e6 for name, pid in up.pids.items()}
    return {"pair": sum(spent.values()), "master": spent["broker"], "slave": spent["slave"], "rate": said["per_s"]}


BENCHMARKS = {
    "message": Benchmark(
        what="1 KiB messages of the Java client of 4.9.7, 256 in flight, to an async pair with a name server.",
        figures={
            "pair": Figure("µs/msg", "less", goal=28, what="processor time of all three"),
            "master": Figure("µs/msg", "less", what="of the master"),
            "slave": Figure("µs/msg", "less", what="of the slave"),
            "rate": Figure("msg/s", what="one driver on the same machine"),
        },
        sides=peers.sides(_message, SIDES),
        rounds=3,
    )
}
