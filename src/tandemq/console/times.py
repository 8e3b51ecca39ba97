"""Times as people give them to the console: what a date field holds, an age, or milliseconds."""

import re
from datetime import UTC, datetime

from tandemq.errors import ClientError

_AGE = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)\Z")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS_MAX = 253_402_300_799_000
"""The end of the year 9999."""


def parse_time(text: str, now_ms: int) -> int:
    """Returns milliseconds since 1970; a time without offset is one of this console's machine."""
    given = text.strip()
    if given.isdecimal() and len(given) >= 10:
        value = int(given) if len(given) >= 13 else int(given) * 1000
        if value <= _MS_MAX:
            return value
    if age := _AGE.match(given):
        return max(0, now_ms - int(age[1]) * _UNITS_MS[age[2]])
    try:
        moment = datetime.fromisoformat(given)
        return int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ClientError(
            f"time {given[:40]!r}: 2026-05-01T10:00, an age such as 15m or 2h, or milliseconds since 1970 are expected"
        ) from None


def local_text(ms: int) -> str:
    """Returns a moment as a date field of a form holds it."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
