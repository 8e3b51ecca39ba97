"""Planned promotions while upstream's Java client produces: it notices nothing, though its route is a second old."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tests.peers import programs
from tests.peers.tools import Missing

from tandemq.client import Admin, TopicConfig
from tandemq.errors import TandemError
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(240)]

STORED = {"SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}
"""A slave that gets no time on a busy machine leaves the in-sync set for a moment; the message is stored."""
SWITCHES = 2
SECONDS = 20


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_no_send_fails_while_every_node_lives(tmp_path: Path, mode: str) -> None:
    """The former master forwards: no exception, without one retry of the client."""
    try:
        produce, environment = programs.java("4.9.7", "Produce")
    except Missing as reason:
        pytest.skip(str(reason))
    acked = tmp_path / "acked"
    options = [f"acked={acked}", "poll=1000", "timeout=3000", "warm=100", f"seconds={SECONDS}"]

    async def scene() -> dict[str, int]:
        async with RealPair(tmp_path / "pair") as pair:
            for broker in pair.brokers:
                broker.start()
            await pair.in_sync()
            await _topic(pair)
            load = await asyncio.create_subprocess_exec(
                *produce, pair.namesrv, "T", "1000000", "300", "4", mode, *options,
                env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            master, slave = pair.brokers
            for _ in range(SWITCHES):
                before = await _end(pair, master)
                await until(lambda m=master, b=before: _grown(pair, m, b), "the producer to be busy", seconds=60)
                await _promote(slave)
                master, slave = slave, master
                await pair.in_sync(master, quiet=False)
            said, why = await load.communicate()
            report = json.loads(said.splitlines()[-1])
            assert set(report["statuses"]) <= STORED, f"{report} {why.decode()}"
            await pair.stopped(*pair.brokers)
            logs = [broker.log_bytes().rstrip(b"\0") for broker in pair.brokers]
            assert logs[0] == logs[1], "the commit logs differ"
            stored = {(str(queue), str(offset)) for queue, of in pair.messages(master).items() for offset in of}
            promised = {(line[3], line[4]) for line in map(str.split, acked.read_text().splitlines())}
            assert promised <= stored
            return dict(report["statuses"])

    assert asyncio.run(scene())["SEND_OK"] > 100


async def _topic(pair: RealPair) -> None:
    async with Admin(namesrv=pair.namesrv) as admin:

        async def made() -> bool:
            await admin.create_topic(TopicConfig(name="T", read_queues=4, write_queues=4))
            return len(await admin.queues("T")) == 4

        await until(made, "the topic", ignoring=(TandemError,))


async def _end(pair: RealPair, broker: BrokerProcess) -> int:
    return int((await pair.status(broker)).get("end", 0))


async def _grown(pair: RealPair, broker: BrokerProcess, before: int) -> bool:
    return await _end(pair, broker) > before + 100_000


async def _promote(slave: BrokerProcess) -> None:
    order = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tandemq", "broker", "promote", slave.address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await order.communicate()
    assert order.returncode == 0, said.decode()
