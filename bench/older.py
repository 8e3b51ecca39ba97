"""The store's paths beside those of an older commit, in turn on the same machine.

    python -m bench.older 2923fc9 [--rounds 7]     processor time per message of both, and old / new for every path

A change of the store that is meant to change no speed is measured with this before it is merged: no ratio below 0.97.
The older commit is checked out into a temporary directory; each round is a process of its own that runs this same file
against one of the two trees, so it uses only what both have.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy  # noqa: F401  # what a store loads at its first use is in no sample

from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path(__file__).parents[1]
BODY = bytes(range(256)) * 4
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
MESSAGES = 40_000
RUN = 500
"""Messages of one sample of the paths that take many."""
PIECES = {"slave, 1 message": 1, "slave, 8 messages": 8, "slave, 64 messages": 64, "slave, 500 messages": RUN}
"""Messages that a slave gets in one frame, and dispatches after it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandemq-older-") as directory, both_trees(given.commit) as sides:
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(given.rounds):
            for side, source in sides.items():
                found[side].append(_measured(source, Path(directory)))
    print(f"{'path':<22}{'old µs':>9}{'new µs':>9}{'old/new':>9}")
    for path in found["new"][0]:
        old, new = (min(one[path] for one in found[side]) for side in sides)
        print(f"{path:<22}{old:>9.2f}{new:>9.2f}{old / new:>9.2f}")


@contextmanager
def both_trees(commit: str) -> Iterator[dict[str, Path]]:
    """Yields the sources of an older commit, checked out for a while, and of this tree."""
    with tempfile.TemporaryDirectory(prefix="tandemq-older-") as directory:
        older = Path(directory) / "tree"
        _git("worktree", "add", "--detach", str(older), commit)
        try:
            yield {"old": older / "src", "new": ROOT / "src"}
        finally:
            _git("worktree", "remove", "--force", str(older))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def _measured(source: Path, directory: Path) -> dict[str, float]:
    command = [sys.executable, __file__, str(directory / "store")]
    environment = {**os.environ, "PYTHONPATH": str(source), "TANDEMQ_OLDER_ROUND": "1"}
    output = subprocess.run(command, check=True, env=environment, cwd=directory, stdout=subprocess.PIPE).stdout
    return dict(json.loads(output))


# -- one round, against whichever tree is on the path


def one_round(directory: Path) -> dict[str, float]:
    """Returns microseconds of processor time per message of every path."""
    master = MessageStore.open(directory / "master", StoreConfig())
    figures: dict[str, list[float]] = {"append": [], "dispatch of many": [], "dispatch of one": []}
    ends = [0]
    for number in range(0, MESSAGES, RUN):
        texts = [_properties(number + i) for i in range(RUN)]
        began = time.process_time()
        for i, text in enumerate(texts):
            master.append("Bench", (number + i) % 8, 0, 0, 1_700_000_000_000, HOST, 0, 0, BODY, text)
        appended = time.process_time()
        master.dispatch(1 << 40)
        figures["append"].append((appended - began) / RUN)
        figures["dispatch of many"].append((time.process_time() - appended) / RUN)
        ends.append(master.appended)
    log = bytes(next(iter((directory / "master" / "commitlog").iterdir())).read_bytes()[: master.appended])
    for number in range(RUN):
        master.append("Bench", number % 8, 0, 0, 1_700_000_000_000, HOST, 0, 0, BODY, _properties(number))
        began = time.process_time()
        master.dispatch()
        figures["dispatch of one"].append(time.process_time() - began)
    master.abandon()
    size = ends[1] // RUN
    for path, count in PIECES.items():
        slave = MessageStore.open(directory / f"slave-{count}", StoreConfig())
        figures[path] = list(_followed(slave, log, count * size, count))
        slave.abandon()
    # The lower decile: a busy machine makes samples longer, never shorter.
    return {path: statistics.quantiles(samples, n=10)[0] * 1e6 for path, samples in figures.items()}


def _followed(slave: MessageStore, log: bytes, piece: int, count: int) -> Iterator[float]:
    frames = [log[at : at + piece] for at in range(0, min(len(log), 2000 * piece), piece)]
    together = max(1, 64 // count)
    for start in range(0, len(frames) - together + 1, together):
        began = time.process_time()
        for frame in frames[start : start + together]:
            slave.append_raw(slave.appended, frame)
            slave.dispatch()
        yield (time.process_time() - began) / (together * count)


def _properties(number: int) -> bytes:
    key = b"0A000001%04X18B4AAC2%08X%04X" % (1234, number // 50, number & 0xFFFF)
    return b"UNIQ_KEY\x01" + key + b"\x02WAIT\x01true\x02TAGS\x01TagA\x02"


if __name__ == "__main__":
    if "TANDEMQ_OLDER_ROUND" in os.environ:
        place = Path(sys.argv[1])
        print(json.dumps(one_round(place)))
        shutil.rmtree(place)
    else:
        main()
