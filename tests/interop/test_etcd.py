"""The etcd client against a real etcd: what the JSON gateway says, three nodes, users, TLS."""

import asyncio
import shutil
import subprocess
from base64 import b64encode
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tandemq.broker.failover.coordinator import tls_context
from tandemq.coordination.endpoints import parse_place
from tandemq.coordination.etcd import EtcdClient, Put, Refused, WatchLost
from tandemq.errors import CoordinatorError
from tandemq.replication.config import ReplicationConfig
from tandemq.testing.etcd import RealEtcd, etcd_program
from tandemq.testing.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(not etcd_program(), reason="no etcd on this machine: Debian's package is etcd-server"),
]


def test_swaps_leases_and_watches(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealEtcd(tmp_path) as etcd:
            client = etcd.client()
            assert (await client.read("/g/")).values == {}
            lease = await client.grant(2)
            done, _, revision = await client.swap("/g/r", 0, [Put("/g/r", b"one"), Put("/g/h", b"me", lease)])
            assert done
            done, found, _ = await client.swap("/g/r", 0, [Put("/g/r", b"two")])
            assert not done
            assert found is not None
            assert (found.data, found.revision) == (b"one", revision)
            read = await client.read("/g/")
            assert read.values["/g/h"].lease == lease
            assert read.cluster
            assert await client.renew(lease)
            assert await client.time_left(lease) > 0
            client.close()

    asyncio.run(story())


def test_a_lease_that_is_not_renewed_takes_its_key_along(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealEtcd(tmp_path) as etcd:
            client = etcd.client()
            lease = await client.grant(2)
            _, _, revision = await client.swap("/g/h", 0, [Put("/g/h", b"me", lease)])
            async with aclosing(client.watch("/g/", revision + 1)) as watch:
                async for changes in watch:  # nobody renews it
                    if changes:
                        assert [(one.key, one.data) for one in changes] == [("/g/h", None)]
                        break
            assert not await client.renew(lease)
            assert await client.time_left(lease) < 0
            await client.revoke(lease)
            client.close()

    asyncio.run(story())


async def drained(client: EtcdClient) -> None:
    """Watches from the first revision on until the watch ends."""
    async with aclosing(client.watch("/g/", 1)) as watch:
        async for _ in watch:
            pass


def test_a_compacted_revision_ends_the_watch(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealEtcd(tmp_path) as etcd:
            client = etcd.client()
            revision = 0
            for number in range(5):
                _, _, revision = await client.swap("/g/r", revision, [Put("/g/r", b"%d" % number)])
            await client._call("/v3/kv/compaction", {"revision": str(revision)})
            with pytest.raises(WatchLost):
                await drained(client)
            client.close()

    asyncio.run(story())


def test_three_nodes_of_which_one_hangs_and_one_dies(tmp_path: Path) -> None:
    """With one hung, two answer; with the leader killed, the rest elects another; with two gone nobody answers."""

    async def story() -> None:
        async with RealEtcd(tmp_path, nodes=3) as etcd:
            client = etcd.client(timeout=1.0)
            _, _, revision = await client.swap("/g/r", 0, [Put("/g/r", b"one")])
            etcd.nodes[0].kill()

            async def swapped() -> bool:
                done, found, _ = await client.swap("/g/r", revision, [Put("/g/r", b"two")])
                return done or (found is not None and found.data == b"two")

            await until(swapped, ignoring=(CoordinatorError,))
            etcd.nodes[1].kill()
            with pytest.raises(CoordinatorError):
                await client.read("/g/")
            etcd.start()

            async def reads() -> bool:
                return (await client.read("/g/")).values["/g/r"].data == b"two"

            await until(reads, ignoring=(CoordinatorError,))
            client.close()

    asyncio.run(story())


def test_users(tmp_path: Path) -> None:
    async def story() -> None:
        async with RealEtcd(tmp_path) as etcd:
            admin = etcd.client()

            async def call(path: str, **body: Any) -> None:
                await admin._call(f"/v3/auth/{path}", body)

            for user, password in (("root", "rootpw"), ("tandemq", "secret")):
                await call("user/add", name=user, password=password)
            await call("user/grant", user="root", role="root")
            await call("role/add", name="group")
            key, end = b64encode(b"/tandemq/C/b/").decode(), b64encode(b"/tandemq/C/b0").decode()
            await call("role/grant", name="group", perm={"permType": "READWRITE", "key": key, "range_end": end})
            await call("user/grant", user="tandemq", role="group")
            await call("enable")
            place = parse_place(etcd.place)
            client = EtcdClient(place, user="tandemq", password="secret", timeout=5.0)
            lease = await client.grant(2)
            assert (await client.swap("/tandemq/C/b/register", 0, [Put("/tandemq/C/b/register", b"x", lease)]))[0]
            async with aclosing(client.watch("/tandemq/C/b/", 1)) as watch:
                async for changes in watch:
                    if changes:
                        assert changes[0].data == b"x"
                        break
            with pytest.raises(Refused, match="permission denied"):
                await client.read("/other/")
            client._token = "worn-out"
            assert (await client.read("/tandemq/C/b/")).values
            wrong = EtcdClient(place, user="tandemq", password="wrong", timeout=5.0)
            with pytest.raises(Refused, match="authentication failed"):
                await wrong.read("/tandemq/C/b/")
            for one in (admin, client, wrong):
                one.close()

    asyncio.run(story())


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in ("server", "client"):
        openssl("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.pem", "-days", "2", "-extfile", "san"),
        )

    async def story() -> None:
        etcd = RealEtcd(tmp_path / "etcd")
        node = etcd.nodes[0]
        url, peer = f"https://127.0.0.1:{node.port}", f"http://127.0.0.1:{node.peer_port}"
        process = subprocess.Popen(  # noqa: ASYNC220  # nothing else runs on this loop yet
            [
                etcd_program(),
                *("--name", "tls", "--data-dir", str(tmp_path / "data"), "--client-cert-auth"),
                *("--listen-client-urls", url, "--advertise-client-urls", url),
                *(
                    "--listen-peer-urls",
                    peer,
                    "--initial-advertise-peer-urls",
                    peer,
                    "--initial-cluster",
                    f"tls={peer}",
                ),
                *("--cert-file", "server.pem", "--key-file", "server.key", "--trusted-ca-file", "ca.pem"),
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            config = ReplicationConfig(
                coordinator=f"etcds://127.0.0.1:{node.port}",
                coordinator_ca_path=str(tmp_path / "ca.pem"),
                coordinator_cert_path=str(tmp_path / "client.pem"),
                coordinator_key_path=str(tmp_path / "client.key"),
            )
            place = parse_place(config.coordinator)
            client = EtcdClient(place, tls=tls_context(config), timeout=5.0)

            async def swapped() -> bool:
                return (await client.swap("/g/r", 0, [Put("/g/r", b"one")]))[0]

            await until(swapped, ignoring=(CoordinatorError,))
            async with aclosing(client.watch("/g/", 1)) as watch:
                async for changes in watch:
                    if changes:
                        break
            stranger = ReplicationConfig(coordinator=config.coordinator, coordinator_ca_path=str(tmp_path / "ca.pem"))
            without = EtcdClient(place, tls=tls_context(stranger), timeout=5.0)
            with pytest.raises(CoordinatorError):
                await without.read("/g/")
            client.close()
            without.close()
        finally:
            process.kill()
            process.wait()

    asyncio.run(story())
