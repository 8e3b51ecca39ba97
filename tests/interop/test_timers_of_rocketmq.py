"""Timer messages of a real RocketMQ 5 broker, after its store or its log became ours: each comes once, at its time."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.peers.half_pairs import SIZES, Group, RealBroker, segments
from tests.peers.programs import rocketmq_jars

from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.formats.record import MAGIC_BLANK, parse_record, walk
from tandemq.formats.timer_checkpoint import FILE, TimerCheckpoint
from tandemq.model.message import encode_properties
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import SEND_V2, BrokerProcess
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

VERSIONS = os.environ.get("TANDEMQ_PEER_TIMERS", "5.3.3").split(",")
IS_THOROUGH = "TANDEMQ_PEER_TIMERS" in os.environ
SOON_S, LATE_S = 3, 30
"""Seconds; if starting takes longer, the real broker delivers those for late too: every one comes once all the same."""
EACH = 40


async def asked(client: RemotingClient, address: str, code: int, ext: dict[str, str]) -> Command:
    reply = await client.invoke(address, Command(code, ext, b""), 30)
    reply.raise_for_code(0)
    return reply


async def timed(client: RemotingClient, address: str, name: str, due_ms: int) -> None:
    """A message that shall come then; the broker may be starting."""
    properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": name}
    header = SendHeader(
        producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
        bornTimestamp=due_ms, flag=0, properties=encode_properties(properties).decode(),
    )  # fmt: skip

    async def taken() -> bool:
        command = Command(SEND_V2, send_ext(header, short=True), name.encode())
        return (await client.invoke(address, command, 8)).code == 0

    await until(taken, f"{address} takes a timer message")


def delivered(store: Path) -> Counter[str]:
    """What the log holds under the topic itself."""
    found: Counter[str] = Counter()
    for data in segments(store).values():
        for position, size, magic in walk(data, 0, len(data)):
            if magic != MAGIC_BLANK:
                message = parse_record(data, position, position + size, crc=True)
                if message.topic == "T":
                    found[bytes(message.body).decode()] += 1
    return found


class Timers:
    """Messages for soon and for late, sent to a real broker."""

    def __init__(self, *, last_s: int = 0) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self.soon = {f"soon-{n}": self.now_ms + SOON_S * 1000 for n in range(EACH)}
        self.late = {f"late-{n}": self.now_ms + LATE_S * 1000 for n in range(EACH)}
        self.last = {f"last-{n}": self.now_ms + last_s * 1000 for n in range(EACH if last_s else 0)}

    async def send(self, client: RemotingClient, address: str) -> None:
        for name, due_ms in {**self.soon, **self.late, **self.last}.items():
            await timed(client, address, name, due_ms)

    async def soon_come(self, store: Path) -> None:
        await until(lambda: set(delivered(store)) >= set(self.soon), "those for soon are delivered")

    async def late_come(self, store: Path) -> None:
        await until(lambda: set(delivered(store)) >= set(self.late), "those for late are delivered", seconds=90)

    async def are_right(self, store: Path) -> None:
        """Every one came, and none twice."""
        wanted = {*self.soon, *self.late, *self.last}
        await until(lambda: set(delivered(store)) >= wanted, lambda: f"all: {delivered(store)}", seconds=150)
        passed = max({**self.soon, **self.late, **self.last}.values()) + 3000
        await until(lambda: time.time_ns() // 1_000_000 > passed, "their time has passed")
        found = delivered(store)
        assert found == Counter(wanted), {name: count for name, count in found.items() if count != 1}


def on_the_store_of(real: RealBroker, directory: Path, namesrv: str) -> BrokerProcess:
    return BrokerProcess(
        directory,
        {"brokerRole": "ASYNC_MASTER", "brokerId": "0", **SIZES, "brokerName": "broker-a", "namesrvAddr": namesrv,
         "listenPort": str(real.port), "storePathRootDir": str(real.store)},
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_in_place_after_a_kill(version: str, tmp_path: Path) -> None:
    """Ours is started on the store of a broker that was killed a moment after it delivered."""
    rocketmq_jars(version)

    async def story() -> None:
        client = RemotingClient(RemotingConfig())
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = on_the_store_of(real, tmp_path / "ours", group.address)
            try:
                await real.start()
                timers = Timers()
                await timers.send(client, real.address)
                await timers.soon_come(real.store)
                await real.stop(kill=True)
                ours.start()
                await timers.are_right(real.store)
                ours.stop()
            finally:
                ours.kill()
                await real.stop(kill=True)
                await client.close()

    asyncio.run(story())


@pytest.mark.skipif(not IS_THOROUGH, reason="takes two minutes: asked for by TANDEMQ_PEER_TIMERS")
@pytest.mark.parametrize("version", VERSIONS)
def test_in_place_and_back(version: str, tmp_path: Path) -> None:
    """Each broker delivers what becomes due while it runs, and nothing that the other delivered."""
    rocketmq_jars(version)

    async def story() -> None:
        client = RemotingClient(RemotingConfig())
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = on_the_store_of(real, tmp_path / "ours", group.address)
            try:
                await real.start()
                timers = Timers(last_s=2 * LATE_S)
                await timers.send(client, real.address)
                await timers.soon_come(real.store)
                await real.stop()
                ours.start()
                await timers.late_come(real.store)
                await asyncio.to_thread(ours.stop)
                await real.start()
                await timers.are_right(real.store)
                await timed(client, real.address, "anew", time.time_ns() // 1_000_000 + 2000)
                await until(lambda: delivered(real.store)["anew"] == 1, "RocketMQ goes on with new ones")
            finally:
                ours.kill()
                await real.stop(kill=True)
                await client.close()

    asyncio.run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_by_a_slave_that_is_promoted(version: str, tmp_path: Path) -> None:
    """The master dies a moment after it delivered; the slave has its log, and what it told of its progress."""
    rocketmq_jars(version)

    async def story() -> None:
        client = RemotingClient(RemotingConfig())
        async with Group() as group:
            real = RealBroker(tmp_path / "real", version, "ASYNC_MASTER", group.address)
            ours = group.ours(tmp_path / "ours", "SLAVE", slaveSyncInterval="1000")
            try:
                await real.start()
                timers = Timers()
                await timers.send(client, real.address)
                ours.start()
                await timers.soon_come(ours.store)
                checkpoint = ours.store / FILE
                await until(checkpoint.exists, "the slave keeps how far its master has come")
                told = TimerCheckpoint.decode(checkpoint.read_bytes())
                assert told is not None
                assert told.seen_below == 2 * EACH
                await real.stop(kill=True)
                await asked(client, ours.address, PairCode.PROMOTE, {"role": "ASYNC_MASTER"})
                await timers.are_right(ours.store)
                ours.stop()
            finally:
                ours.kill()
                await real.stop(kill=True)
                await client.close()

    asyncio.run(story())
