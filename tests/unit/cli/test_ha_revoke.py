"""What a supervisor runs after a broker has ended: its lease ends too, but never that of one that lives."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig
from tandemq.cli.config_file import Loaded, load
from tandemq.cli.ha_revoke import revoke
from tandemq.errors import StoreLocked
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

HOLDER = "/tandemq/DefaultCluster/b/holder"
CONFIGS = (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig)


def conf_at(directory: Path, coordinator: str) -> Loaded:
    conf = directory / "broker.conf"
    lines = ("brokerName=b", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1", "listenPort=0", "brokerRole=SYNC_MASTER")
    conf.write_text("\n".join((*lines, f"storePathRootDir={directory / 'store'}", f"haCoordinator={coordinator}", "")))
    return load(conf, CONFIGS, overrides=[], lenient=True)


def test_the_lease_of_one_that_ended_is_revoked_and_of_one_that_runs_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            loaded = conf_at(tmp_path, f"etcd://127.0.0.1:{etcd.port}")
            broker = Broker(*(loaded[config] for config in CONFIGS))  # type: ignore[arg-type]
            async with broker:
                await until(lambda: broker.writer.refusal is None)
                held = etcd.keys[HOLDER]
            etcd.leases.add(held[2])
            etcd._put(HOLDER, held[0], held[2])  # as a killed one leaves it
            assert "revoked" in await revoke(loaded)
            assert HOLDER not in etcd.keys
            assert "held no lease" in await revoke(loaded)

    asyncio.run(story())


def test_a_store_that_is_open_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            loaded = conf_at(tmp_path, f"etcd://127.0.0.1:{etcd.port}")
            async with Broker(*(loaded[config] for config in CONFIGS)) as broker:  # type: ignore[arg-type]
                await until(lambda: broker.writer.refusal is None)

            def locked(self: object, path: Path) -> None:
                raise StoreLocked(f"{path} is locked")

            monkeypatch.setattr("tandemq.store.disk.FileDisk.lock", locked)
            calls = len(etcd.calls)
            with pytest.raises(StoreLocked):
                await revoke(loaded)
            assert len(etcd.calls) == calls  # etcd was not even asked

    asyncio.run(story())


def test_without_a_coordinator_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert "there is no lease" in asyncio.run(revoke(conf_at(tmp_path, "")))


def test_a_store_without_a_record_never_reigned(tmp_path: Path) -> None:
    assert "never been part" in asyncio.run(revoke(conf_at(tmp_path, "etcd://127.0.0.1:1")))
