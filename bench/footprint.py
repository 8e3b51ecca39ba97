"""What a broker costs when nothing happens: start-up, idle processor time, memory of idle connections."""

import json
import socket
import time
from collections.abc import Mapping

from tests.peers import wire

from bench import peers
from bench.frame import Benchmark, Figure, Run

HEART_BEAT = 34
MEASURED_SECONDS = 20.0


def _start_up(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run) as up:
        return {"namesrv": up.start_seconds["namesrv"], "broker": up.start_seconds["broker"]}


def _idle(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run) as up:
        time.sleep(5 * min(1.0, run.scale * 10))  # what belongs to starting is over
        used, began = peers.cpu_seconds(up.pids["broker"]), time.monotonic()
        time.sleep(max(2.0, MEASURED_SECONDS * run.scale))
        seconds = time.monotonic() - began
        return {
            "cpu": (peers.cpu_seconds(up.pids["broker"]) - used) / seconds * 100,
            "memory": peers.rss_mib(up.pids["broker"]),
        }


def _connections(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run) as up:
        host, port = up.broker.split(":")
        before = peers.rss_mib(up.pids["broker"])
        links = []
        try:
            for number in range(run.count(1000, 10)):
                link = socket.create_connection((host, int(port)), 10)
                links.append(link)
                link.sendall(wire.request(HEART_BEAT, {}, _heartbeat(number)))
                header = wire.read_frame(link)[0]
                while not header["flag"] & 1:  # the broker's own news for consumers: members of the group changed
                    header = wire.read_frame(link)[0]
                if header["code"] != 0:
                    raise RuntimeError(f"heartbeat {number} answered {header}")
            return {"cost": peers.rss_mib(up.pids["broker"]) - before}
        finally:
            for link in links:
                link.close()


def _heartbeat(number: int) -> bytes:
    """A client with a producer and a consumer, as an application has them."""
    subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "tagsSet": []}
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": f"GID_idle_{number % 50}",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [{**subscription, "subVersion": 1, "topic": f"idle_{number % 50}"}],
        "unitMode": False,
    }
    body = {
        "clientID": f"127.0.0.1@{number}",
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": f"GID_idle_p_{number % 50}"}],
    }
    return json.dumps(body).encode()


BENCHMARKS = {
    "start-up": Benchmark(
        what="From starting a process to the first connection it takes, with an empty store.",
        figures={"namesrv": Figure("s", "less", goal=1), "broker": Figure("s", "less", goal=1)},
        sides=peers.sides(_start_up),
    ),
    "idle": Benchmark(
        what="A broker with no client, for 20 s.",
        figures={
            "cpu": Figure("% of a core", "less", goal=1),
            "memory": Figure("MiB", "less", what="anonymous memory in use"),
        },
        sides=peers.sides(_idle),
        rounds=3,
    ),
    "connections": Benchmark(
        what="1,000 idle clients, each with a producer and a consumer: the memory they cost the broker.",
        figures={"cost": Figure("MiB", "less", goal=100)},
        sides=peers.sides(_connections),
        rounds=3,
    ),
}
