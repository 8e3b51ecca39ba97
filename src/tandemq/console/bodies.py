"""Bodies made harmless and readable: as JSON, as text, as bytes. Pure.

Whatever a body holds, nothing of it becomes markup: everything is escaped here, control characters are shown as such,
and only so much is shown that a page stays a page.
"""

import json
from dataclasses import dataclass

from markupsafe import Markup, escape

from tandemq.printable import printable, printable_lines

SHOWN_MAX = 64 * 1024
"""Bytes of a body on a page; the rest can be downloaded."""
HEX_MAX = 8 * 1024
JSON_MAX = 1024 * 1024
"""A larger body is not parsed to be shown."""


@dataclass(frozen=True, slots=True)
class BodyView:
    html: Markup
    how: str
    """json, text or hex: what it is shown as."""
    shown: int
    size: int
    note: str = ""


def view(body: bytes, wanted: str) -> BodyView:
    """Returns a body as it was asked for, or as it can be: JSON that is none is text, text that is none is bytes."""
    note = ""
    if wanted == "json":
        parsed = _json(body)
        if parsed is not None:
            text, shown = parsed
            return BodyView(_coloured(text), "json", shown, len(body))
        note = "it is no JSON" if len(body) <= JSON_MAX else f"JSON of more than {JSON_MAX >> 20} MiB is not parsed"
    if wanted != "hex":
        cut = body[:SHOWN_MAX]
        try:
            text = cut.decode()
        except UnicodeDecodeError as error:
            # A character may be cut in two at the end; anything else is no text.
            if len(body) <= SHOWN_MAX or error.start < SHOWN_MAX - 4:
                return BodyView(_hex(body), "hex", min(len(body), HEX_MAX), len(body), "it is no UTF-8 text")
            text = cut[: error.start].decode()
        return BodyView(escape(printable_lines(text)), "text", min(len(body), SHOWN_MAX), len(body), note)
    return BodyView(_hex(body), "hex", min(len(body), HEX_MAX), len(body))


def summary(body: bytes, length: int = 80) -> str:
    """Returns the start of a body on one line."""
    text = body[: length * 2].decode("utf-8", "replace")
    return printable(text[:length]) + ("…" if len(text) > length or len(body) > length * 2 else "")


def _json(body: bytes) -> tuple[str, int] | None:
    if len(body) > JSON_MAX:
        return None
    try:
        found = json.loads(body)
        text = json.dumps(found, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return text[:SHOWN_MAX], len(body) if len(text) <= SHOWN_MAX else SHOWN_MAX


def _hex(body: bytes) -> Markup:
    lines = []
    for start in range(0, min(len(body), HEX_MAX), 16):
        part = body[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return escape("\n".join(lines))


def _coloured(text: str) -> Markup:
    """Returns pretty JSON with names, strings and numbers marked; every piece is escaped."""
    pieces: list[Markup] = []
    position, length = 0, len(text)
    while position < length:
        letter = text[position]
        end = position + 1
        if letter == '"':
            while end < length and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            end = min(length, end + 1)
            tag = "b" if text[end : end + 1] == ":" else "i"
        elif letter in "-0123456789":
            while end < length and text[end] in "0123456789.eE+-":
                end += 1
            tag = "u"
        else:
            while end < length and text[end] not in '"-0123456789':
                end += 1
            tag = ""
        piece = printable_lines(text[position:end])
        pieces.append(Markup("<{0}>{1}</{0}>").format(Markup(tag), piece) if tag else escape(piece))
        position = end
    return Markup("").join(pieces)
