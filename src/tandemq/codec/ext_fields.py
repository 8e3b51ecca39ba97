"""Typed reading of a request's ext fields. A missing or unreadable field raises MalformedBody with its name.

Java answers such requests with SYSTEM_ERROR and an exception's text; a sentence helps more.
"""

from collections.abc import Mapping

from tandemq.errors import MalformedBody

Ext = Mapping[str, str]


def text(ext: Ext, name: str, default: str | None = None) -> str:
    """Returns the field, or `default`; without a default it must be there and not blank."""
    value = ext.get(name)
    if value:
        return value
    if default is None:
        raise MalformedBody(f"the request has no {name}")
    return default


def number(ext: Ext, name: str, default: int | None = None) -> int:
    """Returns a whole number of at most 64 bits; without a default it must be there."""
    value = ext.get(name)
    if value is None or value == "":
        if default is None:
            raise MalformedBody(f"the request has no {name}")
        return default
    try:
        found = int(value)
    except ValueError:
        raise MalformedBody(f"{name}={value[:40]!r}: a whole number was expected") from None
    if not -(2**63) <= found < 2**63:
        raise MalformedBody(f"{name}={value[:40]!r} does not fit in 64 bits")
    return found


def boolean(ext: Ext, name: str, default: bool = False) -> bool:
    """Returns True for `true` in any case, and for `1` as C++ sends it."""
    value = ext.get(name)
    return default if not value else value.lower() in ("true", "1")
