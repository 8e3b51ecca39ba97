"""Text of others made safe to show: on a terminal and in a log it can neither move the cursor nor begin a line.

A name or a body may hold escape sequences that recolour a terminal, rewrite what was shown before or, in some
terminals, type for the user. Control characters, line separators and the marks that reverse the direction of text are
shown as escapes, the way Python writes them.
"""

_SHOWN_AS_ESCAPES = {
    *range(0x20), *range(0x7F, 0xA0),  # C0 and C1 controls
    0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # separators, directions
    0xFEFF,
}  # fmt: skip
_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _SHOWN_AS_ESCAPES}
_ESCAPES |= {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}  # lone surrogates can't be written at all
_ESCAPES |= {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def printable(text: str) -> str:
    """Returns the text with everything that is no visible character or blank as an escape."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """Returns the text like `printable` does, but lets lines and tabs stand: for bodies that are shown as a block."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in (*_SHOWN_AS_ESCAPES, *range(0xD800, 0xE000)) if code >= 0x7F}


def printable_json(text: str) -> str:
    """Returns JSON with everything invisible as an escape; those below a blank are escapes in JSON anyway."""
    return text if text.isascii() else text.translate(_JSON_ESCAPES)
