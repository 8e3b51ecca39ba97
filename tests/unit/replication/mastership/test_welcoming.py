"""From where a slave follows."""

import pytest
from tests.unit.replication.masters import Master, Peer

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Welcome
from tandemq.replication.decisions import Close
from tandemq.replication.session import SessionState


def test_a_slave_follows_from_where_the_logs_agree_or_before() -> None:
    master = Master()
    master.hear(Peer(end=900, durable=900))
    master.registered(1)
    master.start_session(1, 800)
    session = master.state.sessions[1]
    assert session.is_streaming
    assert (session.sent, session.received, session.durable) == (800, 800, 800)


def test_a_start_beyond_what_both_agree_on_ends_the_session() -> None:
    master = Master()
    master.hear(Peer(end=900, durable=900))
    master.registered(1)
    master.start_session(1, 950)
    assert master.last(Close).reason is Reason.DIVERGED


def test_bytes_that_retention_has_deleted_are_not_promised() -> None:
    master = Master().opened()
    master.act(master.state.retained(500, 0.0))
    master.start_session(1, 400)
    assert master.last(Close).reason is Reason.OFFSET_GONE


@pytest.mark.parametrize(("last_file_only", "start"), [(False, 0), (True, 512)])
def test_an_empty_slave_begins_with_the_log_or_with_its_last_file(last_file_only: bool, start: int) -> None:
    master = Master().opened()
    master.state.log.segment_size = 512
    assert master.last(Welcome).start_empty_at == 0
    assert master.state._welcoming.start_of_empty(last_file_only) == start
    assert master.state.sessions[1].state is SessionState.CHECKING
