"""Two name servers and two pairs as real processes, and what can be done to them."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from tandemq.broker.addresses import free_port
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.dying import die_with_parent
from tandemq.testing.pair import HOST, BrokerProcess
from tandemq.testing.waiting import until

PAIRS = ("broker-a", "broker-b")
HEAL_S = 90.0


class NamesrvProcess:
    """`tandemq namesrv` in a process of its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.address = f"{HOST}:{free_port(HOST)}"
        self._log = directory / "log"
        self._conf = directory / "namesrv.conf"
        self._conf.write_text(f"listenPort={self.address.rpartition(':')[2]}\nbindAddress={HOST}\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "tandemq", "namesrv", "-c", str(self._conf)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class ChaosCluster:
    """Two pairs; who is master of each is asked, not remembered."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._chance = chance
        self._client = RemotingClient(RemotingConfig())
        self.name_servers = [NamesrvProcess(directory / f"namesrv-{number}") for number in range(2)]
        self.pairs: dict[str, list[BrokerProcess]] = {}
        for name in PAIRS:
            self.pairs[name] = [self._broker(directory, name, number) for number in range(2)]

    def _broker(self, directory: Path, name: str, number: int) -> BrokerProcess:
        properties = {
            "brokerName": name,
            "brokerId": str(number),
            "brokerRole": "SLAVE" if number else "SYNC_MASTER",
            "namesrvAddr": self.namesrv,
            "mappedFileSizeCommitLog": str(32 << 20),
            "messageDelayLevel": " ".join(["1s"] * 18),
            "transactionTimeOut": "2000",
            "transactionCheckInterval": "2000",
            "transactionCheckMax": "60",
        }
        return BrokerProcess(directory / f"{name}-{number}", properties)

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    async def __aenter__(self) -> "ChaosCluster":
        for server in self.name_servers:
            server.start()
        for brokers in self.pairs.values():
            for broker in brokers:
                broker.start()
        for name in self.pairs:
            await self.healthy(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for brokers in self.pairs.values():
            for broker in brokers:
                broker.kill()
        for server in self.name_servers:
            server.kill()
        await self._client.close()

    async def _status(self, broker: BrokerProcess) -> dict[str, Any]:
        try:
            reply = await self._client.invoke(broker.address, Command(PairCode.HA_DETAIL), 2)
        except RemotingError:
            return {}
        return msgspec.json.decode(bytes(reply.body)) if reply.body else {}

    async def healthy(self, name: str) -> BrokerProcess:
        """Until a pair has one open master and its slave is in sync; returns the master."""
        last: dict[str, Any] = {}

        async def master() -> BrokerProcess | None:
            for broker in self.pairs[name]:
                assert broker.process is None or broker.is_running, broker.log.read_text()[-3000:]
                status = last[broker.address] = await self._status(broker)
                in_sync = [replica for replica in status.get("replicas", ()) if replica["in_sync"]]
                if status.get("writable") and status.get("phase") == "open" and in_sync:
                    return broker
            return None

        def told() -> str:
            logs = "\n".join(f"--- {b.address}\n{b.log.read_text()[-2000:]}" for b in self.pairs[name])
            return f"a healthy pair {name}: {last}\n{logs}"

        found: BrokerProcess = await until(master, told, seconds=HEAL_S)
        return found

    async def all_know(self, topic: str) -> bool:
        """Whether every broker has a topic: slaves copy the table a moment later."""
        for broker in (broker for brokers in self.pairs.values() for broker in brokers):
            try:
                asked = Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
                if (await self._client.invoke(broker.address, asked, 2)).code != 0:
                    return False
            except RemotingError:
                return False
        return True

    def _other(self, name: str, broker: BrokerProcess) -> BrokerProcess:
        return next(other for other in self.pairs[name] if other is not broker)

    async def fault(self) -> tuple[str, Awaitable[Any]]:
        """Chooses what to do next; returns its name and the work, which ends when the cluster is whole again."""
        name = self._chance.choice(PAIRS)
        master = await self.healthy(name)
        slave = self._other(name, master)
        # Not every one is as likely: promotions are what a pair is for.
        kinds: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("a master killed", lambda: self._restarted(name, master)),
            ("a slave killed", lambda: self._restarted(name, slave)),
            ("a master killed, its slave promoted", lambda: self._taken_over(name, master, slave)),
            ("a master killed, its slave promoted", lambda: self._taken_over(name, master, slave)),
            ("roles exchanged", lambda: self._exchanged(name, slave)),
            ("a master stopped for a while", lambda: self._paused(name, master)),
            ("a name server killed", self._namesrv_restarted),
        ]
        kind, work = self._chance.choice(kinds)
        return kind, work()

    async def _pause(self, low: float, high: float) -> None:
        await asyncio.sleep(self._chance.uniform(low, high))

    async def _restarted(self, name: str, broker: BrokerProcess) -> None:
        broker.kill()
        await self._pause(0.2, 4.0)
        broker.start()
        await self.healthy(name)

    async def _taken_over(self, name: str, master: BrokerProcess, slave: BrokerProcess) -> None:
        master.kill()
        await self._pause(0.1, 2.0)
        await until(lambda: self._promoted(slave), lambda: f"{slave.address} promoted", seconds=HEAL_S)
        self._exchange_confs(master, slave)
        await self._pause(0.1, 2.0)
        master.start()
        await self.healthy(name)

    @staticmethod
    def _exchange_confs(old: BrokerProcess, new: BrokerProcess) -> None:
        """As an operator does after a promotion: otherwise the new master comes back as a slave, and nobody reigns."""
        new.properties.update(brokerRole="SYNC_MASTER", brokerId="0")
        old.properties.update(brokerRole="SLAVE", brokerId="1")

    async def _exchanged(self, name: str, slave: BrokerProcess) -> None:
        await until(lambda: self._promoted(slave), lambda: f"{slave.address} promoted", seconds=HEAL_S)
        self._exchange_confs(self._other(name, slave), slave)
        await self.healthy(name)

    async def _promoted(self, slave: BrokerProcess) -> bool:
        try:
            reply = await self._client.invoke(slave.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
        except RemotingError:
            return False
        return reply.code == 0

    async def _paused(self, name: str, broker: BrokerProcess) -> None:
        broker.pause()
        try:
            await self._pause(0.5, 4.0)
        finally:
            broker.resume()
        await self.healthy(name)

    async def _namesrv_restarted(self) -> None:
        server = self._chance.choice(self.name_servers)
        server.kill()
        await self._pause(0.5, 4.0)
        server.start()
        # The brokers register again with their next heartbeats; until then the other one has to do.
        await self._pause(1.0, 3.0)
