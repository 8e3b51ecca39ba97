"""The part of YAML that plain_acl.yml uses: nested mappings, lists and scalars by indentation.

Anything else (anchors, flow collections with content, block text, tabs, several documents) is refused with its line:
a file that decides who may read what is never guessed at.
"""

from typing import Any

from tandemq.errors import ConfigError

LINES_MAX = 100_000
INDENTATION_MAX = 64

_Line = tuple[int, int, str]
"""(number, indentation, content without comment)"""


def parse(text: str, name: str) -> Any:
    """Dicts, lists and scalars (str, bool, None; numbers stay text). ConfigError with file and line."""
    lines = _lines(text, name)
    if not lines:
        return {}
    value, rest = _block(lines, 0, lines[0][1], name)
    if rest < len(lines):
        raise _error(name, lines[rest], "unexpected indentation")
    return value


def _lines(text: str, name: str) -> list[_Line]:
    found: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if number > LINES_MAX:
            raise ConfigError(f"{name}: more than {LINES_MAX} lines")
        content = _without_comment(raw)
        if not content.strip() or content.strip() == "---":
            continue
        indentation = len(content) - len(content.lstrip(" "))
        if content[indentation] == "\t":
            raise _error(name, (number, 0, raw), "a tab: indent with spaces")
        if indentation > INDENTATION_MAX:
            raise _error(name, (number, 0, raw), f"indented by more than {INDENTATION_MAX}")
        found.append((number, indentation, content.strip()))
    return found


def _without_comment(line: str) -> str:
    quote = ""
    for position, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (position == 0 or line[position - 1] in " \t"):
            return line[:position].rstrip()
    return line.rstrip()


def _block(lines: list[_Line], at: int, indentation: int, name: str) -> tuple[Any, int]:
    return (_list if _is_item(lines[at][2]) else _mapping)(lines, at, indentation, name)


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _mapping(lines: list[_Line], at: int, indentation: int, name: str) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at][1] == indentation and not _is_item(lines[at][2]):
        line = lines[at]
        key, separator, value = line[2].partition(":")
        if not key.strip() or not separator or (value and value[0] != " "):
            raise _error(name, line, "`key: value` expected")
        key = str(_scalar(key.strip(), line, name))
        if key in found:
            raise _error(name, line, f"{key!r} is there twice")
        at += 1
        if value.strip():
            found[key] = _scalar(value.strip(), line, name)
        elif at < len(lines) and _is_below(lines[at], indentation):
            found[key], at = _block(lines, at, lines[at][1], name)
        else:
            found[key] = None
    return found, at


def _is_below(line: _Line, indentation: int) -> bool:
    """A value of the key above: deeper, or a list at the same depth, which YAML allows."""
    return line[1] > indentation or (line[1] == indentation and _is_item(line[2]))


def _list(lines: list[_Line], at: int, indentation: int, name: str) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(lines) and lines[at][1] == indentation and _is_item(lines[at][2]):
        number, _, content = lines[at]
        inner = content[1:].lstrip(" ")
        if not inner:
            raise _error(name, lines[at], "an empty list item")
        if _looks_like_mapping(inner):
            # The item's first key stands beside the dash; its other keys are indented as that key is.
            depth = indentation + len(content) - len(inner)
            lines[at] = (number, depth, inner)
            value, at = _mapping(lines, at, depth, name)
            found.append(value)
        else:
            found.append(_scalar(inner, lines[at], name))
            at += 1
    return found, at


def _looks_like_mapping(content: str) -> bool:
    return content[0] not in "\"'" and (content.endswith(":") or ": " in content)


def _scalar(text: str, line: _Line, name: str) -> Any:
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1]:
            raise _error(name, line, "a quoted text that does not end, or has quotes inside")
        if "\\" in text and text[0] == '"':
            raise _error(name, line, "escapes in quoted text are not supported")
        return text[1:-1]
    if text == "[]":
        return []
    if text == "{}":
        return {}
    if text[0] in "[{&*!|>%@`":
        raise _error(name, line, f"YAML's {text[0]!r} is not supported here; quote the text if it is meant literally")
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    return None if lowered in ("null", "~") else text


def _error(name: str, line: _Line, what: str) -> ConfigError:
    return ConfigError(f"{name}:{line[0]}: {what}: {line[2].strip()[:60]!r}")
