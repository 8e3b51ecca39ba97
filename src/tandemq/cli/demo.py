"""`tandemq demo`: the story of the product in two minutes, on a cluster of its own that is gone afterwards.

A producer numbers its messages and remembers each acknowledgement. The master is killed in mid-flow; a consumer goes
on from the slave; the master comes back; in the end every acknowledged number is counted. Then Spark reads the
replica's files.
"""

import asyncio
import contextlib
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tandemq.cli.local_cluster import ClusterError, LocalCluster, new_plan
from tandemq.cli.up import pair_state, until_in_sync
from tandemq.client.admin import Admin
from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.client.message import ReceivedMessage
from tandemq.client.producer import Producer
from tandemq.client.push_consumer import PushConsumer
from tandemq.errors import TandemError
from tandemq.model.message import Message
from tandemq.model.topic import TopicConfig

app = typer.Typer(help="See it in two minutes: produce, kill the master, read on from the slave, lose nothing.")

TOPIC = "orders"
SEND_PAUSE_SECONDS = 0.002
CATCH_UP_SECONDS = 60
SEND_TIMEOUT_MS = 1000


@dataclass
class Story:
    """What happened so far; the table on the screen is drawn from it."""

    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    refused: int = 0
    """Sends that got an error, or a status that promises less than two copies."""
    seen: dict[str, set[int]] = field(default_factory=dict)
    """Reader -> numbers it has read."""
    repeated: int = 0
    master: str = "up"
    behind: str = "-"

    def table(self) -> Table:
        table = Table("acknowledged", "refused", *self.seen, "master", "slave behind by", box=None, pad_edge=False)
        readers = [str(len(numbers)) for numbers in self.seen.values()]
        table.add_row(str(len(self.acknowledged)), str(self.refused), *readers, self.master, self.behind)
        return table

    def missing(self, reader: str) -> set[int]:
        return self.acknowledged - self.seen[reader]


async def produce(story: Story, namesrv: str, stop: asyncio.Event) -> None:
    """Numbers messages until told to stop; what is not acknowledged by two copies counts as refused."""
    async with Producer("demo_producer", namesrv=namesrv) as producer:
        while not stop.is_set():
            number = story.sent
            story.sent += 1
            try:
                message = Message(topic=TOPIC, body=json.dumps({"order": number}).encode(), keys=(f"order-{number}",))
                result = await producer.send(message, timeout_ms=SEND_TIMEOUT_MS)
            except TandemError:
                story.refused += 1
                await asyncio.sleep(0.2)
                continue
            if result.ok:
                story.acknowledged.add(number)
            else:
                story.refused += 1
            await asyncio.sleep(SEND_PAUSE_SECONDS)


def reader(story: Story, namesrv: str, name: str) -> PushConsumer:
    """Returns a consumer that reads everything from the first message on."""
    numbers = story.seen.setdefault(name, set())

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            number = json.loads(message.body)["order"]
            story.repeated += number in numbers
            numbers.add(number)

    config = ClientConfig(namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, route_interval_ms=1000)
    consumer = PushConsumer(f"demo_{name.replace(' ', '_')}", listen, config=config)
    consumer.subscribe(TOPIC)
    return consumer


class Stage:
    """Where the story is told: a live table on a terminal, plain lines elsewhere."""

    def __init__(self, story: Story, cluster: LocalCluster, console: Console) -> None:
        self.story, self.cluster, self.console = story, cluster, console
        self._live = Live(console=console, refresh_per_second=5) if console.is_terminal else None

    def say(self, text: str) -> None:
        self.console.print(f"[bold]▸[/] {text}", highlight=False)

    async def play(self, seconds: float) -> None:
        """Lets time pass, keeping the table up to date."""
        async with Admin(namesrv=self.cluster.plan.namesrv_address) as admin:
            with self._live or contextlib.nullcontext():
                for _ in range(max(1, int(seconds * 5))):
                    await asyncio.sleep(0.2)
                    if self._live is not None:
                        await self._look(admin)
                        self._live.update(self.story.table())
            await self._look(admin)
        if self._live is None:
            self.console.print(self.story.table())

    async def _look(self, admin: Admin) -> None:
        state = await pair_state(self.cluster.plan.master, admin) if self.story.master == "up" else None
        lags = [replica.behind for replica in state.replicas] if state is not None else []
        self.story.behind = f"{max(lags)} bytes" if lags else "-"


async def until_read(story: Story, name: str, *, hidden: int = 0) -> None:
    """Waits until a reader has every acknowledged number, but for `hidden` ones."""
    for _ in range(CATCH_UP_SECONDS * 10):
        if len(story.missing(name)) <= hidden:
            return
        await asyncio.sleep(0.1)
    missing = len(story.missing(name))
    raise ClusterError(f"{name} still misses {missing} of {len(story.acknowledged)} after {CATCH_UP_SECONDS} s")


async def tell(cluster: LocalCluster, console: Console, seconds: float) -> Story:
    """Plays the whole story, in the order a person would want to see it."""
    story = Story()
    stage = Stage(story, cluster, console)
    namesrv, master = cluster.plan.namesrv_address, cluster.plan.master
    stop = asyncio.Event()

    stage.say("starting two name servers, a SYNC_MASTER and a SLAVE …")
    await cluster.start_all()
    await until_in_sync(cluster)
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TopicConfig(name=TOPIC, read_queues=4, write_queues=4))
    stage.say(f"watch it in a browser: {cluster.console_url}/replication")
    stage.say("a producer sends; every acknowledgement means two copies. A consumer reads along.")
    async with reader(story, namesrv, "reader"):
        producing = asyncio.create_task(produce(story, namesrv, stop))
        try:
            await stage.play(seconds)
            stage.say(f"kill -9 {cluster.pid(master)}: the master is gone")
            cluster.kill(master)
            story.master = "dead"
            acknowledged = len(story.acknowledged)
            late = reader(story, namesrv, "late reader")
            async with late:
                stage.say("a second consumer starts now, from the first message: only the slave can serve it")
                await stage.play(seconds)
                # The slave has every acknowledged message, but shows only what the master told it is confirmed. For
                # the last one the message that says so may have been on its way.
                await until_read(story, "late reader", hidden=1)
                count = len(story.seen["late reader"])
                stage.say(
                    f"read from the slave while the master is dead: {count} (acknowledged by then: {acknowledged})"
                )
                stage.say("the master comes back, and takes back from its slave what it may have lost")
                cluster.start(master)
                await cluster.until_ready(master)
                await until_in_sync(cluster)
                story.master = "up"
                await stage.play(seconds)
                stop.set()
                await producing
                for name in story.seen:
                    await until_read(story, name)
        finally:
            stop.set()
            await asyncio.gather(producing, return_exceptions=True)
    return story


def spark_counts(store: Path) -> str:
    """Returns what `tandemq spark stats` says of the replica's files; a process of its own, as Spark brings a JVM."""
    done = subprocess.run(
        [sys.executable, "-m", "tandemq", "spark", "stats", "--store", str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"Spark could not read {store}:\n{done.stderr.strip()[-800:]}")
    return done.stdout


async def perform(directory: Path, console: Console, seconds: float) -> tuple[Story, Path]:
    cluster = LocalCluster(directory, new_plan(slaves=1, sync=True))
    try:
        story = await tell(cluster, console, seconds)
    finally:
        await cluster.stop_all()
    return story, cluster.store(cluster.plan.brokers[1])


@app.callback(invoke_without_command=True)
def demo(
    seconds: Annotated[float, typer.Option(min=1, help="Length of each of the three acts.")] = 10,
    spark: Annotated[bool, typer.Option(help="Let Spark read the replica at the end (needs Java).")] = True,
    failover: Annotated[
        bool, typer.Option("--failover", help="Three brokers and an etcd: another master is elected by itself.")
    ] = False,
    etcd: Annotated[str, typer.Option("--etcd", help="With --failover: an etcd that runs, etcd://host:port.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Produce, kill the master, read on from the slave, bring the master back, count: nothing is lost."""
    console = Console(stderr=as_json)
    logging.getLogger("tandemq").setLevel(logging.ERROR)  # lost connections are the plot, not news
    directory = Path(tempfile.mkdtemp(prefix="tandemq-demo-"))
    if failover:
        _fail_over(directory, console, seconds, etcd, as_json)
        return
    try:
        story, store = asyncio.run(perform(directory, console, seconds))
        lost = {name: len(story.missing(name)) for name in story.seen}
        console.print(
            f"[bold]▸[/] acknowledged {len(story.acknowledged)}, lost {sum(lost.values())}, repeated {story.repeated}"
        )
        if spark:
            console.print("[bold]▸[/] Spark reads the replica's files, no broker running …")
            console.print(spark_counts(store), markup=False, highlight=False)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if as_json:
        outcome = {
            "acknowledged": len(story.acknowledged),
            "refused": story.refused,
            "lost": lost,
            "repeated": story.repeated,
        }
        print(json.dumps(outcome))
    if any(lost.values()):
        raise typer.Exit(1)


def _fail_over(directory: Path, console: Console, seconds: float, etcd: str, as_json: bool) -> None:
    from tandemq.cli import demo_failover

    try:
        outcome = asyncio.run(demo_failover.perform(directory, console, seconds, etcd))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    console.print(
        f"[bold]▸[/] acknowledged {outcome['acknowledged']}, lost {outcome['lost']}, "
        f"without an acknowledgement for {outcome['gapMs']} ms"
    )
    if as_json:
        print(json.dumps(outcome))
    if outcome["lost"]:
        raise typer.Exit(1)
