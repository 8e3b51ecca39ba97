"""java.util.Properties text: broker.conf, namesrv.conf and the bodies of UPDATE_*_CONFIG and GET_*_CONFIG.

Comments begin with # or !; the key ends at the first unescaped =, : or blank; a line that ends in an odd number of
backslashes continues; \\t \\n \\r \\f \\uXXXX are escapes, any other escaped character stands for itself.
"""

import re
from collections.abc import Iterable, Mapping

from tandemq.errors import MalformedBody

_LINE_END = re.compile(r"\r\n|\r|\n")
"""Java's; Python's splitlines() knows more of them."""


def parse_properties(text: str) -> list[tuple[int, str, str]]:
    """Returns (line number, key, value) of every entry, in order; a key written twice counts with its last value."""
    entries = []
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            entries.append((number, _unescape(key), _unescape(value)))
        except ValueError:
            raise MalformedBody(f"line {number}: \\u must be followed by four hex digits") from None
    return entries


def properties_of(body: bytes | memoryview) -> dict[str, str]:
    """Returns the properties in a request's body; raises MalformedBody when it is no text."""
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the properties are no UTF-8: {error}") from None
    return {key: value for _, key, value in parse_properties(text)}


def properties_text(properties: Mapping[str, object]) -> bytes:
    """Returns `key=value` lines in order of the keys, as GET_BROKER_CONFIG answers them."""
    return "".join(f"{key}={value}\n" for key, value in sorted(properties.items())).encode()


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yields (number of its first line, text) of every line with content; a line that ends in a single \\ continues."""
    pending: list[str] = []
    start = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending.append(line[:-1])
            continue
        yield start, "".join((*pending, line))
        pending.clear()
    if pending:
        yield start, "".join(pending)


def _split(line: str) -> tuple[str, str]:
    """Returns key and value: the key ends at the first unescaped =, : or blank."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:position], rest


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    found = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position >= len(text):
            found.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4:
                raise ValueError(digits)
            found.append(chr(int(digits, 16)))
            position += 4
        else:
            found.append(_ESCAPES.get(escaped, escaped))
    return "".join(found)
