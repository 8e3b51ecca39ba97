"""Real processes: who comes back with the conf file of a master while another reigns follows it and never writes."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tandemq.codec.command import Command
from tandemq.replication.metadata import PairCode
from tandemq.store import layout
from tandemq.testing.pair import BrokerProcess, Load, RealPair

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 40.0


async def becomes(pair: RealPair, broker: BrokerProcess, **wanted: object) -> dict[str, object]:
    """Until the broker's own word has these values; it must not have been writable on the way to being a slave."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    status: dict[str, object] = {}
    while asyncio.get_running_loop().time() < deadline:
        status = await pair.status(broker)
        assert not (wanted.get("role") == "slave" and status.get("writable")), "a node that must follow took writes"
        if status and all(status.get(key) == value for key, value in wanted.items()):
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(f"{broker.address} did not become {wanted}: {status}\n{broker.log.read_text()[-3000:]}")


async def promoted(pair: RealPair, broker: BrokerProcess) -> None:
    reply = await pair.client.invoke(broker.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
    assert reply.code == 0, reply.remark
    await becomes(pair, broker, role="master", phase="open", writable=True)


async def route_is(pair: RealPair, address: str) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while pair.master_in_route() != address:
        assert asyncio.get_running_loop().time() < deadline, f"route says {pair.master_in_route()!r}, wanted {address}"
        await asyncio.sleep(0.05)


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


@pytest.mark.parametrize("old_identity_leaves", [True, False])
def test_a_slave_on_a_new_disk_is_promoted_without_waiting_for_its_former_self(
    tmp_path: Path, old_identity_leaves: bool
) -> None:
    async def scenario() -> None:
        # So long that the old identity is still on record when the new one is in sync.
        away_max = "6000" if old_identity_leaves else "600000"
        async with RealPair(tmp_path, properties={"haMaxTimeSlaveNotCatchup": away_max}) as pair:
            await in_sync_pair(pair)
            load = pair.load(senders=2)
            await acknowledged(load, 50)
            pair.slave.kill()
            shutil.rmtree(pair.slave.store)
            pair.slave.start()
            await pair.in_sync(quiet=False)
            assert len((await pair.status(pair.master))["in_sync"]) == 2
            result = await load.stop()
            new = (await pair.status(pair.slave))["replica"]
            for broker in (pair.master, pair.slave):
                if old_identity_leaves:
                    await becomes(pair, broker, in_sync=[new])
            await promoted(pair, pair.slave)
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())


def machine_crashed(broker: BrokerProcess) -> None:
    """Kills it and takes away what it knew of this boot of the machine: its page cache counts as lost."""
    broker.kill()
    (broker.store / layout.CHECKPOINT).unlink(missing_ok=True)


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


def test_a_master_that_reaches_nobody_waits_and_goes_on_when_the_wait_is_over_or_the_operator_says_so(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with RealPair(tmp_path, properties={"haRejoinWait": "600000"}) as pair:
            await in_sync_pair(pair)
            await pair.stopped(pair.master)
            await pair.stopped(pair.slave)
            pair.master.start(namesrvAddr="127.0.0.1:1")
            await becomes(pair, pair.master, phase="waiting for word from its group", writable=False)
            order = Command(PairCode.PROMOTE, {"role": "SYNC_MASTER", "force": "true"})
            assert (await pair.client.invoke(pair.master.address, order, 20)).code == 0
            await becomes(pair, pair.master, role="master", phase="open", writable=True)
            await pair.stopped(pair.master)
            pair.master.start(haRejoinWait="500")
            await becomes(pair, pair.master, role="master", phase="open", writable=True)

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
        deadline = asyncio.get_running_loop().time() + SECONDS
        while (status := await pair.status(pair.master)).get("phase") != "following":
            assert asyncio.get_running_loop().time() < deadline, status
            await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_a_slave_with_a_newer_reign_of_its_own_ends_the_masters_and_the_operator_chooses(tmp_path: Path) -> None:
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
            force = Command(PairCode.PROMOTE, {"role": "SYNC_MASTER", "force": "true"})
            await becomes(pair, pair.slave, role="slave")
            await pair.client.invoke(pair.slave.address, force, 20)  # a second reign
            await becomes(pair, pair.slave, role="master", phase="open", epoch=3)
            await pair.stopped(pair.slave)
            pair.master.start()  # knows of none of this, and is forced
            await becomes(pair, pair.master, phase="asking")
            await pair.client.invoke(pair.master.address, force, 20)
            await becomes(pair, pair.master, role="master", phase="open", epoch=2)
            pair.slave.start()
            await becomes(pair, pair.master, brokerRole="SLAVE")
            assert "newer than the master's 2: the master must step down" in pair.slave.log.read_text()
            reply = await pair.client.invoke(pair.slave.address, force, 20)
            assert reply.code == 0, reply.remark
            await becomes(pair, pair.slave, role="master", phase="open", writable=True)
            await becomes(pair, pair.master, role="slave", phase="following")
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(scenario())
