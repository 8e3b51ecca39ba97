"""Runs every mutant: `python -m tandemq.sim.mutation --stories tests/scenario --tests tests/unit/replication
[--seeds 300] [--etcd] [--report FILE] [NAME ...]`.

A broken rule is noticed by a story that is then told otherwise, by a unit test that then fails, or by a seed of the
simulator that finds a promise broken.  Prints which for each, and writes it to a file with `--report`; ends with 1 if
one is not noticed.
"""

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tandemq.sim.coordinated import simulate_coordinated
from tandemq.sim.etcd_mutants import ETCD_MUTANTS
from tandemq.sim.mutants import MUTANTS, Mutant
from tandemq.sim.report import mutants_text
from tandemq.sim.scenario import essence_of, retold
from tandemq.sim.simulator import simulate, simulate_with
from tandemq.sim.world import SimulationResult

MUTANT_VARIABLE: Final = "TANDEMQ_MUTANT"
"""Names the rule to break to a run of the tests; see tests/conftest.py."""


def noticed(mutant: Mutant, seeds: int, stories: Sequence[Path] = (), tests: Sequence[Path] = ()) -> str:
    """Returns who notices a mutant, and for a seed what; empty if nobody does."""
    with mutant.active():
        for path in stories:
            told = path.read_text()
            try:
                if essence_of(retold(told)) != essence_of(told):
                    return f"story {path.stem}"
            except AssertionError as error:
                return f"story {path.stem}: {error}"
    failed = _failed_test(mutant, tests) if tests else ""
    if failed:
        return f"test {failed}"
    run = _run_of(mutant)
    with mutant.active():
        for seed in dict.fromkeys((mutant.seed, *range(seeds))) if seeds else ():
            violation = run(seed).violation
            if violation:
                return f"seed {seed}: {violation[:90]}"
    return ""


def _run_of(mutant: Mutant) -> Callable[[int], SimulationResult]:
    """Returns what runs the seeds that are to notice a mutant."""
    if mutant in ETCD_MUTANTS:
        return simulate_coordinated
    return simulate if mutant.beside is None else partial(simulate_with, mutant.beside)


def _failed_test(mutant: Mutant, tests: Sequence[Path]) -> str:
    """Returns the first of the tests that fails while a rule is broken; empty if all pass.

    In a process of its own, whose conftest breaks the rule before any test imports what it tests.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rf", *map(str, tests)],
        env={**os.environ, MUTANT_VARIABLE: mutant.name},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode == 0:
        return ""
    found = [line.split(" ")[1] for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    if not found:
        raise RuntimeError(f"the tests could not be run with {mutant.name}: {ran.stdout}{ran.stderr}")
    return found[0].rpartition("/")[2]


def _command(chosen: argparse.Namespace) -> str:
    """Returns the command that makes this report."""
    command = "python -m tandemq.sim.mutation"
    command += " --etcd" if chosen.etcd else ""
    command += f" --stories {chosen.stories}" if chosen.stories is not None else ""
    command += f" --tests {' '.join(map(str, chosen.tests))}" if chosen.tests else ""
    return f"{command} --seeds {chosen.seeds} --report {chosen.report}" + "".join(f" {name}" for name in chosen.names)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tandemq.sim.mutation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds may look for each mutant")
    parser.add_argument("--stories", type=Path, help="a directory of stories, told first")
    parser.add_argument("--tests", type=Path, nargs="+", default=[], help="unit tests, run after the stories")
    parser.add_argument("--etcd", action="store_true", help="the rules of a group with a coordinator, by its simulator")
    parser.add_argument("--report", type=Path, help="write the outcome to this file")
    parser.add_argument("names", nargs="*", help="only these mutants")
    chosen = parser.parse_args(arguments)
    logging.disable()
    stories = sorted(chosen.stories.glob("*.txt")) if chosen.stories is not None else []
    outcomes = []
    for mutant in ETCD_MUTANTS if chosen.etcd else MUTANTS:
        if chosen.names and mutant.name not in chosen.names:
            continue
        found = noticed(mutant, chosen.seeds, stories, chosen.tests)
        print(f"{mutant.name} ({mutant.breaks}): {found or 'NOT NOTICED'}", flush=True)
        outcomes.append((mutant.name, mutant.rule, mutant.breaks, found))
        if chosen.report is not None:  # whatever ends the run leaves what it found
            chosen.report.write_text(mutants_text(_command(chosen), outcomes))
    survivors = [name for name, _, _, found in outcomes if not found]
    print(f"{len(survivors)} not noticed{': ' if survivors else ''}{', '.join(survivors)}")
    logging.disable(logging.NOTSET)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
