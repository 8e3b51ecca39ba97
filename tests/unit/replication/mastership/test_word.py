"""The word of the members while the coordinator is away."""

from tests.unit.replication.masters import Master

from tandemq.codec.ha_session import Vouch, Vouched
from tandemq.replication.mastership.word import MembersWord


def test_a_reign_goes_on_by_the_word_of_every_member_in_sync_from_when_it_was_asked_for() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    session = master.state.sessions[1]
    assert session.hello is not None
    word = MembersWord(master.state.core, master.state.followers)
    word._words.lease = 10.0
    assert word.until(0.0) < 0.0
    word._words.ask(5.0)
    word.answered(session, Vouched(1, "etcd answers here"))
    assert word.until(5.0) < 5.0, "a refusal is no word"
    word.answered(session, Vouched(1, ""))
    assert 5.0 < word.until(5.0) < 15.0


def test_members_that_do_not_know_the_question_are_not_asked() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    master.act(master.state.ask_word(0.0))
    assert not master.told(Vouch)
