"""The topic table: templates, checks, versions, snapshots."""

from collections.abc import Iterable

import pytest

from tandemq.broker.tables.topics import TopicTable, TopicTableFull, masked, system_topics
from tandemq.codec import fastjson
from tandemq.model.topic import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, DataVersion, TopicConfig


def table(**options: object) -> tuple[TopicTable, list[list[str]]]:
    changes: list[list[str]] = []

    def on_change(names: Iterable[str]) -> None:
        changes.append(sorted(names))

    found = TopicTable(lambda: 1000, on_change=on_change, **options)  # type: ignore[arg-type]
    for topic in system_topics("DefaultCluster", "broker-a"):
        found.add_system(topic)
    return found, changes


def test_a_send_creates_its_topic_after_the_template() -> None:
    """Queues are the smaller of what the client asks and what the template has; the inherit bit is not inherited."""
    topics, changes = table()
    created = topics.create_on_send("T", AUTO_CREATE_TOPIC, 4)
    assert created == TopicConfig(name="T", read_queues=4, write_queues=4, perm=6)
    assert topics.create_on_send("U", AUTO_CREATE_TOPIC, 100).write_queues == 8  # type: ignore[union-attr]
    assert changes == [["T"], ["U"]]


def test_auto_creation_can_be_switched_off() -> None:
    topics, changes = table(auto_create=False)
    assert topics.create_on_send("T", AUTO_CREATE_TOPIC, 4) is None
    assert changes == []
    assert topics.create_internal("%RETRY%g", 1).perm == 6


@pytest.mark.parametrize("template", ["missing", SCHEDULE_TOPIC])
def test_only_topics_that_may_be_inherited_are_templates(template: str) -> None:
    topics, _ = table()
    assert topics.create_on_send("T", template, 4) is None


@pytest.mark.parametrize(
    "bad",
    [
        TopicConfig(name="../../etc/passwd"),
        TopicConfig(name="a/b"),
        TopicConfig(name=""),
        TopicConfig(name="x" * 128),
        TopicConfig(name="T", read_queues=-1),
        TopicConfig(name="T", write_queues=1 << 20),
        TopicConfig(name="T", perm=99),
    ],
)
def test_what_can_not_be_a_topic_is_refused(bad: TopicConfig) -> None:
    topics, changes = table()
    with pytest.raises(ValueError):
        topics.put(bad)
    assert changes == []


def test_the_table_is_bounded() -> None:
    topics, _ = table(topics_max=len(system_topics("c", "b")) + 1)
    topics.put(TopicConfig(name="one"))
    with pytest.raises(TopicTableFull, match="topicsMax"):
        topics.put(TopicConfig(name="two"))
    topics.put(TopicConfig(name="one", perm=4))


def test_every_change_has_a_new_version() -> None:
    topics, _ = table()
    before = topics.version
    topics.put(TopicConfig(name="T"))
    assert topics.version.counter == before.counter + 1
    topics.delete("T")
    assert topics.version.counter == before.counter + 2
    assert not topics.delete("T")
    assert topics.version.counter == before.counter + 2


def test_a_snapshot_comes_back_as_it_was() -> None:
    """Through the text of topics.json, also as upstream writes it."""
    topics, _ = table()
    topics.put(TopicConfig(name="T", read_queues=3, perm=4, order=True, attributes={"tandemq.copies": "2"}))
    again, _ = table()
    again.load(fastjson.loads(fastjson.dumps_pretty({**topics.members(), **{n: dict(e) for n, e in topics.maps()}})))
    assert again.get("T") == topics.get("T")
    assert again.version == topics.version


def test_a_loaded_name_that_breaks_the_grammar_is_dropped() -> None:
    topics, _ = table()
    topics.load({"topicConfigTable": {"../x": {"perm": 6}, "fine": {"perm": 6}}})
    assert "../x" not in topics
    assert "fine" in topics


def test_a_slave_takes_its_masters_table() -> None:
    """Topics the master no longer has go; the slave's own system topics stay."""
    topics, changes = table()
    topics.put(TopicConfig(name="old"))
    topics.replace_all([TopicConfig(name="new")], DataVersion(3, 2, 1))
    assert "old" not in topics
    assert "new" in topics
    assert AUTO_CREATE_TOPIC in topics
    assert topics.version == DataVersion(3, 2, 1)
    assert "old" in changes[-1]


def test_a_broker_without_write_permission_masks_its_topics() -> None:
    assert masked(TopicConfig(name="T", perm=6), 4).perm == 4
    assert masked(TopicConfig(name="T", perm=7), 6).perm == 7


def test_a_topic_that_only_the_log_knows_is_taken_in_and_grows_with_its_queues() -> None:
    topics, changes = table()
    topics.put(TopicConfig(name="known", read_queues=1, write_queues=1))
    version = topics.version
    assert topics.adopt([("known", 7), ("lost", 0), ("lost", 2), ("../x", 0)]) == ["lost"]
    assert changes[-1] == ["lost"]
    assert topics.version != version, "name servers must look"
    assert topics.version.counter == version.counter, "nobody has changed the table"
    assert topics.adopt([("lost", 4)]) == []
    lost, known = topics.get("lost"), topics.get("known")
    assert lost is not None
    assert known is not None
    assert (lost.read_queues, lost.write_queues, lost.perm) == (5, 5, 6)
    assert known.write_queues == 1, "what somebody has configured stays so"


def test_a_topic_is_not_taken_in_where_there_is_no_room() -> None:
    topics, _ = table()
    topics.topics_max = len(topics)
    assert topics.adopt([("lost", 0)]) == []


def test_what_a_master_or_an_administrator_says_of_an_adopted_topic_counts() -> None:
    topics, _ = table()
    topics.adopt([("a", 0), ("b", 0)])
    topics.put(TopicConfig(name="a", write_queues=3))
    topics.adopt([("a", 9)])
    assert topics.adopted == {"b"}
    topics.replace_all([], DataVersion(1, 1, 1))
    assert not topics.adopted
    assert "b" not in topics


def test_a_deleted_topic_is_not_taken_in_from_the_log_before_its_deletion() -> None:
    topics, _ = table()
    topics.put(TopicConfig(name="T"))
    topics.delete("T")
    assert topics.adopt([("T", 0)]) == [], "these messages are older than the deletion"
    assert topics.log_says_deleted("T"), "it was deleted here"
    assert topics.adopt([("T", 0)]) == ["T"], "these are newer"


def test_a_masters_table_that_is_older_than_the_log_takes_no_adopted_topic_away() -> None:
    """A RocketMQ slave learns topics every ten seconds; an observer of it has their messages before."""
    topics, _ = table()
    topics.adopt([("late", 1)])
    topics.replace_all([TopicConfig(name="other")], DataVersion(0, 5, 1), keeps_adopted=True)
    assert topics.all()["late"].write_queues == 2
    topics.replace_all([TopicConfig(name="late", write_queues=8)], DataVersion(0, 6, 2), keeps_adopted=True)
    assert topics.all()["late"].write_queues == 8
    assert not topics.adopted
    topics.replace_all([], DataVersion(0, 7, 3), keeps_adopted=True)
    assert "late" not in topics, "a table that knew it has the last word"


def test_a_topic_adopted_from_an_older_part_of_the_log_goes_where_the_log_says_so() -> None:
    topics, _ = table()
    topics.adopt([("T", 0)])
    assert not topics.log_says_deleted("T")
    assert "T" not in topics
    topics.put(TopicConfig(name="T"))
    assert not topics.log_says_deleted("T")
    assert "T" in topics, "made anew by whoever told us the table"
