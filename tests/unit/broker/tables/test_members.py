"""Who is connected: groups change with heartbeats, goodbyes, lost connections and silence."""

from typing import Any

from tandemq.broker.subscriptions import Subscription, parse_subscription
from tandemq.broker.tables.members import ASKERS_PER_CONNECTION_MAX, Members


def consume(
    members: Members, connection: Any, client: str = "c", *subscriptions: Subscription, now: float = 0.0
) -> bool:
    return members.register_consumer(
        "g", connection, client, "JAVA", 407, now, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET", subscriptions=list(subscriptions),
    )  # fmt: skip


def test_a_second_heartbeat_changes_nothing() -> None:
    members = Members()
    wanted = parse_subscription("T", "A||B", version=1)
    assert consume(members, "link", "c", wanted)
    assert not consume(members, "link", "c", wanted)


def test_another_client_id_on_the_same_connection_replaces_the_first() -> None:
    members = Members()
    consume(members, "link", "first")
    assert consume(members, "link", "second")
    group = members.consumer_group("g")
    assert group is not None
    assert group.client_ids() == ["second"]


def test_a_client_with_two_connections_is_one_member() -> None:
    """Old Java clients use main and VIP port; the newer connection is the one to talk to."""
    members = Members()
    consume(members, "main", "c")
    consume(members, "vip", "c")
    group = members.consumer_group("g")
    assert group is not None
    assert group.client_ids() == ["c"]
    found = group.find("c")
    assert found is not None
    assert found.connection == "vip"  # type: ignore[comparison-overlap]


def test_newer_subscriptions_replace_and_unlisted_topics_go() -> None:
    members = Members()
    consume(members, "link", "c", parse_subscription("T", "A", version=2), parse_subscription("U", "*", version=2))
    assert not consume(
        members, "link", "c", parse_subscription("T", "B", version=1), parse_subscription("U", "*", version=2)
    )
    assert consume(members, "link", "c", parse_subscription("T", "B", version=3))
    group = members.consumer_group("g")
    assert group is not None
    assert {s.topic: s.expression for s in group.subscriptions.values()} == {"T": "B"}


def test_a_newer_version_of_the_same_text_is_no_news() -> None:
    """The Java client raises the version at every rebalance; telling the group each time would never end."""
    members = Members()
    consume(members, "link", "c", parse_subscription("T", "A", version=1))
    assert not consume(members, "link", "c", parse_subscription("T", "A", version=2))
    group = members.consumer_group("g")
    assert group is not None
    assert group.subscriptions["T"].version == 2


def test_a_lost_connection_takes_everything_on_it() -> None:
    members = Members()
    consume(members, "a", "one")
    consume(members, "b", "two")
    members.register_producer("p", "a", "one", "JAVA", 407, 0.0)  # type: ignore[arg-type]
    assert members.drop_connection("a") == {"g"}  # type: ignore[arg-type]
    assert members.producers("p") == []
    assert members.counts() == (0, 1)
    assert members.drop_connection("b") == {"g"}  # type: ignore[arg-type]
    assert members.consumer_group("g") is None
    assert members.drop_connection("b") == set()  # type: ignore[arg-type]


def test_silence_expires() -> None:
    members = Members()
    consume(members, "quiet", "one", now=0.0)
    consume(members, "lively", "two", now=100.0)
    members.register_producer("p", "quiet", "one", "JAVA", 407, 0.0)  # type: ignore[arg-type]
    changed, stale, dropped = members.expire(121.0, 120.0, 128)
    assert (changed, stale, dropped) == ({"g"}, {"quiet"}, 2)
    assert members.counts() == (0, 1)


def test_many_silent_members_go_in_parts() -> None:
    members = Members()
    for number in range(5):
        consume(members, f"link{number}", f"one{number}", now=0.0)
        members.register_producer("p", "link0", f"p{number}", "JAVA", 407, 0.0)  # type: ignore[arg-type]
    went = [members.expire(121.0, 120.0, 2)[2] for _ in range(4)]
    assert went[-1] == 0
    assert max(went) <= 4
    assert members.counts() == (0, 0)


def test_a_producer_is_found_by_its_client_id() -> None:
    """Request-reply pushes the answer to it, whatever its group."""
    members = Members()
    members.register_producer("p", "link", "c", "JAVA", 407, 0.0)  # type: ignore[arg-type]
    assert members.find_asker("c") == "link"
    assert members.find_asker("d") is None


def test_a_client_that_asks_before_its_first_heartbeat_is_found_by_its_request() -> None:
    """Until the connection closes; a heartbeat says more than a request; a connection speaks for a few clients."""
    members = Members()
    members.note_asker("c", "old link", "")  # type: ignore[arg-type]
    members.note_asker("c", "link", "")  # type: ignore[arg-type]
    members.drop_connection("old link")  # type: ignore[arg-type]
    assert members.find_asker("c") == "link"
    members.register_producer("p", "main link", "c", "JAVA", 407, 0.0)  # type: ignore[arg-type]
    assert members.find_asker("c") == "main link"
    members.drop_connection("main link")  # type: ignore[arg-type]
    members.drop_connection("link")  # type: ignore[arg-type]
    assert members.find_asker("c") is None
    for number in range(100):
        members.note_asker(f"c{number}", "hostile", "")  # type: ignore[arg-type]
    assert sum(members.find_asker(f"c{number}") is not None for number in range(100)) == ASKERS_PER_CONNECTION_MAX


def test_a_client_id_belongs_to_one_account_at_a_time() -> None:
    """Whoever holds it gets the answers that are meant for it."""
    members = Members()
    assert members.claim("c", "link", "alice")  # type: ignore[arg-type]
    assert members.claim("c", "second link", "alice")  # type: ignore[arg-type]
    assert not members.claim("c", "other link", "mallory")  # type: ignore[arg-type]
    members.note_asker("c", "other link", "mallory")  # type: ignore[arg-type]
    assert members.find_asker("c") is None
    members.drop_connection("link")  # type: ignore[arg-type]
    assert not members.claim("c", "other link", "mallory")  # type: ignore[arg-type]
    members.drop_connection("second link")  # type: ignore[arg-type]
    assert members.claim("c", "other link", "mallory")  # type: ignore[arg-type]


def test_live_groups_of_a_topic() -> None:
    members = Members()
    consume(members, "link", "c", parse_subscription("T", "*", version=1))
    assert members.groups_subscribed_to("T") == ["g"]
    assert members.groups_subscribed_to("U") == []
