"""What a node knows of its group's keys in etcd: answers come late, twice and out of order."""

import msgspec

from tandemq.codec.ha_register import Register
from tandemq.replication.known_keys import Holder, KnownKeys

FIRST = Register(group_id="g", home="etcd:77", epoch=1, epoch_id="e", holder="a:1#x", revision=1)
SECOND = msgspec.structs.replace(FIRST, revision=2)
ME = msgspec.json.encode(Holder("a:1#x", 1))


def data_of(register: Register) -> bytes:
    return msgspec.json.encode(register)


def test_a_register_is_news_once() -> None:
    keys = KnownKeys()
    assert keys.told_register(data_of(FIRST), 5) == FIRST
    assert keys.told_register(data_of(FIRST), 5) is None
    assert keys.told_register(data_of(SECOND), 6) == SECOND
    assert keys.told_register(data_of(FIRST), 5) is None
    assert (keys.register, keys.revision, keys.damage) == (SECOND, 6, "")


def test_an_older_register_at_a_newer_revision_is_damage() -> None:
    keys = KnownKeys()
    keys.told_register(data_of(SECOND), 5)
    assert keys.told_register(data_of(FIRST), 6) is None
    assert "older" in keys.damage
    assert keys.register == SECOND


def test_an_etcd_whose_revision_goes_back_is_damage_until_it_has_what_is_known() -> None:
    keys = KnownKeys()
    keys.told_register(data_of(SECOND), 50)
    keys.answered(1.0, 30, known=50)
    assert "revision 30" in keys.damage
    assert keys.told_register(data_of(FIRST), 20) is None
    assert "older" in keys.damage
    assert keys.told_register(data_of(SECOND), 31) is None  # an operator has given it back
    assert (keys.damage, keys.revision) == ("", 31)


def test_an_answer_that_was_overtaken_by_a_swap_is_no_damage() -> None:
    keys = KnownKeys()
    keys.told_register(data_of(FIRST), 5)
    keys.took(SECOND, 8)  # while a question of before is still under way
    keys.answered(1.0, 7, known=5)
    assert keys.told_register(data_of(FIRST), 5) is None
    assert keys.told_register(None, 4) is None
    assert (keys.register, keys.revision, keys.damage) == (SECOND, 8, "")


def test_a_register_that_is_gone_is_damage() -> None:
    keys = KnownKeys()
    keys.told_register(data_of(FIRST), 5)
    keys.told_register(None, 9)
    assert "gone" in keys.damage
    assert keys.revision == 0


def test_an_answer_that_a_newer_event_overtook_is_late_and_no_damage() -> None:
    keys = KnownKeys()
    keys.told_register(data_of(FIRST), 50)
    assert not keys.answered(1.0, 49, known=3)
    assert not keys.damage
    assert keys.answered(2.0, 51, known=50)


def test_what_can_not_be_read_is_damage() -> None:
    keys = KnownKeys()
    assert keys.told_register(b"{", 5) is None
    assert "can't be read" in keys.damage


def test_who_reigns_is_taken_from_the_newest_change_only() -> None:
    keys = KnownKeys()
    keys.told_holder(ME, 7, 10)
    keys.told_holder(None, 0, 9)
    assert (keys.holder, keys.holder_lease) == (Holder("a:1#x", 1), 7)
    keys.told_no_holder(10)  # read before the claim of the same revision was told
    assert keys.holder is not None
    keys.told_no_holder(11)
    assert (keys.holder, keys.holder_lease) == (None, 0)


def test_a_question_without_an_answer_says_that_etcd_is_away() -> None:
    keys = KnownKeys()
    assert not keys.was_read
    keys.unanswered()
    assert keys.is_away
    keys.answered(2.0, 1, known=0)
    assert keys.was_read
    assert not keys.is_away
