"""The broker under load: upstream's own Java drivers against ours and the real ones, and our pipelined generator.

Every round starts fresh servers with an empty store, warms them up, measures, and stops them: no side runs while
another is measured. The Java rounds have a name server, an asynchronous master, its slave and the driver here.
"""

import select
import socket
import time
from collections.abc import Mapping
from functools import partial

from tests.peers import servers, wire

from bench import peers
from bench.frame import Benchmark, Figure, Run

SIZE = 1024
WARM_UP = 20


def _java(driver: str, side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run, slave=True) as up:
        topic = peers.topic(up)

        def produce(count: int, senders: int, mode: str) -> dict[str, float]:
            return peers.produce(driver, up, topic, run.count(count, 200), SIZE, senders, mode)

        produce(40_000, 256, "async")  # the servers' own warm-up
        used = _cpu_of_servers(up)
        flood = produce(200_000, 256, "async")
        used = _cpu_of_servers(up) - used
        many = produce(100_000, 64, "sync")
        one = produce(20_000, 1, "sync")
        pulled = peers.java(driver, "Pull", up.namesrv, topic)
    alone = {}
    if side == "ours":
        with peers.instant() as address:
            said = peers.java(driver, "Produce", address, "bench", run.count(20_000, 200), SIZE, 1, "sync")
            read = peers.java(driver, "Pull", address, "bench")
        alone = {"p50 alone": said["p50_us"], "p99 alone": said["p99_us"], "pull alone": read["mb_per_s"]}
    return {
        **alone,
        "async": flood["per_s"],
        "cpu": used / (flood["count"] * 1.2) * 1e6,  # the driver sends a fifth more to warm itself up
        "sync": many["per_s"],
        "p50": one["p50_us"],
        "p99": one["p99_us"],
        "pull": pulled["mb_per_s"],
    }


def _cpu_of_servers(up: servers.Servers) -> float:
    return sum(peers.cpu_seconds(pid) for pid in up.pids.values())


ALONE = "a server that stores nothing and answers at once: the driver's own time"
JAVA_FIGURES = {
    "async": Figure("msg/s", goal_ratio=1.5, what="one thread, 256 sends in flight"),
    "cpu": Figure("µs/msg", "less", what="processor time of name server, master and slave for a message of these"),
    "sync": Figure("msg/s", goal_ratio=1.5, what="64 threads, one send in flight each"),
    "p50": Figure("µs", "less", goal_ratio=0.65, what="one sender, median"),
    "p99": Figure("µs", "less", goal_ratio=0.5, what="one sender, 99th percentile"),
    "p50 alone": Figure("µs", "less", what=f"the same to {ALONE}"),
    "p99 alone": Figure("µs", "less", what=f"the same to {ALONE}"),
    "pull": Figure("MB/s", goal_ratio=1.5, what="four queues, a thread each, 32 messages a pull"),
    "pull alone": Figure("MB/s", what="the same from a server that has one answer ready: the driver's own limit"),
}


def _java_benchmark(driver: str) -> Benchmark:
    return Benchmark(
        what=f"1 KiB messages with upstream's Java client {driver}; name server, async master, slave on this machine.",
        figures=JAVA_FIGURES,
        sides=peers.sides(partial(_java, driver)),
        rounds=3,
    )


ACCOUNTS = """
accounts:
- {accessKey: the-broker, secretKey: secret-of-broker, admin: true}
- {accessKey: loader, secretKey: secret-of-loader, topicPerms: [bench=PUB|SUB], groupPerms: [GID_pull=SUB]}
"""


def _accounts(run: Run) -> dict[str, str]:
    """The properties of brokers that check every request, with their accounts in a file."""
    file = run.directory / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    return {
        "aclEnable": "true",
        "aclFile": str(file),
        "accessKey": "the-broker",
        "secretKey": "secret-of-broker",
    }


def _acl(signed: bool, run: Run) -> Mapping[str, float]:
    """Upstream's Java client signs every request, as users with accounts do, or none."""
    account = {"ROCKETMQ_ACCESS_KEY": "loader", "ROCKETMQ_SECRET_KEY": "secret-of-loader"} if signed else {}
    with (
        peers.serving("ours", run, slave=True, properties=_accounts(run) if signed else {}) as up,
        peers.environment(account),
    ):

        def produce(count: int, senders: int, mode: str) -> dict[str, float]:
            return peers.produce(ACL_DRIVER, up, "bench", run.count(count, 200), SIZE, senders, mode)

        produce(200, 1, "sync")  # the topic comes into being
        produce(40_000, 256, "async")
        used = _cpu_of_servers(up)
        flood = produce(150_000, 256, "async")
        used = _cpu_of_servers(up) - used
        many = produce(80_000, 64, "sync")
    return {"async": flood["per_s"], "cpu": used / (flood["count"] * 1.2) * 1e6, "sync": many["per_s"]}


ACL_DRIVER = "4.9.7"


def _pipelined(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run) as up:
        topic = peers.topic(up)
        peers.pin(up.pids["broker"], 0)
        seconds = max(1.0, 10 * run.scale)
        arguments = ("--topic", topic, "--queues", peers.QUEUES)
        sent = peers.load("send", up, *arguments, "--seconds", seconds, "--size", SIZE, core=1)
        pulled = peers.load("pull", up, *arguments, "--seconds", 30, core=1)
    return {"send": sent["messages_per_second"], "p99": sent["p99_us"], "pull": pulled["mb_per_second"]}


def _long_poll(side: str, run: Run) -> Mapping[str, float]:
    with peers.serving(side, run) as up:
        topic = peers.topic(up, "longpoll", 1)
        delays = sorted(_poll_delays(up, topic, run.count(2000, 20)))
    return {"p50": delays[len(delays) // 2] * 1000, "p99": delays[len(delays) * 99 // 100] * 1000}


def _poll_delays(up: servers.Servers, topic: str, count: int) -> list[float]:
    """From the moment a message is handed to the kernel to the moment the parked pull's answer is here.

    That is the send, the append and the wake-up: an upper bound for the wake-up alone.
    """
    host, port = up.broker.split(":")
    delays: list[float] = []
    with socket.create_connection((host, int(port))) as sender, socket.create_connection((host, int(port))) as puller:
        for link in (sender, puller):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(count + WARM_UP):  # one message a turn: its offset is the turn's number
            puller.sendall(_pull_request(topic, number))
            time.sleep(0.002)  # the pull is parked by then; the queue is empty
            began = time.perf_counter()
            sender.sendall(_send_request(topic))
            arrived = 0.0
            waiting = {sender, puller}
            while waiting:
                ready, _, _ = select.select(waiting, [], [], 20)
                if not ready:
                    raise RuntimeError(f"a parked pull of {topic} was not answered within 20 s")
                for link in ready:
                    header = wire.read_frame(link)[0]
                    if link is puller:
                        arrived = time.perf_counter()
                    if header["code"] != 0:
                        raise RuntimeError(f"answered {header}")
                    waiting.discard(link)
            if number >= WARM_UP:
                delays.append(arrived - began)
    return delays


def _pull_request(topic: str, offset: int) -> bytes:
    fields = {
        "consumerGroup": "GID_longpoll",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return wire.request(11, fields)


def _send_request(topic: str) -> bytes:
    fields = {
        "producerGroup": "GID_longpoll_p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    return wire.request(10, fields, b"x" * SIZE)


BENCHMARKS = {
    "java-4.9.7": _java_benchmark("4.9.7"),
    "java-5.3.3": _java_benchmark("5.3.3"),
    "acl-price": Benchmark(
        what=f"1 KiB messages with upstream's Java client {ACL_DRIVER} to a master and its slave that check signature "
        "and permissions of every request (ours), beside a pair without accounts.",
        figures={
            "async": Figure("msg/s", goal_ratio=0.9, what="one thread, 256 sends in flight"),
            "cpu": Figure("µs/msg", "less", what="processor time of name server, master and slave"),
            "sync": Figure("msg/s", goal_ratio=0.9, what="64 threads, one send in flight each"),
        },
        sides={"ours": partial(_acl, True), "no accounts": partial(_acl, False)},
        rounds=3,
    ),
    "pipelined": Benchmark(
        what="1 KiB messages from our pipelined generator, the broker process on one core, the generator on the other.",
        figures={
            "send": Figure("msg/s", goal=50_000, what="4 connections, 64 sends in flight each"),
            "p99": Figure("µs", "less", what="of those sends"),
            "pull": Figure("MB/s", goal=300, what="one connection reading hot data in big batches"),
        },
        sides=peers.sides(_pipelined),
        rounds=3,
    ),
    "long-poll": Benchmark(
        what="A message of 1 KiB for a parked pull, from its send to the pull's answer.",
        figures={"p50": Figure("ms", "less", goal=2), "p99": Figure("ms", "less")},
        sides=peers.sides(_long_poll),
        rounds=3,
    ),
}
