"""Pairs of brokers beside those of an older commit, in turn on the same machine.

    python -m bench.older_pair 713984a                              all of them, three rounds each
    python -m bench.older_pair 713984a --rounds 5 --scale 0.2 replication.sync pair.catch-up

A change of replication that is meant to change no speed is measured with this: no ratio below 0.95. The benchmarks are
those of `pair` and `replication`, of which only our own side runs; each round starts brokers of one of the two trees.
A ratio above 1 says that the new tree is the better one, whichever way the figure goes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import pair, replication
from bench.frame import OURS, Figure, Run
from bench.older import both_trees

ROOT = Path(__file__).parents[1]
Side = Callable[[Run], Mapping[str, float]]

MEASURED: dict[str, tuple[Mapping[str, Figure], Side]] = {
    **{
        f"pair.{name}": (pair.BENCHMARKS[name].figures, pair.BENCHMARKS[name].sides[OURS])
        for name in ("sync", "sync-flush", "catch-up")
    },
    "replication.sync": (
        replication.BENCHMARKS["sync-price"].figures,
        replication.BENCHMARKS["sync-price"].sides[OURS],
    ),
    "replication.async": (
        replication.BENCHMARKS["sync-price"].figures,
        replication.BENCHMARKS["sync-price"].sides["ASYNC_MASTER"],
    ),
    "replication.catch-up": (
        replication.BENCHMARKS["catch-up"].figures,
        replication.BENCHMARKS["catch-up"].sides[OURS],
    ),
    "replication.many-slaves": (
        replication.BENCHMARKS["many-slaves"].figures,
        replication.BENCHMARKS["many-slaves"].sides[OURS],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("names", nargs="*", default=[], help=", ".join(MEASURED))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_intermixed_args()
    names = given.names or list(MEASURED)
    if unknown := set(names) - MEASURED.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MEASURED)}")
    with tempfile.TemporaryDirectory(prefix="tandemq-older-") as directory, both_trees(given.commit) as sides:
        print(f"{'figure':<34}{'unit':<14}{'old':>10}{'new':>10}{'ratio':>8}  spread", flush=True)
        for name in names:
            found: dict[str, list[Mapping[str, float]]] = {side: [] for side in sides}
            for number in range(given.rounds):
                for side in sorted(sides, reverse=number % 2 == 1):
                    found[side].append(_measured(name, sides[side], Path(directory), given.scale))
            _show(name, found)


def _measured(name: str, source: Path, directory: Path, scale: float) -> Mapping[str, float]:
    command = [sys.executable, __file__, name, str(directory), str(scale)]
    path = os.pathsep.join([str(source), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "TANDEMQ_OLDER_ROUND": "1"}
    output = subprocess.run(command, check=True, env=environment, cwd=ROOT, stdout=subprocess.PIPE).stdout
    return dict(json.loads(output.splitlines()[-1]))


def _show(name: str, found: Mapping[str, list[Mapping[str, float]]]) -> None:
    for figure, told in MEASURED[name][0].items():
        samples = {side: [one[figure] for one in rounds if figure in one] for side, rounds in found.items()}
        if not all(samples.values()) or figure.endswith("alone"):
            continue
        old, new = (statistics.median(samples[side]) for side in ("old", "new"))
        ratio = new / old if told.better == "more" else old / new
        spread = max((max(values) - min(values)) / statistics.median(values) for values in samples.values())
        print(
            f"{name + ' ' + figure:<34}{told.unit:<14}{old:>10.4g}{new:>10.4g}{ratio:>8.2f}  {spread:.0%}", flush=True
        )


def one_round(name: str, directory: Path, scale: float) -> Mapping[str, float]:
    """Measures the tree that is on the path once."""
    return MEASURED[name][1](Run(scale, directory))


if __name__ == "__main__":
    if "TANDEMQ_OLDER_ROUND" in os.environ:
        print(json.dumps(one_round(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
    else:
        main()
