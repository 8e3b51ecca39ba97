"""Numbers as a page a person can open: inline SVG, no script, nothing loaded from anywhere. Pure text."""

import html
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 240, 64, 28

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --soft: #6b7280; --line: #e5e7eb; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --soft: #9ca3af; --line: #374151; --paper: #111827; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: var(--soft); }
svg { width: 100%; height: auto; } .key span { display: inline-block; margin-right: 1rem; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .3rem; }
"""


def page(title: str, subtitle: str, sections: Sequence[str]) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{html.escape(title)}</h1><p class="soft">{html.escape(subtitle)}</p>{"".join(sections)}</body></html>\n'
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return '<p class="soft">Nothing to show.</p>'
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(number(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


Point = tuple[int, float | None]
"""A time (ms since 1970) and a value; None interrupts the line."""


def lines(series: Mapping[str, Sequence[Point]], unit: str) -> str:
    """Returns a plot with a line per name over one axis of time; a single point is drawn as a dot."""
    shown = dict(list(series.items())[: len(_COLOURS)])
    values = [value for points in shown.values() for _, value in points if value is not None]
    times = [time for points in shown.values() for time, _ in points]
    top = max(values, default=0.0) or 1.0
    first, last = min(times, default=0), max(times, default=0)
    parts = [_axis(top, unit), _time_axis(first, last)]
    for (name, points), colour in zip(shown.items(), _COLOURS, strict=False):
        for run in _runs(points):
            placed = [(_x(time, first, last), _y(value, top)) for time, value in run]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"/>')
            parts += (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"><title>{html.escape(name)}: '
                f"{html.escape(number(float(value)))} {unit}, {time_text(time)}</title></circle>"
                for (x, y), (time, value) in zip(placed, run, strict=True)
            )
    return _svg("".join(parts)) + _key(list(shown))


def with_gaps(points: Sequence[tuple[int, float]], step: int, between: float | None) -> list[Point]:
    """Returns points `step` apart, with `between` where some are missing: at both ends of the gap, or once if None."""
    made: list[Point] = []
    for time, value in points:
        if made and time - made[-1][0] > step:
            before = made[-1][0]
            made.append((before + step, between))
            if between is not None and time - step > before + step:
                made.append((time - step, between))
        made.append((time, value))
    return made


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[int, float]]]:
    """Yields the runs of points without an interruption."""
    run: list[tuple[int, float]] = []
    for time, value in points:
        if value is not None:
            run.append((time, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def time_text(stamp_ms: int) -> str:
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _x(time: int, first: int, last: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - 10) * (time - first) / max(1, last - first)


def _time_axis(first: int, last: int) -> str:
    """Returns marks at equal distances in time, with their times."""
    if not last:
        return ""
    marks = 4 if last > first else 0
    parts = []
    for mark in range(marks + 1):
        time = first + (last - first) * mark // max(1, marks)
        x = _x(time, first, last)
        anchor = "start" if mark == 0 else "end" if mark == marks else "middle"
        text = time_text(time) if mark in (0, marks) else time_text(time)[11:]
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{_HEIGHT - _BOTTOM}" stroke="currentColor" opacity=".1"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}" font-size="11" fill="currentColor" '
            f'opacity=".7">{text}</text>'
        )
    return "".join(parts)


def bars(values: Sequence[tuple[str, float]], unit: str) -> str:
    """Returns horizontal bars, longest first."""
    if not values:
        return '<p class="soft">Nothing to show.</p>'
    top = max(value for _, value in values) or 1.0
    rows = []
    for n, (name, value) in enumerate(values):
        y, width = n * 24, (_WIDTH - 330) * value / top
        rows.append(
            f'<text x="200" y="{y + 16}" text-anchor="end" font-size="12" fill="currentColor">'
            f"{html.escape(name[:32])}</text>"
            f'<rect x="210" y="{y + 4}" width="{max(1.0, width):.1f}" height="16" rx="2" fill="{_COLOURS[0]}"/>'
            f'<text x="{216 + width:.1f}" y="{y + 16}" font-size="12" fill="currentColor">'
            f"{html.escape(number(value))} {unit}</text>"
        )
    return _svg("".join(rows), 24 * len(values) + 6)


def _svg(content: str, height: int = _HEIGHT) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" font-family="system-ui, sans-serif">{content}</svg>'


def _key(names: Sequence[str]) -> str:
    items = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for name, colour in zip(names, _COLOURS, strict=False)
    )
    return f'<p class="key soft">{items}</p>'


def _y(value: float, top: float) -> float:
    return 10 + (_HEIGHT - _BOTTOM - 10) * (1 - value / top)


def _axis(top: float, unit: str) -> str:
    parts = []
    for quarter in range(5):
        value = top * quarter / 4
        y = _y(value, top)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".15"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="11" fill="currentColor" opacity=".7">'
            f"{html.escape(number(float(value)))}</text>"
        )
    parts.append(f'<text x="{_LEFT}" y="9" font-size="11" fill="currentColor" opacity=".7">{html.escape(unit)}</text>')
    return "".join(parts)
