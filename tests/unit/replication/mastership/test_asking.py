"""Whom a master must hear before it opens, and with which number it asks."""

from tests.unit.replication.masters import REGISTER, A, B, Master, Peer

from tandemq.codec.ha_session import Challenge
from tandemq.replication.decisions import Close, Note
from tandemq.replication.epochs import Promise, ReplicaRecord
from tandemq.replication.mastership.core import Phase


def test_one_found_reigning_waits_for_those_who_were_in_sync() -> None:
    master = Master()
    assert master.state.phase is Phase.ASKING
    assert master.state.waiting_for == {B}


def test_it_says_once_for_whom_it_waits() -> None:
    master = Master()
    for now in (60.0, 120.0):
        master.act(master.state.tick(now))
    said = [note.text for note in master.told(Note) if note.event == "read-only"]
    assert len(said) == 1
    assert B in said[0]


def test_it_asks_with_a_number_above_any_that_was_promised_elsewhere() -> None:
    master = Master()
    master.hear(Peer(promised=Promise(40, "else")))
    assert master.last(Challenge).number == 41, "the same session is asked again"
    assert master.state.record.campaigned == 41, "and a crash does not forget the number"


def test_whoever_the_register_does_not_name_does_not_stand() -> None:
    master = Master(ReplicaRecord("x:1#1", promise=Promise(3, "e3")), group_exists=True)
    master.hear(Peer(register=REGISTER))
    assert master.state.phase is Phase.DEPOSED
    assert master.told(Close)


def test_accepting_a_loss_asks_everybody_for_a_while_all_the_same() -> None:
    master = Master()
    master.act(master.state.allow(0.0))
    assert master.state.phase is Phase.ASKING
    assert master.state.next_deadline(0.0) <= master.state.terms.loss_wait
    master.act(master.state.tick(master.state.terms.loss_wait))
    assert master.state.phase is Phase.OPEN
    assert master.state.opened_without == {B}
    assert master.register.holder == A
