"""Names of topics and groups, before they touch the file system."""

import pytest

from tandemq.model.topic import DataVersion, group_name_problem, topic_name_problem


@pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a|b-c_D9", "x" * 127, "%DLQ%" + "x" * 250])
def test_good_topics(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "blank"),
        ("x" * 128, "the limit is 127"),
        ("../etc", "characters other than"),
        ("a b", "characters other than"),
        ("orders\n", "characters other than"),
    ],
)
def test_bad_topics_say_why(name: str, told: str) -> None:
    assert told in str(topic_name_problem(name))


def test_groups_have_a_limit_of_their_own() -> None:
    assert group_name_problem("g" * 120) is None
    assert "the limit is 120" in str(group_name_problem("g" * 121))


def test_a_version_counts_and_keeps_its_state() -> None:
    version = DataVersion(7, 1, 1).next(5)
    assert version == DataVersion(7, 5, 2)
    assert version.next(6, state_version=8) == DataVersion(8, 6, 3)
