"""Users and policies as RocketMQ 5 judges them."""

import pytest

from tandemq.model.topic import TRACE_TOPIC
from tandemq.remoting.access import users
from tandemq.remoting.access.needs import CLUSTER, CREATE, GET, GROUP, PUB, SUB, TOPIC, UPDATE, Need
from tandemq.remoting.access.users import (
    CUSTOM,
    DEFAULT,
    AccessProblem,
    Entry,
    UserTable,
    action_texts,
    entry_of,
    resource_of,
)


def table(*entries: Entry, default: tuple[Entry, ...] = ()) -> UserTable:
    made = UserTable(lambda: 1, cluster="DefaultCluster")
    made.create("u", "password")
    if entries or default:
        made.put_entries("u", {CUSTOM: entries, DEFAULT: default})
    return made


def allow(resource: str, *actions: str, sources: tuple[str, ...] = ()) -> Entry:
    return entry_of(resource, actions, sources, "allow")


def deny(resource: str, *actions: str) -> Entry:
    return entry_of(resource, actions, (), "Deny")


def judged(made: UserTable, kind: str, name: str, actions: int, host: str = "10.0.0.1") -> bool:
    account = made.account("u")
    assert account is not None
    return account.may(Need(kind, name, actions), host)


CASES: dict[str, tuple[UserTable, str, str, int, bool]] = {
    "nothing is said": (table(), TOPIC, "T", SUB, False),
    "by name": (table(allow("Topic:T", "Sub")), TOPIC, "T", SUB, True),
    "another action": (table(allow("Topic:T", "Sub")), TOPIC, "T", PUB, False),
    "one of several actions": (table(allow("Topic:T", "Sub")), TOPIC, "T", SUB | GET, True),
    "all actions": (table(allow("Topic:T", "All")), TOPIC, "T", CREATE, True),
    "another kind": (table(allow("Topic:T", "Sub")), GROUP, "T", SUB, False),
    "by prefix": (table(allow("Topic:order*", "Pub")), TOPIC, "orders", PUB, True),
    "not by this prefix": (table(allow("Topic:order*", "Pub")), TOPIC, "bills", PUB, False),
    "any of a kind": (table(allow("Group:*", "Sub")), GROUP, "g", SUB, True),
    "everything": (table(allow("*", "Get")), CLUSTER, "", GET, True),
    "the cluster by its name": (table(allow("Cluster:DefaultCluster", "Update")), CLUSTER, "", UPDATE, True),
    "another cluster": (table(allow("Cluster:Other", "Update")), CLUSTER, "", UPDATE, False),
    "a name before a prefix": (
        table(deny("Topic:o*", "Pub"), allow("Topic:orders", "Pub")), TOPIC, "orders", PUB, True,
    ),
    "a long prefix before a short one": (
        table(allow("Topic:o*", "Pub"), deny("Topic:orde*", "Pub")), TOPIC, "orders", PUB, False,
    ),
    "a kind before everything": (table(deny("*", "Pub"), allow("Topic:*", "Pub")), TOPIC, "orders", PUB, True),
    "an entry about other actions says nothing": (
        table(allow("Topic:o*", "Pub"), deny("Topic:orders", "Sub")), TOPIC, "orders", PUB, True,
    ),
    "custom before default": (
        table(deny("Topic:*", "Pub"), default=(allow("Topic:orders", "Pub"),)), TOPIC, "orders", PUB, False,
    ),
    "default where custom says nothing": (
        table(deny("Group:*", "Sub"), default=(allow("Topic:orders", "Pub"),)), TOPIC, "orders", PUB, True,
    ),
    "traces need a name": (table(allow("Topic:*", "All")), TOPIC, TRACE_TOPIC, SUB, False),
    "traces by name": (table(allow(f"Topic:{TRACE_TOPIC}", "Sub")), TOPIC, TRACE_TOPIC, SUB, True),
    "traces may be written": (table(allow("Topic:*", "All")), TOPIC, TRACE_TOPIC, PUB, True),
}  # fmt: skip


@pytest.mark.parametrize(("made", "kind", "name", "actions", "allowed"), CASES.values(), ids=CASES.keys())
def test_policies(made: UserTable, kind: str, name: str, actions: int, allowed: bool) -> None:
    assert judged(made, kind, name, actions) is allowed


def test_addresses() -> None:
    made = table(allow("Topic:T", "Sub", sources=("10.0.0.0/24", "192.168.1.1")))
    assert judged(made, TOPIC, "T", SUB, "10.0.0.9")
    assert judged(made, TOPIC, "T", SUB, "192.168.1.1")
    assert not judged(made, TOPIC, "T", SUB, "10.0.1.9")


def test_work_depends_on_sizes_of_prefixes_and_not_on_entries() -> None:
    """A heartbeat of thousands of topics by a user with a thousand entries must not take seconds."""
    many = table(*(allow(f"Topic:t{n:03}*", "Sub") for n in range(900)))
    account = many.account("u")
    assert account is not None
    assert len(list(account._fitting(CUSTOM, "Topic", "t007x"))) == 1
    assert account._prefix_sizes[CUSTOM] == [4]


def test_super_and_disabled_users() -> None:
    made = table()
    made.update("u", kind="Super")
    assert judged(made, CLUSTER, "", UPDATE)
    account = made.account("u")
    assert account is not None
    assert account.is_admin
    made.update("u", status="disable")
    account = made.account("u")
    assert account is not None
    assert "disabled" in account.problem


def test_without_authorization_every_user_may_do_everything() -> None:
    made = UserTable(lambda: 1, authorize=False)
    made.create("u", "password")
    assert judged(made, CLUSTER, "", UPDATE)


def test_a_changed_password_is_in_force_at_once() -> None:
    made = table()
    before = made.account("u")
    made.update("u", password="another")
    after = made.account("u")
    assert before is not None
    assert after is not None
    assert before.signing_key.classic({}, b"") != after.signing_key.classic({}, b"")


def test_entries_are_added_replaced_and_deleted_by_resource() -> None:
    made = table(allow("Topic:A", "Sub"), allow("Topic:B", "Sub"))
    made.put_entries("u", {"": [deny("Topic:A", "Sub", "Pub")]})
    held = made.policies("u")[CUSTOM]
    assert [(str(r), e.decision) for r, e in held.items()] == [("Topic:A", "Deny"), ("Topic:B", "Allow")]
    made.delete_entries("u", "", "Topic:A")
    assert [str(r) for r in made.policies("u")[CUSTOM]] == ["Topic:B"]
    made.delete_entries("u", "", "Topic:B")
    assert made.policies("u") == {}
    with pytest.raises(AccessProblem, match="no policies"):
        made.delete_entries("u")


def test_listing_by_parts_of_names() -> None:
    made = table(allow("Topic:A", "Sub"), allow("Group:B", "Sub"))
    made.create("other", "password")
    assert [user.name for user in made.users()] == ["other", "u"]
    assert [user.name for user in made.users("oth")] == ["other"]
    assert [name for name, _ in made.all_policies("User:u")] == ["u"]
    ((_, policies),) = made.all_policies(part_of_resource="Group")
    assert [str(r) for r in policies[CUSTOM]] == ["Group:B"]
    assert made.all_policies("nobody") == []


def test_a_snapshot_holds_everything() -> None:
    made = table(allow("Topic:A*", "Sub", "Get", sources=("10.0.0.0/8",)), default=(deny("*", "All"),))
    made.create("admin", "geheim", "super", "disable")
    copy = UserTable(lambda: 2, cluster="DefaultCluster")
    copy.load(made.snapshot())
    assert copy.snapshot() == made.snapshot()
    assert copy.version == made.version
    assert copy.policies("u") == made.policies("u")


@pytest.mark.parametrize(
    "snapshot",
    [
        {"users": []},
        {"users": {"u": {"password": ""}}},
        {"users": {"u": {"password": "p", "userType": "King"}}},
        {"policies": {"nobody": {"Custom": []}}},
        {"users": {"u": {"password": "p"}}, "policies": {"u": {"Custom": [{"resource": "Topic:A"}]}}},
    ],
)
def test_a_broken_snapshot_changes_nothing(snapshot: dict[str, object]) -> None:
    made = table(allow("Topic:A", "Sub"))
    before = made.snapshot()
    with pytest.raises((AccessProblem, users.bodies.MalformedBody)):
        made.load(snapshot)
    assert made.snapshot() == before


@pytest.mark.parametrize(
    ("resource", "actions", "sources", "decision", "reason"),
    [
        ("Queue:T", ["Pub"], [], "Allow", "Queue:T"),
        ("Topic", ["Pub"], [], "Allow", "Topic"),
        ("Topic:", ["Pub"], [], "Allow", "Topic:"),
        ("Topic:a*b", ["Pub"], [], "Allow", "at the end"),
        ("Topic:T", ["Read"], [], "Allow", "Read"),
        ("Topic:T", ["Any"], [], "Allow", "Any"),
        ("Topic:T", [], [], "Allow", "no action"),
        ("Topic:T", ["Pub"], ["10.0.0.300"], "Allow", "10.0.0.300"),
        ("Topic:T", ["Pub"], ["1.1.1.1"] * 101, "Allow", "limit is 100"),
        ("Topic:T", ["Pub"], [], "Maybe", "Maybe"),
    ],
)
def test_entries_that_make_no_sense(
    resource: str, actions: list[str], sources: list[str], decision: str, reason: str
) -> None:
    with pytest.raises(AccessProblem, match=reason.replace("*", r"\*")):
        entry_of(resource, actions, sources, decision)


@pytest.mark.parametrize("text", ["*", "Topic:T", "Topic:T*", "Group:*", "Cluster:C", "Namespace:N"])
def test_resources_are_written_as_they_are_read(text: str) -> None:
    assert str(resource_of(text)) == text


def test_names_of_actions() -> None:
    assert action_texts(PUB | SUB) == ["Pub", "Sub"]
    assert action_texts(entry_of("*", ["all"], (), "allow").actions) == ["All"]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(allow("Topic:A", "Sub"))
    monkeypatch.setattr(users, "ENTRIES_PER_USER_MAX", 1)
    with pytest.raises(AccessProblem, match="limit is 1"):
        made.put_entries("u", {"": [allow("Topic:B", "Sub")]})
    monkeypatch.setattr(users, "USERS_MAX", 1)
    with pytest.raises(AccessProblem, match="limit is 1"):
        made.create("v", "password")
    for name, password in (("u", "p"), ("", "p"), ("a\n", "p"), ("n" * 129, "p"), ("v", " "), ("v", "p" * 257)):
        monkeypatch.undo()
        with pytest.raises(AccessProblem):
            made.create(name, password)
    for call in (made.update, made.policies):
        with pytest.raises(AccessProblem, match="no user"):
            call("nobody")
    made.delete("nobody")
    assert [user.name for user in made.users()] == ["u"]


def test_every_change_is_told_and_counted() -> None:
    told: list[int] = []
    made = UserTable(lambda: 1)
    made.on_change = lambda: told.append(made.version.counter)
    made.create("u", "password")
    made.put_entries("u", {CUSTOM: [allow("*", "All")]})
    made.delete("u")
    assert told == [1, 2, 3]


def test_users_and_policies_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand users with a thousand entries of a hundred addresses were within all bounds, and 20 GB."""
    monkeypatch.setattr(users, "SIZE_MAX", 2000)
    table = UserTable(lambda: 0)
    table.create("alice", "secret")
    table.create("bob", "secret")
    small = table.size

    def entries(count: int, sources: int = 0) -> dict[str, list[Entry]]:
        places = [f"10.0.0.{number}" for number in range(sources)]
        return {"": [entry_of(f"Topic:t{number}", ["Pub"], places, "Allow") for number in range(count)]}

    table.put_entries("alice", entries(5))
    assert 500 < table.size - small < 600
    for refused in (entries(15), entries(5, 100)):
        with pytest.raises(AccessProblem, match="more would be over 2000"):
            table.put_entries("bob", refused)
    assert table.policies("bob") == {}
    for number in range(3):
        table.create(f"user-{number}", "s" * 256)
    with pytest.raises(AccessProblem, match="more would be over"):
        table.create("user-3", "s" * 256)
    table.put_entries("alice", entries(1))  # the same again takes no more
    table.delete_entries("alice", resource="Topic:t1")
    again = UserTable(lambda: 0)
    again.load(table.snapshot())
    assert again.size == table.size
    for user in table.users():
        table.delete(user.name)
    assert table.size == 0


def test_what_is_held_does_not_change_with_the_table() -> None:
    table = UserTable(lambda: 0)
    table.create("alice", "secret")
    table.put_entries("alice", {"": [entry_of("Topic:t", ["Pub"], (), "Allow")]})
    held, before = table.held(), table.snapshot()
    table.put_entries(
        "alice", {"": [entry_of("Topic:t", ["Sub"], (), "Deny"), entry_of("Topic:u", ["Pub"], (), "Allow")]}
    )
    table.delete_entries("alice", resource="Topic:t")
    table.update("alice", password="another")
    table.create("bob", "secret")
    assert held.snapshot() == before != table.snapshot()
