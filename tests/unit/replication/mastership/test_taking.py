"""The log that a candidate takes from the furthest replica."""

from tests.unit.replication.masters import B, Master, Peer

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_session import Take
from tandemq.replication.decisions import Append, Close, Prepare
from tandemq.replication.mastership.core import Phase
from tandemq.replication.session import SessionState


def taking() -> Master:
    master = Master()
    master.hear(Peer(end=1200, durable=1200))
    assert master.state.phase is Phase.TAKING
    return master


def test_what_the_furthest_replica_has_more_is_taken_before_it_opens() -> None:
    master = taking()
    assert (master.last(Take).start, master.last(Take).stop) == (1000, 1200)
    data = bytes(200)
    master.act(master.state.receive(1, ha.encode_data_header(3, 1000, 0, data) + data, 0.0))
    assert master.last(Append) == Append(1000, data)
    assert master.state.log.end == 1200
    assert master.place(Append) < master.place(Prepare)
    assert master.state.phase is Phase.SWAPPING


def test_damaged_bytes_of_the_donor_are_not_taken_and_all_are_asked_again() -> None:
    master = taking()
    data = bytes(200)
    master.act(master.state.receive(1, ha.encode_data_header(3, 1000, 0, b"\x01" * 200) + data, 0.0))
    assert not master.told(Append)
    assert master.told(Close)
    assert master.state.phase is Phase.ASKING


def test_a_donor_that_is_lost_is_not_waited_for() -> None:
    master = taking()
    assert master.state.sessions[1].state is SessionState.DONATING
    master.act(master.state.disconnected(1, 0.0))
    assert master.state.phase is Phase.ASKING
    assert master.state.waiting_for == {B}
