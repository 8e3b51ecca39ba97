"""Real brokers of one group with a real etcd, under load that goes to whoever the name server shows as master.

async with FailoverGroup(tmp_path) as group:
    master = await group.up()
    load = group.load()
    master.kill()
    await group.reigning(besides=master)
    master.start()
    await group.check_all(await load.stop())
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tandemq.codec.command import Command
from tandemq.replication.metadata import PairCode
from tandemq.testing.etcd import RealEtcd
from tandemq.testing.namespaces import HERE, Machines
from tandemq.testing.pair import BrokerProcess, LoadResult, RealPair
from tandemq.testing.waiting import until

LEASE_SECONDS = 2


class FailoverGroup(RealPair):
    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        etcd_nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        machines: Machines | None = None,
        etcd_program: str = "",
    ) -> None:
        """`machines`: one for etcd, and one for each broker: `etcd`, `0`, `1`, …

        `etcd_program`: another etcd than this machine's.
        """
        self.machines = machines
        if machines is None:
            self.etcd = RealEtcd(directory / "etcd", nodes=etcd_nodes, program=etcd_program)
        else:
            self.host = HERE
            place, prefix = machines.address("etcd"), machines.inside("etcd")
            self.etcd = RealEtcd(directory / "etcd", nodes=etcd_nodes, host=place, prefix=prefix, program=etcd_program)
        super().__init__(directory, slaves=brokers - 1, properties=properties)

    async def __aenter__(self) -> "FailoverGroup":
        await self.etcd.__aenter__()
        await super().__aenter__()
        for broker in self.brokers:
            broker.properties["brokerRole"] = self._properties.get("brokerRole", "SYNC_MASTER")
            broker.properties["haCoordinator"] = self.etcd.place
            broker.properties["haLeaseSeconds"] = str(LEASE_SECONDS)
            del broker.properties["brokerId"]
        if self.machines is not None:
            for number, broker in enumerate(self.brokers):
                broker.move(self.machines.address(str(number)), self.machines.inside(str(number)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        self.etcd.kill()

    async def up(self) -> BrokerProcess:
        """Starts all; returns the master when everybody is in sync."""
        for broker in self.brokers:
            if not broker.is_running:
                broker.start()
        return await self.all_in_sync()

    async def all_in_sync(self, seconds: float = 60.0) -> BrokerProcess:
        """Waits until the running brokers have one open master and all others are in sync with it.

        Returns the master.
        """
        master = await self.reigning(seconds)
        await self.in_sync(master, seconds, quiet=False)
        return master

    async def reigning(self, seconds: float = 60.0, besides: BrokerProcess | None = None) -> BrokerProcess:
        """Returns the broker that takes messages, another one than `besides`, once the name server shows it too."""
        seen: list[dict[str, Any]] = []

        async def found() -> BrokerProcess | None:
            seen.clear()
            for broker in self.brokers:
                if broker is besides or not broker.is_running:
                    continue
                status = await self.status(broker)
                seen.append({name: status.get(name) for name in ("address", "phase", "writable", "refusal", "error")})
                if status.get("writable") and self.master_in_route() == broker.address:
                    return broker
            return None

        master: BrokerProcess = await until(found, lambda: f"a master: {seen}\n{self._logs()}", seconds=seconds)
        self.writer_address = master.address
        return master

    async def follows(self, broker: BrokerProcess, master: BrokerProcess) -> None:
        """Waits until a broker follows that master."""
        seen: dict[str, Any] = {}

        async def found() -> bool:
            nonlocal seen
            seen = await self.status(broker)
            return seen.get("phase") == "following" and seen.get("master") == master.ha_address

        await until(found, lambda: f"{broker.address} follows: {seen}\n{self._logs()}")

    async def promoted(self, broker: BrokerProcess) -> None:
        """Orders a broker to reign; returns when it does."""
        reply = await self.client.invoke(broker.address, Command(PairCode.PROMOTE), 30)
        assert reply.code == 0, reply.remark
        self.writer_address = broker.address

    async def paused(self, paused: bool, broker: BrokerProcess | None = None) -> None:
        """Pauses elections, or lets them go on."""
        command = Command(PairCode.PAUSE, {"paused": "true" if paused else "false"})
        reply = await self.client.invoke((broker or self.brokers[0]).address, command, 10)
        assert reply.code == 0, reply.remark

    async def check_all(self, result: LoadResult) -> None:
        """As `check`, for a group whose members take over from each other when they are stopped one by one."""
        self.writer_address = ""
        master = await self.reigning()
        await self.in_sync(master)
        for broker in self.brokers:
            broker.kill()
        await self.check(result)
