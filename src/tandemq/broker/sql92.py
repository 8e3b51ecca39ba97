"""RocketMQ's SQL92 filter language: text in, a closure over message properties out; nothing of a user's is evaluated.

    or         := and (OR and)*
    and        := equality (AND equality)*
    equality   := comparison (("=" | "<>") comparison | IS [NOT] NULL)*
    comparison := unary ((">" | ">=" | "<" | "<=") unary
                | [NOT] BETWEEN unary AND unary | [NOT] IN ("(" string ("," string)* ")")
                | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string)*
    unary      := ("+" | "-" | NOT) unary | primary
    primary    := string | number | TRUE | FALSE | NULL | property | "(" or ")"

Meaning is upstream's (filter module, ComparisonExpression and its siblings), which decides what a subscriber receives:
three-valued logic where a missing property is unknown; properties are text and take the type of the number they meet,
so `n > 5` with n = "5.5" is an error because 5 is a whole number; an error while a message is looked at means that
this message does not match, even under OR. Two properties that are both missing are equal; `CONTAINS` and its
siblings are false, not unknown, for a missing property.

Stricter than upstream in one point: text after a complete expression is refused, where upstream silently drops it.
Kinder in two: `TRUE = p` works like `p = TRUE`, and the literal 0.0 is accepted.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tandemq.errors import InvalidRequest

LENGTH_MAX = 16_384
"""Characters of an expression. Heartbeats carry it for every group; upstream has no limit but the frame."""
TOKENS_MAX = 4096
"""Words, values and signs of an expression: each takes some microseconds to read and some hundred bytes compiled."""
DEPTH_MAX = 64
"""Nesting of parentheses, NOT and signs, and all links of chains such as a = b = c: bounds recursion on both sides."""

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], object]

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
DIGITS_MAX = 19
"""Of a whole number of 64 bits."""
_WHOLE = re.compile(r"[+-]?[0-9]+\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?\Z")
_TOKEN = re.compile(
    r"(?P<blank>[ \t\n\r\f]+|--[^\n\r]*|/\*.*?\*/)"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<whole>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])",
    re.DOTALL,
)
_KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDER_TESTS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


class SqlError(InvalidRequest):
    """The expression can't be compiled; `position` is the 0-based character where it stops making sense."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        around = text[max(0, position - 20) : position + 20]
        super().__init__(f"SQL filter: {problem} at character {position + 1}, near {around!r}")
        self.position = position


class SqlExpression:
    """A compiled expression: `matches(properties)` never raises."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text = text
        self._evaluate = evaluate

    def evaluate(self, properties: Properties) -> bool | None:
        """Returns True, False, or None for unknown; raises ValueError if a property can't take the type needed."""
        value = self._evaluate(properties)
        return value if isinstance(value, bool) else None

    def matches(self, properties: Properties) -> bool:
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False


def compile_sql(text: str) -> SqlExpression:
    """Returns the expression as a closure; raises SqlError, which names the position of what is wrong."""
    if len(text) > LENGTH_MAX:
        raise SqlError(text, LENGTH_MAX, f"the expression has {len(text)} characters, the limit is {LENGTH_MAX};")
    parser = _Parser(text)
    node = parser.any_of()
    if parser.token.kind != "end":
        parser.fail(f"unexpected {parser.token.text!r} after a complete expression")
    return SqlExpression(text, parser.as_boolean(node).evaluate)


class _Token(NamedTuple):
    kind: str
    """float, whole, string, word (a property), keyword, sign or end"""
    text: str
    position: int


class _Node(NamedTuple):
    """A parsed operand: what upstream decides by the class of an expression, here by its kind."""

    kind: str
    """boolean, property, number (a negated operand) or constant"""
    evaluate: Evaluate
    value: object = None
    """Of a constant; TRUE, FALSE and NULL are constants that also count as boolean."""

    @property
    def is_constant(self) -> bool:
        return self.kind in ("constant", "boolean constant")

    @property
    def is_boolean(self) -> bool:
        return self.kind in ("boolean", "boolean constant")


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SqlError(text, position, f"unexpected {text[position]!r}")
        kind, word = str(match.lastgroup), match.group()
        if kind == "word" and word.upper() in _KEYWORDS:
            kind, word = "keyword", word.upper()
        if kind != "blank":
            found.append(_Token(kind, word, position))
            if len(found) > TOKENS_MAX:
                raise SqlError(text, position, f"more than {TOKENS_MAX} words and signs")
        position = match.end()
    found.append(_Token("end", "the end", len(text)))
    return found


class _Parser:
    """Recursive descent, one method a grammar rule."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = _tokens(text)
        self._index = 0
        self._depth = 0
        self._links = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._index]

    def fail(self, problem: str, position: int | None = None) -> None:
        raise SqlError(self.text, self.token.position if position is None else position, problem)

    def _take(self, *texts: str) -> str | None:
        """Consumes and returns the next token if it is one of these signs or keywords."""
        token = self.token
        if token.kind in ("keyword", "sign") and token.text in texts:
            self._index += 1
            return token.text
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            self.fail(f"{text} expected, not {self.token.text!r}")

    def _string(self) -> str:
        token = self.token
        if token.kind != "string":
            self.fail(f"a 'quoted text' expected, not {token.text!r}")
        self._index += 1
        return token.text[1:-1].replace("''", "'")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self.fail(f"more than {DEPTH_MAX} levels of nesting")

    def _chain(self, length: int) -> None:
        """Counts every link of a chain after its first: they nest when evaluated, wherever they stand."""
        self._links += length > 1
        if self._links > DEPTH_MAX:
            self.fail(f"more than {DEPTH_MAX} chained comparisons")

    def as_boolean(self, node: _Node) -> _Node:
        if node.is_boolean:
            return node
        if node.kind != "property":
            self.fail("a condition expected before this")
        evaluate = node.evaluate

        def cast(properties: Properties) -> object:
            return None if evaluate(properties) is None else False  # upstream: text is never TRUE by itself

        return _Node("boolean", cast)

    def any_of(self) -> _Node:
        nodes = [self.all_of()]
        while self._take("OR"):
            nodes.append(self.all_of())
        return nodes[0] if len(nodes) == 1 else _joined([self.as_boolean(n) for n in nodes], decisive=True)

    def all_of(self) -> _Node:
        nodes = [self.equality()]
        while self._take("AND"):
            nodes.append(self.equality())
        return nodes[0] if len(nodes) == 1 else _joined([self.as_boolean(n) for n in nodes], decisive=False)

    def equality(self) -> _Node:
        node = self.comparison()
        length = 0
        while True:
            position = self.token.position
            if sign := self._take("=", "<>"):
                right = self.comparison()
                self._check_equal(node, right, position)
                node = _equal(node, right)
                node = _negated(node) if sign == "<>" else node
            elif self._take("IS"):
                wanted = self._take("NOT") is None
                self._expect("NULL")
                node = _is_null(node, wanted)
            else:
                return node
            length += 1
            self._chain(length)

    def comparison(self) -> _Node:
        node = self.unary()
        length = 0
        while (step := self._comparison_step(node)) is not None:
            node = step
            length += 1
            self._chain(length)
        return node

    def _comparison_step(self, left: _Node) -> _Node | None:
        position = self.token.position
        if sign := self._take(">", ">=", "<", "<="):
            right = self.unary()
            self._check_ordered(left, position)
            self._check_ordered(right, position)
            return _ordered(left, right, sign)
        before = self._index
        negative = self._take("NOT") is not None
        if word := self._take("CONTAINS", "STARTSWITH", "ENDSWITH"):
            return _text_test(left, self._string(), _TEXT_TESTS[word], not negative)
        if self._take("BETWEEN"):
            return self._between(left, negative, position)
        if self._take("IN"):
            return self._in(left, negative, position)
        self._index = before
        return None

    def _between(self, value: _Node, negative: bool, position: int) -> _Node:
        low = self.unary()
        self._expect("AND")
        high = self.unary()
        for operand in (value, low, high):
            self._check_ordered(operand, position)
        if not negative and low.is_constant and high.is_constant and _order(high.value, low.value) < 0:
            self.fail(f"BETWEEN {low.value} AND {high.value} can never hold: the lower value goes first;", position)
        if negative:
            return _joined([_ordered(value, low, "<"), _ordered(value, high, ">")], decisive=True)
        return _joined([_ordered(value, low, ">="), _ordered(value, high, "<=")], decisive=False)

    def _in(self, left: _Node, negative: bool, position: int) -> _Node:
        if left.kind != "property":
            self.fail("IN needs a property on its left", position)
        self._expect("(")
        members = {self._string()}
        while self._take(","):
            members.add(self._string())
        self._expect(")")
        frozen, evaluate = frozenset(members), left.evaluate

        def member(properties: Properties) -> object:
            value = evaluate(properties)
            return None if value is None else (value in frozen) is not negative

        return _Node("boolean", member)

    def unary(self) -> _Node:
        self._deeper()
        position = self.token.position
        if self._take("+"):
            node = self.unary()
        elif self._take("-"):
            node = _minus(self.unary())
        elif self._take("NOT"):
            node = _negated(self.as_boolean(self.unary()))
        elif self._take("("):
            node = self.any_of()
            self._expect(")")
        else:
            node = self._operand(position)
        self._depth -= 1
        return node

    def _operand(self, position: int) -> _Node:
        token = self.token
        if word := self._take("TRUE", "FALSE", "NULL"):
            value = {"TRUE": True, "FALSE": False, "NULL": None}[word]
            return _Node("boolean constant", lambda _: value, value)
        if token.kind == "string":
            return _constant(self._string())
        self._index += 1
        if token.kind == "whole":
            digits = token.text.rstrip("lL")
            # Python itself refuses to read thousands of digits.
            if len(digits) > DIGITS_MAX or int(digits) not in _INT64:
                self.fail(f"{digits[: DIGITS_MAX + 1]} does not fit into 64 bits", position)
            return _constant(int(digits))
        if token.kind == "float":
            if float(token.text) == float("inf"):
                self.fail(f"{token.text} is greater than any number", position)
            return _constant(float(token.text))
        if token.kind != "word":
            self._index -= 1
            self.fail(f"a value, a property or a condition expected, not {token.text!r}")
        name = token.text
        return _Node("property", lambda properties: properties.get(name))

    def _check_equal(self, left: _Node, right: _Node, position: int) -> None:
        for operand in (left, right):
            if operand.is_constant and operand.value is None:
                self.fail("= and <> never hold for NULL, write IS NULL or IS NOT NULL;", position)
        if left.kind == "boolean constant" and right.kind == "constant":
            self.fail(f"{left.value} can't be compared with {right.value!r}", position)

    def _check_ordered(self, operand: _Node, position: int) -> None:
        if operand.is_boolean or (operand.kind == "constant" and isinstance(operand.value, str)):
            self.fail("only numbers and properties have an order", position)


def _constant(value: object) -> _Node:
    return _Node("constant", lambda _: value, value)


def _joined(nodes: list[_Node], *, decisive: bool) -> _Node:
    """Returns OR (True decides) or AND (False decides) of any number of conditions.

    Unknown when nothing decides but one is.
    """
    evaluates = [node.evaluate for node in nodes]

    def join(properties: Properties) -> object:
        unknown = False
        for evaluate in evaluates:
            value = evaluate(properties)
            if value is decisive:
                return decisive
            if value is None:
                unknown = True
        return None if unknown else not decisive

    return _Node("boolean", join)


def _negated(node: _Node) -> _Node:
    evaluate = node.evaluate

    def negate(properties: Properties) -> object:
        value = evaluate(properties)
        return None if value is None else not value

    return _Node("boolean", negate)


def _minus(node: _Node) -> _Node:
    evaluate = node.evaluate

    def minus(properties: Properties) -> object:
        value = evaluate(properties)
        # Upstream negates numbers only: a property is text, so `-p` is unknown.
        return -value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return _Node("number", minus)


def _is_null(node: _Node, wanted: bool) -> _Node:
    evaluate = node.evaluate
    return _Node("boolean", lambda properties: (evaluate(properties) is None) is wanted)


def _equal(left: _Node, right: _Node) -> _Node:
    left_of, right_of = left.evaluate, right.evaluate

    def equal(properties: Properties) -> object:
        a, b = left_of(properties), right_of(properties)
        if a is None:
            return True if b is None else None
        return b is not None and _order(a, b) == 0

    return _Node("boolean", equal)


def _ordered(left: _Node, right: _Node, sign: str) -> _Node:
    left_of, right_of, holds = left.evaluate, right.evaluate, _ORDER_TESTS[sign]

    def ordered(properties: Properties) -> object:
        a, b = left_of(properties), right_of(properties)
        if a is None or b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):  # two properties: only as numbers
            a, b = _as_float(a), _as_float(b)
        return holds(_order(a, b))

    return _Node("boolean", ordered)


def _text_test(node: _Node, text: str, test: Callable[[str, str], bool], wanted: bool) -> _Node:
    evaluate = node.evaluate

    def tested(properties: Properties) -> object:
        value = evaluate(properties)
        return bool(text) and isinstance(value, str) and test(value, text) is wanted

    return _Node("boolean", tested)


def _order(a: object, b: object) -> int:
    """Returns a negative number, 0 or a positive one as a < b, a = b, a > b, after text took the other side's type."""
    if isinstance(a, str) and not isinstance(b, str):
        a = _as_type_of(b, a)
    elif isinstance(b, str) and not isinstance(a, str):
        b = _as_type_of(a, b)
    if isinstance(a, bool) is not isinstance(b, bool):
        return -1  # a condition and a number: different, as upstream says
    return int(a > b) - int(a < b)  # type: ignore[operator]


def _as_type_of(like: object, text: str) -> object:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return _as_float(text)
    if not _WHOLE.match(text):
        raise ValueError(f"{text!r} is no whole number")
    number = int(text) if len(text) <= DIGITS_MAX + 1 else 2**63
    # A literal within 32 bits makes upstream read the property as an Integer.
    if number not in (_INT32 if like in _INT32 else _INT64):
        raise ValueError(f"{text!r} is out of the range of the number it is compared with")
    return number


def _as_float(text: str) -> float:
    text = text.strip()
    if _FLOAT.match(text):
        return float(text.rstrip("fFdD"))
    raise ValueError(f"{text!r} is no number")
