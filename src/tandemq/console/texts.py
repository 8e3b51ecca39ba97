"""How numbers and times are written on the pages. Pure.

Thousands have commas, sizes three digits, durations two units at most. What is not known is "not known", never 0.
"""

from datetime import UTC, datetime

NOT_KNOWN = "not known"
_SPACE = "\u00a0"
"""Joins a number and its unit, so that no line ends between them."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: float | None) -> str:
    """Returns a whole number with commas; one of less than 10 that is not whole has one digit more."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, float) and not value.is_integer() and abs(value) < 10:
        return f"{value:.1f}"
    return f"{round(value):,}"


def size(value: float | None) -> str:
    """Returns bytes in the unit that leaves at most three digits before the point."""
    if value is None:
        return NOT_KNOWN
    left, unit = float(value), "B"
    for unit in _UNITS:
        if abs(left) < 1000 or unit == _UNITS[-1]:
            break
        left /= 1024
    if unit == "B":
        return f"{int(left)}{_SPACE}B"
    digits = 2 if abs(left) < 10 else 1 if abs(left) < 100 else 0
    if left.is_integer():
        digits = 0
    return f"{left:.{digits}f}{_SPACE}{unit}"


def rate(value: float | None) -> str:
    """Returns bytes a second in MB/s, or kB/s below a tenth of one."""
    if value is None:
        return NOT_KNOWN
    if 0 < value < 100_000:
        return f"{value / 1000:.1f}{_SPACE}kB/s"
    return f"{value / 1e6:.1f}{_SPACE}MB/s"


def duration(milliseconds: float | None) -> str:
    """Returns `850 ms`, `1.9 s`, `48 s`, `4 min 12 s`, `2 d 23 h`."""
    if milliseconds is None:
        return NOT_KNOWN
    ms = max(0.0, float(milliseconds))
    if ms < 1000:
        return f"{int(ms)}{_SPACE}ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}{_SPACE}s"
    whole = int(seconds)
    for length, unit, lower, lower_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= length:
            rest = whole % length // lower
            return f"{whole // length}{_SPACE}{unit}" + (f" {rest}{_SPACE}{lower_unit}" if rest else "")
    return f"{whole}{_SPACE}s"


def distance(value: int | None, end: int | None) -> str:
    """Returns how far before the end a place of the log is."""
    if value is None or end is None:
        return NOT_KNOWN
    return "end" if value >= end else f"−{size(end - value)}"


def clock(ms: int | None, now_ms: int, *, milliseconds: bool = False) -> str:
    """Returns the local time of today, or day and time of an older moment."""
    if not ms or ms <= 0:
        return NOT_KNOWN
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms since 1970"  # a hostile timestamp is no date
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
    if moment.date() == today:
        return moment.strftime("%H:%M:%S") + (f".{ms % 1000:03d}" if milliseconds else "")
    shown = "%-d %b %H:%M" if moment.year == today.year else "%-d %b %Y %H:%M"
    return moment.strftime(shown)


def iso(ms: int | None) -> str:
    """Returns the full time with its offset, for `datetime` attributes and the API; empty if there is none."""
    if not ms or ms <= 0:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ""


def plural(number: float, one: str, many: str = "") -> str:
    """Returns `1 slave`, `2 slaves`."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
