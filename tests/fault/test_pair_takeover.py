"""Real processes: who comes back with the conf file of a master while another reigns follows it and never writes."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tandemq.codec.command import Command
from tandemq.formats import layout
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, Load, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 40.0


async def becomes(pair: RealPair, broker: BrokerProcess, **wanted: object) -> dict[str, object]:
    """Until the broker's own word has these values; it must not have been writable on the way to being a slave."""
    status: dict[str, object] = {}

    async def there() -> bool:
        nonlocal status
        status = await pair.status(broker)
        assert not (wanted.get("role") == "slave" and status.get("writable")), "a node that must follow took writes"
        return bool(status) and all(status.get(key) == value for key, value in wanted.items())

    await until(there, lambda: f"{broker.address} to become {wanted}: {status}\n{broker.log.read_text()[-3000:]}")
    return status


async def promoted(pair: RealPair, broker: BrokerProcess) -> None:
    reply = await pair.client.invoke(broker.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
    assert reply.code == 0, reply.remark
    await becomes(pair, broker, role="master", phase="open", writable=True)


async def route_is(pair: RealPair, address: str) -> None:
    await until(lambda: pair.master_in_route() == address, lambda: f"{address}; route says {pair.master_in_route()!r}")


async def acknowledged(load: Load, more: int) -> None:
    await load.reached(len(load.result.acknowledged) + more)


async def in_sync_pair(pair: RealPair) -> None:
    pair.master.start()
    pair.slave.start()
    await pair.in_sync()


def test_a_demoted_master_restarted_with_its_old_conf_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            await promoted(pair, pair.slave)
            await becomes(pair, pair.master, role="slave", phase="following")
            await pair.stopped(pair.master)
            pair.master.start()
            await becomes(pair, pair.master, role="slave", phase="following")
            await becomes(pair, pair.slave, role="master", phase="open", epoch=2)
            await route_is(pair, pair.slave.address)
            pair.writer_address = pair.slave.address
            load = pair.load(senders=1)
            await pair.in_sync(pair.slave, quiet=False)
            await acknowledged(load, 10)
            await pair.check(await load.stop())

    asyncio.run(scenario())


def test_a_slave_on_a_new_disk_is_promoted_without_waiting_for_its_former_self(tmp_path: Path) -> None:
    """The new store takes the lost one's place in one swap, long before the lost one would have left by itself."""

    async def scenario() -> None:
        async with RealPair(tmp_path, properties={"haMaxTimeSlaveNotCatchup": "600000"}) as pair:
            await in_sync_pair(pair)
            load = pair.load(senders=2)
            await acknowledged(load, 50)
            pair.slave.kill()
            shutil.rmtree(pair.slave.store)
            pair.slave.start()
            await pair.in_sync(quiet=False)
            result = await load.stop()
            new = (await pair.status(pair.slave))["replica"]
            for broker in (pair.master, pair.slave):
                await becomes(pair, broker, in_sync=[new])
            await promoted(pair, pair.slave)
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())


def machine_crashed(broker: BrokerProcess) -> None:
    """Kills it and takes away what it knew of this boot of the machine: its page cache counts as lost."""
    broker.kill()
    (broker.store / layout.CHECKPOINT).unlink(missing_ok=True)
    (broker.store / layout.ABORT).write_text("written by another boot of this machine")


def test_a_slave_whose_machine_crashed_is_promoted_only_after_it_has_heard_its_master(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            load = pair.load(senders=2)
            await acknowledged(load, 100)
            result = await load.stop()
            await pair.in_sync()
            pair.master.kill()
            machine_crashed(pair.slave)
            pair.slave.start()
            await becomes(pair, pair.slave, role="slave")
            order = Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"})
            refused = await pair.client.invoke(pair.slave.address, order, 20)
            assert refused.code != 0
            assert "may lack acknowledged messages" in refused.remark
            pair.master.start()
            await pair.in_sync()
            await promoted(pair, pair.slave)
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())


def test_a_killed_master_restarted_with_its_old_conf_follows_and_cuts_only_what_was_never_confirmed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            load = pair.load(senders=2)
            await acknowledged(load, 50)
            pair.master.kill()
            await promoted(pair, pair.slave)
            pair.writer_address = pair.slave.address
            pair.master.start()
            await becomes(pair, pair.master, role="slave", phase="following")
            await acknowledged(load, 50)
            await route_is(pair, pair.slave.address)
            result = await load.stop()
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())


def test_without_a_name_server_it_asks_whom_it_remembers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            pair.master.kill()
            await promoted(pair, pair.slave)
            pair.master.start(namesrvAddr="127.0.0.1:1")
            await becomes(pair, pair.master, role="slave", phase="following")

    asyncio.run(scenario())


def test_a_master_that_reaches_nobody_stays_read_only_until_the_operator_accepts_a_loss(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path, properties={"haRejoinWait": "600000"}) as pair:
            await in_sync_pair(pair)
            pair.master.kill()
            await pair.stopped(pair.slave)
            pair.master.start(namesrvAddr="127.0.0.1:1")
            await becomes(pair, pair.master, phase="asking", writable=False)
            order = Command(PairCode.PROMOTE, {"role": "SYNC_MASTER", "force": "true"})
            assert (await pair.client.invoke(pair.master.address, order, 20)).code == 0
            await becomes(pair, pair.master, role="master", phase="open", writable=True, provisional=False)

    asyncio.run(scenario())


def test_a_master_that_stopped_in_order_reigns_provisionally_until_its_slave_is_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            await pair.stopped(pair.master)
            await pair.stopped(pair.slave)
            pair.master.start()
            await becomes(pair, pair.master, phase="open", writable=True, provisional=True)
            pair.slave.start()
            await becomes(pair, pair.master, phase="open", writable=True, provisional=False)
            await pair.in_sync()

    asyncio.run(scenario())


def test_a_master_that_missed_a_promotion_steps_down_when_it_learns_of_it(tmp_path: Path) -> None:
    """Both reign for a while: the old one was stopped in its tracks (SIGSTOP) when the other was promoted."""

    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            pair.master.pause()
            order = Command(PairCode.PROMOTE, {"role": "SYNC_MASTER", "force": "true"})
            assert (await pair.client.invoke(pair.slave.address, order, 30)).code == 0
            await becomes(pair, pair.slave, role="master", phase="open")
            pair.master.resume()
            await becomes_slave(pair)
            await becomes(pair, pair.slave, role="master", phase="open", writable=True)

    async def becomes_slave(pair: RealPair) -> None:
        async def follows() -> bool:
            return (await pair.status(pair.master)).get("phase") == "following"

        await until(follows, "the old master to follow")

    asyncio.run(scenario())


def test_a_promotion_is_remembered_with_the_files_as_they_are(tmp_path: Path) -> None:
    """The register decides over restarts of any node, in any order; the file was the first wish."""

    async def scenario() -> None:
        async with RealPair(tmp_path) as pair:
            await in_sync_pair(pair)
            load = pair.load(senders=1)
            await acknowledged(load, 20)
            result = await load.stop()
            pair.master.kill()
            await promoted(pair, pair.slave)
            await pair.stopped(pair.slave)
            pair.slave.start(brokerRole="SLAVE", brokerId="1")
            await becomes(pair, pair.slave, role="master", phase="open", writable=True)
            pair.master.start()
            await becomes(pair, pair.master, role="slave", phase="following")
            await becomes(pair, pair.slave, role="master", phase="open", provisional=False)
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())
