"""Real processes: a slave whose master dies in the middle of a large frame never takes the rest of it for log."""

import asyncio
from pathlib import Path

import pytest

from tandemq.codec.command import Command
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.proxy import FaultProxy
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LOST = 1200
"""Messages that only the first master has: a frame of half a megabyte for a slave that comes back."""
PASSED = 200 << 10
"""Of these the bytes that reach the slave before its master dies."""


def bytes_of(broker: BrokerProcess) -> int:
    """How far anything but zeros lies in the files of a log."""
    return len(broker.log_bytes().rstrip(b"\0"))


def test_the_rest_of_a_dead_masters_frame_never_becomes_log(tmp_path: Path) -> None:
    """The other slave, at the same end, is promoted and followed; a kill -9 later the logs are still the same."""

    async def scenario() -> None:
        properties = {"haHousekeepingInterval": "60000"}  # a held link must not look like a dead one
        async with (
            RealPair(tmp_path, slaves=2, properties=properties) as pair,
            FaultProxy(pair.master.ha_address) as first_link,
            FaultProxy(pair.master.ha_address) as second_link,
        ):
            _, first, second = pair.brokers
            pair.master.start()
            first.start(haMasterAddress=first_link.address)
            second.start(haMasterAddress=second_link.address)
            await pair.in_sync()
            load = pair.load(senders=2)
            await load.reached(50)
            await load.stop()
            await pair.in_sync()
            for link in (first_link, second_link):
                link.refusing = True
                link.reset()
            load = pair.load(senders=4, levels=("1",))
            await load.reached(LOST)
            await load.stop()
            end = (await pair.status(second))["end"]
            first_link.allowance, first_link.refusing = PASSED, False
            await until(lambda: bytes_of(first) > end + PASSED // 2, "a part of the frame behind the slave's end")
            assert (await pair.status(first))["end"] == end
            pair.master.kill()
            first_link.refusing = True
            first_link.reset()

            reply = await pair.client.invoke(second.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
            assert reply.code == 0, reply.remark
            await pair.in_sync(second)
            first.kill()
            pair.writer_address = second.address
            load = pair.load(senders=4, levels=("1",))
            await load.reached(LOST + 200)
            await load.stop()
            first.start(haMasterAddress=second.ha_address)
            await pair.in_sync(second)
            await pair.stopped(first, second)
            assert first.log_bytes().rstrip(b"\0") == second.log_bytes().rstrip(b"\0")

    asyncio.run(scenario())
