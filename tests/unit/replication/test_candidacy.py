"""What a node remembers between two decisions: whom it misses since when, whom it gave its word."""

import msgspec

from tandemq.codec.ha_register import Register
from tandemq.replication.candidacy import RETRY_SECONDS, Candidacy, Standing
from tandemq.replication.election import Candidate, Step, View, decide
from tandemq.replication.known_keys import Holder, KnownKeys

LEASE = 2.0
ME = Candidate(replica="b:1#y", epoch=1, end=100)
REGISTER = Register(
    group_id="g", home="etcd:77", epoch=1, epoch_id="e", holder="a:1#x", revision=1, in_sync=("a:1#x", "b:1#y")
)


def keys_of(*, holder: bool) -> KnownKeys:
    keys = KnownKeys()
    keys.answered(1.0, 5, known=0)
    keys.told_register(msgspec.json.encode(REGISTER), 5)
    if holder:
        keys.told_holder(msgspec.json.encode(Holder(REGISTER.holder, 1)), 7, 5)
    return keys


def seen(candidacy: Candidacy, keys: KnownKeys, now: float) -> View:
    node = Standing(replica=ME.replica, refusal="", hindrance="", is_master=False, is_fresh=False, me=ME)
    return candidacy.view(node, keys, now)


def test_one_that_was_just_started_may_have_given_its_word_before() -> None:
    candidacy, keys = Candidacy("b", LEASE, 10.0), keys_of(holder=False)
    assert seen(candidacy, keys, 11.9).holder_lives
    assert not seen(candidacy, keys, 12.0).holder_lives
    assert candidacy.gone_since == 12.0


def test_a_word_holds_for_a_lease_even_if_etcd_is_back() -> None:
    candidacy, keys = Candidacy("b", LEASE, 0.0), keys_of(holder=False)
    assert candidacy.vouch("a:1#x", 1, REGISTER, keys, 10.0) == "etcd answers here"
    keys.unanswered()
    assert "does not follow" in candidacy.vouch("z:1#z", 1, REGISTER, keys, 10.0)
    assert "does not follow" in candidacy.vouch("a:1#x", 2, REGISTER, keys, 10.0)
    assert candidacy.vouch("a:1#x", 1, REGISTER, keys, 10.0) == ""
    keys.answered(10.1, 6, known=5)
    assert seen(candidacy, keys, 11.9).holder_lives
    assert not candidacy.may_take_over(keys, 11.9)  # an operator's order waits too
    assert candidacy.may_take_over(keys, 12.0)


def test_without_etcd_nobody_is_missed() -> None:
    candidacy, keys = Candidacy("b", LEASE, 0.0), keys_of(holder=False)
    keys.unanswered()
    assert seen(candidacy, keys, 50.0).holder_lives
    assert candidacy.gone_since is None


def test_a_dead_process_is_not_waited_for_but_only_in_the_epoch_it_was_found_dead_in() -> None:
    candidacy, keys = Candidacy("b", LEASE, 0.0), keys_of(holder=True)
    assert not candidacy.may_take_over(keys, 50.0)
    candidacy.died(REGISTER)
    assert candidacy.may_take_over(keys, 50.0)
    assert seen(candidacy, keys, 50.0).holder_is_dead
    newer = msgspec.structs.replace(REGISTER, epoch=2, epoch_id="f")
    keys.told_register(msgspec.json.encode(newer), 8)
    assert not candidacy.is_dead(keys.register)


def test_after_an_attempt_that_came_to_nothing_the_others_are_asked_anew() -> None:
    candidacy, keys = Candidacy("b", LEASE, 0.0), keys_of(holder=False)
    candidacy.asked((), 10.0)
    candidacy.came_to_nothing(10.0)
    view = seen(candidacy, keys, 10.1)
    assert decide(view, 10.1).step is Step.REST
    assert view.others is None
    assert 10.0 + RETRY_SECONDS <= view.not_before < 10.0 + 2 * RETRY_SECONDS


def test_who_hands_over_gives_its_successor_time() -> None:
    candidacy = Candidacy("b", LEASE, 0.0)
    candidacy.begins_hand_over(10.0)
    assert candidacy.hands_over
    assert candidacy.not_before == 14.0


def test_two_that_stood_at_the_same_time_do_not_try_again_at_the_same_time() -> None:
    pauses = set()
    for replica in ("a:1#1", "b:1#2", "c:1#3"):
        candidacy = Candidacy(replica, LEASE, 0.0)
        candidacy.came_to_nothing(10.0)
        pauses.add(candidacy.not_before)
    assert len(pauses) == 3
