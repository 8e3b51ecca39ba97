"""Ack levels: the grammar, and how many copies a level is in a group."""

import pytest

from tandemq.errors import ConfigError
from tandemq.model.ack_level import AckLevel, parse_level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("1", AckLevel(1)),
        (" 2:durable ", AckLevel(2, True)),
        ("MAJORITY", AckLevel("majority")),
        ("all:durable", AckLevel("all", True)),
        ("async", AckLevel(1)),
        ("sync:durable", AckLevel(2, True)),
    ],
)
def test_levels_and_their_texts(text: str, level: AckLevel) -> None:
    assert parse_level(text) == level
    assert parse_level(str(level)) == level


@pytest.mark.parametrize("text", ["", "0", "65", "-1", "two", "2:disk", "2:durable:durable", "²"])
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ConfigError, match="from 1 to 64, majority or all"):
        parse_level(text)


@pytest.mark.parametrize(("level", "copies"), [("1", [1, 1, 1]), ("majority", [1, 2, 2]), ("all", [1, 2, 3])])
def test_copies_needed_in_groups_of_one_to_three(level: str, copies: list[int]) -> None:
    assert [parse_level(level).needed(size) for size in (1, 2, 3)] == copies
