"""JSON as fastjson (Java) writes and reads it in bodies and config files.

Two things are not JSON: map keys that are not strings are written raw. Integer keys come without quotes
(`{0:"10.0.0.1:10911"}`), and a map keyed by MessageQueue has objects as keys (`{{"brokerName":"b",...}:{...}}`).
`loads` reads both (and ordinary JSON); unquoted integers become int keys, object keys become `ObjectKey`.
Members whose value is None are omitted on writing, as fastjson does. Output is compact: the Go client splits some
bodies as text and any blank breaks it.
"""

import json
import json.decoder
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tandemq.errors import MalformedBody

DEPTH_MAX = 64
"""Nesting we follow; the deepest real body has about six levels."""

_quoted = msgspec.json.Encoder().encode
_decode_strict = msgspec.json.Decoder().decode
_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_scan_string: Any = json.decoder.scanstring  # type: ignore[attr-defined]  # C, takes raw control characters
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


class ObjectKey(Mapping[str, Any]):
    """A JSON object used as the key of another: hashable, equal by content, read like a dict of scalars."""

    __slots__ = ("_fields", "_hash")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self._hash = hash(frozenset(self._fields.items()))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKey) and self._fields == other._fields

    def __repr__(self) -> str:
        return f"ObjectKey({self._fields})"


def loads(data: bytes | bytearray | memoryview | str, *, tolerant_size_max: int | None = None) -> Any:
    """Returns the value in `data`; raises MalformedBody with the place of the first mistake.

    `tolerant_size_max`: beyond so many bytes only JSON as the standard has it is read, which is a hundred times faster.
    """
    try:
        return _decode_strict(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if tolerant_size_max is not None and len(data) > tolerant_size_max:
            raise MalformedBody(
                f"a body of {len(data)} bytes is no strict JSON ({error}); up to {tolerant_size_max} bytes fastjson's "
                "own dialect is read too"
            ) from None
        # Not strict JSON: the tolerant parser decides.
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is no UTF-8: {error}") from None
    value, position = _value(text, _skip(text, 0), 0)
    if _skip(text, position) != len(text):
        raise MalformedBody(f"JSON body: unexpected text at character {position}: {text[position : position + 20]!r}")
    return value


def _skip(text: str, position: int) -> int:
    return _BLANK.match(text, position).end()  # type: ignore[union-attr]  # the pattern matches nothing too


def _value(text: str, position: int, depth: int) -> tuple[Any, int]:
    start = text[position : position + 1]
    if start == '"':
        return _string(text, position)
    if start in ("{", "["):
        if depth >= DEPTH_MAX:
            raise MalformedBody(f"JSON body nested deeper than {DEPTH_MAX} levels at character {position}")
        return (_object if start == "{" else _array)(text, position + 1, depth + 1)
    number = _NUMBER.match(text, position)
    if number:
        return _number(number), number.end()
    word = _WORD.match(text, position)
    if word and word.group() in _CONSTANTS:
        return _CONSTANTS[word.group()], word.end()
    raise MalformedBody(f"JSON body: a value was expected at character {position}: {text[position : position + 20]!r}")


def _number(match: re.Match[str]) -> int | float:
    text = match.group()
    if match.group(1) or match.group(2):
        return float(text)
    if len(text) > 40:
        raise MalformedBody(f"JSON body: a number of {len(text)} digits, 40 are the limit")
    return int(text)


def _string(text: str, position: int) -> tuple[str, int]:
    try:
        found: tuple[str, int] = _scan_string(text, position + 1, False)
    except ValueError as error:
        raise MalformedBody(f"JSON body: {error}") from None
    if not found[0].isascii():
        check_text(found[0], position)
    return found


def check_text(text: str, position: int = 0) -> None:
    """Raises MalformedBody for half of a UTF-16 pair, which JSON can spell and nothing can write again."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedBody(
            f"JSON text at character {position}: \\u{ord(text[error.start]):04x} is half of a pair without the other"
        ) from None


def _key(text: str, position: int, depth: int) -> tuple[Any, int]:
    start = text[position : position + 1]
    if start == '"':
        return _string(text, position)
    if start == "{":
        fields, position = _value(text, position, depth)
        try:
            return ObjectKey(fields), position
        except TypeError:
            raise MalformedBody(f"JSON body: an object key with nested values before character {position}") from None
    number = _NUMBER.match(text, position)
    if number:
        key = _number(number)
        if isinstance(key, float):
            raise MalformedBody(f"JSON body: {number.group()[:40]} at character {position} can't be a member name")
        return key, number.end()
    word = _WORD.match(text, position)
    if word:
        return word.group(), word.end()
    raise MalformedBody(f"JSON body: a member name was expected at character {position}")


def _object(text: str, position: int, depth: int) -> tuple[dict[Any, Any], int]:
    found: dict[Any, Any] = {}
    position = _skip(text, position)
    if text[position : position + 1] == "}":
        return found, position + 1
    while True:
        key, position = _key(text, _skip(text, position), depth)
        position = _expect(text, _skip(text, position), ":")
        found[key], position = _value(text, _skip(text, position), depth)
        position = _skip(text, position)
        if text[position : position + 1] == "}":
            return found, position + 1
        position = _expect(text, position, ",")


def _array(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    position = _skip(text, position)
    if text[position : position + 1] == "]":
        return found, position + 1
    while True:
        value, position = _value(text, _skip(text, position), depth)
        found.append(value)
        position = _skip(text, position)
        if text[position : position + 1] == "]":
            return found, position + 1
        position = _expect(text, position, ",")


def _expect(text: str, position: int, wanted: str) -> int:
    if text[position : position + 1] != wanted:
        raise MalformedBody(f"JSON body: {wanted!r} was expected at character {position}")
    return position + 1


def dumps(value: Any) -> bytes:
    """Returns compact JSON; integer keys are quoted (standard), object keys stay objects (Java reads nothing else)."""
    try:
        # Ten times faster, and right for every body without object keys and without members to leave out: the topic
        # table of a big broker would stop its loop for a tenth of a second otherwise.
        standard = _quoted(value)
        if b"null" not in standard:
            return standard
    except TypeError:
        pass  # an object key
    parts: list[str] = []
    _write(value, parts, quote_numbers=True)
    return "".join(parts).encode()


def dumps_unquoted(value: Any) -> bytes:
    """Returns compact JSON with integer keys without quotes: fastjson's default output."""
    parts: list[str] = []
    _write(value, parts, quote_numbers=False)
    return "".join(parts).encode()


def dumps_pretty(value: Any) -> bytes:
    """Returns JSON as RocketMQ writes its config files: one member a line, tabs, integer keys without quotes."""
    parts: list[str] = []
    _write_pretty(value, parts, "\n")
    return "".join(parts).encode()


def _write(value: Any, parts: list[str], quote_numbers: bool) -> None:
    if isinstance(value, Mapping):
        before = "{"
        for key, member in value.items():
            if member is None:
                continue
            parts.append(f"{before}{_key_text(key, quote_numbers)}:")
            _write(member, parts, quote_numbers)
            before = ","
        parts.append("}" if before == "," else "{}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        before = "["
        for member in value:
            parts.append(before)
            _write(member, parts, quote_numbers)
            before = ","
        parts.append("]" if before == "," else "[]")
    else:
        parts.append(_scalar_text(value))


def _write_pretty(value: Any, parts: list[str], line: str) -> None:
    inner = line + "\t"
    if isinstance(value, Mapping):
        before = "{" + inner
        for key, member in value.items():
            if member is None:
                continue
            parts.append(f"{before}{_key_text(key, False)}:")
            _write_pretty(member, parts, inner)
            before = "," + inner
        parts.append(f"{line}}}" if before[0] == "," else "{}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        before = "[" + inner
        for member in value:
            parts.append(before)
            _write_pretty(member, parts, inner)
            before = "," + inner
        parts.append(f"{line}]" if before[0] == "," else "[]")
    else:
        parts.append(_scalar_text(value))


def _key_text(key: Any, quote_numbers: bool) -> str:
    if isinstance(key, str):
        return _quoted(key).decode()
    if isinstance(key, Mapping):
        return dumps_unquoted(key).decode()
    if isinstance(key, int):
        return f'"{int(key)}"' if quote_numbers else str(int(key))
    raise TypeError(f"a {type(key).__name__} can't be a JSON key")


def _scalar_text(value: Any) -> str:
    if isinstance(value, float) and not isinstance(value, bool):
        return json.dumps(value)
    return _quoted(value).decode()
