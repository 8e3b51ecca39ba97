"""The register's home in etcd: swaps that are found out, changes that are told, and an etcd that lost something."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tandemq.broker.failover.coordinator import Coordinator, tls_context
from tandemq.clock import SystemClock
from tandemq.codec.ha_register import Member, Register
from tandemq.errors import ConfigError, CoordinatorError
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.known_keys import Holder
from tandemq.replication.register_fit import refusal_of
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

KEY = "/tandemq/C/b/register"
FIRST = Register(group_id="g", home="etcd:77", epoch=1, epoch_id="e", holder="a:1#x", revision=1)
FIRST = msgspec.structs.replace(FIRST, members=(Member("a:1#x", "a:1", 1),), in_sync=("a:1#x",))
SECOND = msgspec.structs.replace(FIRST, revision=2, paused=True)
Story = Callable[[FakeEtcd, Coordinator], Awaitable[None]]


def played(story: Story) -> None:
    async def play() -> None:
        async with FakeEtcd() as etcd:
            config = ReplicationConfig(coordinator=f"etcd://127.0.0.1:{etcd.port}")
            coordinator = Coordinator(config, "C", "b", SystemClock())
            try:
                await story(etcd, coordinator)
            finally:
                await coordinator.stop()

    asyncio.run(play())


def test_a_register_is_created_once() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        await mine.read()
        assert mine.register is None
        assert await mine.swap(None, FIRST, Holder("a:1#x", 1), 5)
        assert mine.register == FIRST
        assert mine.holder == Holder("a:1#x", 1)
        assert etcd.keys["/tandemq/C/b/holder"][2] == 5
        assert mine.home == "etcd:77"

    played(story)


def test_a_swap_over_another_one_fails_and_tells_what_is_there() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        await mine.read()
        etcd.put(KEY, msgspec.json.encode(SECOND))
        told: list[Register] = []
        mine.on_register = told.append
        assert not await mine.swap(None, FIRST)
        assert told == [SECOND]
        assert mine.register == SECOND
        assert not await mine.swap(FIRST, msgspec.structs.replace(FIRST, revision=3))

    played(story)


def test_a_swap_whose_answer_was_lost_counts_when_it_is_repeated() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        await mine.read()
        etcd.after = lambda path: "cut" if path == "/v3/kv/txn" else None
        with pytest.raises(CoordinatorError):
            await mine.swap(None, FIRST)
        assert mine.register is None
        etcd.after = lambda path: None
        assert await mine.swap(None, FIRST)
        assert mine.register == FIRST
        assert await mine.swap(FIRST, SECOND)

    played(story)


def test_changes_by_others_are_told_at_once() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        told: list[Register] = []
        mine.on_register = told.append
        mine.start()
        await until(lambda: mine.keys.was_read and "/v3/watch" in etcd.calls)
        etcd.put(KEY, msgspec.json.encode(FIRST))
        await until(lambda: told == [FIRST])
        etcd.cancel_watches(compact_revision="3")
        etcd.put(KEY, msgspec.json.encode(SECOND))
        await until(lambda: told == [FIRST, SECOND])

    played(story)


def test_the_end_of_a_lease_is_told() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        mine.start()
        await until(lambda: "/v3/watch" in etcd.calls)
        etcd.put(KEY, msgspec.json.encode(FIRST))
        await until(lambda: mine.register == FIRST)
        lease = await mine.client.grant(2)
        assert await mine.claim(Holder("a:1#x", 1), lease)
        etcd.end_lease(lease)
        await until(lambda: mine.holder is None)

    played(story)


def test_a_claim_over_another_register_is_refused() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        etcd.put(KEY, msgspec.json.encode(FIRST))
        await mine.read()
        etcd.put(KEY, msgspec.json.encode(SECOND))
        assert not await mine.claim(Holder("a:1#x", 1), 5)
        assert mine.register == SECOND

    played(story)


def test_an_etcd_that_was_made_anew_is_noticed() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        etcd.revision = 50
        etcd.put(KEY, msgspec.json.encode(FIRST))
        await mine.read()
        etcd.keys.clear()
        await mine.read()
        assert "gone" in refusal_of(mine.keys, mine.home, FIRST)
        etcd.revision = 3
        await mine.read()
        assert "gone" in refusal_of(mine.keys, mine.home, FIRST)
        assert await mine.force(SECOND)  # an operator gives it back
        await mine.read()
        assert refusal_of(mine.keys, mine.home, SECOND) == ""

    played(story)


def test_an_etcd_that_was_restored_from_a_backup_takes_the_register_back() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        etcd.revision = 10
        etcd.put(KEY, msgspec.json.encode(FIRST))
        backup = dict(etcd.keys)
        etcd.revision = 50
        etcd.put(KEY, msgspec.json.encode(SECOND))
        await mine.read()
        etcd.keys, etcd.revision = backup, 11
        await mine.read()
        assert "restored from a backup" in refusal_of(mine.keys, mine.home, SECOND)
        assert not await mine.claim(Holder("a:1#x", 1), 5)  # nobody reigns by what is older than it knows
        with pytest.raises(CoordinatorError, match="older"):
            await mine.swap(SECOND, msgspec.structs.replace(SECOND, revision=3))
        assert await mine.force(msgspec.structs.replace(SECOND, revision=3))
        await mine.read()
        assert refusal_of(mine.keys, mine.home, SECOND) == ""

    played(story)


def test_a_register_that_can_not_be_read_is_told() -> None:
    async def story(etcd: FakeEtcd, mine: Coordinator) -> None:
        etcd.put(KEY, b"{")
        await mine.read()
        assert "can't be read" in refusal_of(mine.keys, mine.home, None)

    played(story)


def test_files_that_are_no_certificates_are_named() -> None:
    with pytest.raises(ConfigError, match="haCoordinatorCaPath"):
        tls_context(ReplicationConfig(coordinator="etcds://a:1", coordinator_ca_path="/nowhere"))
    with pytest.raises(ConfigError, match="haCoordinatorKeyPath"):
        ReplicationConfig(coordinator="etcds://a:1", coordinator_cert_path="/cert")
