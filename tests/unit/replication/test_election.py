"""Who stands, and when: pure, by what is known and `now`."""

from typing import Any

import msgspec
import pytest

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.election import (
    NEVER,
    STAGGER,
    Candidate,
    Step,
    View,
    decide,
    gives_way,
    hindrance_of,
    preferred,
    why_not,
)

A, B, C = "a:1#x", "b:1#x", "c:1#x"
REGISTER = Register(
    group_id="g",
    home="etcd:1",
    epoch=3,
    epoch_id="e3",
    holder=A,
    revision=7,
    members=(Member(A, "a:1", 1), Member(B, "b:1", 2), Member(C, "c:1", 3)),
    in_sync=(A, B, C),
)


def candidate(
    replica: str, end: int = 100, epoch: int = 3, priority: int = 0, *, is_ordered: bool = False
) -> Candidate:
    return Candidate(replica=replica, epoch=epoch, end=end, priority=priority, is_ordered=is_ordered)


def view(**changes: Any) -> View:
    found: dict[str, Any] = {
        "replica": B,
        "register": REGISTER,
        "holder_lives": False,
        "others": (),
        "me": candidate(B),
        "asked_at": 10.0,
        **changes,
    }
    return View(**found)


def register(**changes: Any) -> Register:
    return msgspec.structs.replace(REGISTER, **changes)


def test_nobody_stands_while_the_lease_of_the_holder_lives() -> None:
    verdict = decide(view(holder_lives=True), 10.0)
    assert verdict.step is Step.REST
    assert A in verdict.why


def test_a_dead_process_is_not_waited_for() -> None:
    assert decide(view(holder_lives=True, holder_is_dead=True), 10.0).step is Step.STAND


def test_others_are_asked_before_anybody_stands() -> None:
    assert decide(view(others=None), 10.0).step is Step.ASK


@pytest.mark.parametrize(
    "better", [candidate(C, epoch=4, end=1), candidate(C, end=101), candidate(C, priority=1), candidate(C)]
)
def test_the_better_one_goes_first_by_epoch_end_priority_and_name(better: Candidate) -> None:
    verdict = decide(view(others=(better,)), 10.0)
    assert verdict.step is Step.REST
    assert verdict.again_at == 10.0 + STAGGER
    assert decide(view(others=(better,)), verdict.again_at).step is Step.STAND


@pytest.mark.parametrize("worse", [candidate(C, epoch=2, end=900), candidate(C, end=99), candidate(A)])
def test_a_worse_one_is_not_waited_for(worse: Candidate) -> None:
    assert decide(view(others=(worse,)), 10.0).step is Step.STAND


def test_a_further_log_goes_before_a_higher_priority() -> None:
    assert decide(view(me=candidate(B, end=99, priority=9), others=(candidate(C),)), 10.0).step is Step.REST


def test_one_that_is_never_elected_is_not_waited_for() -> None:
    assert decide(view(others=(candidate(C, end=500, priority=NEVER),)), 10.0).step is Step.STAND


def test_only_in_sync_members_stand() -> None:
    assert decide(view(register=register(in_sync=(A, C))), 10.0).why == "is not in sync"
    without = register(members=REGISTER.members[:1], joining=REGISTER.members[1:])
    assert decide(view(register=without), 10.0).why == "joins the group"
    assert why_not(REGISTER, "d:1#x") == "is no member of the group"


def test_a_hindered_one_does_not_stand() -> None:
    verdict = decide(view(hindrance="its log can't be written: EIO"), 10.0)
    assert verdict.step is Step.REST
    assert "EIO" in verdict.why


def test_paused_means_no_election() -> None:
    verdict = decide(view(register=register(paused=True)), 10.0)
    assert verdict.step is Step.REST
    assert "paused" in verdict.why


def test_the_last_holder_reigns_on_also_while_elections_are_paused() -> None:
    assert decide(view(replica=A, register=register(paused=True)), 10.0).step is Step.RESUME


def test_a_group_begins_when_there_is_none() -> None:
    assert decide(view(register=None), 10.0).step is Step.BEGIN
    assert decide(view(register=None, hindrance="has haPriority=-1"), 10.0).step is Step.REST


def test_one_that_may_take_no_part_does_nothing() -> None:
    for found in (None, REGISTER):
        verdict = decide(view(register=found, refusal="etcd was restored"), 10.0)
        assert verdict.step is Step.REST
        assert verdict.why == "etcd was restored"


def test_after_a_vain_attempt_it_waits() -> None:
    verdict = decide(view(not_before=11.0), 10.0)
    assert (verdict.step, verdict.again_at) == (Step.REST, 11.0)


def test_an_empty_store_at_the_address_of_the_holder_waits_for_the_others_to_elect_one() -> None:
    lost = {"replica": "a:1#new", "is_fresh": True, "gone_since": 10.0, "lease": 2.0}
    assert decide(view(**lost), 13.9).step is Step.REST
    assert decide(view(**lost), 14.0).step is Step.RESUME


def test_hindrances_are_told_in_words() -> None:
    healthy = {"priority": 0, "complete": True, "unhealthy": "", "observer": False}
    assert hindrance_of(**healthy) == ""
    assert hindrance_of(**{**healthy, "priority": NEVER}) == "has haPriority=-1"
    assert "crashed" in hindrance_of(**{**healthy, "complete": False})
    assert hindrance_of(**{**healthy, "observer": True}) == "is an observer"
    assert hindrance_of(**{**healthy, "unhealthy": "disk full"}) == "disk full"


def test_the_preferred_master_is_one_with_a_higher_priority() -> None:
    assert preferred(0, [candidate(B), candidate(C, priority=NEVER)]) is None
    assert preferred(0, [candidate(B, priority=1), candidate(C, priority=2)]) == candidate(C, priority=2)


def test_of_two_that_stand_exactly_one_gives_way() -> None:
    for one, other in ((candidate(B), candidate(C)), (candidate(B, end=9), candidate(C)), (candidate(B), candidate(B))):
        assert gives_way(one, other) + gives_way(other, one) == (one != other)
    assert gives_way(candidate(C), candidate(B, priority=1))


def test_one_that_was_ordered_to_reign_goes_before_one_that_stands_by_itself() -> None:
    """Otherwise the two would wait for each other: an order gives way to nobody who merely stands."""
    ordered = candidate(B, is_ordered=True)
    for other in (candidate(C, end=9), candidate(C, priority=5)):
        assert gives_way(other, ordered)
        assert not gives_way(ordered, other)
    assert gives_way(ordered, candidate(C, is_ordered=True))
