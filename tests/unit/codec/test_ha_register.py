"""A register travels and is stored as it is, also by versions that know more of it."""

import msgspec

from tandemq.codec.ha_register import Member, Register

REGISTER = Register(
    group_id="g",
    epoch=2,
    epoch_id="e",
    holder="a:1#1",
    revision=7,
    members=(Member("a:1#1", "a:1"), Member("b:1#1", "b:1", 1)),
    joining=(Member("c:1#1"),),
    in_sync=("a:1#1", "b:1#1"),
)


def test_it_comes_back_as_it_was() -> None:
    text = msgspec.json.encode(REGISTER)
    assert msgspec.json.decode(text, type=Register) == REGISTER
    more = {**msgspec.to_builtins(REGISTER), "invented_later": 1}
    assert msgspec.json.decode(msgspec.json.encode(more), type=Register) == REGISTER


def test_who_is_in_it() -> None:
    assert REGISTER.size == 2
    assert REGISTER.version == (2, 7)
    assert REGISTER.everybody == {"a:1#1", "b:1#1", "c:1#1"}
    assert REGISTER.find("c:1#1") == Member("c:1#1")
    assert REGISTER.find("d:1#1") is None
