"""How a benchmark is described, run, summed up and kept; knows nothing of what is measured.

A benchmark has sides ("ours", "rocketmq-5.3.3", "ceiling"). A run goes round by round, each round asks every side once,
and each round begins with another side, so that a machine that slows down slows all of them. What counts is the median.
"""

import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench import memory

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
OURS = "ours"


class Unavailable(Exception):
    """A side that cannot be measured here, and why: it is left out, the reason is printed and kept."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one measured number means, and what we want it to be."""

    unit: str
    better: Literal["more", "less"] = "more"
    goal: float | None = None
    """Absolute goal for our median, in `unit`."""
    goal_ratio: float | None = None
    """Goal for our median / the best other side's median: at least this if more is better, else at most."""
    what: str = ""

    def best(self, values: list[float]) -> float:
        return max(values) if self.better == "more" else min(values)

    def reaches(self, value: float, goal: float) -> bool:
        return value >= goal if self.better == "more" else value <= goal


@dataclass(slots=True)
class Run:
    """What a side gets: how much to do, where to put files, and what `setup` made for all rounds."""

    scale: float
    directory: Path
    shared: Any = None
    round: int = 0

    def count(self, full: int, least: int = 1) -> int:
        """`full` things in a real run, fewer in a tiny one (--scale)."""
        return max(least, int(full * self.scale))


Side = Callable[[Run], Mapping[str, float]]
"""One measurement: the figures by name."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One line of `./run bench`. Put it into your module's `BENCHMARKS` dictionary under its short name."""

    what: str
    figures: Mapping[str, Figure]
    sides: Mapping[str, Side]
    """By name, ours first; the others are what we compare with: a peer, another way, the physical ceiling."""
    setup: Callable[[Run], AbstractContextManager[Any]] | None = None
    """Made once around all rounds (servers, files); what it yields is `run.shared`."""
    rounds: int = 5
    notes: str = ""
    takes_memory: bool = False
    """Each measurement writes so many new pages that it must not be the first to touch them: see memory.py."""


@dataclass(slots=True)
class Result:
    """Everything one run of a benchmark gave: samples[side][figure] = a number per round."""

    name: str
    benchmark: Benchmark
    scale: float
    rounds: int
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def median(self, side: str, figure: str) -> float | None:
        values = self.samples.get(side, {}).get(figure)
        return statistics.median(values) if values else None

    def spread(self, side: str, figure: str) -> float:
        """(largest - smallest) / median: how far to trust the median."""
        values = self.samples[side][figure]
        middle = statistics.median(values)
        return (max(values) - min(values)) / middle if middle else 0.0

    def ratio(self, figure: str) -> float | None:
        """Our median / the best other side's; None where there is nothing to compare with."""
        ours = self.median(OURS, figure)
        others = [m for side in self.samples if side != OURS and (m := self.median(side, figure)) is not None]
        if ours is None or not others:
            return None
        best = self.benchmark.figures[figure].best(others)
        return ours / best if best else None

    def verdict(self, figure: str) -> str:
        """ "met" or "missed" with the goal; "" where none was set."""
        f, ours, ratio = self.benchmark.figures[figure], self.median(OURS, figure), self.ratio(figure)
        sign = "≥" if f.better == "more" else "≤"
        said = []
        if f.goal is not None and ours is not None:
            said.append(f"{'met' if f.reaches(ours, f.goal) else 'missed'}: {sign} {number(f.goal)} {f.unit}")
        if f.goal_ratio is not None and ratio is not None:
            said.append(f"{'met' if f.reaches(ratio, f.goal_ratio) else 'missed'}: {sign} {f.goal_ratio} × the best")
        return ", ".join(said)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.benchmark.what,
            "notes": self.benchmark.notes,
            "taken": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "rounds": self.rounds,
            "scale": self.scale,
            "machine": machine(),
            "left_out": self.left_out,
            "figures": {
                name: {
                    "unit": f.unit,
                    "better": f.better,
                    "what": f.what,
                    "sides": {
                        side: {"median": self.median(side, name), "samples": samples[name]}
                        for side, samples in self.samples.items()
                        if name in samples
                    },
                    "ratio": self.ratio(name),
                    "verdict": self.verdict(name),
                }
                for name, f in self.benchmark.figures.items()
            },
        }


def run(name: str, benchmark: Benchmark, *, rounds: int | None = None, scale: float = 1.0) -> Result:
    """All rounds of one benchmark, the sides in turn."""
    result = Result(name, benchmark, scale, rounds or benchmark.rounds)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tandemq-bench-") as directory:
        task = Run(scale, Path(directory))
        with _shared(benchmark, task) as task.shared:
            for task.round in range(result.rounds):
                for side in _turn(list(benchmark.sides), task.round):
                    if side in result.left_out:
                        continue
                    if benchmark.takes_memory and scale >= 1:
                        memory.fill(task.directory)
                    _ask(result, task, side)
    result.seconds = time.monotonic() - began
    return result


def _turn(sides: list[str], round_number: int) -> list[str]:
    first = round_number % len(sides)
    return sides[first:] + sides[:first]


@contextlib.contextmanager
def _shared(benchmark: Benchmark, task: Run) -> Iterator[Any]:
    if benchmark.setup is None:
        yield None
    else:
        with benchmark.setup(task) as shared:
            yield shared


def _ask(result: Result, task: Run, side: str) -> None:
    try:
        figures = result.benchmark.sides[side](task)
    except Unavailable as reason:
        result.left_out[side] = str(reason)
        print(f"  {side} left out: {reason}", flush=True)
        return
    unknown = set(figures) - set(result.benchmark.figures)
    assert not unknown, f"{result.name}, {side}: figures without a description: {unknown}"
    kept = result.samples.setdefault(side, {})
    for name, value in figures.items():
        kept.setdefault(name, []).append(float(value))
    said = ", ".join(f"{n} {number(v)} {result.benchmark.figures[n].unit}" for n, v in figures.items())
    print(f"  round {task.round + 1}/{result.rounds} {side}: {said}", flush=True)


def number(value: float) -> str:
    """Three or four digits that matter, thousands separated."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def save(result: Result) -> Path:
    """bench/results/NAME.json, replacing the run before; tiny runs (scale < 1) stay out of the results."""
    folder = RESULTS if result.scale >= 1 else Path(tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    path.write_text(json.dumps(result.as_json(), indent=1, ensure_ascii=False) + "\n")
    return path


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int((_first_line("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "system": _release(),
        "python": platform.python_version() + (" of the distribution" if sys.base_prefix == "/usr" else ""),
        "load_1m": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def _first_line(path: str, key: str) -> str | None:
    with contextlib.suppress(OSError), open(path) as lines:
        for line in lines:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return None


def _release() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return sys.platform


def _commit() -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()
    return ""
