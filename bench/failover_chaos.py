"""Automatic failover under every fault that can be made on one machine, with a real etcd; a ledger judges.

    ./run bench failover-chaos [--etcd 3.4|3.5|PATH] [--nodes 1|3] [--scale 1.0] [--only WORDS]

Three brokers and etcd, each on a machine of its own (a network namespace), and producers that send to *every* broker
all the time, with forwarding off, so that each acknowledgement says which broker gave it.  After each kind of fault all
brokers are stopped and their logs compared byte for byte.  Then of everything that was acknowledged (at two copies):

    lost        it is not in the log at its place
    two in one  acknowledgements of one epoch came from two brokers
    overlapping an older epoch acknowledged a send that *began* after a newer epoch's acknowledgement was there
"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.peers import etcds
from tests.peers.tools import Missing

from tandemq.clock import SystemClock
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import RemotingError
from tandemq.formats.record import parse_record, walk
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication import replica_file
from tandemq.store.disk import FileDisk
from tandemq.testing.failover_group import FailoverGroup
from tandemq.testing.namespaces import Machines, namespaces_work
from tandemq.testing.pair import OK, QUEUES, SEND_V2, BrokerProcess
from tandemq.testing.waiting import until

RESULTS = Path(__file__).parent / "results"
SENDERS = 2
"""For each broker."""
SEND_SECONDS = 3.0
PAUSE = 0.004
MORE = 50
"""Acknowledgements between two faults."""
FILLER = 0xCBD43194


@dataclass(frozen=True, slots=True)
class Told:
    """A broker has acknowledged a send: which one, where it put it, and when."""

    body: str
    address: str
    place: tuple[int, int]
    """Queue and offset in it."""
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Judgement:
    acknowledged: int
    lost: list[Told]
    two_in_one: dict[int, list[str]]
    """Epoch -> brokers that acknowledged in it, where there were more than one."""
    overlapping: list[tuple[Told, Told]]
    """One of an older epoch that began after one of a newer epoch was acknowledged."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.two_in_one or self.overlapping)


def judge(
    told: Sequence[Told], found: Mapping[tuple[int, int], tuple[str, int]], epochs: Sequence[tuple[int, int]]
) -> Judgement:
    """`found`: place -> body and physical offset in the log.  `epochs`: (number, first offset), rising."""
    lost = [one for one in told if found.get(one.place, ("", 0))[0] != one.body]
    by_epoch: dict[int, list[Told]] = {}
    for one in told:
        if one not in lost:
            position = found[one.place][1]
            by_epoch.setdefault(max(number for number, start in epochs if start <= position), []).append(one)
    brokers = {number: sorted({one.address for one in ones}) for number, ones in by_epoch.items()}
    overlapping, newer = [], None
    for number in sorted(by_epoch, reverse=True):
        last = max(by_epoch[number], key=lambda one: one.began)
        if newer is not None and last.began > newer.ended:
            overlapping.append((last, newer))
        first = min(by_epoch[number], key=lambda one: one.ended)
        newer = first if newer is None or first.ended < newer.ended else newer
    two = {number: names for number, names in brokers.items() if len(names) > 1}
    return Judgement(len(told), lost, two, overlapping)


class Senders:
    """Each sends to one broker, whatever it answers, and notes every acknowledgement."""

    def __init__(self, group: FailoverGroup) -> None:
        self.told: list[Told] = []
        self._clock = SystemClock()
        self._stopped = False
        self._tasks = [
            asyncio.create_task(self._send(broker.address, f"{number}.{sender}"))
            for number, broker in enumerate(group.brokers)
            for sender in range(SENDERS)
        ]

    async def _send(self, address: str, name: str) -> None:
        client, number = RemotingClient(RemotingConfig()), 0
        try:
            while not self._stopped:
                number += 1
                await self._one(client, address, f"{name}-{number}-")
                await asyncio.sleep(PAUSE)
        finally:
            await client.close()

    async def _one(self, client: RemotingClient, address: str, body: str) -> None:
        header = SendHeader(
            producerGroup="pg",
            topic="T",
            defaultTopic="TBW102",
            defaultTopicQueueNums=QUEUES,
            queueId=len(body) % QUEUES,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties="",
        )
        command = Command(SEND_V2, send_ext(header, short=True), body.encode().ljust(100, b"x"))
        began = self._clock.monotonic()
        try:
            reply = await client.invoke(address, command, SEND_SECONDS)
        except RemotingError:
            await asyncio.sleep(0.02)
            return
        if reply.code == OK:
            place = int(reply.ext["queueId"]), int(reply.ext["queueOffset"])
            self.told.append(Told(body, address, place, began, self._clock.monotonic()))

    async def more(self, count: int = MORE) -> None:
        """Until so many more sends were acknowledged."""
        goal = len(self.told) + count
        await until(lambda: len(self.told) >= goal, f"{count} more acknowledgements", seconds=120)

    def gap_since(self, fault_at: float) -> float:
        """Milliseconds from a fault to the first acknowledgement of a send that began after it."""
        return 1000 * (min(one.ended for one in self.told if one.began > fault_at) - fault_at)

    async def stop(self) -> list[Told]:
        self._stopped = True
        await asyncio.gather(*self._tasks)
        return self.told


@dataclass(slots=True)
class Stage:
    """One kind of fault, as it is played."""

    group: FailoverGroup
    machines: Machines
    senders: Senders
    clock: SystemClock = field(default_factory=SystemClock)
    gaps: list[float] = field(default_factory=list)

    def number_of(self, broker: BrokerProcess) -> str:
        return str(self.group.brokers.index(broker))

    def others_of(self, broker: BrokerProcess) -> list[str]:
        return [str(number) for number in range(len(self.group.brokers)) if str(number) != self.number_of(broker)]

    async def acknowledged_again(self, fault_at: float) -> None:
        await self.senders.more()
        self.gaps.append(self.senders.gap_since(fault_at))


async def kill(stage: Stage, master: BrokerProcess) -> None:
    fault_at = stage.clock.monotonic()
    master.kill()
    await stage.group.reigning(besides=master)
    await stage.acknowledged_again(fault_at)
    master.start()


async def hang(stage: Stage, master: BrokerProcess) -> None:
    fault_at = stage.clock.monotonic()
    master.pause()
    new = await stage.group.reigning(besides=master)
    await stage.acknowledged_again(fault_at)
    master.resume()
    await stage.group.follows(master, new)


async def _cut(stage: Stage, master: BrokerProcess, others: Sequence[str]) -> None:
    fault_at = stage.clock.monotonic()
    for other in others:
        stage.machines.cut(stage.number_of(master), other)
    new = await stage.group.reigning(besides=master)
    await stage.acknowledged_again(fault_at)
    stage.machines.heal()
    await stage.group.follows(master, new)


async def cut_from_etcd(stage: Stage, master: BrokerProcess) -> None:
    await _cut(stage, master, ["etcd"])


async def cut_from_all_but_producers(stage: Stage, master: BrokerProcess) -> None:
    await _cut(stage, master, ["etcd", *stage.others_of(master)])


async def cut_from_slaves(stage: Stage, master: BrokerProcess) -> None:
    """It renews its lease, so it stays; nothing is acknowledged at two copies before somebody is back."""
    for other in stage.others_of(master):
        stage.machines.cut(stage.number_of(master), other)

    async def alone() -> bool:
        register = (await stage.group.status(master)).get("register") or {}
        return len(register.get("in_sync", ())) == 1

    await until(alone, "the others to leave the in-sync set", seconds=60)
    stage.machines.heal()
    await stage.group.all_in_sync()
    await stage.senders.more()


async def etcd_killed(stage: Stage, master: BrokerProcess) -> None:
    """The members vouch: it goes on as if nothing had happened."""
    fault_at = stage.clock.monotonic()
    stage.group.etcd.kill()

    async def vouched() -> bool:
        return bool(((await stage.group.status(master)).get("coordination") or {}).get("vouched"))

    await until(vouched, "the members to vouch", seconds=60)
    await stage.acknowledged_again(fault_at)
    stage.group.etcd.start()
    await stage.group.etcd.answers()


async def etcd_node_killed(stage: Stage, master: BrokerProcess) -> None:
    """One of three, its leader in turn with the others."""
    fault_at = stage.clock.monotonic()
    node = stage.group.etcd.nodes[len(stage.gaps) % len(stage.group.etcd.nodes)]
    node.kill()
    await stage.acknowledged_again(fault_at)
    stage.group.etcd.start()
    await stage.group.etcd.answers()


async def everything_killed(stage: Stage, master: BrokerProcess) -> None:
    fault_at = stage.clock.monotonic()
    for broker in stage.group.brokers:
        broker.kill()
    stage.group.etcd.kill()
    stage.group.etcd.start()
    await stage.group.up()
    await stage.acknowledged_again(fault_at)


async def rolling_restart(stage: Stage, master: BrokerProcess) -> None:
    for broker in stage.group.brokers:
        fault_at = stage.clock.monotonic()
        await stage.group.stopped(broker)
        await stage.group.reigning(besides=broker)
        await stage.acknowledged_again(fault_at)
        broker.start()
        await stage.group.all_in_sync()


Fault = Callable[[Stage, BrokerProcess], Awaitable[None]]
FAULTS: dict[str, tuple[Fault, int]] = {
    "kill -9 of the master": (kill, 50),
    "SIGSTOP of the master": (hang, 10),
    "master cut from etcd": (cut_from_etcd, 3),
    "master cut from its slaves": (cut_from_slaves, 3),
    "master cut from all but producers": (cut_from_all_but_producers, 3),
    "etcd killed": (etcd_killed, 3),
    "one etcd node killed": (etcd_node_killed, 3),
    "kill -9 of everything": (everything_killed, 3),
    "rolling restart": (rolling_restart, 10),
}


async def play(directory: Path, program: str, nodes: int, fault: Fault, rounds: int) -> tuple[Judgement, list[float]]:
    """One group, one kind of fault, as often as is wanted; AssertionError if the logs differ at the end."""
    properties = {"forwardTimeoutMillis": "0", "haReconnectWaitMax": "200"}
    with Machines(("etcd", "0", "1", "2")) as machines:
        async with FailoverGroup(
            directory, machines=machines, properties=properties, etcd_nodes=nodes, etcd_program=program
        ) as group:
            await group.up()
            stage = Stage(group, machines, Senders(group))
            try:
                await stage.senders.more()
                for _ in range(rounds):
                    await fault(stage, await group.all_in_sync())
                    await group.all_in_sync()
                    print(".", end="", flush=True)
            finally:
                told = await stage.senders.stop()
            master = await group.reigning()
            await group.in_sync(master)
            for broker in group.brokers:
                broker.kill()
            return judge(told, found_in(group.brokers), epochs_of(group.brokers[0])), stage.gaps


def found_in(brokers: Sequence[BrokerProcess]) -> dict[tuple[int, int], tuple[str, int]]:
    """Queue and offset -> body and physical offset, of logs that are the same bytes."""
    logs = [broker.log_bytes().rstrip(b"\0") for broker in brokers]
    assert all(log == logs[0] for log in logs), "the commit logs differ"
    found = {}
    for path in sorted((brokers[0].store / "commitlog").iterdir()):
        data = path.read_bytes()
        for position, size, magic in walk(data, 0, len(data)):
            if magic == FILLER:
                continue
            message = parse_record(data, position, position + size, crc=True)
            if message.topic == "T":
                body = bytes(message.body).decode().rstrip("x")
                found[message.queue_id, message.queue_offset] = body, int(path.name) + position
    return found


def epochs_of(broker: BrokerProcess) -> list[tuple[int, int]]:
    record = replica_file.load(FileDisk(8), broker.store)
    assert record is not None
    return [(epoch.number, epoch.start) for epoch in record.history.epochs]


def main(version: str, nodes: int, scale: float, only: str = "", directory: str = "") -> int:
    """Plays all faults; 0 if nothing acknowledged was lost and nobody acknowledged beside another."""
    if not namespaces_work():
        print("bench: this process may not make network namespaces (root can)")
        return 1
    try:
        program = etcds.program(version)
    except Missing as error:
        print(f"bench: {error}")
        return 1
    clean = True
    result = RESULTS / f"failover.chaos-etcd-{Path(version).name}-{nodes}.txt"
    kept = json.loads(result.read_text()) if result.exists() else {}
    for name, (fault, count) in FAULTS.items():
        if (only and only not in name) or (fault is etcd_node_killed and nodes == 1):
            continue
        rounds = max(1, round(count * scale))
        print(f"{name} × {rounds} ", end="", flush=True)
        with tempfile.TemporaryDirectory(prefix="failover-chaos-", dir=directory or None) as made:
            judgement, gaps = asyncio.run(play(Path(made), program, nodes, fault, rounds))
        clean = clean and judgement.is_clean
        kept[name] = {
            "rounds": rounds,
            "acknowledged": judgement.acknowledged,
            "lost": len(judgement.lost),
            "two brokers in one epoch": len(judgement.two_in_one),
            "overlapping": len(judgement.overlapping),
            "logs identical": True,
            **({"gap ms": {"median": round(statistics.median(gaps)), "worst": round(max(gaps))}} if gaps else {}),
        }
        print(f" {kept[name]}", flush=True)
        for one in (*judgement.lost[:5], *judgement.overlapping[:5], *judgement.two_in_one.items()):
            print(f"  {one}")
        if scale >= 1:
            result.write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit("use `./run bench failover-chaos`")
