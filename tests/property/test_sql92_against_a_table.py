"""SQL92 expressions generated with their meaning, against a three-valued evaluator written from the truth tables."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tandemq.broker.sql92 import SqlError, compile_sql

Meaning = Callable[[dict[str, str]], bool | None]
Expression = tuple[str, Meaning]

NAMES = ("a", "b", "c")
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def _compared(name: str, sign: str, number: int) -> Expression:
    test = COMPARE[sign]
    return f"{name} {sign} {number}", lambda p: test(int(p[name]), number) if name in p else None


def _is_null(name: str, negative: bool) -> Expression:
    return f"{name} IS {'NOT ' if negative else ''}NULL", lambda p: (name not in p) is not negative


def _in(name: str, members: list[int], negative: bool) -> Expression:
    texts = [str(m) for m in members]
    listed = ", ".join(f"'{text}'" for text in texts)
    text = f"{name} {'NOT ' if negative else ''}IN ({listed})"
    return text, lambda p: (p[name] in texts) is not negative if name in p else None


def _between(name: str, low: int, extent: int, negative: bool) -> Expression:
    text = f"{name} {'not ' if negative else ''}between {low} and {low + extent}"
    return text, lambda p: (low <= int(p[name]) <= low + extent) is not negative if name in p else None


def _not(inner: Expression) -> Expression:
    def meaning(p: dict[str, str]) -> bool | None:
        value = inner[1](p)
        return None if value is None else not value

    return f"NOT ({inner[0]})", meaning


def _joined(parts: list[Expression], word: str) -> Expression:
    decisive = word == "OR"

    def meaning(p: dict[str, str]) -> bool | None:
        values = [part[1](p) for part in parts]
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    return f" {word} ".join(f"({part[0]})" for part in parts), meaning


numbers = st.integers(0, 20)
names = st.sampled_from(NAMES)
leaves = st.one_of(
    st.builds(_compared, names, st.sampled_from(sorted(COMPARE)), numbers),
    st.builds(_is_null, names, st.booleans()),
    st.builds(_in, names, st.lists(numbers, min_size=1, max_size=6), st.booleans()),
    st.builds(_between, names, numbers, st.integers(0, 5), st.booleans()),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(_not, inner),
        st.builds(_joined, st.lists(inner, min_size=2, max_size=4), st.sampled_from(("AND", "OR"))),
    ),
    max_leaves=12,
)
messages = st.dictionaries(names, numbers.map(str))


@given(expressions, messages)
def test_every_expression_means_what_its_truth_table_says(expression: Expression, properties: dict[str, str]) -> None:
    """Unknown, true and false come out exactly; matching is being true."""
    text, meaning = expression
    compiled = compile_sql(text)
    assert compiled.evaluate(properties) is meaning(properties)
    assert compiled.matches(properties) is (meaning(properties) is True)


WORDS = (
    "a b c = <> < > ( ) , - + NOT AND OR IN IS NULL TRUE BETWEEN 'x' 5 1.5 CONTAINS STARTSWITH ENDSWITH -- /* ' é \x00"
)
tokens = st.sampled_from(WORDS.split(" "))


def _problem(text: str) -> SqlError | None:
    try:
        compile_sql(text)
    except SqlError as error:
        return error
    return None


@given(st.lists(tokens, max_size=30).map(" ".join), messages)
def test_any_text_compiles_or_is_refused_with_a_position(text: str, properties: dict[str, str]) -> None:
    """No text of a client makes the parser or an evaluation fail in another way."""
    problem = _problem(text)
    if problem is None:
        assert compile_sql(text).matches(properties) in (True, False)
    else:
        assert 0 <= problem.position <= len(text)


@given(st.text(max_size=200))
def test_random_text_never_breaks_the_parser(text: str) -> None:
    """Unicode of all kinds included."""
    problem = _problem(text)
    assert problem is None or str(problem)
