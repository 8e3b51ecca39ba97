"""java.util.Properties text."""

import pytest

from tandemq.codec.properties import parse_properties, properties_of, properties_text
from tandemq.errors import MalformedBody

CASES = {
    "plain": ("a=b\n", [(1, "a", "b")]),
    "comments and blanks": ("# x\n ! y\n\n  a = b \n", [(4, "a", "b ")]),
    "separators": ("a:b\nc d\ne\t=\tf\ng", [(1, "a", "b"), (2, "c", "d"), (3, "e", "f"), (4, "g", "")]),
    "continuation": ("a=b\\\n   c\\\n d\ne=f", [(1, "a", "bcd"), (4, "e", "f")]),
    "even backslashes don't continue": ("a=b\\\\\nc=d", [(1, "a", "b\\"), (2, "c", "d")]),
    "escapes": ("a\\ b=\\u00e4\\t\\:x", [(1, "a b", "ä\t:x")]),
    "value with separators": ("a=b=c:d", [(1, "a", "b=c:d")]),
    "windows lines": ("a=b\r\nc=d\r\n", [(1, "a", "b"), (2, "c", "d")]),
    "only Java's line ends": ("a=b\u2028c\x0bd\re=f", [(1, "a", "b\u2028c\x0bd"), (2, "e", "f")]),
    "continuation at the end": ("a=b\\", [(1, "a", "b")]),
}


@pytest.mark.parametrize(("text", "entries"), CASES.values(), ids=CASES.keys())
def test_parse(text: str, entries: list[tuple[int, str, str]]) -> None:
    assert parse_properties(text) == entries


@pytest.mark.parametrize("text", ["a=\\u00e", "a=\\uzzzz"])
def test_broken_escapes_name_their_line(text: str) -> None:
    with pytest.raises(MalformedBody, match="line 2"):
        parse_properties("x=y\n" + text)


def test_bodies() -> None:
    assert properties_of(b"a=1\na=2\n") == {"a": "2"}
    assert properties_text({"b": 1, "a": "x"}) == b"a=x\nb=1\n"
    with pytest.raises(MalformedBody):
        properties_of(b"\xff=1")
