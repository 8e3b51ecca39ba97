"""Real processes: the register decides who is promoted, who counts, who has which id, and which orders are too late."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def started(pair: RealPair) -> None:
    for broker in pair.brokers:
        broker.start()
    await pair.in_sync()


async def order(pair: RealPair, broker: BrokerProcess, code: PairCode, **ext: str) -> tuple[int, str]:
    reply = await pair.client.invoke(broker.address, Command(code, ext), 30)
    return reply.code, reply.remark or ""


async def becomes(pair: RealPair, broker: BrokerProcess, **wanted: object) -> dict[str, Any]:
    status: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal status
        status = await pair.status(broker)
        return bool(status) and all(status.get(key) == value for key, value in wanted.items())

    await until(there, lambda: f"{broker.address} to become {wanted}: {status}\n{broker.log.read_text()[-3000:]}")
    return status


def test_a_slave_that_was_away_is_promoted_only_with_what_the_other_has(tmp_path: Path) -> None:
    """Seen: its stale record let it open with none of what the master and the other slave had acknowledged."""

    async def scenario() -> None:
        async with RealPair(tmp_path, slaves=2) as pair:
            await started(pair)
            first, second = pair.brokers[1], pair.brokers[2]
            await pair.stopped(first)
            load = pair.load(senders=2)
            await load.reached(60)
            result = await load.stop()
            pair.master.kill()
            second.pause()
            first.start()
            await becomes(pair, first, role="slave")
            code, text = await order(pair, first, PairCode.PROMOTE, role="SYNC_MASTER")
            assert code != 0
            assert second.address in text, text
            second.resume()
            code, text = await order(pair, first, PairCode.PROMOTE, role="SYNC_MASTER")
            assert code == 0, text
            await becomes(pair, first, role="master", phase="open", writable=True)
            await pair.in_sync(first)
            assert {sent.body for sent in result.acknowledged} <= bodies(pair, first)

    asyncio.run(scenario())


def bodies(pair: RealPair, broker: BrokerProcess) -> set[str]:
    """What the log holds, without the padding that `Load` adds to each body."""
    return {body.rstrip("x") for queue in pair.messages(broker).values() for body in queue.values()}


def test_an_order_that_is_late_or_means_another_epoch_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await started(pair)
            code, text = await order(pair, pair.slave, PairCode.PROMOTE, role="SYNC_MASTER", expiresAt="1000")
            assert code != 0
            assert "expired" in text
            code, text = await order(pair, pair.slave, PairCode.PROMOTE, role="SYNC_MASTER", epoch="9")
            assert code != 0
            assert "means epoch 9" in text
            await becomes(pair, pair.master, role="master", phase="open", writable=True)

    asyncio.run(scenario())


def test_a_demotion_whose_connection_is_lost_comes_to_an_end(tmp_path: Path) -> None:
    """Seen: "open, being demoted" until a restart."""

    async def scenario() -> None:
        async with RealPair(tmp_path, properties={"haHousekeepingInterval": "120000"}) as pair:
            await started(pair)
            pair.slave.pause()
            load = pair.load(senders=1, levels=("1",))
            await load.reached(5)
            await load.stop()
            with pytest.raises(RemotingError):
                await pair.client.invoke(pair.master.address, Command(PairCode.DEMOTE, {}), 0.3)
            await becomes(pair, pair.master, role="master", writable=False)
            await becomes(pair, pair.master, role="master", phase="open", writable=True)
            pair.slave.resume()
            await pair.in_sync()

    asyncio.run(scenario())


def test_two_slaves_with_one_id_get_one_each_and_one_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path, slaves=2) as pair:
            pair.master.start()
            for slave in pair.brokers[1:]:
                slave.start(brokerId="1")
            await pair.in_sync()
            status = await becomes(pair, pair.master, role="master")
            register = status["register"]
            assert [member["broker_id"] for member in register["members"]] == [0, 1, 2]
            ids = [(await pair.status(slave))["brokerId"] for slave in pair.brokers[1:]]
            await until(lambda: _ids_differ(pair), lambda: f"two ids: {ids}")
            gone = pair.brokers[2]
            gone.kill()
            code, text = await order(pair, pair.master, PairCode.FORGET, replica=gone.address)
            assert code == 0, text
            status = await becomes(pair, pair.master, role="master")
            assert len(status["register"]["members"]) == 2
            code, text = await order(pair, pair.master, PairCode.FORGET, replica="nobody")
            assert code != 0
            assert "not in the register" in text

    asyncio.run(scenario())


async def _ids_differ(pair: RealPair) -> bool:
    return {(await pair.status(slave)).get("brokerId") for slave in pair.brokers[1:]} == {1, 2}


def test_accepting_a_loss_opens_in_time_with_the_heartbeats_of_production(tmp_path: Path) -> None:
    """Seen: nothing woke the candidate before its next heartbeat, and by then its promotion had been given up."""

    async def scenario() -> None:
        async with RealPair(tmp_path, slaves=2, properties={"haSendHeartbeatInterval": "5000"}) as pair:
            await started(pair)
            pair.master.kill()
            pair.brokers[2].kill()
            await becomes(pair, pair.slave, role="slave", phase="not connected")
            code, text = await order(pair, pair.slave, PairCode.PROMOTE, role="SYNC_MASTER")
            assert code != 0, text
            code, text = await order(pair, pair.slave, PairCode.PROMOTE, role="SYNC_MASTER", acceptLoss="true")
            assert code == 0, text
            await becomes(pair, pair.slave, role="master", phase="open")

    asyncio.run(scenario())
