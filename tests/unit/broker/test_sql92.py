"""The SQL92 filter: what upstream's filter module answers, row by row."""

import pytest

from tandemq.broker.sql92 import DEPTH_MAX, LENGTH_MAX, SqlError, compile_sql

MATCHES = [
    ("a = 1", {"a": "1"}, True),
    ("a = 1", {}, None),
    ("1 = a", {}, False),
    ("a = b", {}, True),
    ("a = b", {"a": "x", "b": "x"}, True),
    ("a <> 'x'", {"a": "y"}, True),
    ("a <> 'x'", {}, None),
    ("a > 5", {"a": "6"}, True),
    ("a > b", {"a": "6", "b": "5.5"}, True),
    ("a >= 5.0", {"a": "5"}, True),
    ("a < 5", {"a": "5"}, False),
    ("a <= -5", {"a": "-6"}, True),
    ("-a < 5", {"a": "1"}, None),
    ("a BETWEEN 10 AND 20", {"a": "20"}, True),
    ("a between 10 and 20", {"a": "21"}, False),
    ("a NOT BETWEEN 10 AND 20", {"a": "21"}, True),
    ("a NOT BETWEEN 20 AND 10", {"a": "15"}, True),
    ("a IN ('x', 'it''s')", {"a": "it's"}, True),
    ("a NOT IN ('x')", {"a": "x"}, False),
    ("a NOT IN ('x')", {}, None),
    ("a IS NULL", {}, True),
    ("a IS NULL", {"a": "x"}, False),
    ("a IS NOT NULL", {"a": "x"}, True),
    ("NOT (a = 1)", {"a": "2"}, True),
    ("NOT (a = 1)", {}, None),
    ("a = 1 AND b = 2", {"b": "3"}, False),
    ("a = 1 AND b = 2", {"b": "2"}, None),
    ("a = 1 OR b = 2", {"b": "2"}, True),
    ("a = 1 OR b = 2", {"b": "3"}, None),
    ("a = 1 OR b = 2 AND c = 3", {"a": "1"}, True),
    ("(a = 1 OR b = 2) AND c = 3", {"a": "1"}, None),
    ("a = TRUE", {"a": "TRUE"}, True),
    ("TRUE = a", {"a": "true"}, True),
    ("a", {"a": "true"}, False),
    ("TRUE", {}, True),
    ("NULL", {}, None),
    ("a CONTAINS 'bc'", {"a": "abcd"}, True),
    ("a CONTAINS ''", {"a": "abcd"}, False),
    ("a NOT CONTAINS 'x'", {}, False),
    ("a NOT CONTAINS 'x'", {"a": "b"}, True),
    ("a STARTSWITH 'ab'", {"a": "abc"}, True),
    ("a NOT ENDSWITH 'ab'", {"a": "abc"}, True),
    ("a ENDSWITH 'bc'", {"a": "abc"}, True),
    ("TAGS = 'A' -- a comment\n AND /* another */ _x$1 > .5e1", {"TAGS": "A", "_x$1": "6"}, True),
    ("a = 3000000000", {"a": "3000000000"}, True),
    ("a = 5L", {"a": "5"}, True),
    ("a >= 0.0", {"a": "0"}, True),
]


@pytest.mark.parametrize(("text", "properties", "expected"), MATCHES)
def test_evaluates_as_upstream(text: str, properties: dict[str, str], expected: bool | None) -> None:
    """Missing properties are unknown, text takes the type of what it meets."""
    expression = compile_sql(text)
    assert expression.evaluate(properties) is expected
    assert expression.matches(properties) is (expected is True)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a > 5", {"a": "x"}),
        ("a > 5", {"a": "5.5"}),
        ("a > 5", {"a": "3000000000"}),
        ("a > b", {"a": "x", "b": "1"}),
        ("a = 1.5", {"a": "1_0"}),
        ("a > 5 OR b = 1", {"a": "x", "b": "1"}),
    ],
)
def test_a_property_of_the_wrong_type_never_matches(text: str, properties: dict[str, str]) -> None:
    """An error while a message is looked at is a plain no, even when another branch would hold."""
    expression = compile_sql(text)
    assert not expression.matches(properties)
    with pytest.raises(ValueError):
        expression.evaluate(properties)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a =", 3),
        ("a = 1 b", 6),
        ("a ! 1", 2),
        ("a = NULL", 2),
        ("TRUE = 'x'", 5),
        ("a > 'x'", 2),
        ("(a = 1) > 2", 8),
        ("5", 1),
        ("'x'", 3),
        ("a IN (1)", 6),
        ("1 IN ('a')", 2),
        ("a IN ('x'", 9),
        ("a BETWEEN 2 AND 1", 2),
        ("a BETWEEN 1 OR 2", 12),
        ("a IS 5", 5),
        ("a = 'open", 4),
        ("a = 99999999999999999999", 4),
        pytest.param("a = " + "9" * 6000, 4, id="6000 digits"),
        ("a = 1e999", 4),
        ("((a = 1)", 8),
    ],
)
def test_errors_name_the_position(text: str, position: int) -> None:
    """What upstream's parser or its operand checks refuse is refused, with the place."""
    with pytest.raises(SqlError) as caught:
        compile_sql(text)
    assert caught.value.position == position


def test_nesting_and_length_are_bounded() -> None:
    """Hostile expressions end in an error, not in a deep recursion; long flat ones work."""
    for text in ("(" * 5000 + "a" + ")" * 5000, "NOT " * 4000 + "a", "a" + " = a" * 4000, "x" * (LENGTH_MAX + 1)):
        with pytest.raises(SqlError):
            compile_sql(text)
    inner = "a"
    for _ in range(DEPTH_MAX - 4):
        inner = f"({inner} = b)"
    assert compile_sql(inner).matches({}) in (True, False)
    flat = " OR ".join(f"a = {n}" for n in range(1000))
    assert compile_sql(flat).matches({"a": "999"})
