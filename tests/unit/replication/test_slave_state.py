"""The slave's machine by itself: what it promises, stores, cuts and acknowledges, and in which order."""

import msgspec
import pytest
from tests.unit.replication.slaves import REGISTER, A, B, C, Slave, following, kinds, sent

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_session import EpochItem, Hello, NewRegister, Registered, Start
from tandemq.replication.decisions import Append, Close, Confirm, Save, Truncate
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items
from tandemq.replication.following.core import SlavePhase


def test_a_promise_is_saved_before_the_hello_that_speaks_of_it() -> None:
    out = Slave().challenge(4, "e4")
    assert kinds(out, Save, Hello) == [Save, Hello]
    saved = next(one for one in out if isinstance(one, Save))
    assert saved.record.promise == Promise(4, "e4")
    (hello,) = sent(out)
    assert isinstance(hello, Hello)
    assert (hello.promised_number, hello.promised_id) == (4, "e4")


@pytest.mark.parametrize(("number", "epoch_id"), [(3, "another"), (2, "e2")])
def test_no_promise_for_an_older_epoch_nor_another_of_the_same_number(number: int, epoch_id: str) -> None:
    out = Slave().challenge(number, epoch_id)
    assert kinds(out, Save) == []
    (hello,) = sent(out)
    assert isinstance(hello, Hello)
    assert (hello.promised_number, hello.promised_id) == (3, "e3"), "its hello says what it has promised"


def test_nothing_is_promised_to_one_that_the_register_does_not_name_or_of_another_group() -> None:
    for replica, register in ((C, REGISTER), (A, msgspec.structs.replace(REGISTER, group_id="other"))):
        out = Slave().challenge(9, "e9", replica, register)
        (hello,) = sent(out)
        assert isinstance(hello, Hello)
        assert hello.refused
        assert (hello.promised_number, kinds(out, Save)) == (3, [])


def test_a_register_is_stored_only_under_the_epoch_promised_and_answered_when_it_is_on_disk() -> None:
    slave = Slave()
    slave.challenge(4, "e4")
    stranger = msgspec.structs.replace(REGISTER, epoch=5, epoch_id="e5", revision=6)
    assert kinds(slave.feed(NewRegister(stranger)), Save, Registered) == []
    assert slave.state.record.register == REGISTER
    mine = msgspec.structs.replace(REGISTER, epoch=4, epoch_id="e4", revision=6)
    assert kinds(slave.feed(NewRegister(mine)), Save, Registered) == [Save, Registered]
    assert slave.state.record.register == mine
    older = msgspec.structs.replace(mine, revision=4)
    slave.feed(NewRegister(older))
    assert slave.state.record.register == mine, "never an older one"


def test_the_log_is_cut_before_the_masters_history_is_adopted() -> None:
    slave = Slave()
    slave.challenge(4, "e4")
    out = slave.welcome(800, EpochItem(1, "e1", 0), EpochItem(4, "e4", 700))
    assert kinds(out, Truncate, Save, Start) == [Truncate, Save, Start]
    cut = next(one for one in out if isinstance(one, Truncate))
    assert (cut.offset, cut.end) == (400, 1000), "epoch 3 is not in the master's log"
    assert slave.state.log.end == 400


def test_one_whose_machine_crashed_is_complete_only_when_it_has_caught_up() -> None:
    history = from_items([EpochItem(3, "e3", 0)])
    crashed = ReplicaRecord(
        B, history=history, promise=Promise(3, "e3"), register=REGISTER, follows=A, complete=True
    ).after_machine_crash()
    assert not crashed.complete
    slave = Slave(crashed)
    slave.challenge(4, "e4")
    register = msgspec.structs.replace(REGISTER, epoch=4, epoch_id="e4", revision=6)
    slave.welcome(1200, EpochItem(3, "e3", 0), EpochItem(4, "e4", 1200), register=register)
    assert not slave.state.record.complete, "200 bytes are missing still"
    slave.data(1000, 200)
    assert slave.state.record.complete


def test_an_ack_follows_the_bytes_and_says_durable_only_of_what_was_flushed() -> None:
    slave = following()
    out = slave.data(1000, 100)
    assert kinds(out, Append, ha.Ack) == [Append, ha.Ack]
    (ack,) = sent(out)
    assert isinstance(ack, ha.Ack)
    assert (ack.epoch, ack.received, ack.durable) == (4, 1100, 600)
    (flushed,) = sent(slave.state.flushed(1050, 0.0))
    assert isinstance(flushed, ha.Ack)
    assert (flushed.received, flushed.durable) == (1100, 1050)


def test_damaged_bytes_are_not_appended_and_end_the_session() -> None:
    slave = following()
    out = slave.data(1000, 100, damage=1)
    assert kinds(out, Append, Close) == [Close]
    assert slave.state.phase is SlavePhase.IDLE


def test_readers_are_shown_what_the_master_has_confirmed_and_no_more() -> None:
    slave = following()
    out = slave.data(1000, 100, confirmed=1040)
    assert [one.offset for one in out if isinstance(one, Confirm)] == [1040]
