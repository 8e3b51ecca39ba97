"""SlaveCore: one way to change the phase, the record and the confirmed offset."""

import logging

import pytest
from tests.unit.replication.slaves import B, sent

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Refuse
from tandemq.replication.decisions import Close, Confirm, Decision, LogEnds, Note, Save, Send
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveCore, SlavePhase, SlaveTerms


def core(end: int = 100, confirmed: int = 0) -> SlaveCore:
    record = ReplicaRecord(B, confirmed=confirmed)
    return SlaveCore(record, SlaveTerms("g"), LogEnds(0, end, end, 1 << 20), 0.0, None)


def test_a_change_of_phase_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = core()
    with caplog.at_level(logging.DEBUG):
        one.enter(SlavePhase.GREETED)
        one.enter(SlavePhase.GREETED)
    assert [record.getMessage() for record in caplog.records] == ["this slave goes from not connected to greeted"]
    assert one.is_connected
    assert not one.is_following


def test_readers_are_shown_no_more_than_the_log_has_and_never_less_than_before() -> None:
    one, out = core(end=100), list[Decision]()
    one.confirm(out, 250)
    one.confirm(out, 90)
    assert out == [Confirm(100)]
    assert one.confirmed == 100


def test_a_log_that_ends_below_what_readers_were_shown_is_noticed() -> None:
    one = core(end=100, confirmed=80)
    one.log.end = 70
    with pytest.raises(AssertionError, match="confirmed 80 <= end 70"):
        one.check()


def test_what_was_confirmed_beyond_the_log_of_now_is_not_believed() -> None:
    assert core(end=50, confirmed=80).confirmed == 50


def test_durable_is_never_more_than_the_log() -> None:
    one = core(end=100)
    one.log.end = 60
    assert one.durable == 60


def test_the_record_carries_what_is_confirmed_when_it_is_saved() -> None:
    one, out = core(end=100), list[Decision]()
    one.confirm(out, 70)
    one.save(out, complete=False)
    assert isinstance(out[-1], Save)
    assert (out[-1].record.confirmed, out[-1].record.complete) == (70, False)


def test_closing_tells_the_master_why_before_the_connection_ends() -> None:
    one, out = core(), list[Decision]()
    one.enter(SlavePhase.TOLD)
    one.close(out, Reason.CORRUPT, "nonsense", 5.0)
    assert [type(decision) for decision in out] == [Send, Close, Note]
    (refuse,) = sent(out)
    assert isinstance(refuse, Refuse)
    assert refuse.text == "nonsense"
    assert (one.phase, one.trouble) == (SlavePhase.IDLE, (5.0, Reason.CORRUPT, "nonsense"))
