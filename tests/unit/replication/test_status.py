"""The register as operators and the console read it."""

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.status import register_shown


def test_members_say_whether_they_are_in_sync_and_newcomers_for_whom_they_wait() -> None:
    register = Register(
        group_id="g", epoch=1, holder="a", members=(Member("a"), Member("b")), joining=(Member("c"),), in_sync=("a",)
    )
    shown = register_shown(register, {"c": frozenset({"b"})})
    assert shown is not None
    assert [(one["replica"], one["in_sync"]) for one in shown["members"]] == [("a", True), ("b", False)]
    assert shown["joining"][0]["waits_for"] == ["b"]
    assert {"group_id", "home", "epoch", "revision", "holder", "in_sync", "classic_from"} <= shown.keys()
    assert register_shown(None, {}) is None
