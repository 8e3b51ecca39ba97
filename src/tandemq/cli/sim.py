"""`tandemq sim`: the replicated group under simulated faults, many seeds or one with its trace."""

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Protocol

import typer

from tandemq.clock import SystemClock
from tandemq.errors import ConfigError
from tandemq.sim.coordinated import simulate_coordinated
from tandemq.sim.etcd_mutants import ETCD_MUTANTS
from tandemq.sim.mutants import MUTANTS
from tandemq.sim.report import SeedsReport
from tandemq.sim.simulator import simulate
from tandemq.sim.world import SimulationResult

REPORT_EVERY = 100
"""Seeds between two reports of a long run."""

app = typer.Typer(help="Run the replication simulator: seeded faults, checked promises.")


@app.callback(invoke_without_command=True)
def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from --first on.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Only this seed.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print what happened, event by event.")] = False,
    etcd: Annotated[bool, typer.Option("--etcd", help="A group with a coordinator, which fails too.")] = False,
    mutant: Annotated[str, typer.Option(help="Break this rule first: the run should then fail.")] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="A line for every seed, not only for broken ones.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write what was run and its outcome to this file.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the counts and the broken seeds, as JSON.")
    ] = False,
) -> None:
    """Prints every broken seed and one line at the end; exit code 1 if any promise was broken."""
    chosen = range(seed, seed + 1) if seed is not None else range(first, first + seeds)
    clock = SystemClock()
    began = clock.monotonic()
    sums = SeedsReport(chosen.start)
    with _silent(), _until_interrupted() as is_interrupted:  # then it tells of those that were run
        for result in _results(chosen, simulate_coordinated if etcd else simulate, trace, mutant):
            if trace and not as_json:
                print("\n".join(result.trace))
            if (result.violation or verbose or seed is not None) and not as_json:
                print(result.summary, flush=True)
            sums.add(result)
            if report is not None and sums.count % REPORT_EVERY == 0:
                _write(report, sums, etcd, mutant)
            if is_interrupted():
                break
    took, broken = clock.monotonic() - began, len(sums.broken)
    if as_json:
        told = {"first": chosen.start, "seeds": sums.count, "broken": sums.broken, "seconds": round(took, 1)}
        print(json.dumps(told))
    else:
        print(f"{sums.count} seeds, {broken} broken, {took:.1f} s ({sums.count / took * 60:.0f} seeds a minute)")
    if report is not None:
        _write(report, sums, etcd, mutant)
    if broken:
        print("tandemq sim: replay one with --seed N --trace", file=sys.stderr)
        raise typer.Exit(1)


def _write(report: Path, sums: SeedsReport, etcd: bool, mutant: str) -> None:
    """Writes what was run so far: whatever ends the process leaves that."""
    kind = "--etcd " if etcd else ""
    command = f"tandemq sim {kind}--first {sums.first} --seeds {sums.count} --report {report}"
    busy = sum(os.times()[:2])
    report.write_text(sums.text(command + (f" --mutant {mutant}" if mutant else ""), sums.count / busy * 60))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Logs nothing: what stores and state machines of the simulation say belongs to its trace."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Lets a seed end before Ctrl-C ends the run: in the middle of one the interrupt would look like a broken promise.

    A second one ends the process at once.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


class Run(Protocol):
    def __call__(self, seed: int, *, trace: bool) -> SimulationResult: ...


def _results(seeds: range, run: Run, trace: bool, mutant: str) -> Iterable[SimulationResult]:
    if not mutant:
        yield from (run(seed, trace=trace) for seed in seeds)
        return
    for known in (*MUTANTS, *ETCD_MUTANTS):
        if known.name == mutant:
            with known.active():
                yield from (run(seed, trace=trace) for seed in seeds)
            return
    raise ConfigError(f"--mutant {mutant}: known are {', '.join(known.name for known in (*MUTANTS, *ETCD_MUTANTS))}")
