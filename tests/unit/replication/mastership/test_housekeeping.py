"""What time does to a master's sessions."""

from tests.unit.replication.masters import Master

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import Close, Send


def following() -> Master:
    master = Master().opened()
    master.start_session(1, 1000)
    return master


def test_a_slave_hears_of_its_master_with_every_heartbeat() -> None:
    master = following()
    heartbeat = master.state.terms.heartbeat
    assert master.state.next_deadline(0.0) == heartbeat
    assert master.state.tick(heartbeat / 2) == []
    assert [type(one) for one in master.state.tick(heartbeat)] == [Send]


def test_a_slave_that_is_silent_is_given_up() -> None:
    master = following()
    master.act(master.state.tick(master.state.terms.housekeeping))
    assert master.last(Close).reason is Reason.SILENT
    assert not master.state.sessions


def test_a_peer_that_proves_nothing_is_given_up_sooner_than_one_that_is_silent() -> None:
    master = following()
    master.act(master.state.connected(2, "10.0.0.2:9", 0.0))
    assert master.state.next_deadline(0.0) <= master.state.terms.housekeeping
    master.act(master.state.tick(master.state.terms.housekeeping - 1))
    assert 2 in master.state.sessions, "a RocketMQ slave may take its time for its first word"
    master.act(master.state.tick(master.state.terms.housekeeping))
    assert 2 not in master.state.sessions


def test_a_slave_whose_next_bytes_were_deleted_begins_anew() -> None:
    master = following()
    master.state.sessions[1].sent = 300
    master.act(master.state.retained(400, 0.0))
    assert master.last(Close).reason is Reason.OFFSET_GONE
    assert master.state.log.first == 400
