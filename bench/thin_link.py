"""A pair, and an observer at another site, far behind, over a thin link that is cut again and again."""

import asyncio
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.site_link import SiteLink, differ
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.waiting import until

SEGMENT = 64 << 20
RATE = 20_000_000 // 8
DELAY_MS = 50
"""Each way: 100 ms there and back."""
CUT_S = 1.0
SENDS_PER_SECOND = 50
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
SEND_V2 = 310


@dataclass(slots=True)
class Copied:
    """What came of it."""

    size: int = 0
    seconds: float = 0.0
    """While the link was there."""
    received: int = 0
    """Bytes that came over the link."""
    cuts: int = 0
    differences: int = 0
    refused: int = 0
    """Sends that were not answered with SEND_OK."""
    alone_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    """Times of answers while the observer copied: of the other pair's master, and of this one's."""

    @property
    def ratio(self) -> float:
        """How much smaller the log was on the link."""
        return self.size / self.received

    @property
    def use_of_link(self) -> float:
        """Goodput, as a share of the link's rate times the ratio."""
        return self.size / self.seconds / (RATE * max(1.0, self.ratio))


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[-1]


def fill(root: Path, size: int) -> None:
    """A log of orders as JSON text, with what makes each one different."""
    store = MessageStore.open(root, StoreConfig(commit_log_segment_size=SEGMENT, index_enable=False))
    chance = random.Random(19)
    number = 0
    while store.appended < size:
        for _ in range(1000):
            number += 1
            order = {
                "order": f"2026-{number:09d}", "customer": chance.randrange(10**9), "token": chance.randbytes(60).hex(),
                "items": [{"article": chance.randrange(10**6), "count": chance.randrange(9)} for _ in range(8)],
                "note": "deliver between eight and ten, ring twice, leave at the door if nobody answers",
            }  # fmt: skip
            store.append("orders", 0, 0, 0, 1, HOST, 0, 0, json.dumps(order).encode(), b"")
        store.dispatch()
    store.close()


class Talk:
    """Sends at a steady pace and times the answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.times_ms: list[float] = []
        self.refused = 0

    async def run(self) -> None:
        client = RemotingClient(RemotingConfig())
        header = SendHeader(
            producerGroup="p", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
            bornTimestamp=1, flag=0, properties="",
        )  # fmt: skip
        try:
            while True:
                due = time.monotonic() + 1 / SENDS_PER_SECOND
                began = time.perf_counter()
                reply = await client.invoke(
                    self._address, Command(SEND_V2, send_ext(header, short=True), bytes(200)), 8
                )
                self.times_ms.append((time.perf_counter() - began) * 1000)
                self.refused += reply.code != 0
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        finally:
            await client.close()


async def copy_over(directory: Path, size: int, *, cuts: int, compression: str) -> Copied:
    """Has an observer copy a log of this size over the link, while producers go on at the master.

    Another pair, which nobody observes, takes the same sends at the same time: the machine is as busy for both.
    """
    found = Copied()
    properties = {"mappedFileSizeCommitLog": str(SEGMENT), "messageIndexEnable": "false"}
    async with (
        RealPair(directory / "pair", properties=properties) as pair,
        RealPair(directory / "other", properties=properties) as other,
        SiteLink(pair.master.port, delay_ms=DELAY_MS, rate=RATE) as link,
    ):
        await asyncio.to_thread(fill, pair.master.store, size)
        for broker in (*pair.brokers, *other.brokers):
            broker.start()
        await pair.in_sync()
        await other.in_sync()
        observer = BrokerProcess(
            directory / "observer",
            {**properties, "brokerName": pair.master.properties["brokerName"], "haObserver": "true",
             "haMasterAddress": link.ha_address, "haCompression": compression},
        )  # fmt: skip
        talks = [Talk(pair.master.address), Talk(other.master.address)]
        talking = [asyncio.create_task(talk.run()) for talk in talks]
        try:
            await link.tell("cut")
            observer.start()
            await until(lambda: _answers(pair, observer), "the observer is up, and finds no master yet")
            for talk in talks:
                talk.times_ms.clear()
            await link.tell("mend")
            await _copy(pair, observer, link, found, cuts)
            found.beside_ms, found.alone_ms = (talk.times_ms for talk in talks)
            found.refused = talks[0].refused
            await _ended(talking)
            await until(lambda: _has_all(pair, observer), lambda: f"the end\n{observer.log.read_text()[-3000:]}")
            end = (await pair.status(pair.master))["end"]
            found.differences = len(differ(pair.master.store, observer.store, 0, end, SEGMENT))
        finally:
            await _ended(talking)
            observer.kill()
    return found


async def _ended(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(pair: RealPair, observer: BrokerProcess, link: SiteLink, found: Copied, cuts: int) -> None:
    """Until it has what the master had at the beginning; the link is cut at even distances."""
    goal = (await pair.status(pair.master))["end"]
    began = before = 0
    at = time.monotonic()
    away = 0.0

    async def here() -> int:
        return int((await pair.status(observer)).get("end", 0))

    while (end := await here()) < goal:
        assert observer.is_running, observer.log.read_text()[-3000:]
        if not began and end:
            began, at = end, time.monotonic()  # the first bytes are there: it has found its master
            before = await link.received()
        if found.cuts < cuts and end > goal * (found.cuts + 1) // (cuts + 1):
            found.cuts += 1
            cut_at = time.monotonic()
            await link.cut(CUT_S)
            away += time.monotonic() - cut_at
        await asyncio.sleep(0.05)
    found.seconds = time.monotonic() - at - away
    found.size = goal - began
    found.received = await link.received() - before


async def _answers(pair: RealPair, broker: BrokerProcess) -> bool:
    return bool(await pair.status(broker))


async def _has_all(pair: RealPair, observer: BrokerProcess) -> bool:
    return (await pair.status(observer)).get("end") == (await pair.status(pair.master))["end"]
