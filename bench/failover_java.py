"""The two groups of three that `failover.java` compares, and the Java producer that both of them have.

Ours has a real etcd; RocketMQ's has its controller inside the name server. Both acknowledge at two copies.
"""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from tests.peers import programs
from tests.peers.half_pairs import RealBroker
from tests.peers.servers import free_ports
from tests.peers.wire import create_topic, route_exists

from tandemq.clock import SystemClock
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.failover_group import FailoverGroup
from tandemq.testing.pair import HOST, BrokerProcess
from tandemq.testing.waiting import until

TOPIC, QUEUES = "steady", 4
CLIENT = "5.5.0"
"""The version of RocketMQ, its client included."""
ELECT_MASTER, GET_SYNC_STATE = 1002, 1006
"""Requests to RocketMQ's controller."""
TUNED_CONTROLLER = {"scanNotActiveBrokerInterval": "200"}
TUNED_BROKER = {"brokerHeartbeatInterval": "300", "controllerHeartBeatTimeoutMills": "1500"}
"""A lost heartbeat or two are forgiven; then it is as quick as a lease of two seconds."""


class PeerFailed(Exception):
    """RocketMQ's own group did not come up, or did not come back: there is nothing to compare with."""


class Sender:
    """The Java producer, one message after the other with routes polled every second; when each send ended."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self.acknowledged: list[tuple[int, int]] = []
        """When a send that was answered with SEND_OK began and ended, in milliseconds of the wall clock."""
        self.failed: list[int] = []
        self.texts: Counter[str] = Counter()

    async def __aenter__(self) -> "Sender":
        command, environment = programs.java(CLIENT, "Steady")
        arguments = [*command, self._namesrv, TOPIC, "poll=1000", "timeout=500"]
        self._process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._task

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            kind, began, ended, *text = line.decode().split(maxsplit=3)
            if kind == "ok":
                self.acknowledged.append((int(began), int(ended)))
            else:
                self.failed.append(int(ended))
                self.texts[text[0].strip() if text else kind] += 1

    async def goes_on(self, count: int) -> None:
        """Waits for so many more acknowledgements."""
        wanted = len(self.acknowledged) + count
        await until(
            lambda: len(self.acknowledged) >= wanted, lambda: f"sends: {self.texts.most_common(3)}", seconds=120
        )

    async def gap_after(self, fault_at: int) -> float:
        """Milliseconds from a fault to the first SEND_OK of a send that began after it."""
        told = lambda: f"a send after the fault: {self.texts.most_common(3)}"  # noqa: E731
        await until(lambda: self.acknowledged and self.acknowledged[-1][0] > fault_at, told, seconds=120)
        return next(ended for began, ended in self.acknowledged if began > fault_at) - fault_at

    def pause_since(self, since: int) -> float:
        """The longest time between two acknowledgements since then, in milliseconds."""
        ends = [since, *(ended for _, ended in self.acknowledged if ended > since)]
        return max((later - earlier for earlier, later in pairwise(ends)), default=0)


class Group(Protocol):
    """A group of three brokers, one of which reigns."""

    namesrv: str

    async def ready(self) -> None:
        """Waits until all three are in sync."""
        ...

    async def fault(self, kind: str) -> int:
        """Kills, stops or switches the master; returns when, in milliseconds of the wall clock."""
        ...

    async def mend(self) -> None:
        """Starts again, or lets go on, whoever the last fault hit, once another one reigns."""
        ...


class Ours:
    def __init__(self, directory: Path) -> None:
        self._group = FailoverGroup(directory)
        self._clock = SystemClock()
        self._master: BrokerProcess | None = None
        self._hit: tuple[str, BrokerProcess] | None = None

    async def __aenter__(self) -> "Ours":
        await self._group.__aenter__()
        self._master = await self._group.up()
        self.namesrv = self._group.namesrv
        await asyncio.to_thread(create_topic, self._master.address, TOPIC, QUEUES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hit is not None and self._hit[0] == "hang":
            self._hit[1].resume()
        await self._group.__aexit__(kind, error, trace)

    async def ready(self) -> None:
        self._master = await self._group.all_in_sync()

    async def fault(self, kind: str) -> int:
        master = self._master
        assert master is not None
        at = self._clock.wall_ms()
        if kind == "switch":
            await self._group.promoted(next(one for one in self._group.brokers if one is not master))
        else:
            self._hit = (kind, master)
            (master.kill if kind == "kill" else master.pause)()
        return at

    async def mend(self) -> None:
        if self._hit is None:
            return
        kind, broker = self._hit
        await self._group.reigning(besides=broker)
        self._hit = None
        (broker.start if kind == "kill" else broker.resume)()


class Controlled:
    """RocketMQ's own: three brokers under a controller in the name server."""

    def __init__(self, directory: Path, *, tuned: bool) -> None:
        self._directory, self._tuned = directory, tuned
        names, controller = free_ports(2)
        self.namesrv, self._controller = f"{HOST}:{names}", f"{HOST}:{controller}"
        self._clock = SystemClock()
        properties = {
            "enableControllerMode": "true",
            "controllerAddr": self._controller,
            "brokerId": "-1",
            "inSyncReplicas": "2",
            "mappedFileSizeCommitLog": str(64 << 20),
            **(TUNED_BROKER if tuned else {}),
        }
        self._brokers = [
            RealBroker(directory / f"broker-{number}", CLIENT, "ASYNC_MASTER", self.namesrv, **properties)
            for number in range(3)
        ]
        self._state: dict[str, Any] = {}
        self._hit: tuple[str, RealBroker] | None = None

    async def __aenter__(self) -> "Controlled":
        programs.rocketmq_jars(CLIENT)
        port = self.namesrv.rpartition(":")[2]
        command = ["namesrv", "--version", CLIENT, "--dir", str(self._directory / "names"), "--port", port]
        settings = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self._controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self._directory / "controller"),
            **(TUNED_CONTROLLER if self._tuned else {}),
        }
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self._client = RemotingClient(RemotingConfig())
        try:
            await self._run(command)
            for broker in self._brokers:
                await broker.start()
        except subprocess.CalledProcessError as error:
            await self._down()
            raise PeerFailed(f"a process of RocketMQ's group did not start: {error}") from error
        await self.ready()
        await asyncio.to_thread(create_topic, self._master().address, TOPIC, QUEUES)
        await until(lambda: route_exists(self.namesrv, TOPIC), "the topic's route", seconds=60)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._down()

    async def _down(self) -> None:
        await self._client.close()
        for broker in self._brokers:
            await broker.stop(kill=True)
        await self._run(["down", "--dir", str(self._directory / "names"), "--kill"])

    async def _run(self, command: list[str]) -> None:
        await asyncio.to_thread(subprocess.run, [*programs.ROCKETMQ, *command], check=True, stdout=subprocess.DEVNULL)

    async def _look(self) -> dict[str, Any]:
        """What the controller knows of the group; empty while it does not tell."""
        try:
            reply = await self._client.invoke(self._controller, Command(GET_SYNC_STATE, {}, b'["broker-a"]'), 3)
        except RemotingError:
            return {}
        found = json.loads(bytes(reply.body) or b"{}").get("replicasInfoTable", {}).get("broker-a", {})
        self._state = dict(found)
        return self._state

    def _master(self) -> RealBroker:
        address = self._state["masterAddress"]
        return next(broker for broker in self._brokers if broker.address == address)

    async def ready(self) -> None:
        async def all_there() -> bool:
            state = await self._look()
            return bool(state.get("masterAddress")) and len(state.get("inSyncReplicas") or ()) == len(self._brokers)

        await until(all_there, lambda: f"three replicas in sync: {self._state}", seconds=120)

    async def fault(self, kind: str) -> int:
        master = self._master()
        if kind == "switch":
            others = [one["brokerId"] for one in self._state["inSyncReplicas"]]
            other = next(one for one in others if one != self._state["masterBrokerId"])
            fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": str(other)}
            fields |= {"designateElect": "true", "invokeTime": str(self._clock.wall_ms())}
            at = self._clock.wall_ms()
            reply = await self._client.invoke(self._controller, Command(ELECT_MASTER, fields), 10)
            if reply.code != 0:
                raise RuntimeError(f"the controller did not elect {other}: {reply.code} {reply.remark}")
            return at
        pid = int((master.directory / "pid").read_text())
        at = self._clock.wall_ms()
        os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        self._hit = (kind, master)
        return at

    async def mend(self) -> None:
        if self._hit is None:
            return
        kind, broker = self._hit

        async def another() -> bool:
            return (await self._look()).get("masterAddress", broker.address) not in ("", None, broker.address)

        await until(another, lambda: f"another master: {self._state}", seconds=60)
        self._hit = None
        if kind == "kill":
            await broker.stop(kill=True)
            await broker.start()
        else:
            os.kill(int((broker.directory / "pid").read_text()), signal.SIGCONT)


async def measured(group: Group, faults: dict[str, int]) -> dict[str, float]:
    """Makes so many faults of each kind, one after the other; what became of each kind."""
    figures: dict[str, float] = {}
    async with Sender(group.namesrv) as sender:
        await sender.goes_on(500)
        for kind, count in faults.items():
            gaps, failed = [], 0
            for _ in range(count):
                await group.ready()
                await sender.goes_on(200)
                before = len(sender.failed)
                at = await group.fault(kind)
                if kind == "switch":
                    await sender.goes_on(300)
                    gaps.append(sender.pause_since(at))
                else:
                    gaps.append(await sender.gap_after(at))
                failed += len(sender.failed) - before
                await group.mend()
            figures[f"{kind}_median"], figures[f"{kind}_worst"] = statistics.median(gaps), max(gaps)
            if kind == "switch":
                figures["switch_failed"] = failed
    return figures
