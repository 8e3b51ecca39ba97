"""Registers: what a master tells of its group, and the word it asks for."""

from tests.unit.replication.slaves import A, B, C, following, kinds, sent

from tandemq.codec.ha_session import Members, Vouch, Vouched
from tandemq.replication.decisions import LogEnds, Save
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveCore, SlavePhase, SlaveTerms, Vouching
from tandemq.replication.following.registers import Registers


def asked(vouch: Vouching | None, *, epoch: int = 4, phase: SlavePhase = SlavePhase.FOLLOWING) -> str:
    """The answer when the master of epoch 4 asks for the word; empty: given."""
    core = SlaveCore(ReplicaRecord(B), SlaveTerms("g"), LogEnds(0, 0, 0, 1 << 20), 0.0, vouch)
    core.number, core.master = 4, A
    core.enter(phase)
    out: list = []
    Registers(core).asked_for_word(out, Vouch(epoch, 7), 1.0)
    (answer,) = sent(out)
    assert isinstance(answer, Vouched)
    assert answer.number == 7
    return answer.refused


def test_the_word_is_given_to_the_master_that_is_followed() -> None:
    told: list[tuple[str, int, float]] = []

    def vouch(master: str, epoch: int, now: float) -> str:
        told.append((master, epoch, now))
        return ""

    assert asked(vouch) == ""
    assert told == [(A, 4, 1.0)]


def test_it_is_given_to_nobody_else() -> None:
    def vouch(master: str, epoch: int, now: float) -> str:
        return ""

    assert asked(None)
    assert asked(vouch, epoch=5)
    assert asked(vouch, phase=SlavePhase.WAITING)


def test_members_are_saved_when_they_have_changed() -> None:
    slave = following()
    assert kinds(slave.feed(Members([B, C], [B])), Save) == [Save]
    assert slave.state.record.members == {B, C}
    assert kinds(slave.feed(Members([B, C], [B])), Save) == []
