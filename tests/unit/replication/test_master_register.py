"""The master's machine by itself: how a reign begins, who comes in sync, and what ends it."""

import msgspec
from tests.unit.replication.masters import HISTORY, REGISTER, A, B, C, Master, Peer
from tests.unit.replication.waiters import TellingQueue

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Member
from tandemq.codec.ha_session import NewRegister
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.decisions import Close, Note, Opened, Save, SteppedDown
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items, to_items
from tandemq.replication.mastership.core import Phase


def test_a_register_is_on_the_candidates_disk_before_anybody_is_sent_it_and_on_all_before_it_opens() -> None:
    master = Master()
    master.hear(Peer())
    assert master.state.phase is Phase.SWAPPING
    saves = [
        place
        for place, one in enumerate(master.happened)
        if isinstance(one, Save) and one.record.register is not None and one.record.register.epoch == 4
    ]
    assert saves, "the register of the new epoch was saved"
    assert saves[0] < master.place(NewRegister)
    master.registered(1)
    assert master.state.phase is Phase.OPEN
    assert master.place(NewRegister) < master.place(Opened)


def test_a_reign_begins_in_sync_with_those_who_hold_the_whole_log() -> None:
    behind = Master()
    behind.hear(Peer(end=900, durable=900))
    assert behind.register.in_sync == (A,)
    whole = Master()
    whole.hear(Peer())
    assert whole.register.in_sync == (A, B)
    undurable = Master(level=AckLevel(2, durable=True))
    undurable.hear(Peer(durable=900))
    assert undurable.register.in_sync == (A,), "durable levels are used"


def test_a_replica_enters_the_in_sync_set_only_with_all_that_was_acknowledged() -> None:
    master = Master()
    master.hear(Peer(end=900, durable=900))
    master.registered(1)
    master.start_session(1, 900)
    assert master.register.in_sync == (A,), "it has 900 of 1000 bytes"
    master.state.streaming.sent(1, 1000, 0.0)
    master.act(master.state.receive(1, ha.encode_ack(4, 1000, 1000, 0), 0.0))
    assert master.register.in_sync == (A, B)


def test_copies_of_a_new_member_count_when_every_member_knows_of_it() -> None:
    three = msgspec.structs.replace(REGISTER, members=(*REGISTER.members, Member(C, "", 2)), in_sync=(A, B))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=three, reigning=True)
    master = Master(record)
    master.hear(Peer(register=three))
    master.registered(1)
    assert master.state.phase is Phase.OPEN
    assert master.acks.group_size == 3, "majority and all are of the members, absent ones too"


def test_a_second_session_of_one_identity_ends_the_first() -> None:
    master = Master().opened()
    master.hear(Peer(), session=2)
    assert list(master.state.sessions) == [2]
    assert any(isinstance(one, Close) and one.session == 1 for one in master.happened)


def test_an_open_master_that_meets_the_register_of_a_newer_epoch_steps_down() -> None:
    master = Master().opened()
    newer = msgspec.structs.replace(REGISTER, epoch=9, epoch_id="e9", holder=C, revision=9)
    master.hear(Peer(register=newer), session=2)
    assert master.state.phase is Phase.DEPOSED
    assert any(isinstance(one, SteppedDown) for one in master.happened)


def test_sends_that_wait_are_failed_when_the_reign_ends_and_no_ack_completes_them() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    told: list[PutStatus] = []
    master.act(master.state.appended(1100))
    TellingQueue(master.acks).add(1100, AckLevel(2), False, 9.0, lambda status, reason: told.append(status))
    assert told == []
    master.act(master.state.order(0, "the operator demotes it", 0.0))
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]


def test_a_provisional_master_acknowledges_one_copy_only_and_nobody_follows_it() -> None:
    alone = msgspec.structs.replace(REGISTER, in_sync=(A,))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=alone, reigning=True)
    master = Master(record, level=AckLevel(1))
    assert master.state.phase is Phase.OPEN
    assert master.state.provisional
    assert master.register.epoch == 3, "the register stays as it is"
    assert to_items(master.state.record.history)[-1].id.startswith("~")
    told: list[PutStatus] = []
    master.act(master.state.appended(1100))
    TellingQueue(master.acks).add(1100, AckLevel(2), False, 9.0, lambda status, reason: told.append(status))
    assert told == [PutStatus.SLAVE_NOT_AVAILABLE]
    master.hear(Peer(register=alone))
    assert not master.state.provisional, "the other member is heard: it opens anew"
    assert any(isinstance(one, SteppedDown) for one in master.happened)


def test_a_replica_of_another_group_is_neither_heard_nor_served() -> None:
    master = Master()
    master.hear(Peer(register=msgspec.structs.replace(REGISTER, group_id="other")))
    assert master.state.phase is Phase.ASKING
    assert not master.state.sessions


def test_a_member_is_not_forgotten_while_its_disk_is_the_only_other_one_with_what_was_acknowledged() -> None:
    three = msgspec.structs.replace(REGISTER, members=(*REGISTER.members, Member(C, "", 2)), in_sync=(A, B, C))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=three, reigning=True)
    master = Master(record)
    master.hear(Peer(register=three))
    master.hear(Peer(replica=C, register=three), session=2)
    master.registered(1)
    master.registered(2)
    assert master.state.phase is Phase.OPEN
    for session in (1, 2):
        master.start_session(session, 1000)
    master.act(master.state.appended(1100))
    for session, durable in ((1, 1100), (2, 1000)):
        master.state.streaming.sent(session, 1100, 0.0)
        master.act(master.state.receive(session, ha.encode_ack(4, 1100, durable, 0), 0.0))
    refusal, _ = master.state.forget(B, 0.0)
    assert "not everything acknowledged" in refusal
    master.act(master.state.receive(2, ha.encode_ack(4, 1100, 1100, 0), 0.0))
    refusal, decisions = master.state.forget(B, 0.0)
    assert refusal == ""
    master.act(decisions)
    assert master.register.member_ids == {A, C}
    assert master.acks.group_size == 3, "it counts until all who can be reached know that it is gone"


def test_a_new_store_where_a_group_was_begins_another_only_when_a_loss_is_accepted_and_nobody_has_the_register() -> (
    None
):
    master = Master(ReplicaRecord(A, blind_from=0), group_exists=True)
    assert master.state.phase is Phase.ASKING
    master.act(master.state.tick(60.0))
    assert any(isinstance(one, Note) and one.event == "read-only" for one in master.happened), "it says so"
    master.act(master.state.allow(60.0))
    master.act(master.state.tick(120.0))
    assert master.state.phase is Phase.ASKING, "somebody who answers has the register"
    master.act(master.state.allow(120.0, group_gone=True))
    assert master.state.phase is Phase.OPEN
    assert master.register.member_ids == {A}
