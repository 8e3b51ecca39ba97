"""Consumed offsets and pending resets."""

from tandemq.broker.tables.offsets import NOT_FOUND, OffsetTable
from tandemq.codec import fastjson


def test_a_commit_is_found_again_and_may_go_back() -> None:
    offsets = OffsetTable(lambda: 1)
    assert offsets.query("g", "T", 0) == NOT_FOUND
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "T", 0, 5)
    assert offsets.query("g", "T", 0) == 5
    assert offsets.query("g", "T", 1) == NOT_FOUND


def test_negative_offsets_are_no_commits() -> None:
    """ali-ons sends -1 for unknown."""
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "T", 0, 7)
    offsets.commit("g", "T", 0, -1)
    assert offsets.query("g", "T", 0) == 7


def test_the_version_moves_once_per_step() -> None:
    offsets = OffsetTable(lambda: 1, version_step=3)
    for offset in range(1, 8):
        offsets.commit("g", "T", 0, offset)
    assert offsets.version.counter == 2


def test_equal_commits_change_nothing() -> None:
    offsets = OffsetTable(lambda: 1, version_step=1)
    offsets.commit("g", "T", 0, 1)
    offsets.dirty = False
    offsets.commit("g", "T", 0, 1)
    assert not offsets.dirty
    assert offsets.version.counter == 1


def test_a_reset_is_told_once() -> None:
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "T", 0, 9)
    offsets.set_reset("g", "T", 0, 2)
    assert offsets.has_reset("g", "T", 0)
    assert offsets.query("g", "T", 0) == 2
    assert offsets.take_reset("g", "T", 0) == 2
    assert offsets.take_reset("g", "T", 0) is None


def test_topics_and_groups_leave_with_their_offsets() -> None:
    offsets = OffsetTable(lambda: 1)
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics_of("g") == ["T", "U"]
    assert offsets.groups_of("T") == ["g", "h"]
    offsets.remove_topic("T")
    assert offsets.topics_of("h") == []
    offsets.remove_group("g")
    assert not offsets.all()


def test_the_file_has_unquoted_keys_and_comes_back() -> None:
    """As upstream's consumerOffset.json; %RETRY% topics have no @ of their own."""
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "%RETRY%g", 3, 12)
    text = fastjson.dumps_pretty(offsets.snapshot())
    assert b"3:12" in text
    again = OffsetTable(lambda: 2)
    again.load(fastjson.loads(text))
    assert again.query("g", "%RETRY%g", 3) == 12


def test_a_slave_merges_what_its_master_knows() -> None:
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "T", 0, 5)
    offsets.merge({"T@g": {"1": 8}, "broken": {"0": 1}})
    assert dict(offsets.of("g", "T")) == {0: 5, 1: 8}


def test_a_group_starts_where_another_is() -> None:
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "T", 0, 5)
    offsets.clone("g", "h", "T")
    offsets.commit("g", "T", 0, 6)
    assert offsets.query("h", "T", 0) == 5


def test_a_group_beyond_the_log_comes_back_to_its_end() -> None:
    """Else it would skip as many of the messages to come."""
    offsets = OffsetTable(lambda: 1)
    offsets.journal = {}
    offsets.commit("g", "T", 0, 100)
    offsets.commit("g", "T", 1, 5)
    told: list[int] = []
    offsets.on_change = lambda: told.append(1)
    offsets.dirty = False
    assert offsets.clamp(lambda topic, queue_id: 40) == [("T", "g", 0)]
    assert dict(offsets.of("g", "T")) == {0: 40, 1: 5}
    assert offsets.journal == {("g", "T", 0): 40, ("g", "T", 1): 5}
    assert offsets.dirty
    assert told
    assert offsets.clamp(lambda topic, queue_id: 40) == []


def test_of_two_replicas_the_one_that_is_ahead_counts() -> None:
    offsets = OffsetTable(lambda: 1)
    offsets.commit("g", "T", 0, 100)
    offsets.advance({"T@g": {0: 40, 1: 7}, "T@h": {0: 0}})
    assert dict(offsets.of("g", "T")) == {0: 100, 1: 7}
    assert offsets.query("h", "T", 0) == 0
