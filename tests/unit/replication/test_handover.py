"""When a master that lives gives its reign away, and to whom."""

import msgspec

from tandemq.codec.ha_register import Register
from tandemq.replication.election import Candidate
from tandemq.replication.handover import HandOver, Reigning, successors

REGISTER = Register(group_id="g", holder="a:1#x", epoch=1, in_sync=("a:1#x", "b:1#y", "c:1#z"))
B = Candidate(replica="b:1#y", epoch=1, end=100)
C = Candidate(replica="c:1#z", epoch=1, end=120)


def reigning(register: Register = REGISTER, **changes: object) -> Reigning:
    node = Reigning(register=register, has_lapsed=False, wants_copies=False, unwritable="", priority=0)
    return Reigning(**{name: changes.get(name, getattr(node, name)) for name in Reigning.__slots__})  # type: ignore[arg-type]


def test_the_furthest_goes_first_and_who_is_never_elected_not_at_all() -> None:
    never = Candidate(replica="d:1#w", epoch=9, end=900, priority=-1)
    assert successors((B, never, C)) == [C, B]


def test_a_log_that_can_not_be_written_is_handed_over() -> None:
    state, node = HandOver(2.0), reigning(unwritable="the disk is full")
    assert state.wants_candidates(node, 10.0)
    found, why = state.decide(node, (B, C), 10.0)
    assert found == [C, B]
    assert "the disk is full" in why


def test_nobody_is_asked_in_a_pause_or_without_another_in_sync_or_too_often() -> None:
    state = HandOver(2.0)
    full = {"unwritable": "the disk is full"}
    assert not state.wants_candidates(reigning(msgspec.structs.replace(REGISTER, paused=True), **full), 10.0)
    alone = msgspec.structs.replace(REGISTER, in_sync=("a:1#x",))
    assert not state.wants_candidates(reigning(alone, **full), 20.0)
    assert not state.wants_candidates(reigning(has_lapsed=True, **full), 30.0)
    assert state.wants_candidates(reigning(**full), 40.0)
    assert not state.wants_candidates(reigning(**full), 40.9)
    assert state.wants_candidates(reigning(**full), 41.0)


def test_the_preferred_one_gets_the_reign_but_not_after_an_operators_order() -> None:
    state, better = HandOver(2.0), msgspec.structs.replace(REGISTER, pinned=True)
    assert not state.wants_candidates(reigning(better), 10.0)
    assert not state.wants_candidates(reigning(wants_copies=True), 20.0)
    preferred = Candidate(replica="b:1#y", epoch=1, end=100, priority=3)
    assert state.wants_candidates(reigning(), 30.0)
    found, why = state.decide(reigning(), (preferred, C), 30.0)
    assert found == [preferred]
    assert "haPriority 3" in why


def test_a_preferred_one_that_did_not_take_it_is_left_alone_for_a_while() -> None:
    state, preferred = HandOver(2.0), Candidate(replica="b:1#y", epoch=1, end=100, priority=3)
    assert state.decide(reigning(), (preferred,), 30.0)[0]
    assert not state.decide(reigning(), (preferred,), 39.0)[0]
    assert state.decide(reigning(), (preferred,), 40.0)[0]
