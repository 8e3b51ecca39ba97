"""A slave of a RocketMQ master."""

from tandemq.codec.ha_classic import encode_report, encode_transfer_header
from tandemq.codec.ha_reasons import Reason
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Append, Close, Confirm, LogEnds, Send
from tandemq.replication.following.core import SlaveTerms


def connected() -> ClassicSlaveState:
    state = ClassicSlaveState(log=LogEnds(0, 100, 100, 4096), terms=SlaveTerms("g"), now=0.0)
    assert state.connected(1, 0.0) == [Send(1, encode_report(100))]
    return state


def test_it_reports_what_it_has_appended_and_shows_it_at_once() -> None:
    out = connected().receive(encode_transfer_header(100, 5) + b"abcde", 0.0)
    mine = [one for one in out if isinstance(one, Append | Confirm | Send)]
    assert mine == [Append(100, b"abcde"), Confirm(105), Send(1, encode_report(105))]


def test_bytes_that_do_not_continue_its_log_end_the_session() -> None:
    state = connected()
    out = state.receive(encode_transfer_header(300, 5) + b"abcde", 0.0)
    assert [one.reason for one in out if isinstance(one, Close)] == [Reason.DIVERGED]
    assert not state.is_connected


def test_a_master_that_is_silent_is_given_up_and_one_that_is_not_gets_a_sign_of_life() -> None:
    state = connected()
    terms = state.terms
    assert state.tick(terms.heartbeat) == [Send(1, encode_report(100))]
    out = state.tick(terms.housekeeping)
    assert [one.reason for one in out if isinstance(one, Close)] == [Reason.SILENT]
