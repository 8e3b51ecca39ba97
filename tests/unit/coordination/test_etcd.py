"""The etcd client against a fake that hangs, refuses, cuts connections and forgets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from tandemq.coordination.endpoints import parse_place
from tandemq.coordination.etcd import Change, EtcdClient, Put, Refused, WatchLost
from tandemq.errors import CoordinatorError
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

Story = Callable[[FakeEtcd, EtcdClient], Awaitable[None]]


def played(story: Story, **more: Any) -> None:
    async def play() -> None:
        async with FakeEtcd() as etcd:
            client = EtcdClient(parse_place(f"etcd://127.0.0.1:{etcd.port}"), **{"timeout": 10.0, **more})
            try:
                await story(etcd, client)
            finally:
                client.close()

    asyncio.run(play())


def test_a_swap_compares_the_revision_that_was_read() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        done, _, revision = await client.swap("/g/register", 0, [Put("/g/register", b"one")])
        assert done
        found = (await client.read("/g/")).values["/g/register"]
        assert (found.data, found.revision) == (b"one", revision)
        done, other, _ = await client.swap("/g/register", 0, [Put("/g/register", b"two")])
        assert not done
        assert other == found
        assert (await client.swap("/g/register", revision, [Put("/g/register", b"two")]))[0]

    played(story)


def test_only_keys_below_the_prefix_are_read() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        for key in ("/g/a", "/g/b", "/h/a", "/g"):
            etcd.put(key, b"x")
        assert sorted((await client.read("/g/")).values) == ["/g/a", "/g/b"]

    played(story)


def test_a_swap_whose_answer_is_lost_is_found_out_by_repeating_it() -> None:
    """The connection breaks after etcd wrote: the repeat finds the key changed, by ourselves."""

    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.after = lambda path: "cut" if path == "/v3/kv/txn" else None
        with pytest.raises(CoordinatorError):
            await client.swap("/g/register", 0, [Put("/g/register", b"mine")])
        etcd.after = lambda path: None
        done, found, _ = await client.swap("/g/register", 0, [Put("/g/register", b"mine")])
        assert not done
        assert found is not None
        assert found.data == b"mine"
        assert etcd.revision == 2  # written once

    played(story)


def test_an_endpoint_that_hangs_is_passed_over_and_asked_last_from_then_on() -> None:
    async def play() -> None:
        async with FakeEtcd() as hung, FakeEtcd() as other:
            hung.before = lambda path: "hang"
            other.put("/g/a", b"x")
            client = EtcdClient(parse_place(f"etcd://127.0.0.1:{hung.port},127.0.0.1:{other.port}"), timeout=0.2)
            assert "/g/a" in (await client.read("/g/")).values
            assert "/g/a" in (await client.read("/g/")).values
            assert len(hung.calls) == 1
            assert len(other.calls) == 2
            client.close()

    asyncio.run(play())


def test_nobody_answers() -> None:
    async def play() -> None:
        async with FakeEtcd() as etcd:
            port = etcd.port
        client = EtcdClient(parse_place(f"etcd://127.0.0.1:{port}"), timeout=5.0)
        with pytest.raises(CoordinatorError, match=f"127.0.0.1:{port}"):
            await client.read("/g/")
        assert client.trouble

    asyncio.run(play())


def test_a_member_without_a_leader_is_passed_over() -> None:
    async def play() -> None:
        async with FakeEtcd() as lost, FakeEtcd() as other:
            lost.before = lambda path: (503, {"error": "etcdserver: no leader", "code": 14})
            client = EtcdClient(parse_place(f"etcd://127.0.0.1:{lost.port},127.0.0.1:{other.port}"), timeout=5.0)
            assert await client.grant(2) > 0
            client.close()

    asyncio.run(play())


def test_what_etcd_refuses_is_not_tried_elsewhere() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.before = lambda path: (403, {"error": "etcdserver: permission denied", "code": 7})
        with pytest.raises(Refused, match="permission denied"):
            await client.read("/g/")

    played(story)


def test_an_idle_connection_that_was_closed_is_no_trouble() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        await client.read("/g/")
        for writer in list(etcd._writers):
            writer.close()
            await writer.wait_closed()
        await client.read("/g/")

    played(story)


def test_leases() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        lease = await client.grant(2)
        assert await client.renew(lease)
        assert await client.time_left(lease) == 2
        etcd.end_lease(lease)
        assert not await client.renew(lease)
        assert await client.time_left(lease) < 0
        await client.revoke(lease)

    played(story)


def test_revoking_a_lease_that_has_ended_is_no_error() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.before = lambda path: (404, {"error": "etcdserver: requested lease not found", "code": 5})
        await client.revoke(5)

    played(story)


def test_a_token_is_fetched_and_fetched_again_when_it_expired() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.token = "first"
        await client.read("/g/")
        etcd.token = "second"
        await client.read("/g/")
        assert etcd.calls.count("/v3/auth/authenticate") == 2

    played(story, user="tandemq", password="secret")


def test_all_who_ask_at_once_share_one_token() -> None:
    """A password costs etcd much: a starting broker gave it five times at once, and got none of the answers in time."""

    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.token = "first"
        await asyncio.gather(*(client.read("/g/") for _ in range(5)))
        assert etcd.calls.count("/v3/auth/authenticate") == 1

    played(story, user="tandemq", password="secret")


def test_a_token_that_comes_late_is_not_asked_for_again() -> None:
    """Calls have a quarter of a lease; etcd on a busy machine takes longer than that for a password."""

    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.token = "first"
        etcd.held["/v3/auth/authenticate"] = release = asyncio.Event()
        for _ in range(2):
            with pytest.raises(CoordinatorError, match="in time"):
                await client.read("/g/")
        release.set()
        await until(lambda: client._token)
        client.timeout = 10.0
        await client.read("/g/")
        assert etcd.calls.count("/v3/auth/authenticate") == 1

    played(story, user="tandemq", password="secret", timeout=0.05)


def test_a_wrong_password_is_told() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        etcd.before = lambda path: (400, {"error": "authentication failed, invalid user ID or password", "code": 3})
        with pytest.raises(Refused, match="password"):
            await client.read("/g/")

    played(story, user="tandemq", password="wrong")


def test_a_watch_brings_changes_and_ends_of_leases() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        lease = await client.grant(2)
        async with aclosing(client.watch("/g/", 1)) as watch:
            assert await anext(watch) == []
            await client.swap("/g/h", 0, [Put("/g/h", b"me", lease)])
            (change,) = await anext(watch)
            assert (change.key, change.data, change.lease) == ("/g/h", b"me", lease)
            etcd.end_lease(lease)
            assert await anext(watch) == [Change("/g/h", None, etcd.revision)]

    played(story)


def test_a_compacted_watch_says_so() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        async with aclosing(client.watch("/g/", 1)) as watch:
            await anext(watch)
            etcd.cancel_watches(compact_revision="9")
            with pytest.raises(WatchLost, match="compacted at 9"):
                await anext(watch)

    played(story)


def test_a_watch_whose_connection_breaks_says_so() -> None:
    async def story(etcd: FakeEtcd, client: EtcdClient) -> None:
        async with aclosing(client.watch("/g/", 1)) as watch:
            await anext(watch)
            for writer in list(etcd._writers):
                writer.transport.abort()
            with pytest.raises(WatchLost):
                await anext(watch)

    played(story)
