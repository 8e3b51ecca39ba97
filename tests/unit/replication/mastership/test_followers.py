"""Who is connected to a master, and how a session ends."""

from dataclasses import replace

from tests.unit.replication.masters import B, C, Master, Peer

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Refuse
from tandemq.replication.decisions import Close
from tandemq.replication.mastership.followers import DEPARTURES_MAX


def test_a_departure_says_what_the_replica_had_and_why_it_left() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    master.act(master.state.disconnected(1, 7.0))
    left = master.state.departures[B]
    assert (left.at, left.reason, left.received, left.durable) == (7.0, Reason.LOST, 1000, 1000)


def test_departures_are_bounded_whoever_connects() -> None:
    master = Master()
    for number in range(DEPARTURES_MAX + 10):
        master.act(master.state.connected(number, f"10.0.{number}.1:9", 0.0))
        master.act(master.state.disconnected(number, 0.0))
    assert len(master.state.departures) == DEPARTURES_MAX


def test_a_session_that_the_other_side_ends_is_remembered_with_its_reason() -> None:
    master = Master().opened()
    master.tell(1, Refuse("stopping", "the slave stops", 0))
    assert master.last(Close).reason is Reason.STOPPING
    assert master.state.departures[B].text == "the slave stops"


def test_one_too_many_is_told_so() -> None:
    master = Master().opened()
    master.state.core.terms = replace(master.state.terms, sessions_max=1)
    master.hear(Peer(replica=C), session=2)
    assert master.last(Close).reason is Reason.TOO_MANY
    assert list(master.state.sessions) == [1]
