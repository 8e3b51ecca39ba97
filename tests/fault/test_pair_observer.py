"""An observer beside our own pair: it has every byte, and nothing rests on it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.codec.command import Command
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import BrokerProcess, RealPair
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOT_ENOUGH_COPIES = {10, 11, 12}


def observer_of(pair: RealPair, directory: Path, ha_address: str) -> BrokerProcess:
    master = pair.master.properties
    names = {key: master[key] for key in ("brokerName", "namesrvAddr")}
    return BrokerProcess(directory, {**names, "haObserver": "true", "haMasterAddress": ha_address})


def test_an_observer_copies_everything_and_counts_for_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealPair(tmp_path) as pair:
            observer = observer_of(pair, tmp_path / "observer", pair.master.ha_address)
            pair.master.start()
            pair.slave.start()
            observer.start()
            load = pair.load()
            try:
                await load.reached(500)
                observer.kill()
                await load.reached(1000)
                observer.start(haCompression="zstd")
                await load.reached(1500)
                result = await load.stop()
                await until(lambda: has_log_of(observer, pair.master), "the observer has every byte")
                status = await pair.status(pair.master)
                (seen,) = [r for r in status["replicas"] if r["address"] == observer.address]
                assert (seen["state"], seen["in_sync"], seen["is_member"]) == ("observing", False, False)
                assert not any(observer.address in member for member in status["members"])
                assert pair.master_in_route() == pair.master.address
                shown = BlockingCluster(ClusterAccess(namesrv=pair.namesrv)).observers
                assert await asyncio.to_thread(shown, pair.master.address) == [observer.address], "readFrom=observer"
                await refuses_to_be_promoted(pair, observer)

                pair.slave.kill()
                alone = pair.load()
                short = lambda: sum(alone.result.statuses.get(code, 0) for code in NOT_ENOUGH_COPIES)  # noqa: E731
                await until(lambda: short() > 5, lambda: f"sends without a slave: {alone.result.statuses}")
                assert not (await alone.stop()).acknowledged, "an observer was counted as a copy"
                queues = RealPair.messages(observer)
                for told in result.acknowledged:
                    assert queues[told.queue_id][told.queue_offset].startswith(told.body), told
            finally:
                observer.kill()

    asyncio.run(story())


def has_log_of(observer: BrokerProcess, master: BrokerProcess) -> bool:
    return observer.log_bytes().rstrip(b"\0") == master.log_bytes().rstrip(b"\0")


async def refuses_to_be_promoted(pair: RealPair, observer: BrokerProcess) -> None:
    reply = await pair.client.invoke(observer.address, Command(PairCode.PROMOTE, {"role": "ASYNC_MASTER"}), 20)
    assert "observer" in (reply.remark or ""), reply


@pytest.mark.parametrize("key", ["", "secret"])
def test_observers_follow_a_slave_and_each_other_through_a_promotion(key: str, tmp_path: Path) -> None:
    """master ── slave ── near ── far: the master serves one of them, and every byte arrives at the end."""

    async def story() -> None:
        async with RealPair(tmp_path, properties={"haSharedKey": key}) as pair:
            near = observer_of(pair, tmp_path / "near", pair.slave.ha_address)
            far = observer_of(pair, tmp_path / "far", near.ha_address)
            for broker in (*pair.brokers, near, far):
                broker.start(haSharedKey=key)
            load = pair.load()
            try:
                await load.reached(600)
                near.kill()
                await load.reached(1200)
                near.start(haCompression="zstd")
                await load.reached(1800)
                await promoted(pair.slave, key)
                pair.writer_address = pair.slave.address
                await load.reached(2400)
                result = await load.stop()
                await until(lambda: has_log_of(far, pair.slave), lambda: told(pair, near, far))
                await until(lambda: observed_once(pair, near), "the near observer shows the one that follows it")
                queues = RealPair.messages(far)
                for acknowledged in result.acknowledged:
                    found = queues[acknowledged.queue_id][acknowledged.queue_offset]
                    assert found.startswith(acknowledged.body), acknowledged
            finally:
                near.kill()
                far.kill()

    asyncio.run(story())


def told(pair: RealPair, *observers: BrokerProcess) -> str:
    logs = [f"{one.address}\n{one.log.read_text()[-2000:]}" for one in (*pair.brokers, *observers)]
    return "the last observer has every byte:\n" + "\n".join(logs)


async def promoted(slave: BrokerProcess, key: str) -> None:
    """As an operator does it; with a key, it has to be shown."""
    command = [sys.executable, "-m", "tandemq", "broker", "promote", slave.address]
    if key:
        path = slave.conf.with_name("key")
        path.write_text(key)
        command += ["--ha-key-file", str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def observed_once(pair: RealPair, broker: BrokerProcess) -> bool:
    """Whether exactly one replica observes this broker; the promotion makes it connect again, which takes a moment."""
    replicas = (await pair.status(broker)).get("replicas", ())
    return sum(one["state"] == "observing" for one in replicas) == 1
