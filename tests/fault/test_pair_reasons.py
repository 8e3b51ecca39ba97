"""Why a slave is not in sync: asked on the slave, and on the master where it can know, `ha status` names the reason."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tandemq.broker.addresses import free_port
from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.cli.ha_view import advice
from tandemq.codec.command import Command
from tandemq.errors import ConfigError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.metadata import PairCode
from tandemq.store.config import StoreConfig
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
SECONDS = 30.0


SMALL = StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64)


def broker(
    root: Path,
    role: BrokerRole,
    name: str = "a",
    tls: Mapping[str, Any] = {},
    store: StoreConfig = SMALL,
    **replication: Any,
) -> Broker:
    return Broker(
        BrokerConfig(
            broker_name=name,
            broker_id=0 if role is not BrokerRole.SLAVE else 1,
            role=role,
            broker_ip1=HOST,
            store_path_root_dir=str(root),
        ),
        store,
        RemotingConfig(listen_port=free_port(HOST), bind_address=HOST, **tls),
        ReplicationConfig(reconnect_ms_max=50, **replication),
    )


async def status(client: RemotingClient, asked: Broker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes((await client.invoke(asked.address, Command(PairCode.HA_DETAIL), 5)).body))
    return found


async def reasons(
    directory: Path, master: Mapping[str, Any], slave: Mapping[str, Any], *, name: str = "a", address: str = ""
) -> tuple[str, str, list[str]]:
    """The reason on the slave and on the master, and what `tandemq ha status` prints below its tables."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RemotingClient(RemotingConfig()))
        reigns = broker(directory / "master", BrokerRole.SYNC_MASTER, **master)
        await stack.enter_async_context(reigns)
        place = address or f"{HOST}:{reigns.ha_port}"
        follows = broker(directory / "slave", BrokerRole.SLAVE, name, ha_master_address=place, **slave)
        await stack.enter_async_context(follows)
        mine: dict[str, Any] = {}

        async def has_a_reason() -> bool:
            nonlocal mine
            mine = await status(client, follows)
            return bool(mine.get("reason"))

        await until(has_a_reason, lambda: f"a reason in {mine}")
        theirs = await status(client, reigns)
        seen = next((one["reason"] for one in theirs["replicas"]), "")
        return mine["reason"], seen, advice([mine, theirs])


def test_another_key(tmp_path: Path) -> None:
    found = asyncio.run(reasons(tmp_path, {"shared_key": "one " * 4}, {"shared_key": "other" * 4}))
    assert found[:2] == ("key-refused", "key-refused")
    assert all("set the same haSharedKey on both brokers" in line for line in found[2])
    assert len(found[2]) == 2


def test_another_group(tmp_path: Path) -> None:
    found = asyncio.run(reasons(tmp_path, {}, {}, name="b"))
    assert found[:2] == ("wrong-group", "wrong-group")
    assert "'DefaultCluster/b' at a master of group 'DefaultCluster/a'" in found[2][0]
    assert "give both brokers the same brokerClusterName and brokerName" in found[2][0]


@pytest.mark.parametrize("is_free", [True, False], ids=["nobody-listens", "not-an-address"])
def test_the_wrong_address(tmp_path: Path, is_free: bool) -> None:
    address = f"{HOST}:{free_port(HOST)}" if is_free else "no-such-host.invalid:10912"
    found = asyncio.run(reasons(tmp_path, {}, {}, address=address))
    assert found[:2] == ("unreachable", "")
    assert address.partition(":")[0] in found[2][0]
    assert "check the address, that the master runs, and that its HA port is open" in found[2][0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    where = tmp_path_factory.mktemp("tls")
    files = {"tls_cert_path": str(where / "cert.pem"), "tls_key_path": str(where / "key.pem")}
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    make += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", files["tls_key_path"], "-out", files["tls_cert_path"]]
    subprocess.run(make, check=True, capture_output=True)
    return files


def test_only_one_of_them_speaks_tls(tmp_path: Path, certificate: dict[str, str]) -> None:
    secure = {"tls_enable": True, "tls": {**certificate, "tls_client_trust_path": certificate["tls_cert_path"]}}
    for number, (master, slave) in enumerate([(secure, {}), ({}, secure)]):
        found = asyncio.run(reasons(tmp_path / str(number), master, slave))
        assert found[:2] == ("tls-failed", "tls-failed")
        assert all("set haTlsEnable alike on both brokers" in line for line in found[2])


def test_a_slave_that_does_not_trust_the_masters_certificate(tmp_path: Path, certificate: dict[str, str]) -> None:
    secure = {"tls_enable": True, "tls": certificate}
    found = asyncio.run(reasons(tmp_path, secure, secure))
    assert found[:2] == ("tls-failed", "tls-failed")
    assert "the peer's certificate was refused: self-signed certificate" in found[2][0]
    assert "tlsClientTrustCertPath" in found[2][0]


def test_tls_without_a_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    async def start() -> None:
        async with broker(tmp_path, BrokerRole.SLAVE, tls_enable=True):
            pass

    with pytest.raises(ConfigError, match="haTlsEnable=true: needs tlsServerCertPath and tlsServerKeyPath"):
        asyncio.run(start())
