"""What a user subscribes to."""

import pytest

from tandemq.client.subscription import SQL92, TAG, subscription
from tandemq.errors import ClientError


def test_tags_are_taken_apart() -> None:
    found = subscription("T", " A || B ", TAG, 7)
    assert (found.topic, found.version, set(found.tags)) == ("T", 7, {"A", "B"})


@pytest.mark.parametrize("everything", ["*", "", "  "])
def test_no_condition_means_everything(everything: str) -> None:
    found = subscription("T", everything, TAG, 1)
    assert (found.expression, list(found.tags)) == ("*", [])


def test_a_condition_on_properties_stays_as_it_is() -> None:
    found = subscription("T", "price > 5", SQL92, 1)
    assert (found.expression, found.expression_type) == ("price > 5", "SQL92")


@pytest.mark.parametrize(
    ("topic", "expression", "kind", "words"),
    [
        ("a/b", "*", TAG, "characters"),
        ("T", "*", "XML", "filter kind 'XML'"),
        ("T", "*", SQL92, "needs a condition"),
        ("T", "||", TAG, "names no tag"),
        (None, "*", TAG, "topic=None"),
        ("T", None, TAG, "expression=None"),
    ],
)
def test_what_can_not_be_is_refused(topic: str, expression: str, kind: str, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        subscription(topic, expression, kind, 1)
