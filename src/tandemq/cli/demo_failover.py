"""`tandemq demo --failover`: kill -9 of the master of three brokers; another is elected while a producer goes on.

What is shown is measured by the producer itself: the time from its last acknowledgement before the kill to its first
one after it, and every acknowledged number counted by a reader at the end.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tandemq.cli.local_cluster import ClusterError, LocalCluster, Node, new_failover_plan
from tandemq.cli.up import until_in_sync
from tandemq.client.admin import Admin
from tandemq.client.config import ClientConfig
from tandemq.client.producer import Producer
from tandemq.clock import SystemClock
from tandemq.errors import TandemError
from tandemq.model.message import Message
from tandemq.model.topic import TopicConfig

TOPIC = "orders"
SEND_TIMEOUT_MS = 1000
ROUTE_MS = 100
BACK_SECONDS = 30


@dataclass
class Sent:
    """What the producer knows."""

    count: int = 0
    acknowledged: set[int] | None = None
    failed: int = 0
    last_at: float = 0.0
    """When the last acknowledgement came."""

    def numbers(self) -> set[int]:
        if self.acknowledged is None:
            self.acknowledged = set()
        return self.acknowledged


async def send_on(sent: Sent, namesrv: str, stop: asyncio.Event) -> None:
    """Numbers messages until told to stop; two copies or it counts as failed."""
    clock = SystemClock()
    config = ClientConfig(namesrv=namesrv, route_interval_ms=ROUTE_MS)
    async with Producer("demo_failover", config=config) as producer:
        while not stop.is_set():
            number, sent.count = sent.count, sent.count + 1
            message = Message(topic=TOPIC, body=json.dumps({"order": number}).encode(), keys=(f"order-{number}",))
            try:
                result = await producer.send(message, timeout_ms=SEND_TIMEOUT_MS)
            except TandemError:
                sent.failed += 1
                await asyncio.sleep(0.01)
                continue
            if result.ok:
                sent.numbers().add(number)
                sent.last_at = clock.monotonic()
            else:
                sent.failed += 1
            await asyncio.sleep(0.001)


def node_at(cluster: LocalCluster, address: str) -> Node:
    return next(node for node in cluster.plan.brokers if node.address == address)


async def master_of(cluster: LocalCluster, besides: str = "") -> str:
    """Returns who reigns according to the name servers, another one than `besides`."""
    async with Admin(namesrv=cluster.plan.namesrv_address) as admin:
        for _ in range(BACK_SECONDS * 100):
            for group in (await admin.cluster()).groups.values():
                address = group.addresses.get(0, "")
                if address and address != besides:
                    return str(address)
            await asyncio.sleep(0.01)
    raise ClusterError(f"nobody reigns after {BACK_SECONDS} s")


async def tell(cluster: LocalCluster, console: Console, seconds: float) -> dict[str, int | float]:
    """Plays the story; the outcome in numbers."""

    def say(text: str) -> None:
        console.print(f"[bold]▸[/] {text}", highlight=False)

    clock, sent, stop = SystemClock(), Sent(), asyncio.Event()
    namesrv = cluster.plan.namesrv_address
    say("starting etcd, two name servers and three brokers that elect their master …")
    await cluster.start_all()
    await until_in_sync(cluster)
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TopicConfig(name=TOPIC, read_queues=4, write_queues=4))
    old = await master_of(cluster)
    say(f"{node_at(cluster, old).name} at {old} was elected; a producer sends, every acknowledgement means two copies")
    producing = asyncio.create_task(send_on(sent, namesrv, stop))
    try:
        await asyncio.sleep(seconds)
        before = sent.last_at
        say(f"kill -9 {cluster.pid(node_at(cluster, old))}: the master is gone, {len(sent.numbers())} acknowledged")
        killed_at = clock.monotonic()
        cluster.kill(node_at(cluster, old))
        new = await master_of(cluster, besides=old)
        elected_ms = (clock.monotonic() - killed_at) * 1000
        for _ in range(BACK_SECONDS * 200):
            if sent.last_at > killed_at:
                break
            await asyncio.sleep(0.005)
        else:
            raise ClusterError(f"nothing was acknowledged within {BACK_SECONDS} s after the kill")
        gap_ms = (sent.last_at - max(before, killed_at)) * 1000
        say(f"{node_at(cluster, new).name} at {new} took over: in the routes after {elected_ms:.0f} ms, the producer")
        say(f"was acknowledged again {gap_ms:.0f} ms after the kill")
        say("the old master comes back, as a slave")
        cluster.start(node_at(cluster, old))
        await cluster.until_ready(node_at(cluster, old))
        await until_in_sync(cluster)
        await asyncio.sleep(seconds)
    finally:
        stop.set()
        await asyncio.gather(producing, return_exceptions=True)
    lost = await count_lost(namesrv, sent.numbers())
    return {
        "acknowledged": len(sent.numbers()),
        "failed": sent.failed,
        "lost": lost,
        "gapMs": round(gap_ms),
        "electedMs": round(elected_ms),
    }


async def count_lost(namesrv: str, acknowledged: set[int]) -> int:
    """Returns how many of the acknowledged numbers a reader does not find.

    Reads the keys' messages from the first one on.
    """
    from tandemq.cli.demo import Story, reader, until_read

    story = Story(acknowledged=acknowledged)
    async with reader(story, namesrv, "reader"):
        try:
            await until_read(story, "reader")
        except ClusterError:
            return len(story.missing("reader"))
    return 0


async def perform(directory: Path, console: Console, seconds: float, etcd: str) -> dict[str, int | float]:
    cluster = LocalCluster(directory, new_failover_plan(brokers=3, sync=True, coordinator=etcd))
    try:
        return await tell(cluster, console, seconds)
    finally:
        await cluster.stop_all()
