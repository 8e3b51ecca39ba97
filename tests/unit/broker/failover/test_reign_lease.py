"""The lease of a reign: taken, renewed, lost, taken anew, given up; the fence follows it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from tandemq.broker.failover.coordinator import Coordinator
from tandemq.broker.failover.reign_lease import ReignLease
from tandemq.clock import SystemClock
from tandemq.codec.ha_register import Register
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.fence import Fence
from tandemq.replication.known_keys import Holder
from tandemq.testing.fake_etcd import FakeEtcd
from tandemq.testing.waiting import until

KEY = "/tandemq/C/b/"
MINE = Holder("a:1#x", 1)
REGISTER = Register(group_id="g", home="etcd:77", epoch=1, holder=MINE.replica, revision=1)


class Played:
    """A node that reigns, and what its lease told it."""

    def __init__(self, etcd: FakeEtcd) -> None:
        clock = SystemClock()
        config = ReplicationConfig(coordinator=f"etcd://127.0.0.1:{etcd.port}", lease_seconds=1)
        self.etcd = etcd
        self.told: list[str] = []
        self.reigns = True
        self.vouched_until = float("-inf")
        self.clock = clock
        self.coordinator = Coordinator(config, "C", "b", clock)
        self.fence = Fence(clock.monotonic)
        self.lease = ReignLease(
            self.coordinator,
            self.fence,
            clock,
            reign=lambda: MINE if self.reigns else None,
            vouched=self.vouch,
            on_lapsed=lambda why: self.told.append("lapsed"),
            on_resumed=lambda: self.told.append("resumed"),
        )

    def vouch(self) -> float:
        return self.vouched_until


def played(story: Callable[[Played], Awaitable[None]]) -> None:
    async def play() -> None:
        async with FakeEtcd() as etcd:
            etcd.put(f"{KEY}register", msgspec.json.encode(REGISTER))
            node = Played(etcd)
            await node.coordinator.read()
            node.coordinator.start()
            node.lease.start()
            try:
                await story(node)
            finally:
                await node.lease.stop()
                await node.coordinator.stop()

    asyncio.run(play())


async def reigning(node: Played) -> None:
    """Begins the reign. A machine that is busy at just this moment is not what the stories are about."""
    client = node.coordinator.client
    short, client.timeout = client.timeout, 30.0
    while node.fence.is_closed:
        await node.lease.take()
        await node.coordinator.claim(MINE, node.lease.id)
    client.timeout = short


def test_it_is_renewed_while_the_node_reigns() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        first = node.fence.until
        await until(lambda: node.fence.until > first + 0.5)

    played(story)


def test_an_etcd_that_does_not_answer_ends_the_writes_and_back_again_resumes_them() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        node.etcd.before = lambda path: "cut"
        await until(lambda: node.told[-1:] == ["lapsed"])
        assert node.fence.is_closed
        node.etcd.before = lambda path: None
        await until(lambda: node.told[-1:] == ["resumed"])
        assert not node.fence.is_closed

    played(story)


def test_while_all_vouch_the_reign_goes_on_without_etcd() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        node.etcd.before = lambda path: "cut"
        node.vouched_until = node.clock.monotonic() + 3.0
        await until(lambda: node.lease.state.is_vouched)
        assert node.fence.until == node.vouched_until
        await until(lambda: node.told[-1:] == ["lapsed"])  # when nobody vouches any longer

    played(story)


def test_a_lease_that_ended_is_taken_anew_if_the_register_is_the_same() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        first = node.lease.id
        node.etcd.end_lease(first)
        await until(lambda: node.lease.id not in (0, first) and f"{KEY}holder" in node.etcd.keys)

    played(story)


def test_a_lease_is_not_taken_anew_over_another_reign() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        node.etcd.end_lease(node.lease.id)
        other = msgspec.structs.replace(REGISTER, epoch=2, holder="b:1#y")
        node.etcd.put(f"{KEY}register", msgspec.json.encode(other))
        await until(lambda: node.told[-1:] == ["lapsed"])
        assert f"{KEY}holder" not in node.etcd.keys
        assert node.coordinator.register == other

    played(story)


def test_giving_up_revokes_it() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        await node.lease.give_up()
        assert node.fence.is_closed
        assert node.etcd.leases == set()

    played(story)


def test_a_hand_over_leaves_it_to_end_by_itself() -> None:
    async def story(node: Played) -> None:
        await reigning(node)
        lease = node.lease.id
        node.lease.let_go()
        assert node.fence.is_closed
        assert node.etcd.leases == {lease}

    played(story)


def test_until_another_lease_has_surely_ended_one_copy_is_not_enough() -> None:
    async def story(node: Played) -> None:
        other = await node.coordinator.client.grant(1)
        await reigning(node)
        asked_at = node.clock.monotonic()
        await node.lease.old_one_ends(other)
        assert other not in node.etcd.leases
        assert node.fence.wants_copies
        assert node.fence.alone_from >= asked_at + 1.0

    played(story)
