"""The longest turns of a whole pair and its name server while their tables are large, and what one more topic costs.

Real processes, started as users start them. What is told of turns is the processor time of each loop's thread
(`growth_daemon.py`), so that other work on the machine does not count.
"""

import contextlib
import json
import signal
import socket
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.peers import servers, wire

from bench.footprint import HEART_BEAT
from bench.frame import Benchmark, Figure, Run
from bench.load import send_template
from tandemq.testing.waiting import wait_until

PROGRAM = (str(Path(__file__).with_name("growth_daemon.py")),)
NODES = {"namesrv": "name server", "broker": "master", "slave": "slave"}
CREATE_TOPIC, DELETE_TOPIC, DELETE_TOPIC_IN_NAMESRV, COMMIT, PULL = 17, 215, 216, 15, 11
QUEUES_PER_TOPIC = 8
IN_FLIGHT = 32
MORE_TOPICS = 20
STAY_SECONDS = 12
"""Longer than from one scan of the members to the next."""
SETTLE_SECONDS = 0.4
"""Until a new topic is saved, copied and registered."""
JOINING = 100
RESTING_SECONDS = 0.1
"""Of the processor, in one second; the probes take a part of it."""
TOGETHER = 64
MEMORY_DISK = Path("/dev/shm")
"""Stores lie there if it is to be had: an fdatasync of each of 50,000 queues takes minutes, in a thread, on a disk."""
PROPERTIES = {"mappedFileSizeCommitLog": str(8 << 20), "maxIndexNum": "200000", "maxHashSlotNum": "50000"}


class Link:
    """One connection that asks many things, some at a time."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._link = socket.create_connection((host, int(port)), 120)

    def ask(self, frames: Iterable[bytes]) -> None:
        """Raises RuntimeError unless every request is answered with success."""
        waiting = 0
        for frame in frames:
            self._link.sendall(frame)
            waiting += 1
            if waiting == IN_FLIGHT:
                waiting -= self._answered()
        while waiting:
            waiting -= self._answered()

    def tell(self, frame: bytes) -> None:
        """Sends a request whose answer nobody waits for."""
        self._link.sendall(frame)

    def _answered(self) -> int:
        header, _ = wire.read_frame(self._link)
        if not header["flag"] & 1:
            return 0  # the broker's own news for consumers: members of the group changed
        if header["code"] != 0:
            raise RuntimeError(f"answered {header}")
        return 1

    def close(self) -> None:
        self._link.close()


def _create(topic: str, queues: int) -> bytes:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return wire.request(CREATE_TOPIC, fields)


def _sends(topic: str, queues: int) -> Iterator[bytes]:
    for queue_id in range(queues):
        yield b"1000000000".join(send_template(topic, queue_id, 100, "GID_growth"))


def _heartbeat(number: int, groups: int) -> bytes:
    subscription = {"expressionType": "TAG", "subString": "*", "subVersion": 1, "topic": "T0", "tagsSet": []}
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    consumers = [
        {**consumer, "groupName": f"G{group}"} for group in ("all", 2 * number % groups, (2 * number + 1) % groups)
    ]
    return wire.request(HEART_BEAT, {}, json.dumps({"clientID": f"c{number}", "consumerDataSet": consumers}).encode())


class Pair:
    """The pair of one round, and what was seen of it."""

    def __init__(self, up: servers.Servers, queues: int, metrics_port: int) -> None:
        self.up = up
        self._metrics_port = metrics_port
        self.topics = max(1, queues // QUEUES_PER_TOPIC)
        self.queues = self.topics * QUEUES_PER_TOPIC
        self.figures: dict[str, float] = {}

    def _paths(self) -> dict[str, Path]:
        return {name: daemon.conf.with_suffix(".turns") for name, daemon in self.up.daemons.items()}

    def turns(self) -> dict[str, float]:
        """Returns each node's longest turn since the last call, in milliseconds."""
        found = {}
        for name, path in self._paths().items():
            path.unlink(missing_ok=True)
            self.up.daemons[name].signal(signal.SIGUSR1)
        for name, path in self._paths().items():
            wait_until(path.exists, f"the turns of {name}", seconds=60)
            found[name] = json.loads(path.read_text())["longest"] * 1000
        return found

    @contextlib.contextmanager
    def row(self, what: str) -> Iterator[None]:
        self.turns()
        yield
        turns = self.turns()
        told = ", ".join(f"{NODES[name]} {value:.1f}" for name, value in turns.items())
        print(f"    {what}: longest turns {told} ms", flush=True)
        self.figures[what] = max(turns.values())

    def used(self) -> dict[str, float]:
        """Processor seconds of each node so far, all threads."""
        return {name: _used(daemon.pid) for name, daemon in self.up.daemons.items()}

    def each(self, frames: Callable[[str, int], Iterable[bytes]], address: str = "") -> None:
        link = Link(address or self.up.broker)
        for number in range(self.topics):
            link.ask(frames(f"T{number}", QUEUES_PER_TOPIC))
        link.close()

    def await_copied(self, topic: str, queue_id: int, count: int) -> None:
        """Returns when the slave shows that many messages of a queue."""
        fields = {"topic": topic, "queueId": str(queue_id)}

        def shown() -> bool:
            answer, _ = wire.ask(self.up.slave, 30, fields, timeout=120)
            return int((answer.get("extFields") or {}).get("offset", 0)) >= count

        wait_until(shown, f"{count} messages at the slave", seconds=180)

    def await_files(self, topic: str, count: int) -> None:
        """Returns when master and slave made so many queues of a topic into files."""
        for name in ("broker", "slave"):
            directory = self.up.directory / f"store-{name}" / "consumequeue" / topic
            wait_until(
                lambda directory=directory: directory.is_dir() and sum(1 for _ in directory.iterdir()) >= count,  # type: ignore[misc]
                f"{count} files of {topic} at {name}",
                seconds=180,
            )

    def scrape(self) -> str:
        address = f"http://127.0.0.1:{self._metrics_port}/metrics"
        return str(urllib.request.urlopen(address, timeout=120).read(), "utf-8")

    def await_rest(self) -> None:
        """Returns when threads have synced what was written before."""

        def rests() -> bool:
            before = self.used()
            time.sleep(1)
            after = self.used()
            return all(after[name] - before[name] < RESTING_SECONDS for name in NODES)

        wait_until(rests, "an idle pair", seconds=180)

    def await_route(self, topic: str) -> None:
        servers.await_route(self.up, topic, 120)


def _used(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _rows(queues: int, run: Run) -> Mapping[str, float]:
    queues = run.count(queues, 80)
    with (
        tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else run.directory) as directory,
        servers.ours(Path(directory), PROPERTIES, slave=True, program=PROGRAM) as up,
    ):
        pair = Pair(up, queues, _serve_metrics(up))
        with pair.row("topics"):
            pair.each(lambda topic, count: [_create(topic, count)])
            pair.await_route(f"T{pair.topics - 1}")
        last = f"T{pair.topics - 1}"
        with pair.row("first"):
            pair.each(_sends)
            pair.await_copied(last, QUEUES_PER_TOPIC - 1, 1)
            pair.await_files(last, QUEUES_PER_TOPIC)
            pair.await_files("T0", QUEUES_PER_TOPIC)
        _one_more(pair)
        with pair.row("clients"):
            _join(pair, run)
        with pair.row("again"):
            pair.each(_sends)
            pair.await_copied(last, QUEUES_PER_TOPIC - 1, 2)
        with pair.row("metrics"):
            for _ in range(3):
                pair.scrape()
        _delete(pair, min(queues, max(8, queues // 5)))
        _restart(pair)
        with pair.row("steady"):
            time.sleep(35 * min(1.0, run.scale * 4))  # a registration, saved tables, copied ones
        return pair.figures


def _hundredth(queues: int, run: Run) -> Mapping[str, float]:
    return _rows(queues, Run(run.scale / 100, run.directory, round=run.round))


def _serve_metrics(up: servers.Servers) -> int:
    (port,) = servers.free_ports()
    master = up.daemons["broker"]
    master.stop()
    with master.conf.open("a") as conf:
        conf.write(f"metricsPort={port}\n")
    master.start()
    servers.await_route(up)
    return port


def _join(pair: Pair, run: Run) -> None:
    """Clients come, all in one group and two in each of the others, then JOINING more; groups commit; each client waits
    for a message of one queue; they stay for a while; all go, newest first.
    """
    clients, groups = run.count(5000, 10), run.count(10_000, 20)
    links = [Link(pair.up.broker) for _ in range(clients + JOINING)]
    for number, link in enumerate(links[:clients]):
        link.ask([_heartbeat(number, groups)])
    before = pair.used()["broker"]
    for number, link in enumerate(links[clients:], clients):
        link.ask([_heartbeat(number, groups)])
    pair.figures["joins"] = (pair.used()["broker"] - before) * 1000
    last = Link(pair.up.broker)
    for group in range(groups):
        fields = {"consumerGroup": f"G{group}", "topic": "T0", "queueId": "0", "commitOffset": "1"}
        last.ask([wire.request(COMMIT, fields)])
    for number, link in enumerate(links):
        link.tell(_pull("T0", 1))
        if number % TOGETHER == 0:
            time.sleep(0.01)  # a thousand requests that come in one instant are one turn of the loop
    waiting = f"tandemq_parked_pulls {len(links)}"
    wait_until(lambda: waiting in pair.scrape(), f"{waiting} in /metrics", seconds=60)
    time.sleep(STAY_SECONDS * min(1.0, run.scale * 4))
    for link in [*reversed(links), last]:
        link.close()


def _pull(topic: str, offset: int) -> bytes:
    """A pull of queue 0 that waits for its next message."""
    fields = {"consumerGroup": "Gall", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32"}
    fields |= {"sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000", "subVersion": "1"}
    return wire.request(PULL, {**fields, "subscription": "*", "expressionType": "TAG"})


def _one_more(pair: Pair) -> None:
    """Topics come one by one; what a moment without one costs is taken off."""

    def create(topic: str) -> None:
        link.ask([_create(topic, QUEUES_PER_TOPIC)])
        pair.await_route(topic)

    pair.await_rest()
    link = Link(pair.up.broker)
    with pair.row("more"):
        spent = [_spent(pair, partial(create, f"more-{number}")) for number in range(MORE_TOPICS)]
    rested = [_spent(pair, lambda: None) for _ in range(MORE_TOPICS)]
    link.close()
    for name, node in NODES.items():
        each, idle = (statistics.median(one[name] for one in found) for found in (spent, rested))
        pair.figures[f"topic {node}"] = max(0.0, each - idle) * 1000


def _spent(pair: Pair, work: Callable[[], None]) -> dict[str, float]:
    """Returns the processor seconds of each node for some work and what follows from it."""
    before = pair.used()
    work()
    time.sleep(SETTLE_SECONDS)
    after = pair.used()
    return {name: after[name] - before[name] for name in NODES}


def _delete(pair: Pair, queues: int) -> None:
    link = Link(pair.up.broker)
    link.ask([_create("deleted", queues)])
    pair.await_route("deleted")
    link.ask(_sends("deleted", queues))
    pair.await_copied("deleted", queues - 1, 1)
    pair.await_files("deleted", queues)
    with pair.row("delete"):
        link.ask([wire.request(DELETE_TOPIC, {"topic": "deleted"})])
        Link(pair.up.namesrv).ask([wire.request(DELETE_TOPIC_IN_NAMESRV, {"topic": "deleted"})])
        directory = pair.up.directory / "store-slave" / "consumequeue" / "deleted"
        wait_until(lambda: not directory.exists(), "the topic to go at the slave", seconds=120)
        time.sleep(5)
    link.close()


def _restart(pair: Pair) -> None:
    last = f"T{pair.topics - 1}"
    for name in ("namesrv", "slave", "broker"):
        daemon = pair.up.daemons[name]
        daemon.stop()
        daemon.start()
        pair.figures[f"start {NODES[name]}"] = _used(daemon.pid) * 1000
        pair.await_route(last)
        time.sleep(2)
        told = pair.turns()
        print(f"    {name} started: longest turns {told}", flush=True)
        pair.figures["start"] = max(pair.figures.get("start", 0.0), *told.values())


def _many(queues: int, turn_ms: float) -> Benchmark:
    turns = {
        "topics": "their topics are created",
        "first": "each queue gets its first message, and its file",
        "again": "each gets one more",
        "clients": "5,000 clients with 10,000 groups join, commit, wait for one queue and go, newest first",
        "more": "one more topic comes now and then",
        "metrics": "/metrics is scraped",
        "delete": "a topic with a fifth as many queues is deleted",
        "start": "name server, slave and master are started again, one after the other",
        "steady": "nothing happens for half a minute",
    }
    figures = {
        name: Figure("ms", "less", goal=turn_ms, what=f"longest turn while {what}") for name, what in turns.items()
    }
    for node in NODES.values():
        figures[f"topic {node}"] = Figure("ms", "less", goal=5, what=f"processor time of the {node} for one more topic")
    for node in NODES.values():
        figures[f"start {node}"] = Figure(
            "ms", "less", goal=2000, what=f"processor time until the {node} takes connections"
        )
    figures["joins"] = Figure("ms", "less", goal=100, what=f"{JOINING} more clients join 5,000: processor time")
    return Benchmark(
        what=f"Longest turns of master, slave and name server with {queues:,} queues, 5,000 clients, 10,000 groups, "
        "and with a hundredth of all that.",
        figures=figures,
        sides={"ours": partial(_rows, queues), "a hundredth": partial(_hundredth, queues)},
        rounds=1,
    )


BENCHMARKS = {"queues-10000": _many(10_000, 20), "queues-50000": _many(50_000, 50)}
