"""RocketMQ's slaves."""

import pytest
from tests.unit.replication.masters import Master

from tandemq.codec.ha_classic import encode_report
from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import Close
from tandemq.replication.session import SessionState


def report(master: Master, offset: int) -> None:
    if 2 not in master.state.sessions:
        master.act(master.state.connected(2, "10.0.0.2:9", 0.0))
    master.act(master.state.receive(2, encode_report(offset), 0.0))


def test_an_empty_slave_begins_where_the_log_begins() -> None:
    master = Master().opened()
    report(master, 0)
    session = master.state.sessions[2]
    assert (session.replica, session.sent, session.received) == ("classic@10.0.0.2", 0, 0)
    assert session.is_streaming


@pytest.mark.parametrize(
    ("offset", "reason"), [(-1, Reason.CORRUPT), (5000, Reason.DIVERGED), (300, Reason.OFFSET_GONE)]
)
def test_a_first_report_that_no_slave_of_this_log_makes_ends_the_session(offset: int, reason: Reason) -> None:
    master = Master().opened()
    master.act(master.state.retained(400, 0.0))
    report(master, offset)
    assert master.last(Close).reason is reason


def test_none_is_served_before_this_master_is_open() -> None:
    master = Master()
    report(master, 0)
    assert master.last(Close).reason is Reason.NOT_MASTER


def test_a_slave_counts_only_while_nobody_waits_for_what_it_was_not_seen_to_receive() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    waits = master.append(1100, master.state.terms.level)
    report(master, 1100)
    assert master.state.sessions[2].state is SessionState.CATCHING_UP
    assert waits == []
    master.acked(1, 1100)
    report(master, 1100)
    assert master.state.sessions[2].state is SessionState.IN_SYNC
