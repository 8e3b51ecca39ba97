"""The master dies: consumers of the Python client go on from the slave, on our servers and on real RocketMQ.

Each story has a pair of its own, because it kills the master.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.peers.programs import JAVA_VERSIONS

from tandemq.client import Admin, ClientConfig, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from tandemq.clock import SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.errors import NoRoute, SendFailed, TandemError
from tandemq.model.topic import TopicConfig
from tandemq.testing.waiting import until

PEERS = Path(__file__).parents[1] / "peers" / "rocketmq"
PROGRAM = [sys.executable, "-c", "from tandemq.cli.main import main; main()"]
CLOCK = SystemClock()
TARGETS = [
    pytest.param("ours", marks=pytest.mark.slow),
    *(pytest.param(f"rocketmq-{version}", marks=[pytest.mark.peer, pytest.mark.slow]) for version in JAVA_VERSIONS),
]


@dataclass(frozen=True)
class Pair:
    namesrv: str
    master: str
    slave: str
    kill_master: Callable[[], None]


def free_base() -> int:
    """A port with the neighbours that a pair needs: name server, master (-2, +1), slave (-2, +1)."""
    # Below the ports that the kernel gives to outgoing connections.
    for base in range(12000 + os.getpid() % 100 * 140, 32000, 140):
        if all(_free(base + step) for step in (0, 8, 10, 11, 108, 110, 111)):
            return base
    raise AssertionError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.fixture(params=TARGETS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    base = free_base()
    start = _start_ours if request.param == "ours" else _start_rocketmq
    kill_master, stop = start(request.param, tmp_path, base)
    try:
        yield Pair(f"127.0.0.1:{base}", f"127.0.0.1:{base + 10}", f"127.0.0.1:{base + 110}", kill_master)
    finally:
        stop()


Controls = tuple[Callable[[], None], Callable[[], None]]


def _start_rocketmq(target: str, where: Path, base: int) -> Controls:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("real RocketMQ needs java and mvn")
    version = target.removeprefix("rocketmq-")
    tool = [sys.executable, str(PEERS)]
    home = where / "pair"

    def stop() -> None:
        subprocess.run([*tool, "down", "--dir", str(home), "--kill"], capture_output=True, check=False)

    arguments = ["--dir", str(home), "--version", version, "--port", str(base + 10), "--namesrv-port", str(base)]
    for command in (["fetch", version], ["pair", *arguments, "--set", "slaveReadEnable=true"]):
        done = subprocess.run([*tool, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            stop()
            pytest.skip(f"a pair of RocketMQ {version} can't be had: {done.stderr.strip()[-300:]}")

    def kill_master() -> None:
        os.kill(int((home / "1-master" / "pid").read_text()), signal.SIGKILL)

    return kill_master, stop


def _start_ours(_: str, where: Path, base: int) -> Controls:
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def stop() -> None:
        for process in reversed(processes.values()):
            process.terminate()
        for process in processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    common = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{base}",
        "slaveReadEnable": "true",
    }
    nodes = {
        "namesrv": (base, {"listenPort": str(base)}),
        "master": (base + 10, {**common, "brokerId": "0", "brokerRole": "SYNC_MASTER"}),
        "slave": (base + 110, {**common, "brokerId": "1", "brokerRole": "SLAVE"}),
    }
    for name, (port, values) in nodes.items():
        values = {**values, "listenPort": str(port)}
        if name != "namesrv":
            values["storePathRootDir"] = str(where / name)
        conf = where / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        noun = "namesrv" if name == "namesrv" else "broker"
        with open(where / f"{name}.log", "wb") as out:
            processes[name] = subprocess.Popen([*PROGRAM, noun, "-c", str(conf)], stdout=out, stderr=out)
        if not _answers(port, processes[name]):
            stop()
            pytest.fail(f"our {name} does not answer:\n{(where / f'{name}.log').read_text()[-2000:]}")

    return processes["master"].kill, stop


def _answers(port: int, process: "subprocess.Popen[bytes]") -> bool:
    deadline = CLOCK.monotonic() + 30
    while CLOCK.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.3).close()
            return True
        except OSError:
            continue
    return False


class Inbox:
    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    async def __call__(self, messages: object) -> None:
        assert isinstance(messages, list)
        self.messages += messages

    @property
    def bodies(self) -> set[bytes]:
        return {message.body for message in self.messages}


def test_consumers_go_on_from_the_slave_when_the_master_dies(pair: Pair) -> None:
    async def story() -> None:
        config = ClientConfig(namesrv=pair.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, route_interval_ms=1000)
        bodies = [b"%03d" % i for i in range(200)]
        async with Admin(config=config) as admin:
            await until(lambda: _whole(admin), "both members registered")
            await admin.create_topic(TopicConfig(name="orders", read_queues=4, write_queues=4))
            await until(lambda: _routed(admin, "orders"), "the topic's route")
            running = Inbox()
            consumer = PushConsumer("running", running, config=config)
            consumer.subscribe("orders")
            async with consumer, Producer("p", config=config) as producer:
                for body in bodies[:100]:
                    await producer.send(Message(topic="orders", body=body))
                await until(lambda: len(running.bodies) == 100, "the first half from the master")
                consumer.pause()
                for body in bodies[100:]:
                    await producer.send(Message(topic="orders", body=body))
                await until(lambda: _slave_has(admin, pair.slave, 200), "all messages on the slave")
                pair.kill_master()
                consumer.resume()
                await until(lambda: running.bodies == set(bodies), "the second half from the slave")
                with pytest.raises((SendFailed, NoRoute)):
                    await producer.send(Message(topic="orders", body=b"no master"), timeout_ms=1000)
                late = Inbox()
                newcomer = PushConsumer("newcomer", late, config=config)
                newcomer.subscribe("orders")
                async with newcomer:
                    await until(lambda: late.bodies == set(bodies), "everything for a new group, from the slave")

    asyncio.run(story())


async def _whole(admin: Admin) -> bool:
    groups = (await admin.cluster()).groups
    return "broker-a" in groups and set(groups["broker-a"].addresses) == {0, 1}


async def _in_sync(admin: Admin, pair: Pair) -> bool:
    """Both are registered before the slave has greeted: until then a SYNC_MASTER says that no slave is available."""
    replicas = (await admin.ha_detail(pair.master)).get("replicas", [])
    return any(replica["in_sync"] for replica in replicas)


async def _routed(admin: Admin, topic: str) -> bool:
    try:
        return len(await admin.queues(topic)) == 4
    except NoRoute:
        return False


async def _slave_has(admin: Admin, slave: str, count: int) -> bool:
    """The messages, and the topic itself: RocketMQ's slaves ask for topics every 10 s only."""
    try:
        known = await admin.session.invoke(slave, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})
        known.raise_for_code()
        ends = [await admin.session.api.max_offset(slave, queue) for queue in await admin.queues("orders")]
    except TandemError:
        return False
    return sum(ends) == count


@pytest.mark.parametrize("pair", [pytest.param("ours", marks=pytest.mark.slow)], indirect=True)
def test_producers_and_consumers_follow_a_promotion(pair: Pair) -> None:
    """The slave becomes master: sends that failed work again, and consumers read what comes after."""

    async def story() -> None:
        config = ClientConfig(namesrv=pair.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
        async with Admin(config=config) as admin:
            await until(lambda: _whole(admin), "both members registered")
            await until(lambda: _in_sync(admin, pair), "the slave in sync")
            await admin.create_topic(TopicConfig(name="orders", read_queues=4, write_queues=4))
            await until(lambda: _routed(admin, "orders"), "the topic's route")
            inbox = Inbox()
            consumer = PushConsumer("followers", inbox, config=config)
            consumer.subscribe("orders")
            async with consumer, Producer("p", config=config) as producer:
                sent = [b"before-%d" % i for i in range(20)]
                for body in sent:
                    assert (await producer.send(Message(topic="orders", body=body))).ok
                await until(lambda: _slave_has(admin, pair.slave, 20), "all messages on the slave")
                pair.kill_master()
                done = await asyncio.to_thread(
                    subprocess.run,
                    [*PROGRAM, "broker", "promote", pair.slave],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                for number in range(20):
                    await _sent_at_last(producer, b"after-%d" % number)
                    sent.append(b"after-%d" % number)
                await until(lambda: inbox.bodies == set(sent), "everything before and after the promotion")

    asyncio.run(story())


async def _sent_at_last(producer: Producer, body: bytes) -> None:
    """Sends until a master takes it: the promoted one has to register first."""
    await until(
        lambda: producer.send(Message(topic="orders", body=body)),
        "a master that takes messages after the promotion",
        ignoring=(SendFailed, NoRoute),
    )
