"""Small pieces of HTML that every template uses. All text in them is escaped here, and made visible first."""

from markupsafe import Markup

from tandemq.console import texts
from tandemq.printable import printable


def status(tone: str, word: object) -> Markup:
    """Returns a state: a shape, a colour and a word."""
    return Markup('<span class="status {}">{}</span>').format(tone, printable(str(word)))


def when(ms: int | None, now_ms: int, *, milliseconds: bool = False) -> Markup:
    """Returns a moment as people read it, with the full time for programs."""
    if not ms or ms <= 0:
        return Markup('<span class="muted">not known</span>')
    return Markup('<time datetime="{}">{}</time>').format(
        texts.iso(ms), texts.clock(ms, now_ms, milliseconds=milliseconds)
    )
