"""A pair of real broker processes under load, and a checker that knows every acknowledged message.

async with RealPair(tmp_path) as pair:
    load = pair.load(senders=4)
    pair.master.kill(); await pair.master.start()
    ...
    await pair.check(await load.stop())
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tandemq.broker.addresses import free_port
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import RemotingError
from tandemq.formats.record import parse_record, walk
from tandemq.model.message import ACK_COPIES, encode_properties
from tandemq.namesrv.config import NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.dying import die_with_parent
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
SEND_V2 = 310
OK = 0
SEGMENT = 1 << 20
QUEUES = 4


class BrokerProcess:
    """`tandemq broker` in a process of its own, killed and started at will."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port(HOST)
        self.address = f"{HOST}:{self.port}"
        self.ha_address = f"{HOST}:{self.port + 1}"
        self.store = directory / "store"
        self.log = directory / "log"
        self.properties = {
            "brokerIP1": HOST,
            "bindAddress": HOST,
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store),
            "mappedFileSizeCommitLog": str(SEGMENT),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "haSendHeartbeatInterval": "500",
            "haHousekeepingInterval": "2000",
            "haReconnectWaitMax": "200",
            "haMaxTimeSlaveNotCatchup": "1000",
            **properties,
        }
        self.prefix: list[str] = []
        """Goes before the command, for one that runs elsewhere."""
        self.environment: dict[str, str] = {}
        """Beside this process's own."""
        self.conf = directory / "broker.conf"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def move(self, host: str, prefix: list[str]) -> None:
        """Moves it to another machine before it is started."""
        self.address, self.ha_address, self.prefix = f"{host}:{self.port}", f"{host}:{self.port + 1}", prefix
        self.properties |= {"brokerIP1": host, "bindAddress": host}

    def start(self, **changes: str) -> None:
        """Starts the process, which dies with the thread that calls; returns at once."""
        self.properties.update(changes)
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "tandemq", "broker", "-c", str(self.conf)],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Sends SIGSTOP: it neither answers nor notices."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def log_bytes(self) -> bytes:
        """Returns the whole commit log as it lies on disk, trailing zeros included."""
        return b"".join(path.read_bytes() for path in sorted((self.store / "commitlog").iterdir()))


@dataclass(slots=True)
class Acknowledged:
    """What a producer was told: SEND_OK with this place."""

    body: str
    queue_id: int
    queue_offset: int
    level: str
    """As its message asked; empty for the broker's own."""


@dataclass(slots=True)
class LoadResult:
    """Everything the senders know."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0


class Load:
    """Senders that never give up: each waits for its answer, notes it, and sends the next."""

    def __init__(self, pair: "RealPair", senders: int, levels: Sequence[str], address: str = "") -> None:
        """`levels`: what the senders ask for, in turn; empty is the broker's own.

        `address`: where all of it goes, whoever reigns.
        """
        self._address = address
        self.result = LoadResult()
        self._pair = pair
        self._levels = levels or ("",)
        self._stopped = False
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(senders)]

    async def _send(self, sender: int) -> None:
        client = RemotingClient(RemotingConfig())
        number = 0
        try:
            while not self._stopped:
                body = f"{sender}{'d' if self._address else ''}-{number}-"
                number += 1
                await self._one(client, sender % QUEUES, body, self._levels[sender % len(self._levels)])
        finally:
            await client.close()

    async def _one(self, client: RemotingClient, queue_id: int, body: str, level: str) -> None:
        header = SendHeader(
            producerGroup="pg",
            topic="T",
            defaultTopic="TBW102",
            defaultTopicQueueNums=QUEUES,
            queueId=queue_id,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties=encode_properties({ACK_COPIES: level}).decode() if level else "",
        )
        command = Command(SEND_V2, send_ext(header, short=True), body.encode().ljust(300, b"x"))
        try:
            reply = await client.invoke(self._address or self._pair.writer_address, command, 8)
        except RemotingError:
            self.result.lost += 1
            await asyncio.sleep(0.01)
            return
        statuses = self.result.statuses
        statuses[reply.code] = statuses.get(reply.code, 0) + 1
        if reply.code == OK:
            self.result.acknowledged.append(
                Acknowledged(body, int(reply.ext["queueId"]), int(reply.ext["queueOffset"]), level)
            )
        elif reply.code not in (10, 11, 12):
            await asyncio.sleep(0.01)

    async def reached(self, count: int, seconds: float = 90.0) -> None:
        """Waits until so many sends were acknowledged in all."""
        result = self.result
        told = lambda: f"{count}, had {len(result.acknowledged)}: {result.statuses}, {result.lost} lost"  # noqa: E731
        await until(lambda: len(result.acknowledged) >= count, told, seconds=seconds)

    async def stop(self) -> LoadResult:
        self._stopped = True
        await asyncio.gather(*self._tasks)
        return self.result


class RealPair:
    """A name server in this process, a master and slaves in their own."""

    host = HOST
    """Of the name server."""

    def __init__(self, directory: Path, *, slaves: int = 1, properties: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._slave_count = slaves
        self._properties = dict(properties or {})
        self.brokers: list[BrokerProcess] = []

    async def __aenter__(self) -> "RealPair":
        self._namesrv = NameServer(NamesrvConfig(), RemotingConfig(listen_port=0, bind_address=self.host))
        port = await self._namesrv.start()
        self.namesrv = f"{self.host}:{port}"
        self.client = RemotingClient(RemotingConfig())
        for number in range(1 + self._slave_count):
            role = "SLAVE" if number else "SYNC_MASTER"
            self.brokers.append(
                BrokerProcess(
                    self._directory / f"broker-{number}",
                    {
                        "brokerName": "broker-a",
                        "brokerId": str(number),
                        "brokerRole": role,
                        "namesrvAddr": self.namesrv,
                        **self._properties,
                    },
                )
            )
        self.writer_address = self.master.address
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            broker.kill()
        await self.client.close()
        await self._namesrv.stop()

    @property
    def master(self) -> BrokerProcess:
        return self.brokers[0]

    @property
    def slave(self) -> BrokerProcess:
        return self.brokers[1]

    def load(self, senders: int = 4, levels: Sequence[str] = ("",)) -> Load:
        return Load(self, senders, levels)

    def load_to(self, address: str, senders: int = 4, levels: Sequence[str] = ("",)) -> Load:
        return Load(self, senders, levels, address)

    async def stopped(self, *brokers: BrokerProcess) -> None:
        """Sends SIGTERM to one after the other; the name server of this process goes on and hears of it."""
        for broker in brokers:
            await asyncio.to_thread(broker.stop)

    async def status(self, broker: BrokerProcess) -> dict[str, Any]:
        """Returns what the broker says about its replication; empty while it does not answer."""
        try:
            reply = await self.client.invoke(broker.address, Command(PairCode.HA_DETAIL), 3)
        except RemotingError:
            return {}
        found: dict[str, Any] = msgspec.json.decode(bytes(reply.body)) if reply.body else {}
        return found

    async def in_sync(self, master: BrokerProcess | None = None, seconds: float = 90.0, *, quiet: bool = True) -> None:
        """Waits until every running slave of `master` is in sync.

        `quiet`, without load, until it has everything too.
        """
        master = master or self.master
        wanted = sum(broker.is_running for broker in self.brokers) - 1
        status: dict[str, Any] = {}

        async def there() -> bool:
            nonlocal status
            status = await self.status(master)
            in_sync = [r for r in status.get("replicas", ()) if r["in_sync"]]
            same = all(r["received"] == status["end"] == status["confirmed"] for r in in_sync)
            for broker in self.brokers:
                assert broker.process is None or broker.is_running, f"a broker died: {broker.log.read_text()[-3000:]}"
            return status.get("phase") == "open" and len(in_sync) == wanted and (same or not quiet)

        await until(there, lambda: f"in sync: {status}\n{self._logs()}", seconds=seconds)

    def master_in_route(self) -> str:
        """Returns whom the name server shows as master of the group; empty for nobody."""
        groups = {group.name: group for group in self._namesrv.routes.groups()}
        return groups["broker-a"].addresses.get(0, "") if "broker-a" in groups else ""

    def _logs(self) -> str:
        return "\n".join(f"--- {b.address}\n{b.log.read_text()[-3000:]}" for b in self.brokers if b.log.exists())

    async def check(self, result: LoadResult) -> None:
        """Nothing acknowledged is missing, order is kept, the logs of stopped brokers are the same bytes."""
        await self.stopped(*self.brokers)
        logs = [broker.log_bytes().rstrip(b"\0") for broker in self.brokers]
        assert all(log == logs[0] for log in logs), "the commit logs differ"
        queues = self.messages(self.master)
        for told in result.acknowledged:
            found = queues.get(told.queue_id, {}).get(told.queue_offset)
            assert found is not None, f"acknowledged but lost: {told}"
            assert found.startswith(told.body), f"{told} was acknowledged, {found[:20]} is there"
        self._check_order(queues)

    @staticmethod
    def messages(broker: BrokerProcess) -> dict[int, dict[int, str]]:
        """Returns queue id -> queue offset -> body, read from the commit log itself."""
        found: dict[int, dict[int, str]] = {}
        for path in sorted((broker.store / "commitlog").iterdir()):
            data = path.read_bytes()
            for position, size, magic in walk(data, 0, len(data)):
                if magic == 0xCBD43194:
                    continue
                message = parse_record(data, position, position + size, crc=True)
                if message.topic == "T":
                    queue = found.setdefault(message.queue_id, {})
                    assert message.queue_offset not in queue, "a queue offset was given twice"
                    queue[message.queue_offset] = bytes(message.body).decode()
        return found

    @staticmethod
    def _check_order(queues: dict[int, dict[int, str]]) -> None:
        """Each sender waits for its answers, so its numbers grow within a queue; offsets have no holes."""
        for queue in queues.values():
            assert sorted(queue) == list(range(len(queue))), "a queue has holes"
            last: dict[str, int] = {}
            for offset in sorted(queue):
                sender, number, _ = queue[offset].split("-", 2)
                assert last.get(sender, -1) < int(number), f"order broken at {offset}: {queue[offset][:20]}"
                last[sender] = int(number)
