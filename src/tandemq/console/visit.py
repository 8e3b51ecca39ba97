"""One request, as pages see it: who asks, over which link, and what the URL says, within bounds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request

from tandemq.console.links import Link
from tandemq.console.snapshot import Snapshot
from tandemq.errors import ClientError

if TYPE_CHECKING:
    from tandemq.console.app import Console

TEXT_MAX = 512
"""Characters of one value of a URL."""
FORM_MAX = 5 * 1024 * 1024
"""Bytes of a form: a message of 4 MiB and what comes with it."""
FIELDS_MAX = 1_200
"""Values of one form: a thousand selected dead letters and the rest."""
PAGE_SIZE = 50


@dataclass(slots=True)
class Visit:
    request: Request
    console: "Console"
    link: Link
    account: str
    """Signed in with; empty without access control."""
    token: str
    is_local: bool
    snapshot: Snapshot
    form: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def admin(self) -> Any:
        return self.link.admin

    @property
    def now_ms(self) -> int:
        return self.console.clock.wall_ms()

    @property
    def may_act(self) -> bool:
        """Whether acts are offered: to those signed in, or on this machine. The brokers decide about each."""
        return bool(self.account) or self.is_local

    @property
    def who(self) -> str:
        return self.account or "console"

    def text(self, name: str, default: str = "") -> str:
        """Returns a value of the URL, cut where no honest one would be longer."""
        return self.request.query_params.get(name, default)[:TEXT_MAX]

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Returns a number of the URL within bounds; what is none is the default."""
        try:
            return max(low, min(high, int(self.text(name, str(default)))))
        except ValueError:
            return default

    def choice(self, name: str, *allowed: str) -> str:
        """Returns a value of the URL that is one of these; the first if it is none."""
        given = self.text(name)
        return given if given in allowed else allowed[0]

    def part(self, name: str) -> str:
        """Returns a part of the path."""
        return str(self.request.path_params[name])

    def field(self, name: str, default: str = "") -> str:
        """Returns a value of the form."""
        values = self.form.get(name)
        return values[0] if values else default

    def whole(self, name: str, low: int, high: int) -> int:
        """Returns a number of the form; ClientError names field, value and limit."""
        given = self.field(name).strip()
        if not re.fullmatch(r"-?[0-9]{1,20}", given) or not low <= int(given) <= high:
            raise ClientError(f"{name}={given[:40]!r}: a whole number from {low} to {high} is expected")
        return int(given)

    def url(self, path: str = "", **changes: Any) -> str:
        """Returns this page's URL with some values changed; those of None and empty ones are left out."""
        values = {k: v for k, v in self.request.query_params.items() if k not in ("done",)} if not path else {}
        values |= changes
        kept = [(name, str(value)) for name, value in values.items() if value not in (None, "")]
        target = path or self.request.url.path.removeprefix("/live") or "/"
        return target + ("?" + urlencode(kept) if kept else "")


async def read_form(request: Request) -> dict[str, list[str]]:
    """Returns the values of a posted form, each field with all of its values; ClientError beyond the bounds."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX:
            raise ClientError(f"the form has more than {FORM_MAX:,} bytes; send large messages with `tandemq send`")
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise ClientError(f"the form has more than {FIELDS_MAX:,} fields or is no form: select fewer") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def segment(text: str) -> str:
    """Returns a name as one part of a path."""
    return quote(text, safe="")


_SYNTAX = frozenset("^$\\.*+?()[]{}|/")


def pattern(text: str) -> str:
    """Returns an HTML `pattern` that fits this text alone. Browsers ignore one with a needless escape in it."""
    return "".join(f"\\{letter}" if letter in _SYNTAX else letter for letter in text)


@dataclass(frozen=True, slots=True)
class Paged:
    """One page of a list."""

    items: tuple[Any, ...]
    number: int
    total: int
    size: int = PAGE_SIZE

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.total, self.number * self.size)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))


def paged(visit: Visit, items: list[Any], size: int = PAGE_SIZE) -> Paged:
    """Returns the page of a list that the URL asks for."""
    number = visit.number("page", 1, 1, max(1, -(-len(items) // size)))
    return Paged(tuple(items[(number - 1) * size : number * size]), number, len(items), size)
