"""The table of subscription groups."""

import pytest

from tandemq.broker.tables.groups import SYSTEM_GROUPS, GroupTable
from tandemq.codec import fastjson
from tandemq.model.topic import DataVersion, SubscriptionGroupConfig


def test_a_group_is_created_when_it_first_shows_up() -> None:
    groups = GroupTable(lambda: 1)
    assert groups.find_or_create("g") == SubscriptionGroupConfig(name="g")
    assert "g" in groups


def test_creation_can_be_switched_off() -> None:
    groups = GroupTable(lambda: 1, auto_create=False)
    assert groups.find_or_create("g") is None
    assert groups.find_or_create("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("name", ["", "a b", "../g", "g" * 121])
def test_names_that_can_not_be_are_not_created(name: str) -> None:
    groups = GroupTable(lambda: 1)
    assert groups.find_or_create(name) is None
    with pytest.raises(ValueError):
        groups.put(SubscriptionGroupConfig(name=name))


def test_the_table_is_bounded() -> None:
    groups = GroupTable(lambda: 1, groups_max=len(SYSTEM_GROUPS) + 1)
    assert groups.find_or_create("one") is not None
    assert groups.find_or_create("two") is None
    with pytest.raises(ValueError, match="groupsMax"):
        groups.put(SubscriptionGroupConfig(name="two"))


def test_a_forbidden_topic_is_a_bit() -> None:
    groups = GroupTable(lambda: 1)
    groups.set_forbidden("g", "T", 0b01)
    assert groups.is_forbidden("g", "T")
    assert not groups.is_forbidden("g", "T", 1)
    groups.set_forbidden("g", "T", 0)
    assert not groups.is_forbidden("g", "T")
    assert groups.snapshot()["forbiddenTable"] == {}


def test_a_snapshot_comes_back_as_it_was() -> None:
    groups = GroupTable(lambda: 1)
    groups.put(SubscriptionGroupConfig(name="g", retry_max_times=3, consume_enable=False))
    groups.set_forbidden("g", "T", 1)
    again = GroupTable(lambda: 2)
    again.load(fastjson.loads(fastjson.dumps_pretty(groups.snapshot())))
    assert again.snapshot() == groups.snapshot()


def test_a_slave_takes_its_masters_table_and_keeps_the_system_groups() -> None:
    groups = GroupTable(lambda: 1)
    groups.find_or_create("old")
    groups.replace_all([SubscriptionGroupConfig(name="new")], DataVersion(1, 2, 3), {"new": {"T": 1}})
    assert set(groups.all()) == {"new", *SYSTEM_GROUPS}
    assert groups.is_forbidden("new", "T")
