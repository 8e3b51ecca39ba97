"""The beginning and the end of a reign."""

from tests.unit.replication.masters import Master

from tandemq.codec.ha_session import Refuse
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.decisions import Close, SteppedDown
from tandemq.replication.mastership.core import Phase


def test_the_end_of_a_reign_fails_who_waits_and_tells_the_broker_after_that() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    told = master.append(1100, AckLevel(2))
    master.act(master.state.order(9, "another one reigns", 0.0))
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert master.state.phase is Phase.DEPOSED
    assert master.last(SteppedDown).asking is False
    assert master.state.record.campaigned == 9, "should it stand again, it asks for a number above that"


def test_every_session_is_told_why_it_ends_with_the_reign() -> None:
    master = Master().opened()
    master.act(master.state.order(9, "another one reigns", 0.0))
    assert master.last(Refuse).text == "another one reigns"
    assert master.last(Close).session == 1
    assert not master.state.sessions


def test_acks_of_the_last_reign_do_not_count_in_the_next() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    assert master.acks.watermark(AckLevel(2)) == 1000
    master.act(master.state.order(9, "another one reigns", 0.0))
    assert master.acks.watermark(AckLevel(2)) == 0
