"""Runs every mutant: `python -m tandemq.sim.mutation --stories tests/scenario [--seeds 300]
[--report FILE] [NAME ...]`.

A broken rule is noticed by a story that is then told otherwise, or by a seed of the simulator that finds a promise
broken.  Prints which for each, and writes it to a file with `--report`; ends with 1 if one is not noticed.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tandemq.sim.mutants import MUTANTS, Mutant
from tandemq.sim.report import mutants_text
from tandemq.sim.scenario import essence_of, retold
from tandemq.sim.simulator import simulate


def noticed(mutant: Mutant, seeds: int, stories: Sequence[Path] = ()) -> str:
    """Returns who notices a mutant, and for a seed what; empty if nobody does."""
    with mutant.active():
        for path in stories:
            told = path.read_text()
            try:
                if essence_of(retold(told)) != essence_of(told):
                    return f"story {path.stem}"
            except AssertionError as error:
                return f"story {path.stem}: {error}"
        for seed in dict.fromkeys((mutant.seed, *range(seeds))) if seeds else ():
            violation = simulate(seed).violation
            if violation:
                return f"seed {seed}: {violation[:90]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tandemq.sim.mutation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds may look for each mutant")
    parser.add_argument("--stories", type=Path, help="a directory of stories, told first")
    parser.add_argument("--report", type=Path, help="write the outcome to this file")
    parser.add_argument("names", nargs="*", help="only these mutants")
    chosen = parser.parse_args(arguments)
    logging.disable()
    stories = sorted(chosen.stories.glob("*.txt")) if chosen.stories is not None else []
    outcomes = []
    for mutant in MUTANTS:
        if chosen.names and mutant.name not in chosen.names:
            continue
        found = noticed(mutant, chosen.seeds, stories)
        print(f"{mutant.name} ({mutant.breaks}): {found or 'NOT NOTICED'}", flush=True)
        outcomes.append((mutant.name, mutant.rule, mutant.breaks, found))
    survivors = [name for name, _, _, found in outcomes if not found]
    if chosen.report is not None:
        command = f"python -m tandemq.sim.mutation --stories {chosen.stories} --seeds {chosen.seeds}"
        chosen.report.write_text(mutants_text(command, outcomes))
    print(f"{len(survivors)} not noticed{': ' if survivors else ''}{', '.join(survivors)}")
    logging.disable(logging.NOTSET)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
