"""Meeting another number, another register, another reign."""

import msgspec
import pytest
from tests.unit.replication.masters import REGISTER, A, C, Master, Peer

from tandemq.codec.ha_session import Challenge, Refuse
from tandemq.replication.decisions import Close, SteppedDown
from tandemq.replication.epochs import Promise
from tandemq.replication.mastership.core import Phase


def test_a_promise_to_another_number_is_no_reign_but_ends_this_one_until_it_is_heard_anew() -> None:
    master = Master().opened()
    master.hear(Peer(replica=C, promised=Promise(40, "else")), session=2)
    assert master.state.phase is Phase.ASKING
    assert master.last(SteppedDown).asking
    assert master.state.number == 41
    assert master.last(Challenge).number == 41


@pytest.mark.parametrize("proven", [True, False])
def test_only_a_peer_that_has_proven_itself_can_end_a_reign_by_its_refusal(proven: bool) -> None:
    master = Master().opened()
    if not proven:
        master.state.sessions[1].proven = False
    master.tell(1, Refuse("promised", "serves epoch 40", 40))
    assert (master.state.phase is Phase.OPEN) is not proven


def test_a_master_named_in_a_newer_register_asks_again_instead_of_stepping_down() -> None:
    master = Master().opened()
    newer = msgspec.structs.replace(REGISTER, epoch=9, epoch_id="e9", holder=A, revision=9)
    master.hear(Peer(register=newer), session=2)
    assert master.state.phase is not Phase.DEPOSED
    assert master.state.number > 9


def test_an_order_of_an_older_epoch_changes_nothing() -> None:
    master = Master().opened()
    master.act(master.state.order(2, "late news", 0.0))
    assert master.state.phase is Phase.OPEN
    assert not master.told(SteppedDown)


def test_a_replica_of_a_newer_register_that_refuses_to_promise_ends_the_asking() -> None:
    master = Master()
    newer = msgspec.structs.replace(REGISTER, epoch=9, epoch_id="e9", holder=C, revision=9)
    master.hear(Peer(register=newer))
    assert master.state.phase is Phase.DEPOSED
    assert master.told(Close)
