"""What a broker with a coordinator refuses, and how it knows that a process is dead."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.failover.failover import Failover
from tandemq.errors import ConfigError, ReplicationError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

HOST = "127.0.0.1"


def broker_at(etcd: FakeEtcd, path: Path, **more: int) -> Broker:
    return Broker(
        BrokerConfig(role=BrokerRole.SYNC_MASTER, broker_ip1=HOST, store_path_root_dir=str(path), broker_name="b"),
        remoting_config=RemotingConfig(listen_port=0, bind_address=HOST),
        replication_config=ReplicationConfig(coordinator=f"etcd://{HOST}:{etcd.port}", lease_seconds=1, **more),
    )


def test_a_slave_with_a_coordinator_is_refused() -> None:
    with pytest.raises(ConfigError, match="brokerRole=SLAVE with haCoordinator"):
        Broker(
            BrokerConfig(role=BrokerRole.SLAVE, broker_id=1),
            replication_config=ReplicationConfig(coordinator="etcd://a:1"),
        )


def test_a_lone_broker_begins_a_group_and_reigns_on_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(etcd, tmp_path) as broker:
                await until(lambda: broker.writer.refusal is None)
                assert broker.is_master
                assert broker.live.broker.broker_id == 0
                first = broker.replication.status()
            assert etcd.leases == set()  # a clean stop gives it up
            async with broker_at(etcd, tmp_path) as broker:
                await until(lambda: broker.writer.refusal is None)
                second = broker.replication.status()
            assert first is not None
            assert second is not None
            assert second.epoch > first.epoch
            assert second.register is not None
            assert second.register["home"] == "etcd:77"

    asyncio.run(story())


def test_an_etcd_that_lost_everything_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(etcd, tmp_path) as broker:
                await until(lambda: broker.writer.refusal is None)
            etcd.keys.clear()
            async with broker_at(etcd, tmp_path) as broker:
                failover = broker.replication.failover  # type: ignore[attr-defined]
                await until(lambda: "made anew" in failover.refusal)
                assert not broker.is_master
                assert etcd.keys == {}

    asyncio.run(story())


def test_an_etcd_that_is_not_there_at_the_start_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked ten times a second: a line for each would fill the disk of whoever gave a wrong address."""

    async def story() -> None:
        async with FakeEtcd() as etcd:
            asked = 0

            def cut(path: str) -> str:
                nonlocal asked
                asked += 1
                return "cut"

            etcd.before = cut
            async with broker_at(etcd, tmp_path):
                await until(lambda: asked > 20)

    asyncio.run(story())
    told = [record for record in caplog.records if "came to nothing" in record.getMessage()]
    assert len(told) <= 2


def test_one_with_priority_minus_one_begins_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd, broker_at(etcd, tmp_path, priority=-1) as broker:
            failover = broker.replication.failover  # type: ignore[attr-defined]
            await until(lambda: failover.verdict.why == "has haPriority=-1")
            assert etcd.keys == {}

    asyncio.run(story())


def test_without_its_coordinator_a_store_does_not_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(etcd, tmp_path) as broker:
                await until(lambda: broker.writer.refusal is None)
            manual = Broker(
                BrokerConfig(broker_ip1=HOST, store_path_root_dir=str(tmp_path), broker_name="b"),
                remoting_config=RemotingConfig(listen_port=0, bind_address=HOST),
            )
            async with manual:
                assert not manual.is_master
                with pytest.raises(ReplicationError, match="haCoordinator is empty"):
                    await manual.replication.promote(BrokerRole.SYNC_MASTER, accept_loss=True)  # type: ignore[attr-defined]

    asyncio.run(story())


async def reigning(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[Failover, list[bool]]:
    """Returns a master whose lease does not end by itself, and a list that grows whenever it starts its services."""
    await until(lambda: broker.writer.refusal is None)
    failover: Failover = broker.replication.failover  # type: ignore[attr-defined]
    failover.fence.until = float("inf")
    started: list[bool] = []
    monkeypatch.setattr(broker, "start_services", lambda: started.append(True))
    return failover, started


def test_services_wait_for_the_old_lease_also_after_the_own_one_lapsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the former master's lease has ended it may still deliver delayed messages."""

    async def story() -> None:
        async with FakeEtcd() as etcd, broker_at(etcd, tmp_path) as broker:
            failover, started = await reigning(broker, monkeypatch)
            failover.fence.alone_from = float("inf")
            await failover._go_on()
            assert started == []
            failover.fence.alone_from = float("-inf")
            await failover._go_on()
            assert started == [True]

    asyncio.run(story())


def test_a_master_without_a_lease_starts_no_services_when_the_old_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd, broker_at(etcd, tmp_path) as broker:
            failover, started = await reigning(broker, monkeypatch)
            await failover._old_lease_ends(0)
            assert started == [True]
            monkeypatch.setattr(failover.fence, "_now", lambda: float("inf"))
            await failover._old_lease_ends(0)
            assert started == [True]

    asyncio.run(story())
