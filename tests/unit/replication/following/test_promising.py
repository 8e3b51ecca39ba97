"""Promising: whom to believe, and what to promise."""

import msgspec
from tests.unit.replication.slaves import REGISTER, A, B, C, Slave, kinds, sent

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Challenge, Hello, Preamble
from tandemq.replication.decisions import Close, Note, Save
from tandemq.replication.epochs import Promise, ReplicaRecord
from tandemq.replication.following.core import SlavePhase


def test_it_speaks_first_and_each_session_has_a_nonce_of_its_own() -> None:
    slave = Slave()
    (preamble,) = sent(slave.state.connected(2, 0.0))
    assert isinstance(preamble, Preamble)
    assert (preamble.version, preamble.nonce) == (ha.VERSION, "nonce")
    assert slave.state.phase is SlavePhase.GREETED


def test_a_master_that_proves_another_key_is_refused_and_told_nothing() -> None:
    slave = Slave()
    out = slave.feed(Challenge(ha.VERSION, "theirs", "wrong", 4, "e4", A, REGISTER))
    assert kinds(out, Save, Hello, Close) == [Close]
    assert [one.reason for one in out if isinstance(one, Close)] == [Reason.KEY_REFUSED]
    assert slave.state.record.promise == Promise(3, "e3")


def test_a_master_of_another_group_is_named_as_such() -> None:
    slave = Slave()
    slave.state.core.master_group = "other"
    out = slave.feed(Challenge(ha.VERSION, "theirs", "wrong", 4, "e4", A, REGISTER))
    assert [one.reason for one in out if isinstance(one, Close)] == [Reason.WRONG_GROUP]


def test_the_hello_tells_the_log_and_what_of_it_is_on_disk() -> None:
    (hello,) = sent(Slave().challenge(4, "e4"))
    assert isinstance(hello, Hello)
    assert (hello.first, hello.end, hello.durable) == (0, 1000, 600)
    assert hello.register == REGISTER


def test_the_same_promise_is_not_saved_twice() -> None:
    slave = Slave()
    assert kinds(slave.challenge(4, "e4"), Save) == [Save]
    assert kinds(slave.challenge(4, "e4"), Save) == []


def test_one_that_the_group_forgot_joins_again_once_it_has_stored_a_register_without_itself() -> None:
    slave = Slave()
    without = msgspec.structs.replace(REGISTER, epoch=4, epoch_id="e4", revision=6, members=REGISTER.members[:1])
    out = slave.challenge(4, "e4", A, without)
    assert "forgotten" in [one.event for one in out if isinstance(one, Note)]
    assert slave.state.record.register == without
    assert slave.state.record.promise == Promise(4, "e4")


def test_a_newer_register_of_the_group_does_not_name_a_stranger() -> None:
    """It names this replica, so this replica's own register decides until it is told otherwise."""
    slave = Slave()
    newer = msgspec.structs.replace(REGISTER, epoch=9, epoch_id="e9", revision=9, holder=C)
    (hello,) = sent(slave.challenge(9, "e9", C, newer))
    assert isinstance(hello, Hello)
    assert "does not name" in hello.refused


def test_a_replica_without_a_register_promises_to_whoever_asks_with_a_higher_number() -> None:
    slave = Slave(ReplicaRecord(B, promise=Promise(3, "e3")))
    slave.challenge(7, "e7", C, None)
    assert slave.state.record.promise == Promise(7, "e7")
