"""What a master does with those who greet it."""

import pytest
from tests.unit.replication.masters import C, Master, Peer

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Challenge, Preamble, Refuse, Welcome
from tandemq.replication.decisions import Close
from tandemq.replication.session import SessionState


def test_one_that_is_heard_before_this_master_is_open_is_told_to_wait() -> None:
    master = Master()
    master.hear(Peer(replica=C))
    assert not master.last(Welcome).open
    assert master.state.sessions[1].state is SessionState.WAITING


def test_one_that_comes_to_an_open_master_is_welcomed_at_once() -> None:
    master = Master().opened()
    master.hear(Peer(replica=C), session=2)
    assert master.last(Welcome).open
    assert master.state.sessions[2].state is SessionState.CHECKING


@pytest.mark.parametrize("is_open", [True, False])
def test_an_observer_is_served_by_an_open_master_only(is_open: bool) -> None:
    master = Master().opened() if is_open else Master()
    master.hear(Peer(replica="o:1#1", observer=True, register=None), session=2)
    assert (2 in master.state.sessions) is is_open
    assert is_open or master.last(Close).reason is Reason.NOT_MASTER


def test_one_deposed_says_so_to_whoever_greets_it() -> None:
    master = Master().opened()
    master.act(master.state.order(9, "another one reigns", 0.0))
    challenges = len(master.told(Challenge))
    master.act(master.state.connected(2, "10.0.0.2:9", 0.0))
    master.tell(2, Preamble(ha.VERSION, "nonce"))
    assert master.last(Refuse).code is Reason.NOT_MASTER
    assert len(master.told(Challenge)) == challenges
    assert not master.state.sessions
