"""A promotion that would be in vain is refused by name before it disturbs anybody."""

import msgspec

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.promotion import refusal_of

A, B, C = "a:1#1", "b:1#1", "c:1#1"
REGISTER = Register(group_id="g", epoch=1, holder=A, members=(Member(A), Member(B), Member(C)), in_sync=(A, B))


def test_a_silent_member_is_named_and_the_last_holder_is_not_needed() -> None:
    record = ReplicaRecord(B, register=REGISTER)
    assert C in refusal_of(record, frozenset({A}))
    assert refusal_of(record, frozenset({C})) == ""


def test_a_replica_whose_machine_crashed_is_told_so() -> None:
    record = ReplicaRecord(B, register=REGISTER, complete=False)
    assert "crashed" in refusal_of(record, frozenset({A, C}))


def test_only_members_are_promoted() -> None:
    assert "no member" in refusal_of(ReplicaRecord("d:1#1", register=REGISTER), frozenset({A, B, C}))
    assert refusal_of(ReplicaRecord(B), frozenset()) == "", "a group of the version before decides otherwise"


def test_copies_on_rocketmq_slaves_are_named_until_the_last_holder_answers() -> None:
    record = ReplicaRecord(B, register=msgspec.structs.replace(REGISTER, classic_from=40))
    assert "RocketMQ slaves were counted from offset 40" in refusal_of(record, frozenset({C}))
    assert refusal_of(record, frozenset({A, C})) == ""
