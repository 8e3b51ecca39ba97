"""Whether what a replica has stored fits to what etcd has; nobody begins anew over something older."""

import msgspec

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.known_keys import KnownKeys
from tandemq.replication.register_fit import address_of, refusal_of

HOME = "etcd:77"
FIRST = Register(
    group_id="g",
    home=HOME,
    epoch=1,
    epoch_id="e",
    holder="a:1#x",
    revision=1,
    members=(Member("a:1#x", "a:1", 1),),
    in_sync=("a:1#x",),
)
SECOND = msgspec.structs.replace(FIRST, revision=2, paused=True)


def keys_with(register: Register | None) -> KnownKeys:
    keys = KnownKeys()
    keys.answered(1.0, 5, known=0)
    if register is not None:
        keys.took(register, 5)
    return keys


def test_an_empty_etcd_is_for_a_replica_that_knows_no_register() -> None:
    keys = keys_with(None)
    assert refusal_of(keys, HOME, None) == ""
    assert "made anew" in refusal_of(keys, HOME, FIRST)
    assert "lives in the group" in refusal_of(keys, HOME, msgspec.structs.replace(FIRST, home="group"))


def test_what_is_stored_and_what_etcd_has_must_fit() -> None:
    keys = keys_with(FIRST)
    assert refusal_of(keys, HOME, FIRST) == ""
    assert refusal_of(keys, HOME, None) == ""
    assert "restored from a backup" in refusal_of(keys, HOME, SECOND)
    assert "another group" in refusal_of(keys, HOME, msgspec.structs.replace(FIRST, group_id="h"))
    assert "restored" in refusal_of(keys, "etcd:1", FIRST)


def test_damage_comes_first_and_says_where_to_read_on() -> None:
    keys = keys_with(FIRST)
    keys.told_register(None, 9)
    assert "gone" in refusal_of(keys, HOME, FIRST)
    assert "docs/operations.md" in refusal_of(keys, HOME, FIRST)


def test_where_a_replica_is() -> None:
    assert address_of(FIRST, "a:1#x") == "a:1"
    assert address_of(FIRST, "b:2#y") == "b:2"
