"""Subscription expressions and the test they make of a queue entry."""

import pytest

from tandemq.broker.subscriptions import (
    EXPRESSION_LENGTH_MAX,
    TAGS_MAX,
    BadExpression,
    parse_subscription,
    subscription_to_json,
)
from tandemq.model.message import java_hash


@pytest.mark.parametrize("expression", [None, "", "*", "  * "])
def test_nothing_and_a_star_stand_for_all(expression: str | None) -> None:
    found = parse_subscription("t", expression)
    assert (found.expression, found.tags, found.codes, found.match_code) == ("*", (), frozenset(), None)


def test_tags_are_compared_by_javas_hash() -> None:
    found = parse_subscription("t", "TagA || TagB||  TagA ")
    assert found.tags == ("TagA", "TagB")
    assert found.match_code is not None
    assert found.match_code(java_hash("TagA"))
    assert found.match_code(java_hash("TagB"))
    assert not found.match_code(java_hash("TagC"))


def test_sql_is_kept_as_text_and_lets_every_entry_pass() -> None:
    """The hash of a tag says nothing of properties: SQL looks at the message itself."""
    found = parse_subscription("t", " a > 5 ", "SQL92", 7)
    assert (found.expression, found.expression_type, found.version) == ("a > 5", "SQL92", 7)
    assert (found.is_tag, found.match_code) == (False, None)


@pytest.mark.parametrize(
    ("expression", "kind", "says"),
    [
        ("||", "TAG", "no tag"),
        (" || || ", None, "no tag"),
        ("", "SQL92", "can't be empty"),
        ("x" * (EXPRESSION_LENGTH_MAX + 1), "TAG", str(EXPRESSION_LENGTH_MAX)),
        ("||".join(f"{n:x}" for n in range(TAGS_MAX + 1)), "TAG", str(TAGS_MAX)),
    ],
)
def test_what_cannot_be_parsed_is_refused_with_the_reason(expression: str, kind: str | None, says: str) -> None:
    with pytest.raises(BadExpression, match=says):
        parse_subscription("t", expression, kind)


def test_admins_see_the_shape_of_java() -> None:
    found = subscription_to_json(parse_subscription("t", "b || a", version=3))
    assert found == {
        "classFilterMode": False, "codeSet": [97, 98], "expressionType": "TAG", "subString": "b || a",
        "subVersion": 3, "tagsSet": ["b", "a"], "topic": "t",
    }  # fmt: skip
