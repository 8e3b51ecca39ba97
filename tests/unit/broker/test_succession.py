"""Handing a reign over, pausing elections, and vouching for a master while etcd is away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.broker.succession import SWAPS_MAX, Succession
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Member, Register
from tandemq.errors import ConnectFailed, ReplicationError
from tandemq.replication.election import NEVER, Candidate
from tandemq.replication.metadata import PairCode
from tandemq.sim.clock import ManualClock

REGISTER = Register(
    group_id="g", epoch=4, epoch_id="e", holder="a", revision=2, in_sync=("a", "b", "c"),
    members=(Member("a", "a:1", 0), Member("b", "b:1", 1), Member("c", "c:1", 2)),
)  # fmt: skip


class Group:
    """A master `a` with in-sync members `b` and `c`, who answer as told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[tuple[str, int]] = []
        self.answers: dict[str, int | Exception] = {}
        self.found: list[Candidate] = []
        self.swapped: list[Register] = []
        self.swaps = True
        self.tries = 0
        self.node: Any = SimpleNamespace(
            is_open=True,
            is_following=True,
            register=REGISTER,
            record=SimpleNamespace(replica="a"),
            master=SimpleNamespace(state=SimpleNamespace(register=REGISTER, proposed=None)),
        )
        self.health: Any = SimpleNamespace(writable=True, reason="")
        self.coordinator: Any = SimpleNamespace(register=REGISTER, is_away=True, swap=self._swap)
        broker = SimpleNamespace(clock=self.clock, peer_client=self, store=SimpleNamespace(health=self.health))
        self.failover: Any = SimpleNamespace(
            pair=SimpleNamespace(broker=broker, node=self.node),
            coordinator=self.coordinator,
            lease=SimpleNamespace(seconds=8.0, has_lapsed=False),
            fence=SimpleNamespace(wants_copies=False),
            priority=0,
            refusal="",
            vouches_until=float("-inf"),
            candidates=self._candidates,
            address_of=lambda replica: f"{replica}:1",
            read=self._read,
            learned=self.swapped.append,
        )

        self.succession = Succession(self.failover)

    async def invoke(self, address: str, command: Command, seconds: float) -> Command:
        self.asked.append((address, command.code))
        answer = self.answers.get(address, ResponseCode.SUCCESS)
        if isinstance(answer, Exception):
            raise answer
        return Command(answer, {}, remark="no")

    async def _candidates(self) -> list[Candidate]:
        return self.found

    async def _read(self) -> None:
        return None

    async def _swap(self, old: Register, new: Register) -> bool:
        self.tries += 1
        return self.swaps


def candidate(replica: str, priority: int = 0, end: int = 100) -> Candidate:
    return Candidate(replica=replica, epoch=4, end=end, priority=priority)


def test_the_best_member_is_asked_first_and_the_next_if_it_refuses() -> None:
    group = Group()
    group.found = [candidate("b", priority=1), candidate("c", priority=5)]
    group.answers["c:1"] = ResponseCode.SYSTEM_ERROR
    assert asyncio.run(group.succession.hand_over("it stops"))
    assert group.asked == [("c:1", PairCode.PROMOTE), ("b:1", PairCode.PROMOTE)]


def test_a_member_that_must_never_reign_is_not_asked() -> None:
    group = Group()
    group.found = [candidate("b", priority=NEVER)]
    assert not asyncio.run(group.succession.hand_over("it stops"))
    assert group.asked == []


@pytest.mark.parametrize("hindrance", ["closed", "paused", "nobody answers"])
def test_without_a_successor_the_reign_is_kept(hindrance: str) -> None:
    group = Group()
    group.found = [candidate("b")]
    if hindrance == "closed":
        group.node.is_open = False
    elif hindrance == "paused":
        group.coordinator.register = Register(group_id="g", paused=True)
    else:
        group.answers["b:1"] = ConnectFailed("b:1")
    assert not asyncio.run(group.succession.hand_over("it stops"))


def test_a_master_that_cannot_write_hands_over_once_in_half_a_lease() -> None:
    group = Group()
    group.found = [candidate("b")]
    group.answers["b:1"] = ResponseCode.SYSTEM_ERROR
    group.health.writable = False
    for now in (0.0, 3.9, 4.0):
        asyncio.run(group.succession.consider(now))
    assert len(group.asked) == 2


def test_a_preferred_master_is_offered_the_reign_and_not_pressed() -> None:
    group = Group()
    group.found = [candidate("b", priority=3)]
    group.answers["b:1"] = ResponseCode.SYSTEM_ERROR
    for now in (0.0, 10.0, 39.0):
        asyncio.run(group.succession.consider(now))
    assert len(group.asked) == 1
    asyncio.run(group.succession.consider(43.0))
    assert len(group.asked) == 2


def test_elections_are_paused_for_everybody_through_the_register() -> None:
    group = Group()
    assert "paused" in asyncio.run(group.succession.pause(True))
    assert [register.paused for register in group.swapped] == [True]
    group.coordinator.register = group.swapped[0]
    assert "paused" in asyncio.run(group.succession.pause(True))
    assert len(group.swapped) == 1, "it is so already"


def test_a_register_that_never_stands_still_is_given_up() -> None:
    group = Group()
    group.swaps = False
    with pytest.raises(ReplicationError, match="try again"):
        asyncio.run(group.succession.pause(True))
    assert group.tries == SWAPS_MAX


def test_every_in_sync_member_must_vouch() -> None:
    group = Group()
    until = asyncio.run(group.succession.vouched())
    assert {address for address, _ in group.asked} == {"b:1", "c:1"}
    assert group.clock.monotonic() < until < group.clock.monotonic() + 8.0, "less than they promise: clocks drift"
    group.answers["c:1"] = ConnectFailed("c:1")
    assert asyncio.run(group.succession.vouched()) == float("-inf")


def test_who_may_just_have_entered_the_in_sync_set_must_vouch_too() -> None:
    group = Group()
    group.node.master.state.proposed = Register(group_id="g", in_sync=("a", "b", "c", "d"))
    asyncio.run(group.succession.vouched())
    assert ("d:1", PairCode.VOUCH) in group.asked


def test_a_member_vouches_only_for_the_master_it_follows_and_only_without_etcd() -> None:
    group = Group()
    group.succession.vouch("a", 4)
    assert group.failover.vouches_until == group.clock.monotonic() + 8.0
    for replica, epoch in (("b", 4), ("a", 5)):
        with pytest.raises(ReplicationError, match="does not follow"):
            group.succession.vouch(replica, epoch)
    group.node.is_following = False
    with pytest.raises(ReplicationError, match="does not follow"):
        group.succession.vouch("a", 4)
    group.coordinator.is_away = False
    with pytest.raises(ReplicationError, match="etcd answers"):
        group.succession.vouch("a", 4)
