"""Prometheus' text format, written piece by piece.

A broker with thousands of topics and groups has a text of megabytes. `rendered` yields it in pieces of at most
PIECE_SAMPLES lines, so that whoever drives it can serve others between two pieces. A family's samples may be a
generator that does its work as it goes.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

from tandemq import __version__

PIECE_SAMPLES = 32
"""Lines of one piece: some tens of microseconds."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[tuple[str, ...], float]
"""Values of the family's labels, and the number."""


class Family(NamedTuple):
    """One metric with all its series. A counter's name ends in `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    samples: Iterable[Sample]
    labels: tuple[str, ...] = ()


def gauge(name: str, meaning: str, value: float) -> Family:
    """Returns a gauge without labels."""
    return Family(name, "gauge", meaning, [((), value)])


def counter(name: str, meaning: str, value: float) -> Family:
    """Returns a counter without labels; its name ends in `_total`."""
    return Family(name, "counter", meaning, [((), value)])


def build_info() -> Family:
    """Returns the series that says which version this is."""
    return Family("tandemq_build_info", "gauge", "Always 1; the version.", [((__version__,), 1)], ("version",))


def rendered(families: Iterable[Family]) -> Iterator[str]:
    """Yields the text of a scrape in pieces."""
    for family in families:
        yield f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind}\n"
        samples = iter(family.samples)
        while lines := [_line(family.name, family.labels, sample) for sample in islice(samples, PIECE_SAMPLES)]:
            yield "".join(lines)


def rendered_histogram(
    name: str, meaning: str, buckets: Iterable[tuple[str, int]], total_seconds: float
) -> Iterator[str]:
    """Yields a histogram without labels; `buckets` are (upper bound, cumulative count), the last bound is +Inf."""
    lines, count = [f"# HELP {name} {meaning}\n# TYPE {name} histogram\n"], 0
    for bound, count in buckets:
        lines.append(_line(f"{name}_bucket", ("le",), ((bound,), count)))
    lines.append(_line(f"{name}_count", (), ((), count)))
    lines.append(_line(f"{name}_sum", (), ((), total_seconds)))
    yield "".join(lines)


def _line(name: str, labels: tuple[str, ...], sample: Sample) -> str:
    values, number = sample
    if not labels:
        return f"{name} {number}\n"
    texts = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in zip(labels, values, strict=True))
    return f"{name}{{{texts}}} {number}\n"
