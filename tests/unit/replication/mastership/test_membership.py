"""Who counts, who joins, who leaves."""

from tests.unit.replication.masters import REGISTER, A, B, C, Master, Peer

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.decisions import Close, Note, Save
from tandemq.replication.session import SessionState


def in_sync() -> Master:
    master = Master().opened()
    master.start_session(1, 1000)
    assert master.state.sessions[1].state is SessionState.IN_SYNC
    return master


def test_an_ack_of_another_epoch_or_above_what_was_sent_ends_the_session() -> None:
    for number, received in ((3, 1000), (4, 1100)):
        master = in_sync()
        master.state.sessions[1].sent = 1000
        master.act(master.state.receive(1, ha.encode_ack(number, received, received, 0), 0.0))
        assert master.last(Close).reason is Reason.BAD_ACK
        assert not master.state.sessions


def test_a_newcomer_joins_is_a_member_and_counts_each_after_it_is_on_disk() -> None:
    master = in_sync()
    master.hear(Peer(replica=C, register=None), session=2)
    master.start_session(2, 1000)
    assert C not in master.register.everybody, "it has not stored the register yet"
    master.registered(2)
    assert C in master.register.joining_ids
    for session in (1, 2):
        master.registered(session)
    assert C in master.register.member_ids
    assert master.register.in_sync == (A, B, C)
    assert master.state.sessions[2].state is SessionState.CATCHING_UP, "no member has stored that yet"
    for session in (1, 2):
        master.registered(session)
    assert master.state.sessions[2].state is SessionState.IN_SYNC


def test_one_that_is_away_leaves_when_this_disk_has_all_it_may_have_confirmed() -> None:
    master = in_sync()
    told = master.append(1100, AckLevel(2))
    master.act(master.state.disconnected(1, 0.0))
    assert told == [PutStatus.SLAVE_NOT_AVAILABLE]
    master.act(master.state.tick(60.0))
    assert master.register.in_sync == (A, B), "1000 of 1100 bytes are on disk"
    master.act(master.state.flushed(1100))
    master.act(master.state.tick(61.0))
    assert master.register.in_sync == (A,)
    assert [note.event for note in master.told(Note)].count("left") == 1


def test_one_that_falls_behind_no_longer_counts_and_comes_back() -> None:
    master = in_sync()
    far = 1000 + master.state.terms.gap_max
    master.act(master.state.appended(far))
    master.act(master.state.tick(1.0))
    assert master.state.sessions[1].state is SessionState.CATCHING_UP
    assert master.acks.watermark(AckLevel(2)) == 0
    master.acked(1, far)
    assert master.state.sessions[1].state is SessionState.IN_SYNC
    assert master.acks.watermark(AckLevel(2)) == far


def test_the_register_does_not_forget_the_master_itself_nor_somebody_unknown() -> None:
    master = in_sync()
    saves = len(master.told(Save))
    for name, why in ((A, "this broker itself"), (C, "does not name")):
        refusal, decisions = master.state.forget(name, 0.0)
        assert why in refusal
        assert decisions == []
    assert len(master.told(Save)) == saves
    assert master.register.member_ids == REGISTER.member_ids
