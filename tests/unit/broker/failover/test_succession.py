"""Handing over, pausing and vouching, with brokers of this process and a fake etcd."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.failover.failover import Failover
from tandemq.errors import LogPoisoned, ReplicationError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
Story = Callable[[FakeEtcd, list[Broker]], Awaitable[None]]


def failover_of(broker: Broker) -> Failover:
    found = broker.replication.failover  # type: ignore[attr-defined]
    assert isinstance(found, Failover)
    return found


def played(path: Path, story: Story, count: int = 2) -> None:
    async def play() -> None:
        async with FakeEtcd() as etcd, AsyncExitStack() as stack:
            brokers = []
            for number in range(count):
                broker = Broker(
                    BrokerConfig(
                        role=BrokerRole.SYNC_MASTER,
                        broker_ip1=HOST,
                        store_path_root_dir=str(path / str(number)),
                        broker_name="b",
                    ),
                    StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64),
                    RemotingConfig(listen_port=0, bind_address=HOST),
                    ReplicationConfig(coordinator=f"etcd://{HOST}:{etcd.port}", lease_seconds=3),
                )
                await stack.enter_async_context(broker)
                brokers.append(broker)
                if not number:
                    await until(lambda: brokers[0].writer.refusal is None)
            await until(lambda: in_sync(brokers) == count, lambda: str(failover_of(brokers[0]).register))
            await story(etcd, brokers)

    asyncio.run(play())


def in_sync(brokers: list[Broker]) -> int:
    register = failover_of(brokers[0]).register
    return len(register.in_sync) if register is not None else 0


def test_a_promotion_is_a_hand_over_and_is_remembered_as_an_operators(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = brokers
        text = await failover_of(second).succession.promote(accept_loss=False, pinned=True)
        assert second.address in text
        assert second.is_master
        await until(lambda: not first.is_master and first.replication.status().phase == "following")  # type: ignore[union-attr]
        register = failover_of(second).register
        assert register is not None
        assert register.pinned
        assert not failover_of(second).fence.wants_copies  # the old one has said that it stopped

    played(tmp_path, story)


def test_a_hand_over_is_no_operators_word(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = brokers
        assert await failover_of(first).succession.hand_over("a test")
        await until(lambda: second.writer.refusal is None)
        register = failover_of(second).register
        assert register is not None
        assert not register.pinned

    played(tmp_path, story)


def test_one_that_is_not_in_sync_is_not_promoted(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        second = failover_of(brokers[1])
        second.priority = -1
        with pytest.raises(ReplicationError, match="haPriority=-1"):
            await second.succession.promote(accept_loss=False, pinned=True)
        assert brokers[0].is_master

    played(tmp_path, story)


def test_a_pause_is_kept_in_the_register_and_holds_up_a_hand_over(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = map(failover_of, brokers)
        assert "paused" in await second.succession.pause(True)
        await until(lambda: first.register is not None and first.register.paused)
        assert not await first.succession.hand_over("a test")
        assert "go on" in await first.succession.pause(False)
        await until(lambda: second.coordinator.register is not None and not second.coordinator.register.paused)
        assert brokers[0].writer.refusal is None  # the master has taken both changes

    played(tmp_path, story)


def test_while_etcd_is_away_the_members_vouch_on_the_ha_session(tmp_path: Path) -> None:
    """Nobody needs the broker ports for it: the master reigns on, and the member will not stand for a lease."""

    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = map(failover_of, brokers)
        before = second.candidacy.vouches_until
        etcd.before = lambda path: "cut"
        await until(lambda: first.lease.state.is_vouched)
        assert second.candidacy.vouches_until > before
        assert brokers[0].writer.refusal is None

    played(tmp_path, story)


def test_a_master_that_can_not_write_hands_over(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = brokers
        first.store._gate.poison(LogPoisoned("a test says that the disk failed"))
        await until(lambda: second.is_master and second.writer.refusal is None)
        assert "can't be written" in failover_of(first).hindrance()

    played(tmp_path, story)


def test_the_preferred_one_gets_the_reign_and_keeps_it(tmp_path: Path) -> None:
    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = brokers
        failover_of(second).priority = 3
        await until(lambda: second.is_master and second.writer.refusal is None)
        await until(lambda: not first.is_master)
        register = failover_of(second).register
        assert register is not None
        assert not register.pinned

    played(tmp_path, story)


def test_name_servers_are_told_the_epoch(tmp_path: Path) -> None:
    """So that a former master that wakes and registers does not take the new one's place in the routes."""

    async def story(etcd: FakeEtcd, brokers: list[Broker]) -> None:
        first, second = brokers
        before = first.registration.state_version()
        await failover_of(second).succession.promote(accept_loss=False, pinned=True)
        assert second.registration.state_version() > before > 0

    played(tmp_path, story)
