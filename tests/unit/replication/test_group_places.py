"""Where the other brokers of a group are."""

from types import SimpleNamespace
from typing import Any

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.group_places import heard_addresses, member_addresses
from tandemq.replication.session import Session


def master(*sessions: Session) -> Any:
    return SimpleNamespace(sessions={session.id: session for session in sessions})


def session(number: int, address: str, **more: bool) -> Session:
    return Session(number, f"10.0.0.{number}:9", 0.0, 0.0, 0.0, address=address, **more)


def test_those_who_count_and_have_told_their_address_were_heard() -> None:
    state = master(
        session(1, "c:1"), session(2, "b:1"), session(3, ""), session(4, "o:1", observer=True),
        session(5, "classic@host", classic=True),
    )  # fmt: skip
    assert heard_addresses(state) == ["b:1", "c:1"]
    assert heard_addresses(None) == []


def test_members_are_where_record_register_and_sessions_say_once_each_and_not_here() -> None:
    register = Register(
        group_id="g", epoch=1, holder="a:1#1", members=(Member("a:1#1"), Member("b:1#1", "moved:2")),
        joining=(Member("d:1#1"),),
    )  # fmt: skip
    record = ReplicaRecord("a:1#1", members=frozenset({"b:1#1"}), register=register)
    found = member_addresses(record, master(session(1, "e:1"), session(2, "b:1")), "a:1")
    assert sorted(found) == ["b:1", "d:1", "e:1", "moved:2"]
