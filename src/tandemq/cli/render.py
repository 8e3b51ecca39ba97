"""How commands print: tables for people, `--json` for programs, progress on stderr.

JSON is a contract: a list command prints one array of flat objects, a follow command one object a line; names are
stable, numbers are numbers, times are milliseconds since 1970 (`…Ms`) as RocketMQ stores them.
"""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tandemq.cli.connection import DEFAULT_NAMESRV, client_config
from tandemq.client.admin import Admin
from tandemq.clock import SystemClock
from tandemq.errors import ClientError
from tandemq.printable import printable, printable_json, printable_lines

T = TypeVar("T")
Row = Mapping[str, Any]

__all__ = ["DEFAULT_NAMESRV", "client_config"]  # commands import them from here, with the options below

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv",
        "-n",
        envvar="NAMESRV_ADDR",
        help="Name servers, host:port separated by ; (default: the context, a local cluster, or 127.0.0.1:9876).",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine; Ctrl-C ends it at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def with_admin(namesrv: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Runs one piece of work with an Admin client."""

    async def inside() -> T:
        async with Admin(config=client_config(namesrv)) as admin:
            return await work(admin)

    return run(inside())


def stop_event() -> asyncio.Event:
    """Returns an event that Ctrl-C or TERM sets, for commands that finish what they are at."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


def show(rows: Iterable[Row], columns: Mapping[str, str], *, as_json: bool, title: str = "", empty: str = "") -> None:
    """Prints rows as a table with these columns (key -> heading), or as a JSON array with every key."""
    rows = list(rows)
    if as_json:
        print_json(rows)
        return
    if not rows:
        note(empty or "nothing found")
        return
    table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for key, heading in columns.items():
        numeric = all(isinstance(row.get(key), (int, float)) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(cell(key, row.get(key)) for key in columns))
    _console().print(table)


def show_one(row: Row, *, as_json: bool) -> None:
    """Prints one thing: a line for each field, or one JSON object."""
    if as_json:
        print_json(row)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in row.items():
        table.add_row(key, cell(key, value))
    _console().print(table)


Raw = Annotated[bool, typer.Option("--raw", help="Print the body's own bytes, whatever they do to a terminal.")]


def print_bytes(body: bytes) -> None:
    """Prints a body as it is, and a line end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def print_outcome(outcome: str, *, as_json: bool, **of: str) -> None:
    """Prints what an order came to: a sentence, or with what it was about as JSON."""
    if as_json:
        print_json({**of, "outcome": outcome})
    else:
        print(outcome)


def print_json_line(value: Any) -> None:
    print(json_text(value), flush=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """Returns JSON that moves no cursor: what is not visible is escaped, as JSON escapes it."""
    return printable_json(json.dumps(value, ensure_ascii=False, indent=indent))


def cell(key: str, value: Any) -> str:
    """Returns a value as people read it: times as times, lists joined, None as nothing, control characters escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("Ms") and isinstance(value, int):
        return time_text(value)
    if isinstance(value, (list, tuple)):
        return printable(", ".join(str(item) for item in value))
    if isinstance(value, Mapping):
        return printable(", ".join(f"{name}={item}" for name, item in value.items()))
    if isinstance(value, float):
        return f"{value:.1f}"
    return printable(str(value)).replace("[", "\\[")


def note(text: str) -> None:
    """Prints a line on stderr, for the person at the terminal."""
    print(printable_lines(text), file=sys.stderr)


def _console() -> Console:
    """Returns a console as wide as the terminal; in a file or a pipe nothing is wrapped or coloured."""
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, soft_wrap=not sys.stdout.isatty())


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr while long work runs; yields the function that says how much more is done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda more: bar.advance(task, more)


def time_text(ms: int) -> str:
    """Returns the local time with milliseconds; nothing for 0, which means never."""
    if ms <= 0:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")


_AGO = re.compile(r"(\d+)\s*(ms|s|m|h|d)(\s+ago)?\Z")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str) -> int:
    """Returns milliseconds since 1970 of `2026-05-01 10:00`, `1767225600000`, or `15m` (that long ago)."""
    text = text.strip()
    if text.isdecimal() and len(text) >= 10:
        return int(text) if len(text) >= 13 else int(text) * 1000
    ago = _AGO.match(text)
    if ago:
        return SystemClock().wall_ms() - int(ago.group(1)) * _UNITS_MS[ago.group(2)]
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ClientError(
            f"time {text!r}: give 2026-05-01 or 2026-05-01T10:00:00, milliseconds since 1970, or an age as 15m, 2h, 1d"
        ) from None
    return int((when if when.tzinfo else when.astimezone()).timestamp() * 1000)


def parse_pairs(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Parses `name=value` arguments."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise ClientError(f"{what} {pair!r}: name=value expected")
        found[name] = value
    return found
