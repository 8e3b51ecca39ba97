"""The fake behaves as the real one where the client looks: compared with it in tests/interop/test_etcd.py too."""

import asyncio

from tandemq.coordination.endpoints import parse_place
from tandemq.coordination.etcd import EtcdClient, Put
from tandemq.testing.fake_etcd import FakeEtcd


def test_a_lease_takes_its_keys_along() -> None:
    async def story() -> None:
        async with FakeEtcd() as etcd:
            client = EtcdClient(parse_place(f"etcd://127.0.0.1:{etcd.port}"), timeout=5.0)
            lease = await client.grant(2)
            await client.swap("/k", 0, [Put("/k", b"v", lease)])
            etcd.end_lease(lease)
            assert (await client.read("/")).values == {}
            client.close()

    asyncio.run(story())
