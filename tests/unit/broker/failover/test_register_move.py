"""The register moves into etcd and back, and never over something newer."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.failover.failover import Failover
from tandemq.errors import ReplicationError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

HOST = "127.0.0.1"


def broker_at(path: Path, etcd: FakeEtcd | None, role: BrokerRole = BrokerRole.SYNC_MASTER, master: str = "") -> Broker:
    coordinator = f"etcd://{HOST}:{etcd.port}" if etcd is not None else ""
    return Broker(
        BrokerConfig(
            role=role,
            broker_id=1 if role is BrokerRole.SLAVE else 0,
            broker_ip1=HOST,
            store_path_root_dir=str(path),
            broker_name="b",
        ),
        StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64),
        RemotingConfig(listen_port=0, bind_address=HOST),
        ReplicationConfig(coordinator=coordinator, lease_seconds=1, ha_master_address=master),
    )


def failover_of(broker: Broker) -> Failover:
    found = broker.replication.failover  # type: ignore[attr-defined]
    assert isinstance(found, Failover)
    return found


async def writes(broker: Broker) -> None:
    await until(lambda: broker.is_master and broker.writer.refusal is None, lambda: str(broker.writer.refusal))


def test_a_manual_group_moves_into_etcd_and_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(tmp_path, None) as broker:
                await writes(broker)
            async with broker_at(tmp_path, etcd) as broker:
                failover = failover_of(broker)
                await until(lambda: "lives in the group" in failover.refusal)
                assert not broker.is_master
                assert "epoch" in await failover.move.to_coordinator(accept_loss=False)
                await writes(broker)
                with pytest.raises(ReplicationError, match="nothing to do"):
                    await failover.move.to_coordinator(accept_loss=False)
                assert "lives in the group" in await failover.move.to_group()
                await until(lambda: not broker.is_master)
                await until(lambda: "lives in the group" in failover.refusal)
            async with broker_at(tmp_path, None) as broker:
                await writes(broker)

    asyncio.run(story())


def test_a_lost_etcd_gets_the_register_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(tmp_path, etcd) as broker:
                await writes(broker)
            etcd.keys.clear()
            async with broker_at(tmp_path, etcd) as broker:
                failover = failover_of(broker)
                await until(lambda: "made anew" in failover.refusal)
                before = broker.replication.status()
                assert before is not None
                await failover.move.to_coordinator(accept_loss=False)
                await writes(broker)
                after = broker.replication.status()
                assert after is not None
                assert after.epoch > before.epoch  # never a fresh epoch over an older one

    asyncio.run(story())


def test_members_that_can_not_be_asked_are_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            async with broker_at(tmp_path / "a", None) as master:
                await writes(master)
                place = f"{HOST}:{master.ha_port}"
                slave = broker_at(tmp_path / "b", None, BrokerRole.SLAVE, place)
                async with slave:
                    await until(lambda: len(master.replication.status().register["in_sync"]) == 2)  # type: ignore[union-attr,index]
                    lost = slave.address
            async with broker_at(tmp_path / "a", etcd) as master:
                failover = failover_of(master)
                await until(lambda: "lives in the group" in failover.refusal)
                with pytest.raises(ReplicationError, match=lost):
                    await failover.move.to_coordinator(accept_loss=False)
                assert etcd.keys == {}

    asyncio.run(story())
